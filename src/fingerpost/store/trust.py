"""Pinned tool definitions, disabled tools and servers, and sign-in tokens of servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from functools import partial

from sqlalchemy import Connection, delete, insert, select, update

from fingerpost.frozen import frozen
from fingerpost.records import Pin, utc_now
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import Database, insert_ignoring, upsert
from fingerpost.store.schema import disabled_entries, pin_revision, pins, tokens
from fingerpost.store.writer import StoreWriter


@frozen
class PinChanges:
    """Changes of pins since the last check."""

    changed: Mapping[str, Pin]  # includes new ones
    gone: frozenset[str]


class PinStore:
    """Stores one pin per tool key."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer
        self._revision: int | None = None  # at the last check
        self._seen: dict[str, int] = {}  # hash of each record at the last check; the records are large
        self._put: set[str] = set()  # stored by this process since the last check

    async def list_all(self) -> dict[str, Pin]:
        """Return all pins, sorted by key."""
        return await self._database.read(_read_pins)

    async def put(self, *new: Pin) -> None:
        """Store these pins, replacing older ones with the same keys."""
        if new:
            await self._writer.write(_put_pins, new)
            self._put.update(pin.key for pin in new)

    async def remove(self, key: str) -> bool:
        """Delete a pin. Return False if there was none."""
        return await self._writer.write(_remove_pins, key)

    async def take_changes(self) -> PinChanges | None:
        """Return the changes by any process since the last call, or None. The first call returns all pins."""
        ours = frozenset(self._put)  # stored before this read: if one is missing, it was removed since
        changes = await self._database.read(partial(self._find_changes, ours))
        self._put -= ours
        return changes

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
    """Return all stored pins by key. They are sorted here, because databases sort text differently."""
    rows = sorted(connection.execute(select(pins)), key=lambda row: row.key)
    return {row.key: row.record for row in rows}


def _parse_pins(records: Mapping[str, str]) -> dict[str, Pin]:
    return {key: from_json(Pin, record) for key, record in records.items()}


def _put_pins(connection: Connection, groups: Sequence[tuple[Pin, ...]]) -> list[None]:
    # The last pin of a key counts. PostgreSQL refuses to update a row twice in one statement.
    latest = {pin.key: to_json(pin).decode() for group in groups for pin in group}
    rows = [{"key": key, "record": record} for key, record in latest.items()]
    connection.execute(upsert(connection, pins), rows)
    _increment_revision(connection)
    return [None] * len(groups)


def _remove_pins(connection: Connection, keys: Sequence[str]) -> list[bool]:
    removed = [connection.execute(delete(pins).where(pins.c.key == key)).rowcount > 0 for key in keys]
    if any(removed):
        _increment_revision(connection)
    return removed


def _increment_revision(connection: Connection) -> None:
    connection.execute(update(pin_revision).values(number=pin_revision.c.number + 1))


class DisabledKind(StrEnum):
    """The kind of a disabled item."""

    TOOL = "tool"
    SERVER = "server"


@frozen
class DisabledEntry:
    """Who disabled a tool (by key) or a server (by name), when and why."""

    what: DisabledKind
    name: str
    by: str
    at: datetime
    reason: str = ""

    def describe(self) -> str:
        """Return the reason as text for people and models."""
        return f"switched off by {self.by}" + (f": {self.reason}" if self.reason else "")


class DisabledStore:
    """Disabled tools and servers, shared by all processes."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def list_all(self) -> tuple[DisabledEntry, ...]:
        """Return all disabled tools and servers, sorted by name."""
        return await self._database.read(_list_disabled)

    async def disable(self, entry: DisabledEntry) -> bool:
        """Disable it. Return False if it was already disabled; the first entry is kept."""
        return await self._writer.write(_disable_entries, entry)

    async def enable(self, what: DisabledKind, name: str) -> bool:
        """Enable it. Return False if it was not disabled."""
        return await self._writer.write(_enable_entries, (what, name))


def _list_disabled(connection: Connection) -> tuple[DisabledEntry, ...]:
    rows = connection.execute(select(disabled_entries)).all()
    found = [
        DisabledEntry(
            what=DisabledKind(row.what), name=row.name, by=row.by_whom, at=row.at, reason=row.reason
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda entry: (entry.what, entry.name)))


def _disable_entries(connection: Connection, wanted: Sequence[DisabledEntry]) -> list[bool]:
    return [_disable_entry(connection, entry) for entry in wanted]


def _disable_entry(connection: Connection, entry: DisabledEntry) -> bool:
    """Add the entry if there is none. The transaction holds the write lock, so no other process can add one
    meanwhile.
    """
    there = select(disabled_entries.c.at).where(
        disabled_entries.c.what == entry.what, disabled_entries.c.name == entry.name
    )
    if connection.execute(there).one_or_none() is not None:
        return False
    row = asdict(entry)
    row["by_whom"] = row.pop("by")
    connection.execute(insert(disabled_entries), row)
    return True


def _enable_entries(connection: Connection, wanted: Sequence[tuple[DisabledKind, str]]) -> list[bool]:
    return [
        connection.execute(
            delete(disabled_entries).where(disabled_entries.c.what == what, disabled_entries.c.name == name)
        ).rowcount
        > 0
        for what, name in wanted
    ]


class TokenStore:
    """Stores one secret value per server."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def get(self, server: str) -> bytes | None:
        query = select(tokens.c.data).where(tokens.c.server == server)
        return await self._database.read(lambda connection: connection.execute(query).scalar())

    async def put(self, server: str, data: bytes) -> None:
        """Store the token, replacing an older one."""
        await self._writer.write(_put_tokens, (server, data))

    async def put_if_absent(self, name: str, data: bytes) -> bytes:
        """Store `data` if there is no value yet. Return the stored value."""
        return await self._writer.write(_put_tokens_if_absent, (name, data))

    async def remove(self, server: str) -> bool:
        """Delete the token. Return False if there was none."""
        return await self._writer.write(_remove_tokens, server)


def _put_tokens(connection: Connection, items: Sequence[tuple[str, bytes]]) -> list[None]:
    for server, data in items:
        row = {"server": server, "data": data, "saved": utc_now()}
        connection.execute(upsert(connection, tokens), row)
    return [None] * len(items)


def _put_tokens_if_absent(connection: Connection, items: Sequence[tuple[str, bytes]]) -> list[bytes]:
    stored: list[bytes] = []
    for name, data in items:
        row = {"server": name, "data": data, "saved": utc_now()}
        connection.execute(insert_ignoring(connection, tokens), row)
        stored.append(connection.execute(select(tokens.c.data).where(tokens.c.server == name)).scalar_one())
    return stored


def _remove_tokens(connection: Connection, servers: Sequence[str]) -> list[bool]:
    return [
        connection.execute(delete(tokens).where(tokens.c.server == name)).rowcount > 0 for name in servers
    ]
