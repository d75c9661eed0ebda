"""Everything on one port until it is told to stop: MCP, the OpenAI-compatible endpoint, API, console."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread

from fingerpost.errors import StoreError
from fingerpost.records import JsonObject
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.wire.audience import NotificationListeners
from fingerpost.surfaces.parts import SurfaceDeps, build_lazy_apps
from fingerpost.surfaces.web.access.addresses import get_reachable_address
from fingerpost.surfaces.web.front import PathRouter
from fingerpost.surfaces.web.gate import Authenticator
from fingerpost.surfaces.web.port import ServedApp, get_address, listen_at, serve_app
from fingerpost.surfaces.web.tickets import save_address
from fingerpost.telemetry.setup import open_spans


def get_backend_options() -> dict[str, Any]:
    """What to give `anyio.run` as `backend_options`: the fast event loop where there is one."""
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
) -> None:
    """Serve until SIGINT or SIGTERM. `gate` may wait for the address; `started` hears it as `http://…`.

    `loaded` is what the settings were read from, where they were: then the API can tell where each stands.

    Raises `ConfigError` where the address cannot be had.
    """
    listening = listen_at(host, port)
    bound = get_address(listening)
    address = f"http://{get_reachable_address(bound)}"
    with listening:
        judge = authenticator(bound) if callable(authenticator) else authenticator
        reached_at = router.settings.gateway.public_url or address
        router.calls.addresses.add_listener(bound, reached_at)
        with suppress(StoreError):  # `fingerpost console` then prints the address of the settings
            await save_address(router.store, reached_at)
        async with _open_surfaces(router, judge, reached_at, loaded) as app:
            await serve_app(
                app,
                listening,
                arrival_seconds=router.settings.gateway.request_seconds,
                started=None if started is None else lambda: started(address),
                signals=signals,
            )


@asynccontextmanager
async def _open_surfaces(
    router: Router, authenticator: Authenticator, reached_at: str, loaded: Loaded | None
) -> AsyncGenerator[ServedApp]:
    """Every surface the settings want, behind one front: MCP at once, the others when they are asked for."""
    settings = router.settings
    has_console = settings.console.enabled and settings.api.enabled  # it shows what the API gives it
    async with AsyncExitStack() as stack:
        audience = NotificationListeners()
        methods = await stack.enter_async_context(
            open_methods(router, audience=audience, console=reached_at if has_console else None)
        )
        gateway = await stack.enter_async_context(
            GatewayApp(
                methods,
                authenticator,
                settings.gateway,
                router.events,
                profiles=router.profiles,
                audience=audience,
                health=lambda: _build_health(router),
            )
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        parts = build_lazy_apps(SurfaceDeps(router, authenticator, reached_at, loaded))
        for part in {id(part): part for part in parts.values()}.values():
            tasks.start_soon(part.keep_open)
        front = PathRouter(parts, default=gateway)
        tracing = await stack.enter_async_context(
            open_spans(settings, router.events, transport_of=lambda name: _get_transport(router, name))
        )
        yield await anyio.to_thread.run_sync(_add_tracing, front) if tracing else front


def _add_tracing(app: ServedApp) -> ServedApp:
    """In a thread, and only where spans are on: it takes a library that others never load."""
    from fingerpost.surfaces.operations import TracedApp

    return TracedApp(app)


def _get_transport(router: Router, server: str) -> str | None:
    return next((status.transport for status in router.servers.statuses if status.name == server), None)


def _build_health(router: Router) -> JsonObject:
    """In numbers alone: whoever reads this need not be known to us."""
    statuses = [status for status in router.servers.statuses if status.state != "disabled"]
    up = sum(status.state in {"ready", "degraded"} for status in statuses)
    return {"servers": {"up": up, "of": len(statuses)}, "tools": len(router.tools.cards)}
