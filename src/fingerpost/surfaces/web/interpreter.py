"""The interpreter while serving: what waits for an answer comes before what works in the background."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Final

# New objects between two looks. A few calls under way at once have made Python's own 700, all of them alive:
# looking through them finds nothing and takes a twentieth of a call.
COLLECT_AFTER: Final = 10_000
# How long another thread keeps the interpreter while the event loop wants it. An answer asks for it three
# times; while indexes are built after a start, Python's own 5 ms each made it three times as slow.
TURN_SECONDS: Final = 0.0005


_lock = Lock()
_serving = 0
_usual: tuple[float, tuple[int, int, int]] = (0.0, (0, 0, 0))  # what to give back


@contextmanager
def tuned_for_serving() -> Generator[None]:
    """Short turns for threads; garbage is looked for rarely, and not among what is there by now.

    The interpreter is one for all who serve in this process: whoever ends last gives back what was usual.
    """
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _serving, _usual  # noqa: PLW0603 - as process-wide as what is changed
    with _lock:
        _serving += 1
        if _serving == 1:
            _usual = sys.getswitchinterval(), gc.get_threshold()
            sys.setswitchinterval(TURN_SECONDS)
            gc.freeze()
            gc.set_threshold(COLLECT_AFTER, *_usual[1][1:])


def _end() -> None:
    global _serving  # noqa: PLW0603 - as above
    with _lock:
        _serving -= 1
        if not _serving:
            gc.set_threshold(*_usual[1])
            gc.unfreeze()
            sys.setswitchinterval(_usual[0])
