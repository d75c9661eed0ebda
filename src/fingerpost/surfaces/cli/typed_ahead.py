"""What was typed before a question was shown is no answer to it.

A person types while servers connect, a paste has more lines than one, a key is held down: all of it would
be waiting when we ask whether something may run, and be taken for the answer.
"""

from __future__ import annotations

import select
import sys
from typing import Final

AT_REST: Final = 0.05  # seconds without a key, longer than a held one takes to repeat
MOST_ROUNDS: Final = 200  # somebody who never stops typing is asked all the same


def forget_typed_ahead() -> None:
    """Only what is typed from here on counts. Lines from a pipe were written on purpose, and stay."""
    if sys.stdin.isatty():
        _forget_what_the_terminal_holds(sys.stdin.fileno())
        _forget_what_python_holds()


def _forget_what_the_terminal_holds(terminal: int) -> None:
    """More than once: a long paste reaches the program in pieces, the next when there is room for it."""
    try:
        import termios
    except ImportError:  # not everywhere
        return
    try:
        for _ in range(MOST_ROUNDS):
            termios.tcflush(terminal, termios.TCIFLUSH)
            if not select.select([terminal], [], [], AT_REST)[0]:
                return
    except termios.error:  # the terminal is gone: reading from it will say so
        return


def _forget_what_python_holds() -> None:
    """A reader that has read nothing yet. The one before it may hold lines that came in one piece."""
    old = sys.stdin
    fresh = open(old.fileno(), encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
    sys.stdin = fresh
