"""Serves everything on one port, with `/metrics` and `/readyz`. MCP starts at once, the rest on first use."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, cast

import anyio
import anyio.to_thread
import orjson

from fingerpost import __version__
from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.errors import StoreError
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Right, ServerState
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.console import open_console, open_docs
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.http.access import (
    HOST_REFUSED,
    SAME_ORIGIN_HEADERS,
    AccessDenial,
    Authenticator,
    Endpoint,
    RateLimiter,
)
from fingerpost.surfaces.http.addresses import get_reachable_address
from fingerpost.surfaces.http.asgi import AsgiScope, Header, HttpError, Receive, Send, parse_headers, respond
from fingerpost.surfaces.http.local_callers import save_address
from fingerpost.surfaces.http.processes import Worker
from fingerpost.surfaces.http.server import LazyApp, PathRouter, ServedApp, get_address, listen_at, serve_app
from fingerpost.surfaces.openai.app import open_openai_app
from fingerpost.telemetry.metrics import GaugeValues, PrometheusMetrics
from fingerpost.telemetry.tracing import TRACEPARENT, TRACESTATE, open_spans, use_trace_carrier

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


@frozen(kw_only=False)
class SurfaceDeps:
    """What every surface needs."""

    router: Router
    authenticator: Authenticator
    address: str  # the public address
    loaded: Loaded | None = None  # where the settings were read from
    worker: Worker | None = None  # this process, if several share the port


class _StreamReaders:
    """The number of live stream readers. The API sets the counter when it opens; /metrics reads it."""

    def __init__(self) -> None:
        self.counter: Callable[[], int] = lambda: 0

    def count(self) -> int:
        return self.counter()


def build_lazy_apps(deps: SurfaceDeps) -> dict[str, LazyApp]:
    """Return the enabled apps by the first segment of their paths."""
    settings = deps.router.settings
    rate = RateLimiter(settings.api.per_minute)  # one limit per caller for all surfaces
    readers = _StreamReaders()
    workers = None
    if deps.worker is not None:
        workers = WorkerGroup(
            deps.router,
            name=deps.worker.group,
            number=deps.worker.number,
            count=deps.worker.count,
            count_streams=readers.count,
        )
    parts: dict[str, LazyApp] = {}
    if settings.completions.enabled:
        parts["v1"] = LazyApp(lambda: _open_openai(deps, rate))
    if settings.api.enabled:
        parts["api"] = LazyApp(lambda: _open_api(deps, rate, readers))
    if settings.console.enabled:
        console = LazyApp(lambda: open_console(deps.authenticator))
        parts |= dict.fromkeys(("", "console", "favicon.ico"), console)
        parts["docs"] = LazyApp(lambda: open_docs(deps.authenticator))
    parts["metrics"] = parts["readyz"] = LazyApp(lambda: _open_operations(deps, readers, workers))
    return parts


# Imports are inside the functions, so that the opening thread does them.


def _open_openai(deps: SurfaceDeps, rate_limiter: RateLimiter) -> AbstractAsyncContextManager[ServedApp]:
    return open_openai_app(
        deps.router, authenticator=deps.authenticator, address=deps.address, rate_limiter=rate_limiter
    )


def _open_api(
    deps: SurfaceDeps, rate_limiter: RateLimiter, readers: _StreamReaders
) -> AbstractAsyncContextManager[ServedApp]:
    from fingerpost.surfaces.api import open_api

    @asynccontextmanager
    async def open_app() -> AsyncGenerator[ServedApp]:
        router = deps.router
        async with (
            JournalReader.open(router.store, router.live) as ledger,
            open_api(
                router,
                authenticator=deps.authenticator,
                address=deps.address,
                ledger=ledger,
                rate_limiter=rate_limiter,
                loaded=deps.loaded,
            ) as api,
        ):
            readers.counter = lambda: api.streams
            yield api

    return open_app()


def _open_operations(
    deps: SurfaceDeps, readers: _StreamReaders, workers: WorkerGroup | None
) -> AbstractAsyncContextManager[ServedApp]:
    """Open /metrics and /readyz. Counting starts with the first reader, or with the first worker."""
    if workers is not None:
        return open_operations_app(deps.router, deps.authenticator, workers.metrics, workers=workers)
    if not deps.router.settings.telemetry.metrics:
        return open_operations_app(deps.router, deps.authenticator)
    from fingerpost.telemetry.metrics import PrometheusMetrics

    metrics = PrometheusMetrics()
    deps.router.events.add(metrics)
    return open_operations_app(deps.router, deps.authenticator, metrics, count_streams=readers.count)


def get_backend_options() -> dict[str, Any]:
    """Return the `backend_options` for `anyio.run`: the fast event loop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return {}
    return {"loop_factory": uvloop.new_event_loop}


async def serve(
    router: Router,
    *,
    host: str,
    port: int,
    authenticator: Authenticator | Callable[[str], Authenticator],
    started: Callable[[str], None] | None = None,
    signals: bool = True,
    loaded: Loaded | None = None,
    worker: Worker | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, as one of several processes if this is a `worker`.

    `authenticator` may be a function of the bound address; `started` is called with the URL `http://…`.

    `loaded` is where the settings were read from, if known. The API then shows the origin of each value.

    Raises `ConfigError` if the address is not available.
    """
    listening = listen_at(host, port) if worker is None else worker.listening
    bound = get_address(listening)
    address = f"http://{get_reachable_address(bound)}"
    with listening:
        active_authenticator = authenticator(bound) if callable(authenticator) else authenticator
        public_url = router.settings.gateway.public_url or address
        router.calls.addresses.add_listener(bound, public_url)
        router.servers.sign_in_page = f"{public_url.rstrip('/')}/#/sign-ins"
        with suppress(StoreError):  # `fingerpost console` then prints the address from the settings
            await save_address(router.store, public_url)
        deps = SurfaceDeps(router, active_authenticator, public_url, loaded, worker)
        async with _open_surfaces(deps) as app:
            await serve_app(
                app,
                listening,
                arrival_seconds=router.settings.gateway.request_seconds,
                on_started=None if started is None else lambda: started(address),
                signals=signals,
            )


@asynccontextmanager
async def _open_surfaces(deps: SurfaceDeps) -> AsyncGenerator[ServedApp]:
    """Open all enabled surfaces behind one `PathRouter`: MCP at once, the others on first use."""
    router = deps.router
    settings = router.settings
    has_console = settings.console.enabled and settings.api.enabled  # the console needs the API

    def get_transport(server: str) -> str | None:
        return next((status.transport for status in router.servers.statuses if status.name == server), None)

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(router.store.messages.open())
        audience = NotificationListeners()
        methods = await stack.enter_async_context(
            open_methods(router, audience=audience, console=deps.address if has_console else None)
        )
        gateway = await stack.enter_async_context(
            GatewayApp(
                methods,
                deps.authenticator,
                settings.gateway,
                router.events,
                profiles=router.profiles,
                audience=audience,
                health=lambda: _build_health(router),
                store=router.store,
            )
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        parts = build_lazy_apps(deps)
        for part in {id(part): part for part in parts.values()}.values():
            tasks.start_soon(part.keep_open)
        front = PathRouter(parts, default=gateway)
        tracing = await stack.enter_async_context(
            open_spans(settings, router.events, transport_of=get_transport)
        )
        yield TracedApp(front) if tracing else front


def _build_health(router: Router) -> JsonObject:
    """Return the health as numbers only, because readers need no authentication."""
    statuses = [status for status in router.servers.statuses if status.state != "disabled"]
    up = sum(status.state.is_connected for status in statuses)
    return {"servers": {"up": up, "of": len(statuses)}, "tools": len(router.tools.cards)}
