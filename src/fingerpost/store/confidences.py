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
from fingerpost.store.backlog import LossPolicy
from fingerpost.store.database import Database
from fingerpost.store.schema import confidences
from fingerpost.store.writer import StoreWriter

MAX_CONFIDENCES: Final = 10_000
MAX_SAMPLE_TOOL_LENGTH: Final = 1_000

_TimedSample = tuple[ConfidenceSample, datetime]


class ConfidenceStore:
    """Remembers samples, and forgets them when asked."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer
        self._loss = LossPolicy()

    async def record(self, sample: ConfidenceSample, at: datetime) -> None:
        """Remember one sample. Returns when it is on disk."""
        _check_sample(sample)
        await self._writer.write(_add_samples, (sample, at))

    def record_soon(self, sample: ConfidenceSample, at: datetime) -> None:
        """Remember one sample soon. Returns at once; may be lost while the disk is stuck."""
        _check_sample(sample)
        self._writer.write_soon(_add_samples, (sample, at), loss=self._loss)

    async def list_recent(
        self, limit: int = 2_000, *, since: datetime | None = None
    ) -> list[ConfidenceSample]:
        """The newest samples, newest first; none from before `since`."""
        newest = select(confidences).order_by(confidences.c.seq.desc()).limit(limit)
        if since is not None:
            newest = newest.where(confidences.c.at > since)
        return await self._database.read(lambda found: [_build_sample(row) for row in found.execute(newest)])

    async def clear(self) -> int:
        """Forget everything; how many samples that were."""
        return await self._writer.write(_clear_confidences, None)


def _check_sample(sample: ConfidenceSample) -> None:
    """Refused here, to the face of whoever noted it: in the writer it would spoil a whole batch."""
    if not (math.isfinite(sample.raw) and 0.0 <= sample.raw <= 1.0):
        message = f"a confidence is between 0 and 1, not {sample.raw}"
        raise ValueError(message)


def _add_samples(connection: Connection, new: Sequence[_TimedSample]) -> list[None]:
    connection.execute(insert(confidences), [_sample_to_row(sample, at) for sample, at in new])
    newest = select(func.max(confidences.c.seq)).scalar_subquery()
    connection.execute(delete(confidences).where(confidences.c.seq <= newest - MAX_CONFIDENCES))
    return [None] * len(new)


def _sample_to_row(sample: ConfidenceSample, at: datetime) -> dict[str, Any]:
    return {
        "at": at,
        "raw": float(sample.raw),
        "was_right": sample.right,
        "tool": sample.tool[:MAX_SAMPLE_TOOL_LENGTH],
    }


def _build_sample(row: Row[Any]) -> ConfidenceSample:
    return ConfidenceSample(raw=row.raw, right=row.was_right, tool=row.tool)


def _clear_confidences(connection: Connection, requests: Sequence[None]) -> list[int]:
    gone = connection.execute(delete(confidences)).rowcount
    return [gone, *[0] * (len(requests) - 1)]
