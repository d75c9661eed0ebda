"""The one place where errors become messages and exit codes.

    0  fine          1  it ran, and found something wrong (a server down, nothing matched)
    2  the command or the configuration is wrong
    3  Fingerpost could not do it (store, server)      70  a bug in Fingerpost
    130  interrupted

A person sees what happened and what to do; `FINGERPOST_DEBUG=1` adds the traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

import click

from fingerpost.errors import ConfigError, FingerpostError
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.streams import be_silent, go_nowhere

FINE = 0
FOUND_WRONG = 1
MISUSED = 2
FAILED = 3
BUG = 70
INTERRUPTED = 130
# A full disk, a used-up quota, a file that may not grow, a device that fails: nothing a person can report.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def guarded(command: click.Command) -> int:
    """Run `command` and answer with its exit code."""
    try:
        result: object = command.main(prog_name="fingerpost", standalone_mode=False)
        sys.stdout.flush()  # what cannot be written is to be known here, not when Python ends
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as misuse:
        misuse.show()
        return misuse.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # rich leaves with SystemExit when its reader is gone
        return _pipe_closed()
    except BaseExceptionGroup as group:
        return _explain_group(group)
    except Exception as error:  # noqa: BLE001 - the boundary: nothing raw goes past it
        return _explain(error)
    return result if isinstance(result, int) else FINE


def _explain_group(group: BaseExceptionGroup[BaseException]) -> int:
    """A task group wraps what went wrong; the first real cause speaks for it."""
    for cause in group.exceptions:
        if isinstance(cause, BaseExceptionGroup):
            return _explain_group(cause)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(cause, KeyboardInterrupt):
            return INTERRUPTED
        if isinstance(cause, BrokenPipeError | SystemExit):
            return _pipe_closed()
        return _explain(cause)
    return BUG


def _explain(error: BaseException) -> int:
    _show_traceback(error)
    if isinstance(error, FingerpostError):
        _say(styled("error: ", fg="red", bold=True) + str(error))
        if error.hint:
            _say(styled("  fix: ", fg="green") + error.hint)
        return MISUSED if isinstance(error, ConfigError) else FAILED
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        go_nowhere()
        _say(styled("error: ", fg="red", bold=True) + f"this cannot be written: {error.strerror}")
        _say(styled("  fix: ", fg="green") + "Make room where it goes, or send it somewhere else.")
        return FAILED
    _say(styled("This is a bug in Fingerpost: ", fg="red", bold=True) + f"{type(error).__name__}")
    _say("Run the same command with FINGERPOST_DEBUG=1 and report what it prints.")
    return BUG


def _say(line: str) -> None:
    # Only errors need the patterns of secrets: compiling them would slow down every `--help`.
    from fingerpost.redaction import scrub

    try:
        click.echo(scrub(line), err=True)
    except OSError:  # there is no room for that either
        be_silent()


def _show_traceback(error: BaseException) -> None:
    if os.environ.get("FINGERPOST_DEBUG") == "1":
        import traceback

        _say("".join(traceback.format_exception(error)))


def _pipe_closed() -> int:
    """`fingerpost tools | head`: the reader left; say nothing, also not at exit."""
    go_nowhere()
    return FINE
