"""`fingerpost servers`: how every server is doing, once or watched; signing in to one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.live import Live
from rich.text import Text

from fingerpost.events import encode
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run
from fingerpost.surfaces.cli.screen import count, output, plain, print_json, table

if TYPE_CHECKING:
    from rich.table import Table

    from fingerpost.records import ServerStatus
    from fingerpost.router import Router

COLOURS = {
    "ready": "green",
    "degraded": "yellow",
    "down": "red",
    "connecting": "cyan",
    "idle": "dim",
    "disabled": "dim",
}


def show_servers(
    *, config: Path | None, servers: Path | None, as_json: bool, wait: float, watch: bool
) -> int:
    """Connect every configured server and show how it is doing."""
    asked = Asked(config, servers, as_json)
    loaded = read_settings(asked)

    async def work() -> int:
        async with open_router(loaded) as router:
            if watch:
                await _watch(router, as_json=as_json)
                return 0
            await connect(router, wait=wait)
            _show(router.servers.statuses, as_json=as_json)
            return 0 if _anything_up(router.servers.statuses) else 1

    return run(work)


def sign_in(*, name: str, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Sign in to the server NAME with OAuth; the browser opens, the token is kept in the store."""
    loaded = read_settings(Asked(config, servers, as_json))

    async def work() -> int:
        async with open_router(loaded) as router:
            status = await router.sign_in(name, open_browser=_open_browser)
            click.echo(f"signed in; {name} is {status.state} with {status.tools} tools")
        return 0

    return run(work)


def _open_browser(url: str) -> None:
    click.echo(f"Open this address to sign in:\n  {url}")
    click.launch(url)


def _anything_up(statuses: tuple[ServerStatus, ...]) -> bool:
    enabled = [status for status in statuses if status.state != "disabled"]
    return not enabled or any(status.state in ("ready", "degraded") for status in enabled)


def _show(statuses: tuple[ServerStatus, ...], *, as_json: bool) -> None:
    if as_json:
        print_json([to_plain(status) for status in statuses])
    else:
        output().print(_table(statuses))


def _table(statuses: tuple[ServerStatus, ...]) -> Table:
    up = sum(status.state in ("ready", "degraded") for status in statuses)
    tools = sum(status.tools for status in statuses)
    made = table(
        f"{up} of {count(len(statuses), 'server')} up, {count(tools, 'tool')}",
        "server", "state", "via", "protocol", "connect", "tools", "note",
    )  # fmt: skip
    for column in (4, 5):
        made.columns[column].justify = "right"
    for status in statuses:
        made.add_row(
            Text(plain(status.name), style="bold"),
            Text(status.state, style=COLOURS[status.state]),
            status.transport,
            status.protocol or "",
            f"{status.connect_ms:.0f} ms" if status.connect_ms is not None else "",
            f"{status.tools}" if status.state in ("ready", "degraded") else "",
            Text(plain(status.reason or status.product or ""), style="" if status.reason else "dim"),
        )
    return made


async def _watch(router: Router, *, as_json: bool) -> None:
    """Until interrupted: a table that keeps itself current, or a line for every change into a pipe."""
    screen = output()
    with router.live.subscribe() as changes:
        router.servers.start()
        if screen.is_terminal and not as_json:
            with Live(_table(router.servers.statuses), console=screen, refresh_per_second=8) as live:
                async for _ in changes:
                    live.update(_table(router.servers.statuses))
        async for event in changes:
            if as_json:
                click.echo(encode(event))
            else:
                click.echo(f"{event.at:%H:%M:%S} {event.kind} {event.summary()}")
