"""Pins, known servers, disabled tools and servers, and where data in conversations came from."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from pydantic_core import from_json as parse_json
from sqlalchemy import Connection, delete, func, insert, select, update

from fingerpost.errors import StoreUnavailable
from fingerpost.frozen import frozen
from fingerpost.records import (
    DataLabel,
    DataSource,
    DisabledEntry,
    DisabledKind,
    DroppedTool,
    KnownServer,
    Listing,
    Pin,
    ServerResources,
)
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import Database, insert_ignoring, upsert
from fingerpost.store.schema import (
    data_sources,
    disabled_entries,
    known_servers,
    pin_revision,
    pins,
    stored_marks,
)
from fingerpost.store.writer import StorePart, StoreWriter

logger = logging.getLogger("fingerpost.store")


@frozen
class PinChanges:
    """Changes of pins since the last check."""

    changed: Mapping[str, Pin]  # includes new ones
    gone: frozenset[str]


NO_ENTRY: Final = ""  # of pins from before entries were recorded


class PinStore(StorePart):
    """Stores one pin per tool key and entry of its server: two projects may use one name for two servers."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        super().__init__(database, writer)
        self._entries: Mapping[str, str] = {}  # hash of the entry of each server, by the server part of keys
        self._revision: int | None = None  # at the last check
        self._seen: dict[str, int] = {}  # hash of each record at the last check; the records are large
        self._put: set[str] = set()  # stored by this process since the last check

    async def use_entries(self, entries: Mapping[str, str]) -> frozenset[str]:
        """Use the pins of these entries from now on. `entries` has hashes by the server part of keys.

        Pins from before entries were recorded become those of the first entry of their server. Return the
        servers that have pins under another entry only.
        """
        self._entries, self._revision = dict(entries), None
        is_old = select(pins.c.key).where(pins.c.entry == NO_ENTRY).limit(1)
        if await self._read_value(is_old) is not None:
            with contextlib.suppress(StoreUnavailable):  # a store that is only read
                await self._write(_adopt_pins, self._entries)
        return await self._database.read(partial(_find_changed_entries, self._entries))

    async def list_all(self) -> dict[str, Pin]:
        """Return the pins of the entries in use, and of servers that are not configured; sorted by key."""
        return _parse_pins(await self._database.read(partial(_read_pin_records, self._entries)))

    async def put(self, *new: Pin) -> None:
        """Store these pins, replacing older ones with the same keys and entries."""
        if new:
            await self._write(_put_pins, self._entries, new)
            self._put.update(pin.key for pin in new)

    async def remove(self, key: str) -> bool:
        """Delete a pin, under every entry of its server. Return False if there was none."""
        return await self._write(_remove_pin, key)

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
        records = _read_pin_records(self._entries, connection)
        seen = {key: hash(record) for key, record in records.items()}
        changed = {key: record for key, record in records.items() if seen[key] != self._seen.get(key)}
        gone = (self._seen.keys() | known) - seen.keys()
        self._revision, self._seen = revision, seen
        return PinChanges(changed=_parse_pins(changed), gone=frozenset(gone))


class KnownServerStore(StorePart):
    """What servers listed when they were last connected, so that they need not run to be known."""

    async def find(self, entries: Mapping[str, str]) -> dict[str, KnownServer]:
        """Return what is known of these servers. `entries` has the hash of each server's entry."""

        def read(connection: Connection) -> dict[str, KnownServer]:
            query = select(known_servers).where(known_servers.c.entry.in_(set(entries.values())))
            rows = [row for row in connection.execute(query) if entries.get(row.server) == row.entry]
            known = {row.server: _parse_known_server(row.record) for row in rows}
            return {server: found for server, found in known.items() if found is not None}

        return await self._database.read(read) if entries else {}

    async def put(self, *known: tuple[str, KnownServer]) -> None:
        """Store what servers list now, each with the hash of its entry."""
        if known:
            await self._write(_put_known_servers, known)


def _parse_known_server(record: str) -> KnownServer | None:
    """Parse one record. Definitions are not validated again, because they can be long."""
    try:
        values = parse_json(record)
        resources = values.pop("resources")
        listing = values.pop("listing")
        dropped = tuple(DroppedTool(**one) for one in listing.pop("dropped"))
        return KnownServer(
            listing=Listing(**_freeze_lists(listing), dropped=dropped),
            resources=None if resources is None else ServerResources(**_freeze_lists(resources)),
            listed_at=datetime.fromisoformat(values.pop("listed_at")),
            **values,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # the row was edited from outside
        logger.warning("a stored list of tools cannot be read: %s", error)
        return None


def _freeze_lists(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for name, value in fields.items()
    }


MAX_ENTRIES: Final = 20  # kept for one name: projects may use it for different servers


def _put_known_servers(connection: Connection, servers: Sequence[tuple[str, KnownServer]]) -> None:
    table = known_servers
    for entry, known in servers:
        server = known.listing.server
        row = {"server": server, "entry": entry, "listed_at": known.listed_at}
        connection.execute(upsert(connection, table), {**row, "record": to_json(known).decode()})
        newest = select(table.c.entry).where(table.c.server == server).order_by(table.c.listed_at.desc())
        if old := connection.execute(newest.offset(MAX_ENTRIES)).scalars().all():
            connection.execute(delete(table).where(table.c.server == server, table.c.entry.in_(old)))


def _read_pin_records(entries: Mapping[str, str], connection: Connection) -> dict[str, str]:
    """Return the pins of these entries and of all other servers, by key. They are sorted here, because
    databases sort text differently.
    """
    rows = sorted(connection.execute(select(pins)), key=lambda row: (row.key, row.entry))
    # Sorted by entry, too: a pin without one counts only if there is no other.
    return {
        row.key: row.record
        for row in rows
        if row.entry in (NO_ENTRY, entries.get(_get_server(row.key), row.entry))
    }


def _find_changed_entries(entries: Mapping[str, str], connection: Connection) -> frozenset[str]:
    pinned: dict[str, set[str]] = {}
    for row in connection.execute(select(pins.c.key, pins.c.entry)):
        pinned.setdefault(_get_server(row.key), set()).add(row.entry)
    return frozenset(
        server
        for server, entry in entries.items()
        if pinned.get(server, {entry}).isdisjoint((entry, NO_ENTRY))
    )


def _get_server(key: str) -> str:
    """Return the server part of a key."""
    return key.partition("/")[0]


def _adopt_pins(connection: Connection, entries: Mapping[str, str]) -> None:
    for row in connection.execute(select(pins).where(pins.c.entry == NO_ENTRY)).all():
        entry = entries.get(_get_server(row.key), NO_ENTRY)
        if entry != NO_ENTRY:
            new = {"entry": entry, "key": row.key, "record": row.record}
            connection.execute(insert_ignoring(connection, pins), new)
            connection.execute(delete(pins).where(pins.c.entry == NO_ENTRY, pins.c.key == row.key))
    _increment_revision(connection)


def _parse_pins(records: Mapping[str, str]) -> dict[str, Pin]:
    return {key: from_json(Pin, record) for key, record in records.items()}


def _put_pins(connection: Connection, entries: Mapping[str, str], new: Sequence[Pin]) -> None:
    # The last pin of a key counts. PostgreSQL refuses to update a row twice in one statement.
    latest = {pin.key: to_json(pin).decode() for pin in new}
    rows = [
        {"entry": entries.get(_get_server(key), NO_ENTRY), "key": key, "record": record}
        for key, record in latest.items()
    ]
    connection.execute(upsert(connection, pins), rows)
    _increment_revision(connection)


def _remove_pin(connection: Connection, key: str) -> bool:
    removed = connection.execute(delete(pins).where(pins.c.key == key)).rowcount > 0
    if removed:
        _increment_revision(connection)
    return removed


def _increment_revision(connection: Connection) -> None:
    connection.execute(update(pin_revision).values(number=pin_revision.c.number + 1))


class DisabledStore(StorePart):
    """Disabled tools and servers, shared by all processes."""

    async def list_all(self) -> tuple[DisabledEntry, ...]:
        """Return all disabled tools and servers, sorted by name."""
        found = [
            DisabledEntry(
                what=DisabledKind(row.what), name=row.name, by=row.by_whom, at=row.at, reason=row.reason
            )
            for row in await self._read_rows(select(disabled_entries))
        ]
        return tuple(sorted(found, key=lambda entry: (entry.what, entry.name)))

    async def disable(self, entry: DisabledEntry) -> bool:
        """Disable it. Return False if it was already disabled; the first entry is kept."""
        row = asdict(entry)
        row["by_whom"] = row.pop("by")
        return await self._write(_add_disabled, row)

    async def enable(self, what: DisabledKind, name: str) -> bool:
        """Enable it. Return False if it was not disabled."""
        same = (disabled_entries.c.what == what, disabled_entries.c.name == name)
        return await self._execute(delete(disabled_entries).where(*same)) > 0


def _add_disabled(connection: Connection, row: dict[str, Any]) -> bool:
    """Add the row if there is none. PostgreSQL tells by what it returns whether it was added."""
    statement = insert_ignoring(connection, disabled_entries).returning(disabled_entries.c.name)
    return connection.execute(statement, row).first() is not None


MAX_STORED_MARKS: Final = 200_000  # the newest are kept


class DataFlowStore(StorePart):
    """Which untrusted and private sources entered which conversation, and marks of untrusted text that calls
    stored elsewhere. Shared by all processes. It holds hashes, no text.
    """

    async def list_sources(self, trail: str) -> tuple[DataSource, ...]:
        """Return the sources of this conversation, oldest first."""
        query = select(data_sources).where(data_sources.c.trail == trail).order_by(data_sources.c.at)
        return tuple(
            DataSource(tool=row.tool, label=DataLabel(row.label), call_id=row.call_id, at=row.at)
            for row in await self._read_rows(query)
        )

    async def add_source(self, trail: str, source: DataSource) -> None:
        """Record a source. An earlier record of the same tool and label is replaced."""
        await self._execute(self._upsert(data_sources), {"trail": trail, **asdict(source)})

    async def touch_sources(self, trail: str, at: datetime) -> None:
        """Record that this conversation was used: retention removes sources of conversations that are not."""
        await self._execute(update(data_sources).where(data_sources.c.trail == trail).values(at=at))

    async def add_marks(self, marks: Sequence[int]) -> None:
        """Record marks of stored text."""
        if marks:
            await self._write(_add_marks, [{"mark": mark} for mark in marks])

    async def list_marks(self, *, after: int) -> tuple[int, frozenset[int]]:
        """Return the marks with a higher number than `after`, and the highest number."""
        query = select(stored_marks).where(stored_marks.c.seq > after)
        rows = await self._read_rows(query)
        return max((row.seq for row in rows), default=after), frozenset(row.mark for row in rows)


def _add_marks(connection: Connection, rows: Sequence[dict[str, int]]) -> None:
    connection.execute(insert(stored_marks), rows)
    newest = connection.execute(select(func.max(stored_marks.c.seq))).scalar_one()
    connection.execute(delete(stored_marks).where(stored_marks.c.seq <= newest - MAX_STORED_MARKS))
