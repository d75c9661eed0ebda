"""`fingerpost discord`: the tools on Discord."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.house import Asked, open_router, read_settings, run
from fingerpost.surfaces.cli.screen import count, plain, print_json
from fingerpost.surfaces.discord.library import load

if TYPE_CHECKING:
    from fingerpost.settings import DiscordSettings, Loaded
    from fingerpost.surfaces.discord.running import Arrived


def run_discord_bot(*, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Answer on Discord, as a bot, until stopped."""
    loaded = read_settings(Asked(config, servers, as_json))
    load()
    return _talk(loaded, as_json=as_json)


def _talk(loaded: Loaded, *, as_json: bool) -> int:
    from fingerpost.surfaces.discord.running import connected, token_of

    settings = loaded.settings.discord
    _hear_of_trouble()

    async def work() -> int:
        token_of(settings)  # a person without one should not wait for servers first
        async with open_router(loaded) as router:
            router.servers.start()
            async with connected(router, settings) as arrived:
                _announce(arrived, settings, as_json=as_json)
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    async with anyio.create_task_group() as tasks:

                        async def stop_when_told() -> None:
                            async for _ in signals:
                                tasks.cancel_scope.cancel()

                        tasks.start_soon(stop_when_told)
                        await arrived.lost.wait()
                        tasks.cancel_scope.cancel()
            if arrived.why:
                raise arrived.why[0]
        return 0

    return run(work)


def _hear_of_trouble() -> None:
    """Lines that break and come back, and limits that are reached, as the library tells of them."""
    from fingerpost.surfaces.discord.running import OneLine

    told = logging.getLogger("discord")
    told.addHandler(OneLine(lambda line: click.echo(styled("discord: ", dim=True) + line, err=True)))
    told.propagate = False


def _announce(arrived: Arrived, settings: DiscordSettings, *, as_json: bool) -> None:
    own = arrived.own
    if as_json:
        print_json({"name": str(own), "id": str(own.id), "servers": arrived.servers})
        return
    name = styled(plain(str(own)), bold=True)
    click.echo(f"On Discord as {name}, on {count(arrived.servers, 'server')} (Ctrl-C stops it)")
    if not (settings.users or settings.roles):
        where = "those servers" if settings.servers else "every server it is on, and in private"
        note = f"it answers everybody on {where}; discord.users and discord.roles say whom"
        click.echo(styled("note: ", fg="yellow") + note, err=True)
    if not settings.approvers:
        note = "nobody may approve what others ask for; discord.approvers says who may"
        click.echo(styled("note: ", fg="yellow") + note, err=True)
