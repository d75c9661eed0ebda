"""Thresholds that moved, and since when what was recorded counts for what is learned.

Preferences, remembered decisions and thresholds are worked out anew from what is
recorded. To forget one of them without forgetting the record itself, a mark says
that nothing before it counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, func, select

from fingerpost.frozen import frozen
from fingerpost.records import Threshold
from fingerpost.store.database import Database
from fingerpost.store.schema import choices, feedback, learned_marks, thresholds
from fingerpost.store.statements import upsert
from fingerpost.store.writer import StoreWriter

EVERYBODY: Final = ""
MAX_NAME_LENGTH: Final = 500


@frozen
class LearningMark:
    """What is learned (`what`) of this person (or of everybody) counts from `at` on."""

    what: str
    person: str
    at: datetime


class LearnedStore:
    """Marks and thresholds."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def set_mark(self, mark: LearningMark) -> None:
        """From now on nothing before it counts."""
        await self._writer.write(_set_marks, mark)

    async def get_marks(self, what: str) -> Mapping[str, datetime]:
        """Since when this counts, by person; `EVERYBODY` where it holds for all."""
        query = select(learned_marks).where(learned_marks.c.what == what)
        return await self._database.read(lambda found: {row.person: row.at for row in found.execute(query)})

    async def get_version(self) -> tuple[object, ...]:
        """Changes whenever something that is learned from does, in whichever process."""
        query = select(
            select(func.count()).select_from(feedback).scalar_subquery(),
            select(func.max(feedback.c.at)).scalar_subquery(),
            select(func.max(choices.c.seq)).scalar_subquery(),
            select(func.max(learned_marks.c.at)).scalar_subquery(),
        )
        return await self._database.read(lambda found: tuple(found.execute(query).one()))

    async def list_thresholds(self) -> list[Threshold]:
        """Those that moved, by name."""
        query = select(thresholds).order_by(thresholds.c.name)
        return await self._database.read(
            lambda found: [_build_threshold(row) for row in found.execute(query)]
        )

    async def set_threshold(self, threshold: Threshold) -> None:
        """This is what it is now."""
        await self._writer.write(_set_thresholds, threshold)

    async def clear_thresholds(self) -> int:
        """Back to what the settings say; how many had moved."""
        return await self._writer.write(_clear_thresholds, None)


def _set_marks(connection: Connection, new: Sequence[LearningMark]) -> list[None]:
    for mark in new:
        row = {"what": mark.what, "person": mark.person, "at": mark.at}
        connection.execute(upsert(connection, learned_marks), row)
    return [None] * len(new)


def _set_thresholds(connection: Connection, new: Sequence[Threshold]) -> list[None]:
    for moved in new:
        row = {
            "name": moved.name,
            "base": moved.base,
            "value": moved.value,
            "at": moved.at,
            "reason": moved.reason[:MAX_NAME_LENGTH],
            "samples": moved.samples,
        }
        connection.execute(upsert(connection, thresholds), row)
    return [None] * len(new)


def _build_threshold(row: Row[Any]) -> Threshold:
    return Threshold(
        name=row.name, base=row.base, value=row.value, at=row.at, reason=row.reason, samples=row.samples
    )


def _clear_thresholds(connection: Connection, requests: Sequence[None]) -> list[int]:
    gone = connection.execute(delete(thresholds)).rowcount
    return [gone, *[0] * (len(requests) - 1)]
