"""The interpreter while serving: what waits for an answer comes before what works in the background."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# New objects between two looks. A few calls under way at once have made Python's own 700, all of them alive:
# looking through them finds nothing and takes a twentieth of a call.
COLLECT_AFTER: Final = 10_000
# How long another thread keeps the interpreter while the event loop wants it. An answer asks for it three
# times; while indexes are built after a start, Python's own 5 ms each made it three times as slow.
TURN_SECONDS: Final = 0.0005


@contextmanager
def tuned_for_serving() -> Generator[None]:
    """Short turns for threads; garbage is looked for rarely, and not among what is there by now."""
    turn, collect = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(TURN_SECONDS)
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *collect[1:])
    try:
        yield
    finally:
        gc.set_threshold(*collect)
        gc.unfreeze()
        sys.setswitchinterval(turn)
