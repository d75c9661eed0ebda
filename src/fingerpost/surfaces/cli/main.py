"""The command's front door. Kept light: `--help` loads click, its colours and this file, nothing else.

Each command lives in its own module and is loaded when it is named. Its one
line in the overview stands here, so that showing the overview loads none.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Final, NamedTuple

import click

from fingerpost import __version__
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.outcome import guarded
from fingerpost.surfaces.cli.streams import make_usable


class Entry(NamedTuple):
    """One command: where it lives, under which heading it is shown, what it does."""

    where: str
    heading: str
    summary: str


COLLECT_AFTER: Final = 20_000

LOOK: Final = "See what there is"
ACT: Final = "Ask and call"
SERVE: Final = "Serve"
SET_UP: Final = "Set up"
TRUST: Final = "Trust"

COMMANDS: Final = {
    "servers": Entry("commands:servers", LOOK, "Connect every server and show how it is doing"),
    "tools": Entry("commands:tools", LOOK, "List the tools of all servers, or those that match some words"),
    "tool": Entry("commands:tool", LOOK, "Show everything known about one tool, and from where"),
    "route": Entry("commands:route", LOOK, "Show which tools a request would be offered, and why"),
    "why": Entry("commands:why", LOOK, "Say why one tool is or is not offered for a request"),
    "learned": Entry("commands:learned", LOOK, "Show what was learned from use and feedback, or forget it"),
    "insight": Entry("commands:insight", LOOK, "Show figures over time, and both arms of every rollout"),
    "compare": Entry("commands:compare", LOOK, "Show what routing saves for a request: tools, tokens, time"),
    "ask": Entry("commands:ask", ACT, "Answer a request, with a tool where it needs one"),
    "chat": Entry("commands:chat", ACT, "Talk with your tools: answers, approvals, and why"),
    "call": Entry("commands:call", ACT, "Call a tool, with repair, policy, approval and progress"),
    "prefer": Entry("commands:prefer", ACT, "Say whether you want quick or thorough answers"),
    "feedback": Entry("commands:feedback", ACT, "Say whether a request got the right tool"),
    "trace": Entry("commands:trace", ACT, "Draw the journey of one call"),
    "result": Entry("commands:result", ACT, "Fetch the rest of a long result"),
    "breakers": Entry("commands:breakers", ACT, "Show the circuit breakers of servers"),
    "serve": Entry("server_commands:serve", SERVE, "Serve all tools at one MCP address, for any client"),
    "console": Entry("server_commands:console", SERVE, "Print a link that signs you in to the console"),
    "stdio": Entry("server_commands:stdio", SERVE, "The same for a client that starts a program"),
    "discord": Entry("server_commands:discord", SERVE, "Answer on Discord, as a bot"),
    "install": Entry(
        "server_commands:install", SERVE, "Write Fingerpost into the configuration of an MCP client"
    ),
    "builtin": Entry("server_commands:builtin", SERVE, "List our own servers, or run one of them alone"),
    "profiles": Entry("server_commands:profiles", SERVE, "List, show, check and add profiles"),
    "keys": Entry("server_commands:keys", SERVE, "Make, list and revoke the gateway's API keys"),
    "eval": Entry(
        "setup_commands:eval_", SET_UP, "Measure how well requests find their tools, and compare settings"
    ),
    "doctor": Entry(
        "setup_commands:doctor", SET_UP, "Say what is wrong with the set-up, in order of what to fix"
    ),
    "import": Entry(
        "setup_commands:import_", SET_UP, "Find and merge the configurations of other MCP clients"
    ),
    "config": Entry(
        "setup_commands:config", SET_UP, "Check the settings, or show where each value comes from"
    ),
    "completion": Entry("setup_commands:completion", SET_UP, "Print the completion script for your shell"),
    "approvals": Entry("setup_commands:approvals", TRUST, "Approve, edit or reject calls that wait for you"),
    "pins": Entry(
        "setup_commands:pins", TRUST, "Review tools whose definition changed since it was first seen"
    ),
    "audit": Entry("setup_commands:audit", TRUST, "Verify that the audit trail was not tampered with"),
}

EXAMPLES: Final = """\
Examples:
  fingerpost servers --servers mcp.json       every server in the file, live
  fingerpost ask "what time is it in Oslo?"   an answer, with a tool where it needs one
  fingerpost tools weather                    the tools that mention weather
  fingerpost doctor                           what to fix first
"""


class FrontDoor(click.Group):
    """A group that loads a command when it is used, and shows commands under headings."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.where.partition(":")
        command = getattr(import_module(f"fingerpost.surfaces.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{_did_you_mean(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading in (LOOK, ACT, SERVE, SET_UP, TRUST):
            with formatter.section(styled(heading, bold=True)):
                formatter.write_dl(
                    [
                        (styled(name, fg="cyan"), entry.summary)
                        for name, entry in COMMANDS.items()
                        if entry.heading == heading
                    ]
                )


def _did_you_mean(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(COMMANDS)}."


@click.group(
    cls=FrontDoor,
    epilog="\b\n" + EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def fingerpost() -> None:
    """The intelligent router between language models and tools.

    Point it at the MCP servers you have (a standard mcpServers file) and see
    what they offer. Settings are read from fingerpost.toml, the environment
    and the options of each command, the later ones winning.
    """


def main() -> None:
    """Run the command; whatever goes wrong becomes one message and an exit code."""
    make_usable()
    # Loading what serves makes more than a hundred thousand objects that all stay: looking through them again
    # and again for garbage, as Python does after every 700, takes a twentieth of the start.
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    sys.exit(guarded(fingerpost))
