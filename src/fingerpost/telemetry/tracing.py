"""The trace context of a caller, and the export of spans if it is configured."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from fingerpost import __version__
from fingerpost.errors import ConfigError
from fingerpost.events import Fanout
from fingerpost.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MAX_TRACE_HEADER_LENGTH: Final = 1_000  # characters, for each header

_carrier_variable: ContextVar[Mapping[str, str] | None] = ContextVar("fingerpost_trace", default=None)


def get_trace_carrier() -> Mapping[str, str] | None:
    """Return the trace headers from the caller of this task, or None."""
    return _carrier_variable.get()


@contextmanager
def use_trace_carrier(carrier: Mapping[str, object]) -> Generator[None]:
    """Use these headers (or this `_meta`) as the caller's trace context within the block."""
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

EXPORT_TIMEOUT_S: Final = 5.0  # per batch of spans, also at shutdown
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
    """Create spans from `events` if an export is configured. Yield whether it is.

    `transport_of` returns the transport of a server. The remaining spans are sent at the end of the block.
    Raises `ConfigError` if an export is configured but the exporter is not installed.
    """
    provider = await _open_provider(settings, os.environ if environment is None else environment)
    if provider is None:
        yield False
        return
    from fingerpost.telemetry.spans import SpanSink

    models = (settings.models.lite, settings.models.prime)
    spans = SpanSink(
        provider.get_tracer("fingerpost"),
        content=settings.telemetry.content,
        providers={model.model: model.provider for model in models if model is not None},
        transport_of=transport_of,
    )
    events.add(spans)
    try:
        yield True
    finally:
        spans.close()
        # Send the remaining spans, limited by the exporter's timeout.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(provider.shutdown)


async def _open_provider(settings: Settings, environment: Mapping[str, str]) -> TracerProvider | None:
    """Return the tracer provider, or None if no export is configured."""
    endpoint = settings.telemetry.otlp_endpoint
    if endpoint is None and not any(environment.get(name) for name in _ENDPOINT_VARIABLES):
        return None
    try:
        return await anyio.to_thread.run_sync(_make_provider, settings.telemetry.service_name, endpoint)
    except ModuleNotFoundError as error:
        if endpoint is None:  # the variables may be set for other programs
            logger.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set; sending spans needs %s", _INSTALL_HINT)
            return None
        message = "spans are to be sent (telemetry.otlp_endpoint), but the OTLP exporter is not installed"
        raise ConfigError(message, hint=_INSTALL_HINT) from error


def _make_provider(service: str, endpoint: str | None) -> TracerProvider:
    """Create the provider, in a thread: its imports are slow. The exporter reads the environment."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    import_module("fingerpost.telemetry.spans")  # here and not on the event loop

    exporter = OTLPSpanExporter(
        endpoint=None if endpoint is None else build_traces_url(endpoint), timeout=EXPORT_TIMEOUT_S
    )
    # Not the global provider: the MCP library would add its own spans to ours.
    provider = TracerProvider(
        resource=Resource.create({SERVICE_NAME: service, SERVICE_VERSION: __version__}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def build_traces_url(endpoint: str) -> str:
    """Return the URL for spans at a collector. The path is appended if it is missing."""
    address = endpoint.rstrip("/")
    return address if address.endswith(_TRACES_PATH) else address + _TRACES_PATH
