"""Interpreter settings while serving: short thread switch intervals, rare garbage collection."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Final

# New objects between two collections. A few concurrent calls reach Python's default of 700, all alive:
# such a collection frees nothing and takes 5 % of a call.
GC_THRESHOLD: Final = 10_000
# How long another thread keeps the interpreter while the event loop waits. A response waits three times;
# while indexes are built after startup, the default of 5 ms made it three times as slow.
SWITCH_INTERVAL_S: Final = 0.0005


_lock = Lock()
_serving = 0
_original_settings: tuple[float, tuple[int, int, int]] = (0.0, (0, 0, 0))  # to restore


@contextmanager
def tune_for_serving() -> Generator[None]:
    """Use short thread switch intervals and rare garbage collection, and freeze existing objects.

    The settings apply to the whole process. They are restored when the last server in it ends.
    """
    _apply_settings()
    try:
        yield
    finally:
        _restore_settings()


def _apply_settings() -> None:
    global _serving, _original_settings  # noqa: PLW0603 - as process-wide as what is changed
    with _lock:
        _serving += 1
        if _serving == 1:
            _original_settings = sys.getswitchinterval(), gc.get_threshold()
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            gc.freeze()
            gc.set_threshold(GC_THRESHOLD, *_original_settings[1][1:])


def _restore_settings() -> None:
    global _serving  # noqa: PLW0603 - as above
    with _lock:
        _serving -= 1
        if not _serving:
            gc.set_threshold(*_original_settings[1])
            gc.unfreeze()
            sys.setswitchinterval(_original_settings[0])
