"""`fingerpost serve`, `stdio`, `console` and `discord`: run the gateway or the Discord bot."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import click

from fingerpost import __version__
from fingerpost.catalog.act_model import release_act_model
from fingerpost.errors import ConfigError, StoreError, UnknownServer
from fingerpost.records import ServerState, utc_now
from fingerpost.servers.relay import lend_connections
from fingerpost.surfaces.cli.common import (
    CONNECTING_STATES,
    format_tools,
    has_servers,
    open_service_router,
    read_settings,
    use_store,
)
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import clean_text, format_count, print_json, print_note
from fingerpost.surfaces.cli.streams import style_text
from fingerpost.surfaces.discord import load_library
from fingerpost.surfaces.gateway.listing.tools import ROUTE_MODE, resolve_mode
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.gateway.stdio import serve_stdio
from fingerpost.surfaces.http.access import Endpoint
from fingerpost.surfaces.http.addresses import get_reachable_address
from fingerpost.surfaces.http.authenticator import build_authenticator, check_exposure
from fingerpost.surfaces.http.local_callers import (
    build_sign_in_url,
    create_ticket,
    is_started_by_tool,
    is_tool_process,
    read_address,
)
from fingerpost.surfaces.http.processes import (
    Worker,
    check_workers,
    collect_garbage,
    run_workers,
    use_one_heap,
)
from fingerpost.surfaces.http.server import listen_for_workers
from fingerpost.surfaces.serve import get_backend_options, serve
from fingerpost.tasks import cancel_and_exit

if TYPE_CHECKING:
    from fingerpost.router import Router
    from fingerpost.servers.process import LogFolder
    from fingerpost.settings import DiscordSettings, GatewaySettings, Loaded, Settings
    from fingerpost.store import Store
    from fingerpost.surfaces.discord.client import BotConnection


SETTLE_TIMEOUT_S = 60.0
RELEASE_DELAY_S = 5.0  # servers go to sleep one after the other
FIRST_WORKER_WAIT_S = 15.0  # then a worker starts a program of its own


def serve_gateway(
    *, common: CommonOptions, profile: str | None, open_browser: bool, **overrides: object
) -> int:
    """Serve all configured servers on one port until a signal. `profile` is for callers that name none."""
    use_one_heap()
    loaded = override_gateway(read_settings(common), **overrides)
    gateway = loaded.settings.gateway
    worker = None if gateway.workers == 1 else _start_workers(gateway)
    if isinstance(worker, int):
        return worker  # all workers have ended
    is_first = worker is None or worker.number == 0  # it connects to programs
    is_quiet = worker is not None and (worker.number > 0 or worker.is_restarted)

    async def work() -> int:
        async with open_service_router(loaded) as router, _join_workers(router, worker):
            ticket: str | None = None
            is_tool = await anyio.to_thread.run_sync(is_started_by_tool)
            if not is_quiet and not is_tool:  # links are for people only
                with suppress(StoreError):  # without a ticket the console is served for reading only
                    ticket = await create_ticket(router.store)

            facts = {"kind": "serve", "since": f"{utc_now():%Y-%m-%d %H:%M} UTC"}

            def show_start(address: str) -> None:
                facts["address"] = address
                logging.getLogger("fingerpost").info("serving at %s", address)
                if worker is not None:
                    worker.tell_ready()
                if is_quiet:
                    return
                public_url = gateway.public_url or address
                page = None if ticket is None else build_sign_in_url(public_url, ticket)
                _print_endpoints(address, loaded, page, as_json=common.as_json)
                _note_missing_servers(loaded)
                if open_browser:
                    click.launch(page or public_url)

            router.profiles.set_default(profile)
            note = check_exposure(gateway, has_keys=await router.store.keys.has_valid())
            if note is not None and not is_quiet:
                print_note(note)
            async with (
                _keep_own_log(router),
                _connect_in_background(router, quiet=common.as_json or is_quiet, warm_up=True),
                _lend_connections(router, facts, worker) if is_first else nullcontext(),
            ):
                await serve(
                    router,
                    host=gateway.host,
                    port=gateway.port,
                    authenticator=lambda bound: build_authenticator(
                        gateway,
                        keys=router.store.keys,
                        events=router.events,
                        bound=bound,
                        profiles=router.profiles,
                        apply_user=router.users.apply,
                    ),
                    started=show_start,
                    loaded=loaded,
                    worker=worker,
                )
        return 0

    return anyio.run(work, backend_options=get_backend_options())


def _start_workers(gateway: GatewaySettings) -> Worker | int:
    """Start the workers. Returns in each of them, and in this process when they have ended."""
    check_workers(gateway.workers)
    import_module("fingerpost.router")  # once for all workers
    listening = listen_for_workers(gateway.host, gateway.port, gateway.workers)
    return run_workers(listening, secrets.token_hex(3))


@asynccontextmanager
async def _join_workers(router: Router, worker: Worker | None) -> AsyncGenerator[None]:
    """Share the store with the other workers, use the programs of the first one, and end with the parent."""
    if worker is None:
        yield
        return
    router.store.messages.is_shared = True
    if worker.number > 0:
        sockets = _get_worker_sockets(router, worker)
        router.servers.use_gateways(sockets, print_note, wait_seconds=FIRST_WORKER_WAIT_S)

    async def end_with_parent() -> None:
        await anyio.wait_readable(worker.parent)
        os.kill(os.getpid(), signal.SIGTERM)

    tasks = await anyio.create_task_group().__aenter__()
    tasks.start_soon(end_with_parent)
    try:
        yield
    finally:
        await cancel_and_exit(tasks, *sys.exc_info())


def _get_worker_sockets(router: Router, worker: Worker | None) -> Path:
    """Return where connections are lent: commands find them, and workers only those of their own group."""
    sockets = router.store.location.gateway_sockets
    return sockets if worker is None else sockets.with_name(f"{sockets.name}-{worker.group}")


def serve_stdio_client(*, common: CommonOptions, mode: str | None, profile: str | None) -> int:
    """Serve the gateway on stdin and stdout until the client closes stdin."""
    use_one_heap()
    loaded = override_gateway(read_settings(common), mode=mode)
    settings = loaded.settings
    if profile is not None and profile not in settings.profiles:
        known = ", ".join(sorted(settings.profiles)) or "none yet"
        message = f"there is no profile {profile!r}"
        raise ConfigError(message, hint=f"add [profiles.{profile}] to the settings; there are: {known}")
    endpoint = Endpoint(path="/mcp", mode=settings.gateway.mode)
    if profile is not None:
        endpoint = Endpoint(path=f"/mcp/p/{profile}", mode=settings.profiles[profile].mode, profile=profile)

    async def work() -> int:
        _note_missing_servers(loaded)
        audience = NotificationListeners()
        with ExitStack() as ending:
            async with (
                open_service_router(loaded) as router,
                _keep_own_log(router),
                _connect_in_background(router, quiet=True),
                _lend_connections(router, {"kind": "stdio", "since": f"{utc_now():%Y-%m-%d %H:%M} UTC"}),
                open_methods(router, audience=audience) as methods,
            ):
                with anyio.CancelScope() as serving:
                    # Until all is closed: clients send SIGTERM soon after they have closed stdin.
                    ending.enter_context(_cancel_at_signals(serving))
                    await serve_stdio(
                        methods, settings.gateway, router.events, audience=audience, endpoint=endpoint
                    )
        return 0

    return anyio.run(work, backend_options=get_backend_options())


@contextmanager
def _cancel_at_signals(scope: anyio.CancelScope) -> Generator[None]:
    """Cancel the scope at SIGTERM and SIGINT. A further SIGTERM does nothing while the block runs; a further
    SIGINT interrupts, as without this block.
    """
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        scope.cancel()

    loop.add_signal_handler(signal.SIGTERM, scope.cancel)
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)


@asynccontextmanager
async def _connect_in_background(
    router: Router, *, quiet: bool, warm_up: bool = False
) -> AsyncGenerator[None]:
    """Connect servers in the background and print the state of each. `warm_up` also loads what requests need,
    even if tools are not found by request.
    """
    with ExitStack() as stack:
        if not quiet:
            stack.callback(_report_servers(router))
        router.servers.advertise_client_capabilities()
        router.servers.start()
        async with anyio.create_task_group() as tasks:
            router.is_warming_up = warm_up
            tasks.start_soon(warm_up_service, router, warm_up)
            tasks.start_soon(release_memory_after_sleep, router, RELEASE_DELAY_S)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()


def _lend_connections(
    router: Router, facts: Mapping[str, str], worker: Worker | None = None
) -> AbstractAsyncContextManager[None]:
    """Let commands use the connections to servers, but no program that a server or a command started."""
    sockets = _get_worker_sockets(router, worker)
    return lend_connections(router.servers, sockets, is_refused=is_tool_process, facts=facts)


class _OwnLogHandler(logging.Handler):
    """Writes our own log to the log folder. Tracebacks are left out."""

    def __init__(self, logs: LogFolder) -> None:
        super().__init__(logging.INFO)
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        why = f": {type(error).__name__}: {error}" if error is not None else ""
        self._logs.write(None, f"{record.levelname.lower()} {record.getMessage()}{why}\n".encode())


@asynccontextmanager
async def _keep_own_log(router: Router) -> AsyncGenerator[None]:
    """Write our own log, and the states of servers, to the log folder."""
    logs = router.servers.logs
    assert logs is not None
    handler, log, states = _OwnLogHandler(logs), logging.getLogger("fingerpost"), dict[str, str]()

    def note_state(name: str) -> None:
        try:
            status = router.servers.get_status(name)
        except UnknownServer:  # it was removed
            return
        reason = f": {status.reason}" if status.reason else ""
        line = f"[fingerpost] {status.state}{reason}"
        if status.state not in CONNECTING_STATES and states.get(name) != line:
            states[name] = line
            logs.write(name, f"{line}\n".encode())

    stop = router.servers.subscribe_to_changes(note_state)
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    if logging.lastResort is not None:
        log.addHandler(logging.lastResort)  # warnings are on stderr, too
    log.info("started, version %s, process %s", __version__, os.getpid())
    try:
        yield
    finally:
        log.info("stopped")
        stop()
        log.removeHandler(handler)


async def warm_up_service(router: Router, always: bool) -> None:
    """Load what the first request needs: always, or if tools are found by request."""
    await router.servers.wait_until_settled(timeout=SETTLE_TIMEOUT_S)
    settings = router.settings
    mode = resolve_mode(settings.gateway.mode, await router.look(), settings.smart_routing)
    is_needed = always or mode == ROUTE_MODE
    if is_needed:
        await router.scan_instructions()
    if release_act_model():  # what is loaded next takes its place
        collect_garbage()
    if is_needed:
        await router.warm_up(SETTLE_TIMEOUT_S)


async def release_memory_after_sleep(router: Router, delay: float) -> None:
    """Give back what connections took after servers went to sleep, until cancelled."""
    went_to_sleep = anyio.Event()

    def note_state(name: str) -> None:
        with suppress(UnknownServer):  # it was removed
            if router.servers.get_status(name).state is ServerState.ASLEEP:
                went_to_sleep.set()

    stop = router.servers.subscribe_to_changes(note_state)
    try:
        while True:
            await went_to_sleep.wait()
            await anyio.sleep(delay)
            went_to_sleep = anyio.Event()
            release_act_model()
            collect_garbage()
    finally:
        stop()


def _report_servers(router: Router) -> Callable[[], None]:
    """Print each server when it is up or failed, and when that changes. Return a function that stops."""
    reported: dict[str, bool] = {}

    def report_server(name: str) -> None:
        try:
            status = router.servers.get_status(name)
        except UnknownServer:
            reported.pop(name, None)
            click.echo(f"  {'removed':9} {clean_text(name)}", err=True)
            return
        good = status.state.is_usable or status.state is ServerState.DISABLED
        if status.state in ("idle", "connecting") or reported.get(name) is good:
            return
        reported[name] = good
        state = style_text(
            f"{status.state:9}", fg="green" if status.state in ("ready", "asleep") else "yellow"
        )
        tools = f"{format_tools(router, status)} {'tool' if status.tools == 1 else 'tools'}"
        what = tools if good else clean_text(status.reason or "")
        click.echo(f"  {state} {clean_text(name)}: {what}", err=True)

    for status in router.servers.statuses:
        report_server(status.name)
    return router.servers.subscribe_to_changes(report_server)


def _print_endpoints(address: str, loaded: Loaded, sign_in: str | None, *, as_json: bool) -> None:
    """Print the endpoints. The `sign_in` link is printed only to a terminal."""
    settings = loaded.settings
    endpoints = ["/mcp", "/mcp/route", "/mcp/all", *(f"/mcp/p/{name}" for name in sorted(settings.profiles))]
    others = {
        "console": ("/", settings.console.enabled),
        "openai": ("/v1", settings.completions.enabled),
        "api": ("/api", settings.api.enabled),
    }
    addresses = {name: address + path for name, (path, enabled) in others.items() if enabled}
    if as_json:
        print_json({"address": address, "endpoints": [address + path for path in endpoints], **addresses})
        return
    offered = {
        "auto": "lists tools directly; offers search when there are many",
        "route": "offers search instead of a list",
    }
    lines = {
        address + "/": ("console, for a browser", settings.console.enabled),
        "/mcp": (f"MCP endpoint ({offered.get(settings.gateway.mode, 'lists every permitted tool')})", True),
        "/mcp/route": ("MCP endpoint with find_tools, describe_tool, call_tool and read_result", True),
        "/mcp/all": ("MCP endpoint that lists every permitted tool", True),
    }
    lines |= {
        f"/mcp/p/{name}": (profile.description or "a profile", True)
        for name, profile in sorted(settings.profiles.items())
    }
    lines |= {
        "/v1": ("OpenAI API (use it as the base URL)", settings.completions.enabled),
        "/api": ("REST API (described by /api/openapi.json)", settings.api.enabled),
        "/healthz": ("health; also /readyz and /metrics", True),
    }
    click.echo(f"Serving at {style_text(address, bold=True)} (Ctrl-C stops it)")
    width = max(len(path) for path in lines)
    for path, (what, enabled) in lines.items():
        if enabled:
            click.echo(f"  {path:{width}} {clean_text(what)}")
    if settings.console.enabled and settings.api.enabled:
        shown = sign_in is not None and sys.stdout.isatty()
        how = f"open {sign_in} (once, within 10 minutes)" if shown else "run `fingerpost console`"
        click.echo(repeat_options(f"To approve calls in the console, sign in: {how}"))
    click.echo("Connect an MCP client: fingerpost install")


def _note_missing_servers(loaded: Loaded) -> None:
    """Say where to add servers if there are none. Those that are added are used without a restart."""
    if has_servers(loaded) or loaded.places is None:
        return
    file = clean_text(str(loaded.places.servers))
    add = "`fingerpost servers add NAME -- COMMAND` or `fingerpost import`"
    print_note(f"no servers yet: add one with {add} (kept in {file}), or in the console under Servers")


@use_store
async def print_console_link(
    store: Store, settings: Settings, *, common: CommonOptions, open_browser: bool
) -> int:
    """Print a link that signs you in to the console of a running `fingerpost serve`."""
    gateway = settings.gateway
    configured = gateway.public_url or f"http://{get_reachable_address(f'{gateway.host}:{gateway.port}')}"
    page = build_sign_in_url(await read_address(store) or configured, await create_ticket(store))
    if common.as_json:
        print_json({"console": page})
    else:
        click.echo(page)
    if open_browser:
        click.launch(page)
    return 0


def override_gateway(loaded: Loaded, **overrides: object) -> Loaded:
    """Return the settings with the gateway options of the command line."""
    given = {name: value for name, value in overrides.items() if value is not None}
    gateway: GatewaySettings = loaded.settings.gateway.model_copy(update=given)
    return replace(loaded, settings=loaded.settings.model_copy(update={"gateway": gateway}))


def run_discord_bot(*, common: CommonOptions) -> int:
    """Answer on Discord, as a bot, until stopped."""
    loaded = read_settings(common)
    load_library()
    # Needs the extra `discord`; `load_library` has raised an error if it is missing.
    from fingerpost.surfaces.discord.client import OneLineHandler, connect_bot, get_token

    settings = loaded.settings.discord
    # The library logs lost connections and rate limits.
    log = logging.getLogger("discord")
    log.addHandler(
        OneLineHandler(lambda line: click.echo(style_text("discord: ", dim=True) + line, err=True))
    )
    log.propagate = False

    async def work() -> int:
        get_token(settings)  # report a missing token before waiting for servers
        async with open_service_router(loaded) as router, _keep_own_log(router):
            router.servers.start()
            async with connect_bot(router, settings) as connection:
                _print_bot(connection, settings, as_json=common.as_json)
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    async with anyio.create_task_group() as tasks:

                        async def stop_on_signal() -> None:
                            async for _ in signals:
                                tasks.cancel_scope.cancel()

                        tasks.start_soon(stop_on_signal)
                        await connection.lost.wait()
                        tasks.cancel_scope.cancel()
            if connection.errors:
                raise connection.errors[0]
        return 0

    return anyio.run(work)


def _print_bot(connection: BotConnection, settings: DiscordSettings, *, as_json: bool) -> None:
    own = connection.own
    if as_json:
        print_json({"name": str(own), "id": str(own.id), "servers": connection.servers})
        return
    name = style_text(clean_text(str(own)), bold=True)
    click.echo(f"On Discord as {name}, on {format_count(connection.servers, 'server')} (Ctrl-C stops it)")
    if not (settings.users or settings.roles):
        where = "those servers" if settings.servers else "every server it is on and in direct messages"
        print_note(f"it answers all users on {where}; limit them with discord.users and discord.roles")
    if not settings.approvers:
        print_note(
            "no approvers are configured, so calls of other people cannot be approved; see discord.approvers"
        )
