"""What callers said about how they want their answers: one row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select

from fingerpost.records import Effort
from fingerpost.store.database import Database
from fingerpost.store.schema import preferences
from fingerpost.store.writer import Writer


class EffortPreferences:
    """Quick or thorough answers, by caller, for every process on the same store."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    async def efforts(self) -> Mapping[str, Effort]:
        """Whoever said something, and what."""
        return await self._database.read(_efforts)

    async def set_effort(self, caller: str, effort: Effort | None) -> None:
        """What this caller wants from now on; None: whatever is usual."""
        await self._writer.submit(_set, (caller, effort))


def _efforts(connection: Connection) -> dict[str, Effort]:
    return {row.caller: Effort(row.effort) for row in connection.execute(select(preferences)).all()}


def _set(connection: Connection, wanted: Sequence[tuple[str, Effort | None]]) -> list[None]:
    for caller, effort in wanted:
        connection.execute(delete(preferences).where(preferences.c.caller == caller))
        if effort is not None:
            connection.execute(insert(preferences), {"caller": caller, "effort": effort.value})
    return [None] * len(wanted)
