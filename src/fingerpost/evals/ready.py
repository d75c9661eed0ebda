"""A narrower whose index is complete, so that what is measured does not depend on when it is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from fingerpost.catalog import Snapshot
from fingerpost.narrow.dense import DenseScorer
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.parts import NarrowComponents
from fingerpost.narrow.request import NarrowRequest
from fingerpost.settings import Settings

MAX_WAIT_S: Final = 3600.0
_POLL_INTERVAL_S: Final = 0.2
# The model and the lexicons are loaded by the first request that needs them; that is not its own time.
_WARM_UP_TEXT: Final = ("what is the weather tomorrow?", "מה מזג האוויר מחר?")

ReadyProgress = Callable[[float], None]  # told the share that is done, 0..1


@contextmanager
def open_ready_narrower(
    snapshot: Snapshot,
    settings: Settings,
    *,
    parts: NarrowComponents | None = None,
    progress: ReadyProgress | None = None,
) -> Generator[Narrower]:
    """Narrows over this snapshot, with every vector in place. Blocks while they are made."""
    narrower = Narrower(settings, parts=parts)
    try:
        narrower.prepare(snapshot)
        _wait_for_vectors(narrower, progress or (lambda _: None))
        for text in _WARM_UP_TEXT:
            narrower.narrow(NarrowRequest(text=text))
        yield narrower
    finally:
        narrower.close()


def get_ready_share(narrower: Narrower, settings: Settings) -> float:
    """The share of tools that are compared by meaning too; 1 when that is switched off."""
    meaning = narrower.parts.meaning
    return 1.0 if meaning is None or not settings.flags.dense_scores else meaning.ready


def _wait_for_vectors(narrower: Narrower, progress: ReadyProgress) -> None:
    meaning = narrower.parts.meaning
    if not isinstance(meaning, DenseScorer):  # none, or one that is complete from the beginning
        return
    until = time.monotonic() + MAX_WAIT_S
    while not meaning.wait(_POLL_INTERVAL_S) and time.monotonic() < until:
        progress(meaning.ready)
