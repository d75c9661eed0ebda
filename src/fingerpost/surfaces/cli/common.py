"""Shared by the commands: read settings, open the store or the router, connect servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import anyio
import click

import fingerpost
from fingerpost.errors import CallError, ConfigError
from fingerpost.llm.content import read_arguments
from fingerpost.records import ServerState
from fingerpost.settings import Loaded, Settings, load
from fingerpost.surfaces.cli.options import OVERRIDES_KEY, CommonOptions
from fingerpost.surfaces.cli.screen import clean_text, open_error_terminal, print_note, print_warning

if TYPE_CHECKING:
    from fingerpost.records import ServerStatus
    from fingerpost.router import Router
    from fingerpost.store import Store


P = ParamSpec("P")
R = TypeVar("R")

MAX_NAMED_IDS: Final = 5
CONNECTING_STATES = (ServerState.IDLE, ServerState.CONNECTING)


def read_settings(common: CommonOptions) -> Loaded:
    """Load the settings and print their warnings to stderr."""
    context = click.get_current_context(silent=True)
    overrides: dict[str, object] = {} if context is None else context.meta.get(OVERRIDES_KEY, {})
    loaded = load(config=common.config, servers=common.servers, overrides=overrides)
    for warning in loaded.warnings:
        fix = f" (fix: {clean_text(warning.fix)})" if warning.fix else ""
        print_warning(clean_text(str(warning)) + fix)
    return loaded


def run_on_store(opened: CommonOptions | Loaded, work: Callable[[Store, Settings], Awaitable[R]]) -> R:
    """Open the store of these settings, run `work` on it and return its result."""
    settings = (opened if isinstance(opened, Loaded) else read_settings(opened)).settings

    async def run_opened() -> R:
        kept = settings.store
        async with fingerpost.Store.open(
            kept.url, audit=settings.flags.audit, secret=kept.secret, secret_file=kept.secret_file
        ) as store:
            return await work(store, settings)

    return anyio.run(run_opened)


def run_on_router(
    opened: CommonOptions | Loaded,
    work: Callable[[Router], Awaitable[R]],
    *,
    need_servers: bool = True,
    standalone: bool = False,
) -> R:
    """Open the router with these settings, run `work` on it and return its result."""
    loaded = opened if isinstance(opened, Loaded) else read_settings(opened)

    async def run_opened() -> R:
        async with (open_router if need_servers else open_any_router)(
            loaded, standalone=standalone
        ) as router:
            return await work(router)

    return anyio.run(run_opened)


def use_store(command: Callable[Concatenate[Store, Settings, P], Awaitable[R]]) -> Callable[P, R]:
    """Run a command on the store and the settings of its `common` options."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> R:
        common = options["common"]
        assert isinstance(common, CommonOptions)
        return run_on_store(common, lambda store, settings: command(store, settings, *args, **options))

    return run


def use_router(
    *, need_servers: bool = True, standalone: bool = False, wake: bool = False
) -> Callable[[Callable[Concatenate[Router, P], Awaitable[R]]], Callable[P, R]]:
    """Run a command on the router of its `common` options. `wake` first connects all servers."""

    def decorate(command: Callable[Concatenate[Router, P], Awaitable[R]]) -> Callable[P, R]:
        @wraps(command)
        def run(*args: P.args, **options: P.kwargs) -> R:
            async def work(router: Router) -> R:
                if wake:
                    await connect_servers(router, wake=True)
                return await command(router, *args, **options)

            common = options["common"]
            assert isinstance(common, CommonOptions)
            return run_on_router(common, work, need_servers=need_servers, standalone=standalone)

        return run

    return decorate


@asynccontextmanager
async def open_router(loaded: Loaded, *, standalone: bool = False) -> AsyncGenerator[Router]:
    """Open the router as `open_any_router` does. Raises `ConfigError` if no server is configured."""
    if not has_servers(loaded):
        raise ConfigError(
            "no servers are configured",
            hint="add one with `fingerpost servers add NAME -- COMMAND`, "
            "run `fingerpost import` to take over the servers of your other MCP clients, "
            "or name a file with --servers FILE (a standard mcpServers JSON)",
        )
    async with open_any_router(loaded, standalone=standalone) as router:
        yield router


def list_replaced_builtin(loaded: Loaded) -> list[str]:
    """Return the built-in servers that are enabled and give way to a configured server of their name."""
    configured = {spec.name for spec in loaded.specs}
    return [name for name in loaded.settings.builtin.enabled if name in configured]


def has_servers(loaded: Loaded) -> bool:
    """Return whether any server is configured."""
    settings = loaded.settings
    return bool(loaded.specs or settings.builtin.enabled or settings.extensions.servers)


@asynccontextmanager
async def open_service_router(loaded: Loaded) -> AsyncGenerator[Router]:
    """Open the router of a service: also without servers, and it applies changes of its settings files."""
    async with open_any_router(loaded, standalone=True, follow=True, frees_encoder=True) as router:
        yield router


@asynccontextmanager
async def open_any_router(
    loaded: Loaded, *, standalone: bool = False, follow: bool = False, frees_encoder: bool = False
) -> AsyncGenerator[Router]:
    """Open the router, also without servers. It reloads profile files when they change, and with `follow`
    all settings files. `frees_encoder` is that of `Router`.

    It uses the connections of a running gateway, unless it is `standalone` or the settings say otherwise.
    """
    if loaded.settings.builtin.enabled:
        from fingerpost.builtin import open_router as open_with_own_servers

        opened = open_with_own_servers(loaded.specs, settings=loaded.settings, frees_encoder=frees_encoder)
    else:
        opened = fingerpost.Router(loaded.specs, settings=loaded.settings, frees_encoder=frees_encoder)
    async with opened as router:
        if follow:
            router.follow_settings(loaded)
        elif loaded.profile_files is not None:
            router.follow_profiles(loaded.profile_files)
        if loaded.settings.lifecycle.use_gateway and not standalone:
            router.servers.use_gateways(router.store.location.gateway_sockets, _report_gateway)
        router.servers.keep_logs(router.store.location.logs)
        yield router


def _report_gateway(message: str) -> None:
    print_note(clean_text(message))


async def connect_servers(
    router: Router, *names: str | None, wait: float | None = None, wake: bool = False
) -> None:
    """Connect the named servers, or all if every name is None, and show on stderr which still connect.

    Servers that are asleep stay so: their tools are known. `wake` connects them, too. Return after `wait`
    seconds at most; None waits for all.
    """
    given = [name for name in names if name is not None]
    if wake:
        given = given or [status.name for status in router.servers.statuses]
    elif given:
        given = [name for name in given if router.servers.get_status(name).state is not ServerState.ASLEEP]
        if not given:
            return
    if (screen := open_error_terminal()) is None:
        await router.connect(*given, timeout=wait)
        return
    from rich.text import Text  # server names must not be parsed as markup

    with screen.status("connecting") as status:
        async with anyio.create_task_group() as group:

            async def show() -> None:
                while True:
                    status.update(Text(_format_waiting(router)))
                    await anyio.sleep(0.1)

            group.start_soon(show)
            await router.connect(*given, timeout=wait)
            group.cancel_scope.cancel()


VECTOR_TIMEOUT_S = 20.0  # a first run computes the vectors of all tools; after this time only words are used


async def settle_tools(router: Router, request: str | None = None) -> None:
    """Wait for the vectors of the tools, unless the request needs none, and show that on a terminal."""
    if (screen := open_error_terminal()) is None:
        await router.settle(VECTOR_TIMEOUT_S, request=request)
        return
    with screen.status("computing vectors of the tools (kept for the next time)"):
        await router.settle(VECTOR_TIMEOUT_S, request=request)


def format_tools(router: Router, status: ServerStatus) -> str:
    """Return how many tools can be used; `1 of 3` if the server lists others."""
    offered = router.catalog.count_offered(status.name)
    return f"{offered}" if offered == status.tools else f"{offered} of {status.tools}"


def _format_waiting(router: Router) -> str:
    statuses = router.servers.statuses
    waiting = [status.name for status in statuses if status.state in CONNECTING_STATES]
    names = ", ".join(clean_text(name) for name in waiting[:5]) + (" …" if len(waiting) > 5 else "")
    connected = f"connected {len(statuses) - len(waiting)} of {len(statuses)} servers"
    return f"{connected}, waiting for {names}" if names else connected


MIN_ID_PART_LENGTH: Final = 4


def match_id(given: str, known: Collection[str]) -> str:
    """Return the id of which `given` is the beginning or the end, with or without its kind (`apr_`), or
    `given` itself if there is none. Raises `CallError` if there are several.
    """
    if len(given) < MIN_ID_PART_LENGTH:
        return given
    found = {one for one in known if one.startswith(given) or one.partition("_")[2].startswith(given)} | {
        one for one in known if one.endswith(given)
    }
    if given in found or not found:
        return given
    if len(found) > 1:
        message = f"{given} is part of {len(found)} ids"
        raise CallError(message, hint=f"write more of it: {', '.join(sorted(found)[:MAX_NAMED_IDS])}")
    return found.pop()


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse `KEY=VALUE` (text) and `KEY:=JSON`. Later pairs win. Raises `BadParameter`."""
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip(":"):
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="KEY=VALUE")
        if not key.endswith(":"):
            given[key] = value
            continue
        parsed = read_arguments(f'{{"value": {value}}}')
        if isinstance(parsed, str):
            raise click.BadParameter(f"{pair}: {parsed}", param_hint="KEY:=JSON")
        given[key[:-1]] = parsed["value"]
    return given
