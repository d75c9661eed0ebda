"""The trace context of a caller, and the export of spans where it is configured."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from fingerpost.errors import ConfigError
from fingerpost.events import Fanout
from fingerpost.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MAX_TRACE_HEADER_LENGTH: Final = 1_000  # characters of either

_carrier_variable: ContextVar[Mapping[str, str] | None] = ContextVar("fingerpost_trace", default=None)


def get_trace_carrier() -> Mapping[str, str] | None:
    """What the caller of this task sent along; None where nothing came."""
    return _carrier_variable.get()


@contextmanager
def use_trace_carrier(carrier: Mapping[str, object]) -> Generator[None]:
    """What happens in the block happens for a caller who sent these headers (or this `_meta`)."""
    parent = carrier.get(TRACEPARENT)
    if not isinstance(parent, str) or len(parent) > MAX_TRACE_HEADER_LENGTH:
        yield
        return
    state = carrier.get(TRACESTATE)
    kept = {TRACEPARENT: parent}
    if isinstance(state, str) and len(state) <= MAX_TRACE_HEADER_LENGTH:
        kept[TRACESTATE] = state
    token = _carrier_variable.set(kept)
    try:
        yield
    finally:
        _carrier_variable.reset(token)


logger = logging.getLogger("fingerpost.telemetry")

EXPORT_TIMEOUT_S: Final = 5.0  # for one batch of spans; also at the end
_ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TRACES_PATH: Final = "/v1/traces"
_INSTALL_HINT: Final = "pip install 'fingerpost[otel]'"


@asynccontextmanager
async def open_spans(
    settings: Settings,
    events: Fanout,
    *,
    transport_of: Callable[[str], str | None] = lambda _: None,
    environment: Mapping[str, str] | None = None,
) -> AsyncGenerator[bool]:
    """Trace what is told to `events`, where somebody wants spans; whether that is so.

    `transport_of` says how a server is connected. Leaving the block sends the spans that are left.
    Raises `ConfigError` where spans are wanted and what sends them is not installed.
    """
    provider = await _open_provider(settings, os.environ if environment is None else environment)
    if provider is None:
        yield False
        return
    from fingerpost.telemetry.spans import SpanSink

    spans = SpanSink(
        provider.get_tracer("fingerpost"),
        content=settings.telemetry.content,
        providers=_map_model_providers(settings),
        transport_of=transport_of,
    )
    events.add(spans)
    try:
        yield True
    finally:
        spans.close()
        await _shut_down(provider)


async def _open_provider(settings: Settings, environment: Mapping[str, str]) -> TracerProvider | None:
    """What sends spans; None where nobody wants any."""
    endpoint = settings.telemetry.otlp_endpoint
    if endpoint is None and not any(environment.get(name) for name in _ENDPOINT_VARIABLES):
        return None
    try:
        return await anyio.to_thread.run_sync(_make_provider, settings.telemetry.service_name, endpoint)
    except ModuleNotFoundError as error:
        if endpoint is None:  # the environment may mean other programs
            logger.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set; sending spans needs %s", _INSTALL_HINT)
            return None
        message = "spans are to be sent (telemetry.otlp_endpoint), and what sends them is not installed"
        raise ConfigError(message, hint=_INSTALL_HINT) from error


def _make_provider(service: str, endpoint: str | None) -> TracerProvider:
    """In a thread: loading all this takes a while. The exporter reads the environment itself."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from fingerpost import __version__
    from fingerpost.telemetry import spans as _  # noqa: F401 - loaded here rather than on the event loop

    exporter = OTLPSpanExporter(
        endpoint=None if endpoint is None else build_traces_url(endpoint), timeout=EXPORT_TIMEOUT_S
    )
    # Ours alone, not the program's: the MCP library would make spans of its own beside ours.
    provider = TracerProvider(
        resource=Resource.create({SERVICE_NAME: service, SERVICE_VERSION: __version__}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def build_traces_url(endpoint: str) -> str:
    """Where spans go at a collector's address; one that names the path already is left as it is."""
    address = endpoint.rstrip("/")
    return address if address.endswith(_TRACES_PATH) else address + _TRACES_PATH


def _map_model_providers(settings: Settings) -> dict[str, str]:
    models = (settings.models.lite, settings.models.prime)
    return {model.model: model.provider for model in models if model is not None}


async def _shut_down(provider: TracerProvider) -> None:
    """Send what is left. Bounded by the exporter's own patience."""
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(provider.shutdown)
