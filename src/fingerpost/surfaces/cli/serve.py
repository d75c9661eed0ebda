"""`fingerpost serve` and `fingerpost stdio`: everything on a port, or MCP for a client that starts us."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fingerpost.surfaces.cli.options import for_people, house_options, smart_routing_options

if TYPE_CHECKING:
    from fingerpost.settings import GatewaySettings, Loaded, Settings
    from fingerpost.store import Store


@click.command()
@house_options
@smart_routing_options
@click.option("--host", metavar="ADDRESS", help="Where to listen [default: 127.0.0.1, this machine alone].")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes any free port [default: 8642].")
@click.option("--mode", type=click.Choice(["auto", "route", "all"]), help="What /mcp offers [default: auto].")
@click.option("--profile", metavar="NAME", help="What everybody gets who names no profile.")
@click.option("--open", "open_browser", is_flag=True, help="Show the console in a browser, signed in.")
def serve(
    config: Path | None,
    servers: Path | None,
    as_json: bool,
    host: str | None,
    port: int | None,
    mode: str | None,
    profile: str | None,
    open_browser: bool,
) -> int:
    """Serve every configured server on one port, narrowed, guarded and explained.

    The console is at /. Any MCP client connects to /mcp, whichever protocol version it speaks: many
    tools are offered as find_tools, describe_tool, call_tool and read_result; few as themselves.
    Programs that speak the OpenAI API use /v1 as their base URL. The API is at /api. What changes
    something asks a person first: in the client, in the terminal or in the console.

    \b
    Examples:
      fingerpost serve --servers mcp.json --open
      fingerpost serve --port 9000 --mode all
      fingerpost keys add laptop && fingerpost serve --host 0.0.0.0
    """
    from fingerpost.surfaces.cli.house import Asked, read_settings
    from fingerpost.surfaces.cli.serving import serve_until_stopped

    loaded = with_wishes(read_settings(Asked(config, servers, as_json)), host=host, port=port, mode=mode)
    return serve_until_stopped(loaded, as_json=as_json, open_browser=open_browser, profile=profile)


@click.command()
@house_options
@for_people
@click.option("--open", "open_browser", is_flag=True, help="Show it in a browser.")
def console(config: Path | None, servers: Path | None, as_json: bool, open_browser: bool) -> int:
    """Print a link that signs you in to the console of a running `fingerpost serve`.

    Without it the console can look and ask. Deciding about calls, tools and servers takes the link
    (or a key with the right), because any tool can call an address of this machine. It works once,
    within 10 minutes; the browser then stays signed in for console.session_hours.

    \b
    Examples:
      fingerpost console
      fingerpost console --open
    """
    from fingerpost.surfaces.cli.house import with_store
    from fingerpost.surfaces.cli.screen import print_json
    from fingerpost.surfaces.web.access.addresses import reachable
    from fingerpost.surfaces.web.tickets import make_ticket, read_address, sign_in_page

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


@click.command()
@house_options
@smart_routing_options
@click.option("--mode", type=click.Choice(["auto", "route", "all"]), help="What is offered [default: auto].")
@click.option("--profile", metavar="NAME", help="Offer this profile of the settings instead.")
def stdio(
    config: Path | None, servers: Path | None, as_json: bool, mode: str | None, profile: str | None
) -> int:
    """The same gateway on standard input and output, for a client that starts a program.

    Put it into the client's configuration with `fingerpost install`. What there is to say goes to
    standard error; standard output belongs to the protocol.

    \b
    Examples:
      fingerpost stdio --servers mcp.json
      fingerpost stdio --profile support
    """
    from fingerpost.surfaces.cli.house import Asked, read_settings
    from fingerpost.surfaces.cli.serving import serve_one_client

    loaded = with_wishes(read_settings(Asked(config, servers, as_json)), mode=mode)
    return serve_one_client(loaded, profile=profile)


def with_wishes(loaded: Loaded, **wishes: object) -> Loaded:
    """The settings, with what the command line says about the gateway."""
    from dataclasses import replace

    given = {name: value for name, value in wishes.items() if value is not None}
    gateway: GatewaySettings = loaded.settings.gateway.model_copy(update=given)
    return replace(loaded, settings=loaded.settings.model_copy(update={"gateway": gateway}))
