"""Pins: the definitions of tools a person trusts.

Many processes may share them, and each has to hear of what another changed. To read
all of them every few seconds would be much for nothing: one number, which every change
raises, tells whether there is anything to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sqlalchemy import Connection, delete, select, update

from fingerpost.frozen import frozen
from fingerpost.records import Pin
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import Database
from fingerpost.store.schema import pin_revision, pins
from fingerpost.store.statements import upsert
from fingerpost.store.writer import StoreWriter


@frozen
class PinChanges:
    """What became of pins since somebody last looked."""

    changed: Mapping[str, Pin]  # new ones, too
    gone: frozenset[str]


class PinStore:
    """One pin per tool key."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer
        self._revision: int | None = None  # at the last look for news
        self._seen: dict[str, int] = {}  # then: a hash of each record, for the records are large
        self._put: set[str] = set()  # by us, since then

    async def list_all(self) -> dict[str, Pin]:
        """Every pin by its key, in the order of the keys."""
        return await self._database.read(_read_pins)

    async def put(self, *new: Pin) -> None:
        """Keep these pins, each in place of an older one of its key."""
        if new:
            await self._writer.write(_put_pins, new)
            self._put.update(pin.key for pin in new)

    async def remove(self, key: str) -> bool:
        """Forget a pin. False when there was none."""
        return await self._writer.write(_remove_pins, key)

    async def take_changes(self) -> PinChanges | None:
        """What changed since this was last asked, whoever changed it; None: nothing did.

        The first time, every pin is news.
        """
        ours = frozenset(self._put)  # stored before we look: one that is not found was removed since
        news = await self._database.read(partial(self._find_changes, ours))
        self._put -= ours
        return news

    def _find_changes(self, known: frozenset[str], connection: Connection) -> PinChanges | None:
        revision = connection.execute(select(pin_revision.c.number)).scalar_one()
        if revision == self._revision:
            return None
        records = _read_pin_records(connection)
        seen = {key: hash(record) for key, record in records.items()}
        changed = {key: record for key, record in records.items() if seen[key] != self._seen.get(key)}
        gone = (self._seen.keys() | known) - seen.keys()
        self._revision, self._seen = revision, seen
        return PinChanges(changed=_parse_pins(changed), gone=frozenset(gone))


def _read_pins(connection: Connection) -> dict[str, Pin]:
    return _parse_pins(_read_pin_records(connection))


def _read_pin_records(connection: Connection) -> dict[str, str]:
    """Every pin as it is stored, in the order of the keys: databases sort texts differently."""
    rows = sorted(connection.execute(select(pins)), key=lambda row: row.key)
    return {row.key: row.record for row in rows}


def _parse_pins(records: Mapping[str, str]) -> dict[str, Pin]:
    return {key: from_json(Pin, record) for key, record in records.items()}


def _put_pins(connection: Connection, groups: Sequence[tuple[Pin, ...]]) -> list[None]:
    # The last pin of a key counts; PostgreSQL refuses to change a row twice in one statement.
    latest = {pin.key: to_json(pin).decode() for group in groups for pin in group}
    rows = [{"key": key, "record": record} for key, record in latest.items()]
    connection.execute(upsert(connection, pins), rows)
    _raise_revision(connection)
    return [None] * len(groups)


def _remove_pins(connection: Connection, keys: Sequence[str]) -> list[bool]:
    removed = [connection.execute(delete(pins).where(pins.c.key == key)).rowcount > 0 for key in keys]
    if any(removed):
        _raise_revision(connection)
    return removed


def _raise_revision(connection: Connection) -> None:
    connection.execute(update(pin_revision).values(number=pin_revision.c.number + 1))
