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
from fingerpost.store.writer import Writer


class Shut(StrEnum):
    """What is switched off."""

    TOOL = "tool"
    SERVER = "server"


@frozen
class Shutter:
    """Who switched a tool (by its key) or a server (by its name) off, when and why."""

    what: Shut
    name: str
    by: str
    at: datetime
    reason: str = ""

    def sentence(self) -> str:
        """Why it is off, to be read by a person or a model."""
        return f"switched off by {self.by}" + (f": {self.reason}" if self.reason else "")


class Shutters:
    """What is off, for every process on the same store."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    async def all(self) -> tuple[Shutter, ...]:
        """Everything that is off, tools and servers, each by name."""
        return await self._database.read(_all)

    async def close(self, shutter: Shutter) -> bool:
        """Switch it off. False when it was off already: the first who did it stays on record."""
        return await self._writer.submit(_close, shutter)

    async def open(self, what: Shut, name: str) -> bool:
        """Switch it on. False when it was on."""
        return await self._writer.submit(_open, (what, name))


def _all(connection: Connection) -> tuple[Shutter, ...]:
    rows = connection.execute(select(shutters)).all()
    found = [
        Shutter(what=Shut(row.what), name=row.name, by=row.by_whom, at=row.at, reason=row.reason)
        for row in rows
    ]
    return tuple(sorted(found, key=lambda shutter: (shutter.what, shutter.name)))


def _close(connection: Connection, wanted: Sequence[Shutter]) -> list[bool]:
    return [_close_one(connection, shutter) for shutter in wanted]


def _close_one(connection: Connection, shutter: Shutter) -> bool:
    """The transaction holds the write lock: what is not there now, nobody else puts there meanwhile."""
    there = select(shutters.c.at).where(shutters.c.what == shutter.what, shutters.c.name == shutter.name)
    if connection.execute(there).one_or_none() is not None:
        return False
    row = asdict(shutter)
    row["by_whom"] = row.pop("by")
    connection.execute(insert(shutters), row)
    return True


def _open(connection: Connection, wanted: Sequence[tuple[Shut, str]]) -> list[bool]:
    return [
        connection.execute(delete(shutters).where(shutters.c.what == what, shutters.c.name == name)).rowcount
        > 0
        for what, name in wanted
    ]
