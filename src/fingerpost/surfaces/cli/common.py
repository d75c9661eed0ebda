"""Shared by the commands: read settings, open the store or the router, connect servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import click

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.llm.content import read_arguments
from fingerpost.records import ServerState
from fingerpost.settings import Loaded, Settings, load
from fingerpost.surfaces.cli.options import OVERRIDES_KEY
from fingerpost.surfaces.cli.screen import clean_text, get_error_output
from fingerpost.surfaces.cli.streams import style_text

if TYPE_CHECKING:
    # Imported in `open_any_router`, because it is slow.
    from fingerpost.router import Router
    from fingerpost.store import Store


R = TypeVar("R")

CONNECTING_STATES = (ServerState.IDLE, ServerState.CONNECTING)


@frozen(kw_only=False)
class CommonOptions:
    """The options that every command takes."""

    config: Path | None
    servers: Path | None
    as_json: bool


def run_async(work: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run `work` on a new event loop."""
    return anyio.run(work)


def read_settings(options: CommonOptions) -> Loaded:
    """Load the settings and print their warnings to stderr."""
    context = click.get_current_context(silent=True)
    overrides: dict[str, object] = {} if context is None else context.meta.get(OVERRIDES_KEY, {})
    loaded = load(config=options.config, servers=options.servers, overrides=overrides)
    for warning in loaded.warnings:
        fix = f" (fix: {clean_text(warning.fix)})" if warning.fix else ""
        click.echo(style_text("warning: ", fg="yellow") + clean_text(str(warning)) + fix, err=True)
    return loaded


def run_on_store(
    config: Path | None, servers: Path | None, work: Callable[[Store, Settings], Awaitable[R]]
) -> R:
    """Open the store, run `work` on it and return its result."""
    # Loads the database library; commands that only read settings do not need it.
    from fingerpost.store import Store

    settings = read_settings(CommonOptions(config, servers, as_json=False)).settings

    async def run_opened() -> R:
        async with Store.open(settings.store.url, audit=settings.flags.audit) as store:
            return await work(store, settings)

    return run_async(run_opened)


@asynccontextmanager
async def open_router(loaded: Loaded) -> AsyncGenerator[Router]:
    """Open the router. Raises `ConfigError` if no server is configured."""
    settings = loaded.settings
    if not loaded.specs and not settings.builtin.enabled and not settings.extensions.servers:
        message = "no servers are configured"
        raise ConfigError(
            message,
            hint="name a file with --servers FILE (a standard mcpServers JSON), "
            "run `fingerpost import` to find the servers of your other MCP clients, "
            "or switch on one of our own: `fingerpost builtin` lists them",
        )
    async with open_any_router(loaded) as router:
        yield router


@asynccontextmanager
async def open_any_router(loaded: Loaded) -> AsyncGenerator[Router]:
    """Open the router, also without servers."""
    if loaded.settings.builtin.enabled:
        # Takes seconds to import; needed only if a built-in server is enabled.
        from fingerpost.builtin import open_router as with_own_servers

        async with with_own_servers(loaded.specs, settings=loaded.settings) as router:
            _follow_profiles(router, loaded)
            yield router
        return
    # Loads the MCP library, which takes seconds; commands that only use the store do not need it.
    from fingerpost.router import Router

    async with Router(loaded.specs, settings=loaded.settings) as router:
        _follow_profiles(router, loaded)
        yield router


def _follow_profiles(router: Router, loaded: Loaded) -> None:
    """Reload profile files when they change."""
    if loaded.profile_files is not None:
        router.follow_profiles(loaded.profile_files)


async def connect_servers(router: Router, *names: str, wait: float | None = None) -> None:
    """Connect the servers and show on stderr which are still connecting.

    Return after `wait` seconds at most; None waits for all.
    """
    screen = get_error_output()
    if not screen.is_terminal:
        await router.connect(*names, timeout=wait)
        return
    from rich.text import Text  # server names must not be parsed as markup

    with screen.status("connecting") as status:
        async with anyio.create_task_group() as group:

            async def show() -> None:
                while True:
                    status.update(Text(_format_waiting(router)))
                    await anyio.sleep(0.1)

            group.start_soon(show)
            await router.connect(*names, timeout=wait)
            group.cancel_scope.cancel()


def _format_waiting(router: Router) -> str:
    statuses = router.servers.statuses
    waiting = [status.name for status in statuses if status.state in CONNECTING_STATES]
    names = ", ".join(clean_text(name) for name in waiting[:5]) + (" …" if len(waiting) > 5 else "")
    return f"connected {len(statuses) - len(waiting)} of {len(statuses)} servers, waiting for {names}"


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse `KEY=VALUE` (text) and `KEY:=JSON`. Later pairs win. Raises `BadParameter`."""
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip(":"):
            message = f"{pair!r} is not KEY=VALUE"
            raise click.BadParameter(message, param_hint="KEY=VALUE")
        if key.endswith(":"):
            given[key[:-1]] = _parse_json_value(pair, value)
        else:
            given[key] = value
    return given


def _parse_json_value(pair: str, value: str) -> Any:
    parsed = read_arguments(f'{{"value": {value}}}')
    if isinstance(parsed, str):
        message = f"{pair}: {parsed}"
        raise click.BadParameter(message, param_hint="KEY:=JSON")
    return parsed["value"]
