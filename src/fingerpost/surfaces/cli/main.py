"""The root command: the overview of commands, error messages and exit codes.

Only click and light modules are imported here, because `fingerpost --help` loads this module. The module
that declares a command is imported when the command is named.

Exit codes:

    0  success       1  it ran, and found something wrong (a server down, nothing matched)
    2  the command or the configuration is wrong
    3  Fingerpost could not do it (store, server)      70  a bug in Fingerpost
    130  interrupted

`FINGERPOST_DEBUG=1` adds the traceback to an error message.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from importlib import import_module
from typing import Final, NamedTuple

import click

from fingerpost import __version__
from fingerpost.errors import ConfigError, FingerpostError
from fingerpost.surfaces.cli.streams import discard_errors, discard_output, make_streams_usable, style_text

EXIT_OK = 0
EXIT_FOUND_WRONG = 1
EXIT_USAGE = 2
EXIT_FAILED = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
# A full disk, a quota, a file size limit, a failing device: not bugs that a user should report.
_WRITE_ERROR_NUMBERS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run_guarded(command: click.Command) -> int:
    """Run `command`, print errors as messages and return the exit code."""
    try:
        result: object = command.main(prog_name="fingerpost", standalone_mode=False)
        sys.stdout.flush()  # report write errors here, not at the interpreter's exit
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except click.ClickException as misuse:
        misuse.show()
        return misuse.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit):  # rich exits with SystemExit when the output is closed
        return _handle_closed_pipe()
    except BaseExceptionGroup as group:
        return _report_group(group)
    except Exception as error:  # noqa: BLE001 - the boundary: nothing raw goes past it
        return _report_error(error)
    return result if isinstance(result, int) else EXIT_OK


def _report_group(group: BaseExceptionGroup[BaseException]) -> int:
    """Print the first error of an exception group and return the exit code."""
    for cause in group.exceptions:
        if isinstance(cause, BaseExceptionGroup):
            return _report_group(cause)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(cause, KeyboardInterrupt):
            return EXIT_INTERRUPTED
        if isinstance(cause, BrokenPipeError | SystemExit):
            return _handle_closed_pipe()
        return _report_error(cause)
    return EXIT_BUG


def _report_error(error: BaseException) -> int:
    _show_traceback(error)
    if isinstance(error, FingerpostError):
        _print_line(style_text("error: ", fg="red", bold=True) + str(error))
        if error.hint:
            _print_line(style_text("  fix: ", fg="green") + error.hint)
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    if isinstance(error, OSError) and error.errno in _WRITE_ERROR_NUMBERS:
        discard_output()
        _print_line(style_text("error: ", fg="red", bold=True) + f"this cannot be written: {error.strerror}")
        _print_line(style_text("  fix: ", fg="green") + "Make room where it goes, or send it somewhere else.")
        return EXIT_FAILED
    _print_line(style_text("This is a bug in Fingerpost: ", fg="red", bold=True) + f"{type(error).__name__}")
    _print_line("Run the same command with FINGERPOST_DEBUG=1 and report what it prints.")
    return EXIT_BUG


def _print_line(line: str) -> None:
    # Only errors need the secret patterns: compiling them would slow down every `--help`.
    from fingerpost.redaction import scrub

    try:
        click.echo(scrub(line), err=True)
    except OSError:  # this cannot be written either
        discard_errors()


def _show_traceback(error: BaseException) -> None:
    if os.environ.get("FINGERPOST_DEBUG") == "1":
        import traceback

        _print_line("".join(traceback.format_exception(error)))


def _handle_closed_pipe() -> int:
    """Return 0 without output: the reader of stdout has closed it."""
    discard_output()
    return EXIT_OK


class CommandEntry(NamedTuple):
    """One command: its declaration, heading and summary in the overview."""

    where: str
    heading: str
    summary: str


GC_THRESHOLD: Final = 20_000

LOOK: Final = "See what there is"
ACT: Final = "Ask and call"
SERVE: Final = "Serve"
SET_UP: Final = "Set up"
TRUST: Final = "Trust"

COMMANDS: Final = {
    "servers": CommandEntry("commands:servers", LOOK, "Connect every server and show how it is doing"),
    "tools": CommandEntry(
        "commands:tools", LOOK, "List the tools of all servers, or those that match some words"
    ),
    "tool": CommandEntry("commands:tool", LOOK, "Show everything known about one tool, and from where"),
    "route": CommandEntry("commands:route", LOOK, "Show which tools a request would be offered, and why"),
    "why": CommandEntry("commands:why", LOOK, "Say why one tool is or is not offered for a request"),
    "learned": CommandEntry(
        "commands:show_learned", LOOK, "Show what was learned from use and feedback, or forget it"
    ),
    "insight": CommandEntry(
        "commands:insight", LOOK, "Show figures over time, and both arms of every rollout"
    ),
    "compare": CommandEntry(
        "commands:compare", LOOK, "Show what routing saves for a request: tools, tokens, time"
    ),
    "ask": CommandEntry("commands:ask", ACT, "Answer a request, with a tool where it needs one"),
    "chat": CommandEntry("commands:chat", ACT, "Talk with your tools: answers, approvals, and why"),
    "call": CommandEntry("commands:call", ACT, "Call a tool, with repair, policy, approval and progress"),
    "prefer": CommandEntry("commands:prefer", ACT, "Say whether you want quick or thorough answers"),
    "feedback": CommandEntry("commands:feedback", ACT, "Say whether a request got the right tool"),
    "trace": CommandEntry("commands:trace", ACT, "Show the events of one call"),
    "result": CommandEntry("commands:result", ACT, "Fetch the rest of a long result"),
    "breakers": CommandEntry("commands:breakers", ACT, "Show the circuit breakers of servers"),
    "serve": CommandEntry(
        "server_commands:serve", SERVE, "Serve all tools at one MCP address, for any client"
    ),
    "console": CommandEntry(
        "server_commands:console", SERVE, "Print a link that signs you in to the console"
    ),
    "stdio": CommandEntry("server_commands:stdio", SERVE, "The same for a client that starts a program"),
    "discord": CommandEntry("server_commands:discord", SERVE, "Answer on Discord, as a bot"),
    "install": CommandEntry(
        "server_commands:install", SERVE, "Write Fingerpost into the configuration of an MCP client"
    ),
    "builtin": CommandEntry(
        "server_commands:builtin", SERVE, "List our own servers, or run one of them alone"
    ),
    "profiles": CommandEntry("server_commands:profiles", SERVE, "List, show, check and add profiles"),
    "keys": CommandEntry("server_commands:keys", SERVE, "Make, list and revoke the gateway's API keys"),
    "eval": CommandEntry(
        "setup_commands:eval_", SET_UP, "Measure how well requests find their tools, and compare settings"
    ),
    "doctor": CommandEntry(
        "setup_commands:doctor", SET_UP, "Say what is wrong with the set-up, in order of what to fix"
    ),
    "import": CommandEntry(
        "setup_commands:import_", SET_UP, "Find and merge the configurations of other MCP clients"
    ),
    "config": CommandEntry(
        "setup_commands:config", SET_UP, "Check the settings, or show where each value comes from"
    ),
    "completion": CommandEntry(
        "setup_commands:completion", SET_UP, "Print the completion script for your shell"
    ),
    "approvals": CommandEntry(
        "setup_commands:approvals", TRUST, "Approve, edit or reject calls that wait for you"
    ),
    "pins": CommandEntry(
        "setup_commands:pins", TRUST, "Review tools whose definition changed since it was first seen"
    ),
    "audit": CommandEntry("setup_commands:audit", TRUST, "Verify that the audit trail was not tampered with"),
}

EXAMPLES: Final = """\
Examples:
  fingerpost servers --servers mcp.json       every server in the file, live
  fingerpost ask "what time is it in Oslo?"   an answer, with a tool where it needs one
  fingerpost tools weather                    the tools that mention weather
  fingerpost doctor                           what to fix first
"""


class LazyGroup(click.Group):
    """A group that imports a command when it is used and lists commands under headings."""

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
            ctx.fail(f"No such command {args[0]!r}.{_suggest_command(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading in (LOOK, ACT, SERVE, SET_UP, TRUST):
            with formatter.section(style_text(heading, bold=True)):
                formatter.write_dl(
                    [
                        (style_text(name, fg="cyan"), entry.summary)
                        for name, entry in COMMANDS.items()
                        if entry.heading == heading
                    ]
                )


def _suggest_command(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(COMMANDS)}."


@click.group(
    cls=LazyGroup,
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
    """Run the command and exit with its exit code."""
    make_streams_usable()
    # Importing the server creates more than a hundred thousand objects that stay alive. The default garbage
    # collection after every 700 new objects would take 5 % of the startup.
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    sys.exit(run_guarded(fingerpost))


def print_completion(*, shell: str) -> None:
    """Print the completion script for SHELL."""
    from click.shell_completion import get_completion_class  # click itself imports it only when needed

    script = get_completion_class(shell)
    assert script is not None
    complete = script(
        click.get_current_context().find_root().command, {}, "fingerpost", "_FINGERPOST_COMPLETE"
    )
    # Not complete.source(): it first runs bash to ask its version, which a pipe does not need.
    click.echo(complete.source_template % complete.source_vars())
