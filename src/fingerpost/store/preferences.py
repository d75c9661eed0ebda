"""What callers said about how they want their answers: one row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select

from fingerpost.records import Effort
from fingerpost.store.database import Database
from fingerpost.store.schema import preferences
from fingerpost.store.writer import StoreWriter


class PreferenceStore:
    """Quick or thorough answers, by caller, for every process on the same store."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def get_efforts(self) -> Mapping[str, Effort]:
        """Whoever said something, and what."""
        return await self._database.read(_read_efforts)

    async def set_effort(self, caller: str, effort: Effort | None) -> None:
        """What this caller wants from now on; None: whatever is usual."""
        await self._writer.write(_set_efforts, (caller, effort))


def _read_efforts(connection: Connection) -> dict[str, Effort]:
    return {row.caller: Effort(row.effort) for row in connection.execute(select(preferences)).all()}


def _set_efforts(connection: Connection, wanted: Sequence[tuple[str, Effort | None]]) -> list[None]:
    for caller, effort in wanted:
        connection.execute(delete(preferences).where(preferences.c.caller == caller))
        if effort is not None:
            connection.execute(insert(preferences), {"caller": caller, "effort": effort.value})
    return [None] * len(wanted)
