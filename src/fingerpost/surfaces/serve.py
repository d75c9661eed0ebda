"""Serves everything on one port. MCP starts at once, the other surfaces on first use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.errors import StoreError
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.console import open_console, open_docs
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.http.access import Authenticator, RateLimiter
from fingerpost.surfaces.http.addresses import get_reachable_address
from fingerpost.surfaces.http.local_callers import save_address
from fingerpost.surfaces.http.processes import Worker
from fingerpost.surfaces.http.server import LazyApp, PathRouter, ServedApp, get_address, listen_at, serve_app
from fingerpost.surfaces.openai.app import open_openai_app
from fingerpost.surfaces.operations import TracedApp, WorkerGroup, open_operations_app
from fingerpost.telemetry.tracing import open_spans


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
        parts[""] = parts["console"] = LazyApp(lambda: open_console(deps.authenticator))
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
