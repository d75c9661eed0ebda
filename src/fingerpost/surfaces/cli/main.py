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
import re
import sys
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from fingerpost import __version__
from fingerpost.errors import ConfigError, FingerpostError
from fingerpost.surfaces.cli.streams import discard_errors, discard_output, make_streams_usable, style_text

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_OK = 0
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
        if isinstance(misuse, click.NoSuchOption) and (advice := _advise_on_server_command(sys.argv[1:])):
            misuse = click.UsageError(f"{misuse.message} {advice}", misuse.ctx)
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


def _advise_on_server_command(words: list[str]) -> str | None:
    """Return advice if an option of the command of `servers add NAME COMMAND` was taken for one of ours."""
    given = list(takewhile(lambda word: not word.startswith("-"), words))
    if given[:2] not in (["servers", "add"], ["servers", "edit"]) or len(given) < len(
        ("servers", "add", "NAME", "COMMAND")
    ):
        return None
    command = " ".join(given[3:])
    return f"Put -- before the command: fingerpost servers {given[1]} {given[2]} -- {command} …"


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
        _print_line(
            style_text("error: ", fg="red", bold=True) + f"the output cannot be written: {error.strerror}"
        )
        _print_line(style_text("  fix: ", fg="green") + "Free some space there, or write it somewhere else.")
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

        shown = traceback.TracebackException.from_exception(error)
        shown.__notes__ = None  # the hint is printed below
        _print_line("".join(shown.format()))


def _handle_closed_pipe() -> int:
    """Return 0 without output: the reader of stdout has closed it."""
    discard_output()
    return EXIT_OK


class CommandHelp(NamedTuple):
    """The help of one command; heading and summary are for the overview."""

    heading: str
    summary: str
    text: str
    epilog: str


GC_THRESHOLD: Final = 100_000
_SECTION: Final = re.compile(r"^(#+) ([^:\n]+)(?:: (.*))?\n", re.MULTILINE)
_EXAMPLES: Final = re.compile(r"^(?=Examples?:$)", re.MULTILINE)


def _read_help() -> dict[str, CommandHelp]:
    """Read `help.txt`: the help of every command by its path, and of the root under an empty path.

    A section begins with `## PATH: SUMMARY`, under `# HEADING`. What follows a line `---` is the epilog.
    """
    # Not with pathlib, which takes longer to load than the file.
    with open(os.path.join(os.path.dirname(__file__), "help.txt"), encoding="utf-8") as file:  # noqa: PTH118, PTH120, PTH123
        first, *parts = _SECTION.split(file.read())
    found = {"": _parse_help("", "", first)}
    heading = ""
    for level, name, summary, body in zip(*[iter(parts)] * 4, strict=True):
        if level == "#":
            heading = name
        else:
            found[name] = _parse_help(heading, summary or "", body)
    return found


def _parse_help(heading: str, summary: str, body: str) -> CommandHelp:
    text, _, epilog = body.partition("---\n")
    keep_lines = "\b\n"  # click then keeps the line breaks of a paragraph
    text = _EXAMPLES.sub(keep_lines, text.strip())
    epilog = keep_lines + epilog.strip().replace("\n\n", f"\n\n{keep_lines}") if epilog else ""
    return CommandHelp(heading, summary, text, epilog)


HELP: Final = _read_help()


class CommandGroup(click.Group):
    """A group that builds a command when it is used. The root lists its commands under headings."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        prefix = f"{self.name} " if self.name else ""
        names = [path.removeprefix(prefix) for path in HELP if path and path.startswith(prefix)]
        found = [name for name in names if " " not in name]
        return sorted(found) if self.name else found

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        commands = import_module("fingerpost.surfaces.cli.commands")
        return commands.build_command(f"{self.name} {cmd_name}" if self.name else cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            if not self.name:
                ctx.fail(f"There is no command {args[0]!r}.{_suggest_command(args[0], known)}")
            near = _suggest_spelling(args[0], known)
            advice = f" Did you mean `fingerpost {self.name} {near}`?" if near else ""
            ctx.fail(
                f"`fingerpost {self.name}` has no command {args[0]!r}.{advice} It has: {', '.join(known)}."
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.name:
            super().format_commands(ctx, formatter)
            return
        known = self.list_commands(ctx)
        for heading in dict.fromkeys(HELP[name].heading for name in known):
            with formatter.section(style_text(heading, bold=True)):
                formatter.write_dl(
                    [
                        (style_text(name, fg="cyan"), HELP[name].summary)
                        for name in known
                        if HELP[name].heading == heading
                    ]
                )


# What people call the commands of other programs, and the command here that does it.
_COMMANDS_BY_MEANING: Final = {
    "route": "search find match pick select recommend",
    "servers add": "add connect register new create mcp",
    "servers remove": "remove delete rm uninstall disconnect",
    "servers": "ls list server",
    "serve": "start run up gateway daemon listen proxy",
    "stdio": "pipe",
    "ask": "query prompt answer question do",
    "chat": "talk repl shell interactive",
    "call": "invoke exec execute tools-call",
    "status": "ps info state health running",
    "logs": "log tail stderr output",
    "doctor": "diagnose debug troubleshoot fix verify",
    "approvals": "pending waiting permissions",
    "approvals approve": "approve allow accept confirm yes",
    "approvals reject": "reject deny refuse",
    "trace": "show inspect history events",
    "insight": "stats statistics metrics usage figures",
    "why": "explain reason",
    "install": "setup init configure integrate",
    "config": "settings set get edit preferences",
    "config path": "where path file",
    "console": "ui web dashboard browser open",
    "keys": "key token tokens auth apikey",
    "users": "user people accounts",
    "quotas": "quota limit limits rate-limit throttle",
    "servers login": "login signin sign-in oauth authenticate",
    "store backup": "backup dump save",
    "store prune": "clean cleanup gc",
    "pins": "pin trust review quarantine",
    "scan": "scanner poison poisoned suspicious injection",
    "eval": "test benchmark measure evaluate",
    "learned": "learn memory forget",
    "profiles": "profile persona",
    "--version": "version",
    "--help": "help commands usage",
}


def _suggest_command(word: str, known: list[str]) -> str:
    """Suggest the command of this meaning, else the one spelled most alike, else one of similar meaning."""
    paths = {other: path for path, words in _COMMANDS_BY_MEANING.items() for other in words.split()}
    paths |= {name: name for name in known}
    lower = word.lower()
    near = (
        lower if lower in paths else _suggest_spelling(lower, known, 0.75) or _suggest_spelling(lower, paths)
    )
    if near is None:
        return " `fingerpost --help` lists all commands."
    return f" Did you mean `fingerpost {paths[near]}`?"


def _suggest_spelling(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word spelled most like this one, or None."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word.lower(), [*known], n=1, cutoff=cutoff)), None)


fingerpost = CommandGroup(
    help=HELP[""].text,
    epilog=HELP[""].epilog,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[],
)
click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")(fingerpost)


def main() -> None:
    """Run the command and exit with its exit code."""
    make_streams_usable()
    # Pydantic would read the metadata of all installed packages to find plugins, which settings do not need.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Loading a command creates more than a hundred thousand objects that stay alive. `run_command` turns
    # garbage collection on again without them; with them it would take a twentieth of a command.
    gc.disable()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    code = run_guarded(fingerpost)
    gc.freeze()  # or Python looks through all of them several times when it ends, a fifth of a command's time
    sys.exit(code)


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
