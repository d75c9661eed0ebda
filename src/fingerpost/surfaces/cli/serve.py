"""`fingerpost serve` and `fingerpost stdio`: everything on a port, or MCP for a client that starts us."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fingerpost.surfaces.cli.house import Asked, read_settings, with_store
from fingerpost.surfaces.cli.screen import print_json
from fingerpost.surfaces.cli.serving import serve_one_client, serve_until_stopped
from fingerpost.surfaces.web.access.addresses import reachable
from fingerpost.surfaces.web.tickets import make_ticket, read_address, sign_in_page

if TYPE_CHECKING:
    from fingerpost.settings import GatewaySettings, Loaded, Settings
    from fingerpost.store import Store


def serve_gateway(
    *,
    config: Path | None,
    servers: Path | None,
    as_json: bool,
    host: str | None,
    port: int | None,
    mode: str | None,
    profile: str | None,
    open_browser: bool,
) -> int:
    """Serve every configured server on one port, narrowed, guarded and explained."""
    loaded = with_wishes(read_settings(Asked(config, servers, as_json)), host=host, port=port, mode=mode)
    return serve_until_stopped(loaded, as_json=as_json, open_browser=open_browser, profile=profile)


def print_console_link(
    *, config: Path | None, servers: Path | None, as_json: bool, open_browser: bool
) -> int:
    """Print a link that signs you in to the console of a running `fingerpost serve`."""

    async def work(store: Store, settings: Settings) -> str:
        gateway = settings.gateway
        set_up = gateway.public_url or f"http://{reachable(f'{gateway.host}:{gateway.port}')}"
        return sign_in_page(await read_address(store) or set_up, await make_ticket(store))

    page = with_store(config, servers, work)
    if as_json:
        print_json({"console": page})
    else:
        click.echo(page)
    if open_browser:
        click.launch(page)
    return 0


def serve_stdio_client(
    *, config: Path | None, servers: Path | None, as_json: bool, mode: str | None, profile: str | None
) -> int:
    """The same gateway on standard input and output, for a client that starts a program."""
    loaded = with_wishes(read_settings(Asked(config, servers, as_json)), mode=mode)
    return serve_one_client(loaded, profile=profile)


def with_wishes(loaded: Loaded, **wishes: object) -> Loaded:
    """The settings, with what the command line says about the gateway."""
    given = {name: value for name, value in wishes.items() if value is not None}
    gateway: GatewaySettings = loaded.settings.gateway.model_copy(update=given)
    return replace(loaded, settings=loaded.settings.model_copy(update={"gateway": gateway}))
