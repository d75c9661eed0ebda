"""Tools and servers a person switched off: one row for each, gone again when it is switched on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection, delete, insert, select

from fingerpost.frozen import frozen
from fingerpost.store.database import Database
from fingerpost.store.schema import shutters
from fingerpost.store.writer import StoreWriter


class DisabledKind(StrEnum):
    """What is switched off."""

    TOOL = "tool"
    SERVER = "server"


@frozen
class DisabledEntry:
    """Who switched a tool (by its key) or a server (by its name) off, when and why."""

    what: DisabledKind
    name: str
    by: str
    at: datetime
    reason: str = ""

    def describe(self) -> str:
        """Why it is off, to be read by a person or a model."""
        return f"switched off by {self.by}" + (f": {self.reason}" if self.reason else "")


class DisabledStore:
    """What is off, for every process on the same store."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def list_all(self) -> tuple[DisabledEntry, ...]:
        """Everything that is off, tools and servers, each by name."""
        return await self._database.read(_list_disabled)

    async def disable(self, entry: DisabledEntry) -> bool:
        """Switch it off. False when it was off already: the first who did it stays on record."""
        return await self._writer.write(_disable_entries, entry)

    async def enable(self, what: DisabledKind, name: str) -> bool:
        """Switch it on. False when it was on."""
        return await self._writer.write(_enable_entries, (what, name))


def _list_disabled(connection: Connection) -> tuple[DisabledEntry, ...]:
    rows = connection.execute(select(shutters)).all()
    found = [
        DisabledEntry(
            what=DisabledKind(row.what), name=row.name, by=row.by_whom, at=row.at, reason=row.reason
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda shutter: (shutter.what, shutter.name)))


def _disable_entries(connection: Connection, wanted: Sequence[DisabledEntry]) -> list[bool]:
    return [_disable_entry(connection, shutter) for shutter in wanted]


def _disable_entry(connection: Connection, entry: DisabledEntry) -> bool:
    """The transaction holds the write lock: what is not there now, nobody else puts there meanwhile."""
    there = select(shutters.c.at).where(shutters.c.what == entry.what, shutters.c.name == entry.name)
    if connection.execute(there).one_or_none() is not None:
        return False
    row = asdict(entry)
    row["by_whom"] = row.pop("by")
    connection.execute(insert(shutters), row)
    return True


def _enable_entries(connection: Connection, wanted: Sequence[tuple[DisabledKind, str]]) -> list[bool]:
    return [
        connection.execute(delete(shutters).where(shutters.c.what == what, shutters.c.name == name)).rowcount
        > 0
        for what, name in wanted
    ]
