"""Commands that serve tools, declared as in `commands`."""

from __future__ import annotations

from typing import Any, Final

import click

from fingerpost.surfaces.cli.options import (
    FILE,
    common_options,
    people_only,
    run,
    smart_routing_options,
    wait_option,
)


@click.command()
@common_options
@smart_routing_options
@click.option("--host", metavar="ADDRESS", help="Where to listen [default: 127.0.0.1, this machine alone].")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes any free port [default: 8642].")
@click.option("--mode", type=click.Choice(["auto", "route", "all"]), help="What /mcp offers [default: auto].")
@click.option("--profile", metavar="NAME", help="What everybody gets who names no profile.")
@click.option("--open", "open_browser", is_flag=True, help="Show the console in a browser, signed in.")
def serve(**options: Any) -> Any:
    """Serve every configured server on one port, with routing, approvals and explanations.

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
    return run("services:serve_gateway", **options)


@click.command()
@common_options
@people_only
@click.option("--open", "open_browser", is_flag=True, help="Show it in a browser.")
def console(**options: Any) -> Any:
    """Print a link that signs you in to the console of a running `fingerpost serve`.

    Without it the console can look and ask. Deciding about calls, tools and servers takes the link
    (or a key with the right), because any tool can call an address of this machine. It works once,
    within 10 minutes; the browser then stays signed in for console.session_hours.

    \b
    Examples:
      fingerpost console
      fingerpost console --open
    """
    return run("services:print_console_link", **options)


@click.command()
@common_options
@smart_routing_options
@click.option("--mode", type=click.Choice(["auto", "route", "all"]), help="What is offered [default: auto].")
@click.option("--profile", metavar="NAME", help="Offer this profile of the settings instead.")
def stdio(**options: Any) -> Any:
    """The same gateway on standard input and output, for a client that starts a program.

    Put it into the client's configuration with `fingerpost install`. What there is to say goes to
    standard error; standard output belongs to the protocol.

    \b
    Examples:
      fingerpost stdio --servers mcp.json
      fingerpost stdio --profile support
    """
    return run("services:serve_stdio_client", **options)


@click.command()
@common_options
def discord(**options: Any) -> Any:
    """Answer on Discord, as a bot, until stopped.

    Mentions on servers and direct messages become requests; each mention opens a thread, and a
    thread is a conversation. What changes something waits for a person to press Approve. Needs the
    extra `discord` and a token in the settings: see docs/discord.md.

    \b
    Examples:
      fingerpost discord --servers mcp.json
    """
    return run("services:run_discord_bot", **options)


@click.command()
@click.argument("client", required=False)
@click.option("--mode", type=click.Choice(["auto", "route", "all"]), default="auto", help="What is offered.")
@click.option("--profile", metavar="NAME", help="Offer this profile of the settings instead.")
@click.option("--stdio", "way", flag_value="stdio", help="The client starts Fingerpost itself [default].")
@click.option("--http", "way", flag_value="http", help="The client connects to `fingerpost serve`.")
@click.option("--name", default="fingerpost", show_default=True, help="What the client calls it.")
@click.option("--project", is_flag=True, help="Write the file of this folder, not the one of the person.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--undo", is_flag=True, help="Take the entry out again.")
@click.option("--servers", type=FILE, metavar="FILE")
@click.option("--config", type=FILE, metavar="FILE")
def install(**options: Any) -> Any:
    """Write Fingerpost into the configuration of an MCP client.

    CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, zed,
    gemini-cli, codex, cline or roo-code; without one, those found here are
    listed. The change is shown first, everything else in the file stays as it
    is, comments too, and the old file is kept beside it.

    \b
    Examples:
      fingerpost install                          which clients are here
      fingerpost install cursor                   start Fingerpost from Cursor
      fingerpost install claude-code --http       connect to `fingerpost serve`
      fingerpost install vscode --profile support
      fingerpost install cursor --undo
    """
    return run("client_install:install_client", **options)


KEY_VARIABLE: Final = "FINGERPOST_BUILTIN_KEY"


PORT: Final = 8643


@click.command()
@click.argument("name", required=False)
@click.option(
    "--reviewed",
    is_flag=True,
    help="workspace: you have looked at what was written in its folder; commands may run its files again.",
)
@click.option("--http", is_flag=True, help="Serve it at an address instead, for callers with the key.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 takes any free port."
)
@click.option(
    "--key-file",
    type=FILE,
    metavar="FILE",
    help=f"The key is its first line [default: the variable {KEY_VARIABLE}].",
)
@common_options
def builtin(**options: Any) -> Any:
    """List our own servers, or run one of them alone, for any MCP client.

    Inside of Fingerpost they need no start of their own: name them in builtin.enabled. Alone, a server
    asks no person before it acts; that is then the client's part.

    \b
    Examples:
      fingerpost builtin                        which there are, and which are switched on
      fingerpost builtin knowledge              the knowledge base, on standard input and output
      fingerpost builtin workspace --reviewed   you have looked at what callers wrote there
      fingerpost builtin knowledge --http --key-file key.txt --port 9000
    """
    return run("builtin:run_builtin", **options)


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def profiles(ctx: click.Context, **options: Any) -> Any:
    """List, show, check and add profiles.

    A profile is a persona with its own choice of tools, instructions and rules:
    a table [profiles.NAME] in fingerpost.toml, or a file profiles/NAME.toml
    beside it. Files are taken up while Fingerpost runs.

    \b
    Examples:
      fingerpost profiles                      every profile there is
      fingerpost profiles show support         its tools, and the prompt it makes
      fingerpost profiles add v0.3 v1 kb       tool sets by API version
      fingerpost profiles check                what is wrong with the files
    """
    return None if ctx.invoked_subcommand is not None else run("config:list_profiles", **options)


@profiles.command("list")
@common_options
def profiles_list(**options: Any) -> Any:
    """List the profiles: what each is for, who may use it, when it is meant, where it is written.

    \b
    Example:
      fingerpost profiles list --json
    """
    return run("config:list_profiles", **options)


@profiles.command("show")
@click.argument("name")
@click.option("--prompt", is_flag=True, help="Also print the system prompt it makes.")
@common_options
@wait_option
def profiles_show(**options: Any) -> Any:
    """Show what the profile NAME comes to with the servers there are: its tools, and its prompt.

    \b
    Examples:
      fingerpost profiles show researcher
      fingerpost profiles show v0.3 --prompt
    """
    return run("config:show_profile", **options)


@profiles.command("check")
@common_options
def profiles_check(**options: Any) -> Any:
    """Explain what is wrong with profiles: file, line and fix. Exit code 1 when something is.

    \b
    Example:
      fingerpost profiles check --config team/fingerpost.toml
    """
    return run("config:check_profiles", **options)


@profiles.command("add")
@click.argument("names", nargs=-1, metavar="[EXAMPLE]...")
@common_options
def profiles_add(**options: Any) -> Any:
    """Write ready profiles into the folder of profiles; without a name, list those there are.

    What is written is a file like any other: change it as you like. A file that is
    there already is left alone.

    \b
    Examples:
      fingerpost profiles add
      fingerpost profiles add v0.3 v1 kb
      fingerpost profiles add researcher
    """
    return run("config:add_profiles", **options)


EFFECTS = ("read", "write", "destroy")


RIGHTS = ("use", "watch", "confirm", "approve", "manage")


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def keys(ctx: click.Context, **options: Any) -> Any:
    """Make, list and revoke the API keys of the gateway.

    Callers over a network need a key, sent as
    `Authorization: Bearer …` or `X-API-Key: …`. A key can be bound to servers,
    tools, effects and profiles; bounds of one kind add up, bounds of several
    kinds must all hold. Only a hash of a key is kept.

    What its holder may do: use (call tools, ask, chat; the default), watch (see
    everybody's requests, the figures, the audit trail), approve (decide what
    waits for a person), manage (switch tools and servers, accept changes).

    \b
    Examples:
      fingerpost keys                                   every key there is
      fingerpost keys add laptop                        a key to everything
      fingerpost keys add ci --server git --effect read --expires 30d
      fingerpost keys add anna --may use --may watch --may approve
      fingerpost keys revoke ci                         it opens nothing from now on
    """
    return None if ctx.invoked_subcommand is not None else run("keys:list_keys", **options)


@keys.command("add")
@click.argument("name")
@click.option(
    "--server", "only_servers", multiple=True, metavar="NAME", help="Only this server, `*` allowed."
)
@click.option(
    "--tool", "tools", multiple=True, metavar="KEY", help="Only this tool, `server/tool`, `*` allowed."
)
@click.option(
    "--effect", "effects", multiple=True, type=click.Choice(EFFECTS), help="Only tools that do this."
)
@click.option(
    "--profile", "profiles", multiple=True, metavar="NAME", help="Only the endpoint of this profile."
)
@click.option(
    "--may", "rights", multiple=True, type=click.Choice(RIGHTS), help="What its holder may do [default: use]."
)
@click.option("--expires", metavar="WHEN", help="After 30d, 12h or 45m, or on a date such as 2027-01-31.")
@click.option("--same-holder", is_flag=True, help="An earlier key had this name, and was theirs.")
@common_options
@people_only
def keys_add(**options: Any) -> Any:
    """Make a key for NAME and show it, this once.

    \b
    Examples:
      fingerpost keys add laptop
      fingerpost keys add ci --server git --effect read --expires 30d
      fingerpost keys add support --profile support
      fingerpost keys add anna --may use --may watch --may approve
    """
    return run("keys:add_key", **options)


@keys.command("list")
@common_options
def keys_list(**options: Any) -> Any:
    """List the keys: what each opens, until when, and when it was last used.

    \b
    Example:
      fingerpost keys list --json
    """
    return run("keys:list_keys", **options)


@keys.command("revoke")
@click.argument("name")
@common_options
@people_only
def keys_revoke(**options: Any) -> Any:
    """Revoke the key NAME (or this id). A running gateway rejects it within seconds.

    \b
    Example:
      fingerpost keys revoke ci
    """
    return run("keys:revoke_key", **options)
