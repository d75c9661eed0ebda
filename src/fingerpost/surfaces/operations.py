"""`/metrics` and `/readyz` for operators of the gateway, and the trace context of callers."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

import anyio
import anyio.to_thread
import orjson

from fingerpost import __version__
from fingerpost.errors import StoreError
from fingerpost.records import JsonObject, Right, ServerState
from fingerpost.router import Router
from fingerpost.surfaces.http.access import (
    HOST_REFUSED,
    SAME_ORIGIN_HEADERS,
    AccessDenial,
    Authenticator,
    Endpoint,
)
from fingerpost.surfaces.http.asgi import AsgiScope, Header, HttpError, Receive, Send, parse_headers, respond
from fingerpost.surfaces.http.server import ServedApp
from fingerpost.telemetry.metrics import GaugeValues, PrometheusMetrics
from fingerpost.telemetry.tracing import TRACEPARENT, TRACESTATE, use_trace_carrier

log = logging.getLogger("fingerpost.operations")

_METRICS_ENDPOINT: Final = Endpoint(path="/metrics", right=Right.WATCH)
_TEXT_TYPE: Final[Header] = (b"content-type", b"text/plain; charset=utf-8")
_JSON_TYPE: Final[Header] = (b"content-type", b"application/json")
_NO_STORE_HEADER: Final[Header] = (b"cache-control", b"no-store")
_CONNECTING_STATES: Final = frozenset({ServerState.IDLE, ServerState.CONNECTING})


GATHER_S: Final = 3.0
READY_AGE_S: Final = 1.0


class WorkerGroup:
    """The workers that share a port: any of them reports the metrics and the readiness of all."""

    def __init__(
        self, router: Router, *, name: str, number: int, count: int, count_streams: Callable[[], int]
    ) -> None:
        self._router = router
        self._number = number
        self._count = count
        self._count_streams = count_streams
        self._topic = f"worker_status {name}"
        self._gathering = anyio.Lock()
        self._gathered: list[JsonObject] = []
        self._gathered_at = -math.inf
        self.metrics = PrometheusMetrics() if router.settings.telemetry.metrics else None
        if self.metrics is not None:
            router.events.add(self.metrics)
        router.store.messages.answer_questions(self._topic, lambda _: self._describe())

    async def _describe(self) -> JsonObject:
        return {
            "worker": self._number,
            "ready": await is_ready(self._router),
            "streams": self._count_streams(),
            "metrics": {} if self.metrics is None else self.metrics.export(),
        }

    async def gather(self, *, max_age_s: float = 0.0) -> list[JsonObject]:
        """Return what each worker that answers says of itself, this one first; or said so long ago."""
        async with self._gathering:
            if anyio.current_time() - self._gathered_at >= max_age_s:
                others = self._router.store.messages.ask_all(
                    self._topic, {}, expected=self._count - 1, seconds=GATHER_S
                )
                self._gathered = [await self._describe(), *await others]
                self._gathered_at = anyio.current_time()
            return self._gathered

    async def are_all_ready(self) -> bool:
        found = await self.gather(max_age_s=READY_AGE_S)  # anyone may ask
        return len(found) == self._count and all(one["ready"] for one in found)


async def is_ready(router: Router) -> bool:
    """Return whether the store works, no server is connecting and the router is warm."""
    trying = any(status.state in _CONNECTING_STATES for status in router.servers.statuses)
    if trying or router.is_warming_up or router.store.statistics.refused:
        return False
    return await count_waiting(router) is not None


async def count_waiting(router: Router) -> int | None:
    """Return the number of pending approvals, or None if the store does not answer."""
    try:
        return len(await router.store.approvals.list_waiting())
    except StoreError as error:
        log.warning("The store does not answer: %s", error)
        return None


@asynccontextmanager
async def open_operations_app(
    router: Router,
    authenticator: Authenticator,
    metrics: PrometheusMetrics | None = None,
    *,
    count_streams: Callable[[], int] | None = None,
    workers: WorkerGroup | None = None,
) -> AsyncGenerator[OperationsApp]:
    """Open the app for `/metrics` and `/readyz`. `streams` returns the number of live stream readers.

    Without `metrics` there is no /metrics. With `workers` both are about all of them.
    """
    yield OperationsApp(router, authenticator, metrics, count_streams or (lambda: 0), workers)


class OperationsApp:
    """Two endpoints that are polled every few seconds."""

    def __init__(
        self,
        router: Router,
        authenticator: Authenticator,
        metrics: PrometheusMetrics | None,
        count_streams: Callable[[], int],
        workers: WorkerGroup | None = None,
    ) -> None:
        self._router = router
        self._authenticator = authenticator
        self._metrics = metrics
        self._count_streams = count_streams
        self._workers = workers

    async def drain(self, seconds: float) -> None:
        """Do nothing: no request takes long."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._handle_request(scope, send)
        except HttpError as fault:
            sentence = f"{fault.message}\n".encode()
            await respond(send, fault.status, sentence, (_TEXT_TYPE, _NO_STORE_HEADER, *fault.headers))
        except Exception:
            log.exception("A request at %s could not be answered", scope["path"][:100])
            await respond(
                send, 500, b"Something went wrong here; the log says what.\n", (_TEXT_TYPE, _NO_STORE_HEADER)
            )

    async def _handle_request(self, scope: AsgiScope, send: Send) -> None:
        path = scope["path"].rstrip("/")
        if path not in ("/metrics", "/readyz") or (path == "/metrics" and self._metrics is None):
            raise HttpError(404, "Not found.")
        if scope["method"] not in ("GET", "HEAD"):
            raise HttpError(405, "Use GET.", headers=((b"allow", b"GET, HEAD"),))
        headers, _ = parse_headers(scope["headers"])
        if path == "/readyz":
            if not self._authenticator.allows_probe(headers):
                raise HttpError(403, HOST_REFUSED)
            await self._respond_readiness(send)
        elif self._metrics is not None:
            await self._respond_metrics(scope, headers, send, self._metrics)

    async def _respond_metrics(
        self, scope: AsgiScope, headers: Mapping[str, str], send: Send, metrics: PrometheusMetrics
    ) -> None:
        remote = (scope.get("client") or ("",))[0]
        admitted = await self._authenticator.authenticate(headers, _METRICS_ENDPOINT, remote=remote)
        if isinstance(admitted, AccessDenial):
            raise HttpError(admitted.status, admitted.message, headers=admitted.encoded_headers)
        found = None if self._workers is None else await self._workers.gather()
        gauges = await self._collect_gauges(found)
        accept = headers.get("accept", "")
        exported = (
            None
            if found is None
            else {str(one["worker"]): cast("JsonObject", one["metrics"]) for one in found}
        )
        body, content_type = await anyio.to_thread.run_sync(
            lambda: metrics.render(gauges, accept=accept, workers=exported)
        )
        kind = (b"content-type", content_type.encode())
        await respond(send, 200, body, (kind, _NO_STORE_HEADER, *SAME_ORIGIN_HEADERS))

    async def _collect_gauges(self, workers: Sequence[JsonObject] | None) -> GaugeValues:
        router = self._router
        streams = (
            self._count_streams() if workers is None else sum(cast("int", one["streams"]) for one in workers)
        )
        return GaugeValues(
            servers={
                status.name: status.state.value
                for status in router.servers.statuses
                if status.state is not ServerState.DISABLED
            },
            breakers={server: status.state.value for server, status in router.calls.runner.breakers.items()},
            tools=len(router.tools.cards),
            approvals_waiting=await count_waiting(router) or 0,
            live_streams=streams,
            version=__version__,
        )

    async def _respond_readiness(self, send: Send) -> None:
        """Send numbers only, because readers need no authentication."""
        statuses = [s for s in self._router.servers.statuses if s.state is not ServerState.DISABLED]
        trying = sum(status.state in _CONNECTING_STATES for status in statuses)
        store = await count_waiting(self._router) is not None and not self._router.store.statistics.refused
        ready = await is_ready(self._router) if self._workers is None else await self._workers.are_all_ready()
        report = {
            "ready": ready,
            "store": store,
            "servers": {
                "of": len(statuses),
                "up": sum(s.state in (ServerState.READY, ServerState.DEGRADED) for s in statuses),
                "asleep": sum(s.state is ServerState.ASLEEP for s in statuses),
                "down": sum(s.state is ServerState.DOWN for s in statuses),
                "trying": trying,
            },
            "tools": len(self._router.tools.cards),
        }
        await respond(
            send,
            200 if ready else 503,
            orjson.dumps(report),
            (_JSON_TYPE, _NO_STORE_HEADER, *SAME_ORIGIN_HEADERS),
        )


_TRACE_HEADERS = {TRACEPARENT.encode(): TRACEPARENT, TRACESTATE.encode(): TRACESTATE}


class TracedApp:
    """Forwards requests to an app within the caller's trace. Used only if spans are enabled."""

    def __init__(self, app: ServedApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        carrier = {
            _TRACE_HEADERS[name]: value.decode("latin-1")
            for name, value in scope.get("headers", ())
            if name in _TRACE_HEADERS
        }
        with use_trace_carrier(carrier):
            await self._app(scope, receive, send)

    async def drain(self, seconds: float) -> None:
        await self._app.drain(seconds)
