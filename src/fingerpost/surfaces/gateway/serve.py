"""The gateway on a port, until it is told to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fingerpost.records import JsonObject
from fingerpost.router import Router
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.exchange import Gate
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.wire.audience import Listeners
from fingerpost.surfaces.gateway.wire.http import AsgiApp
from fingerpost.surfaces.gateway.wire.port import address_of, listen_at, serve_app


def event_loop() -> dict[str, Any]:
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
    gate: Gate | Callable[[str], Gate],
    started: Callable[[str], None] | None = None,
    others: AsgiApp | None = None,
    signals: bool = True,
) -> None:
    """Serve until SIGINT or SIGTERM. `gate` may wait for the address; `started` hears it as `http://…`.

    Raises `ConfigError` where the address cannot be had.
    """
    listening = listen_at(host, port)
    bound = address_of(listening)
    settings = router.settings
    audience = Listeners()
    with listening:
        async with open_methods(router, audience=audience) as methods:
            app = GatewayApp(
                methods,
                gate(bound) if callable(gate) else gate,
                settings.gateway,
                router.events,
                others,
                profiles=settings.profiles,
                audience=audience,
                health=lambda: _health(router),
            )
            async with app:
                await serve_app(
                    app,
                    listening,
                    arrival_seconds=settings.gateway.request_seconds,
                    started=None if started is None else lambda: started(f"http://{bound}"),
                    signals=signals,
                )


def _health(router: Router) -> JsonObject:
    """In numbers alone: whoever reads this need not be known to us."""
    statuses = [status for status in router.servers.statuses if status.state != "disabled"]
    up = sum(status.state in {"ready", "degraded"} for status in statuses)
    return {"servers": {"up": up, "of": len(statuses)}, "tools": len(router.tools.cards)}
