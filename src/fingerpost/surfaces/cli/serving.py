"""Running the gateway from the command line: what is said, and in which order things open.

The port is open before any server is connected: `/healthz` answers from the
start, and a client that comes early waits for the servers, not for us.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import click

from fingerpost.errors import ConfigError
from fingerpost.surfaces.cli.house import open_router
from fingerpost.surfaces.cli.screen import count, plain

if TYPE_CHECKING:
    from fingerpost.router import Router
    from fingerpost.settings import Loaded

SETTLED_S = 60.0


def serve_until_stopped(loaded: Loaded, *, as_json: bool) -> int:
    """The gateway on its port, until Ctrl-C or a signal to end."""
    from fingerpost.surfaces.serve import serve
    from fingerpost.surfaces.web.access import check_exposure, open_gate

    settings = loaded.settings
    gateway = settings.gateway

    async def work() -> int:
        async with open_router(loaded) as router:
            note = check_exposure(gateway, has_keys=await router.store.keys.any_live())
            if note is not None:
                click.echo(click.style("note: ", fg="yellow") + note, err=True)
            async with _connecting(router, quiet=as_json):
                await serve(
                    router,
                    host=gateway.host,
                    port=gateway.port,
                    gate=lambda bound: open_gate(
                        gateway,
                        keys=router.store.keys,
                        events=router.events,
                        bound=bound,
                        profiles=settings.profiles,
                    ),
                    started=lambda address: _announce(address, loaded, as_json=as_json),
                )
        return 0

    return _run(work)


def serve_one_client(loaded: Loaded, *, profile: str | None) -> int:
    """The gateway on standard input and output, until the client closes its side."""
    from fingerpost.surfaces.gateway.methods import open_methods
    from fingerpost.surfaces.gateway.wire.audience import Listeners
    from fingerpost.surfaces.gateway.wire.stdio import serve_stdio
    from fingerpost.surfaces.web.gate import Endpoint

    settings = loaded.settings
    if profile is not None and profile not in settings.profiles:
        known = ", ".join(sorted(settings.profiles)) or "none yet"
        message = f"there is no profile {profile!r}"
        raise ConfigError(message, hint=f"add [profiles.{profile}] to the settings; there are: {known}")
    endpoint = Endpoint(path="/mcp", mode=settings.gateway.mode)
    if profile is not None:
        endpoint = Endpoint(path=f"/mcp/p/{profile}", mode=settings.profiles[profile].mode, profile=profile)

    async def work() -> int:
        audience = Listeners()
        async with (
            open_router(loaded) as router,
            _connecting(router, quiet=True),
            open_methods(router, audience=audience) as methods,
        ):
            await serve_stdio(methods, settings.gateway, router.events, audience=audience, endpoint=endpoint)
        return 0

    return _run(work)


def _run(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    from fingerpost.surfaces.serve import event_loop

    return anyio.run(work, backend_options=event_loop())


@asynccontextmanager
async def _connecting(router: Router, *, quiet: bool) -> AsyncGenerator[None]:
    """All servers connect while we serve already; each is told about once it is up or failed."""
    with ExitStack() as stack:
        if not quiet:
            stack.callback(_tell_of_servers(router))
        router.servers.expect_callers()
        router.servers.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_warm_up, router)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()


async def _warm_up(router: Router) -> None:
    """Where tools are found by request, what finds them is loaded before the first one asks."""
    from fingerpost.surfaces.gateway.offers.modes import ROUTE, decide

    await router.servers.settled(timeout=SETTLED_S)
    settings = router.settings
    if decide(settings.gateway.mode, await router.look(), settings.smart_routing) == ROUTE:
        await router.settle(SETTLED_S)


def _tell_of_servers(router: Router) -> Callable[[], None]:
    """Each once it is up or failed, and again when that turns: who reads "down" waits for the other word."""
    told: dict[str, bool] = {}

    def tell(name: str) -> None:
        status = router.servers.status(name)
        good = status.state in ("ready", "degraded", "disabled")
        if status.state in ("idle", "connecting") or told.get(name) is good:
            return
        told[name] = good
        state = click.style(f"{status.state:9}", fg="green" if status.state == "ready" else "yellow")
        what = count(status.tools, "tool") if good else plain(status.reason or "")
        click.echo(f"  {state} {plain(name)}: {what}", err=True)

    for status in router.servers.statuses:
        tell(status.name)
    return router.servers.watch(tell)


def _announce(address: str, loaded: Loaded, *, as_json: bool) -> None:
    settings = loaded.settings
    paths = ["/mcp", "/mcp/route", "/mcp/all", *(f"/mcp/p/{name}" for name in sorted(settings.profiles))]
    if as_json:
        from fingerpost.surfaces.cli.screen import print_json

        print_json({"address": address, "endpoints": [address + path for path in paths]})
        return
    offered = {"auto": "few tools as themselves, many by request", "route": "tools found by request"}
    lines = {
        "/mcp": offered.get(settings.gateway.mode, "every permitted tool"),
        "/mcp/route": "find_tools, describe_tool, call_tool, read_result",
        "/mcp/all": "every permitted tool as itself",
    }
    lines |= {f"/mcp/p/{name}": profile.description or "" for name, profile in settings.profiles.items()}
    click.echo(f"Serving MCP at {click.style(address + '/mcp', bold=True)} (Ctrl-C stops it)")
    for path in paths[1:]:
        click.echo(f"  {path:12} {plain(lines[path])}")
    click.echo(f"  {'/healthz':12} how it is doing")
    click.echo("Connect a client: fingerpost install")
