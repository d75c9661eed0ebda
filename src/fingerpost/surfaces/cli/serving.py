"""Running the gateway from the command line: what is said, and in which order things open.

The port is open before any server is connected: `/healthz` answers from the
start, and a client that comes early waits for the servers, not for us.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import click

from fingerpost.errors import ConfigError, StoreError
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.house import open_router
from fingerpost.surfaces.cli.options import repeatable
from fingerpost.surfaces.cli.screen import count, plain, print_json
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.offers.modes import ROUTE, decide
from fingerpost.surfaces.gateway.wire.audience import Listeners
from fingerpost.surfaces.gateway.wire.stdio import serve_stdio
from fingerpost.surfaces.serve import event_loop, serve
from fingerpost.surfaces.web.access import check_exposure, open_gate
from fingerpost.surfaces.web.gate import Endpoint
from fingerpost.surfaces.web.peers import is_started_by_tool
from fingerpost.surfaces.web.tickets import make_ticket, sign_in_page

if TYPE_CHECKING:
    from fingerpost.router import Router
    from fingerpost.settings import Loaded

SETTLED_S = 60.0


def serve_until_stopped(
    loaded: Loaded, *, as_json: bool, open_browser: bool = False, profile: str | None = None
) -> int:
    """Everything on its port, until Ctrl-C or a signal to end. `profile` is for whoever names none."""
    settings = loaded.settings
    gateway = settings.gateway

    async def work() -> int:
        async with open_router(loaded) as router:
            ticket: str | None = None
            if not await anyio.to_thread.run_sync(is_started_by_tool):  # a link is for people
                with suppress(StoreError):  # what reads is served all the same
                    ticket = await make_ticket(router.store)

            def started(address: str) -> None:
                reached_at = gateway.public_url or address
                page = None if ticket is None else sign_in_page(reached_at, ticket)
                _announce(address, loaded, page, as_json=as_json)
                if open_browser:
                    click.launch(page or reached_at)

            router.profiles.prefer(profile)
            note = check_exposure(gateway, has_keys=await router.store.keys.any_live())
            if note is not None:
                click.echo(styled("note: ", fg="yellow") + note, err=True)
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
                        profiles=router.profiles,
                    ),
                    started=started,
                    loaded=loaded,
                )
        return 0

    return _run(work)


def serve_one_client(loaded: Loaded, *, profile: str | None) -> int:
    """The gateway on standard input and output, until the client closes its side."""
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
        state = styled(f"{status.state:9}", fg="green" if status.state == "ready" else "yellow")
        what = count(status.tools, "tool") if good else plain(status.reason or "")
        click.echo(f"  {state} {plain(name)}: {what}", err=True)

    for status in router.servers.statuses:
        tell(status.name)
    return router.servers.watch(tell)


def _announce(address: str, loaded: Loaded, sign_in: str | None, *, as_json: bool) -> None:
    """Say what is served. `sign_in` is a link for the person alone: it goes to a terminal, to no file."""
    settings = loaded.settings
    endpoints = ["/mcp", "/mcp/route", "/mcp/all", *(f"/mcp/p/{name}" for name in sorted(settings.profiles))]
    others = {
        "console": ("/", settings.console.enabled),
        "openai": ("/v1", settings.completions.enabled),
        "api": ("/api", settings.api.enabled),
    }
    there = {name: address + path for name, (path, enabled) in others.items() if enabled}
    if as_json:
        print_json({"address": address, "endpoints": [address + path for path in endpoints], **there})
        return
    offered = {"auto": "few tools as themselves, many by request", "route": "tools found by request"}
    lines = {
        address + "/": ("the console, in a browser", settings.console.enabled),
        "/mcp": (f"MCP: {offered.get(settings.gateway.mode, 'every permitted tool')}", True),
        "/mcp/route": ("find_tools, describe_tool, call_tool, read_result", True),
        "/mcp/all": ("every permitted tool as itself", True),
    }
    lines |= {
        f"/mcp/p/{name}": (profile.description or "a profile", True)
        for name, profile in sorted(settings.profiles.items())
    }
    lines |= {
        "/v1": ("the OpenAI API: use it as base URL", settings.completions.enabled),
        "/api": ("the API: /api/openapi.json describes it", settings.api.enabled),
        "/healthz": ("how it is doing; /readyz, /metrics", True),
    }
    click.echo(f"Serving at {styled(address, bold=True)} (Ctrl-C stops it)")
    width = max(len(path) for path in lines)
    for path, (what, enabled) in lines.items():
        if enabled:
            click.echo(f"  {path:{width}} {plain(what)}")
    if settings.console.enabled and settings.api.enabled:
        shown = sign_in is not None and sys.stdout.isatty()
        how = f"open {sign_in} (once, within 10 minutes)" if shown else "run `fingerpost console`"
        click.echo(repeatable(f"To approve calls in the console, sign in: {how}"))
    click.echo("Connect an MCP client: fingerpost install")
