"""Pins: the definitions of tools a person trusts."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from fingerpost.records import Pin
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import Database
from fingerpost.store.schema import pins
from fingerpost.store.statements import insert_or_change
from fingerpost.store.writer import Writer


class Pins:
    """One pin per tool key."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    async def all(self) -> dict[str, Pin]:
        """Every pin by its key, in the order of the keys."""
        return await self._database.read(_all)

    async def put(self, *new: Pin) -> None:
        """Keep these pins, each in place of an older one of its key."""
        if new:
            await self._writer.submit(_put, new)

    async def remove(self, key: str) -> bool:
        """Forget a pin. False when there was none."""
        return await self._writer.submit(_remove, key)


def _all(connection: Connection) -> dict[str, Pin]:
    rows = sorted(connection.execute(select(pins)), key=lambda row: row.key)
    return {row.key: from_json(Pin, row.record) for row in rows}


def _put(connection: Connection, groups: Sequence[tuple[Pin, ...]]) -> list[None]:
    # The last pin of a key counts; PostgreSQL refuses to change a row twice in one statement.
    latest = {pin.key: to_json(pin).decode() for group in groups for pin in group}
    rows = [{"key": key, "record": record} for key, record in latest.items()]
    connection.execute(insert_or_change(connection, pins), rows)
    return [None] * len(groups)


def _remove(connection: Connection, keys: Sequence[str]) -> list[bool]:
    return [connection.execute(delete(pins).where(pins.c.key == key)).rowcount > 0 for key in keys]
