"""How sure we were of past selections, and which of them turned out right.

What `choose.calibration` is fitted on. It holds figures and tools' keys, nobody's
words, and only so many of them: models and tools change, and old samples mislead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, func, insert, select

from fingerpost.records import ConfidenceSample
from fingerpost.store.backlog import Loss
from fingerpost.store.database import Database
from fingerpost.store.schema import confidences
from fingerpost.store.writer import Writer

KEPT: Final = 10_000
LONGEST_TOOL: Final = 1_000

_Noted = tuple[ConfidenceSample, datetime]


class Confidences:
    """Remembers samples, and forgets them when asked."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
        self._loss = Loss()

    async def record(self, sample: ConfidenceSample, at: datetime) -> None:
        """Remember one sample. Returns when it is on disk."""
        _check(sample)
        await self._writer.submit(_add, (sample, at))

    def note(self, sample: ConfidenceSample, at: datetime) -> None:
        """Remember one sample soon. Returns at once; may be lost while the disk is stuck."""
        _check(sample)
        self._writer.post(_add, (sample, at), loss=self._loss)

    async def recent(self, limit: int = 2_000, *, since: datetime | None = None) -> list[ConfidenceSample]:
        """The newest samples, newest first; none from before `since`."""
        newest = select(confidences).order_by(confidences.c.seq.desc()).limit(limit)
        if since is not None:
            newest = newest.where(confidences.c.at > since)
        return await self._database.read(lambda found: [_sample(row) for row in found.execute(newest)])

    async def clear(self) -> int:
        """Forget everything; how many samples that were."""
        return await self._writer.submit(_clear, None)


def _check(sample: ConfidenceSample) -> None:
    """Refused here, to the face of whoever noted it: in the writer it would spoil a whole batch."""
    if not (math.isfinite(sample.raw) and 0.0 <= sample.raw <= 1.0):
        message = f"a confidence is between 0 and 1, not {sample.raw}"
        raise ValueError(message)


def _add(connection: Connection, new: Sequence[_Noted]) -> list[None]:
    connection.execute(insert(confidences), [_row(sample, at) for sample, at in new])
    newest = select(func.max(confidences.c.seq)).scalar_subquery()
    connection.execute(delete(confidences).where(confidences.c.seq <= newest - KEPT))
    return [None] * len(new)


def _row(sample: ConfidenceSample, at: datetime) -> dict[str, Any]:
    return {
        "at": at,
        "raw": float(sample.raw),
        "was_right": sample.right,
        "tool": sample.tool[:LONGEST_TOOL],
    }


def _sample(row: Row[Any]) -> ConfidenceSample:
    return ConfidenceSample(raw=row.raw, right=row.was_right, tool=row.tool)


def _clear(connection: Connection, asked: Sequence[None]) -> list[int]:
    gone = connection.execute(delete(confidences)).rowcount
    return [gone, *[0] * (len(asked) - 1)]
