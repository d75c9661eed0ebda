"""The garbage collector while serving: looks rarely, and not through what was there before."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# New objects between two looks. A few calls under way at once have made Python's own 700, all of them alive:
# looking through them finds nothing and takes a twentieth of a call.
COLLECT_AFTER: Final = 10_000


@contextmanager
def collecting_rarely() -> Generator[None]:
    """What is loaded and connected by now stays as long as we serve: it is left out until the end."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
