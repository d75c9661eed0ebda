"""A bounded LRU cache in the database.

Reads must not cause writes. So uses are recorded in memory and written with the next `put`, before eviction.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, or_, select, tuple_, update

from fingerpost.frozen import frozen
from fingerpost.records import utc_now
from fingerpost.store.database import Database, upsert
from fingerpost.store.schema import cache
from fingerpost.store.writer import StorePart, StoreWriter

CacheKey = tuple[str, str]


@frozen
class CacheLimits:
    """Limits for all spaces together."""

    entries: int = 10_000
    size: int = 64 * 1024 * 1024


class Cache(StorePart):
    """Values by space and key. A space is the owner of the values: `listing`, `embedding`."""

    def __init__(self, database: Database, writer: StoreWriter, limits: CacheLimits) -> None:
        super().__init__(database, writer)
        self._limits = limits
        self._uses: dict[CacheKey, datetime] = {}

    async def get(self, space: str, key: str, *, now: datetime | None = None) -> bytes | None:
        """Return the value, or None if it is missing, expired or evicted."""
        moment = now or utc_now()
        query = select(cache.c.value).where(
            cache.c.space == space,
            cache.c.key == key,
            or_(cache.c.expires.is_(None), cache.c.expires > moment),
        )
        value: bytes | None = await self._read_value(query)
        if value is not None and len(self._uses) < self._limits.entries:
            self._uses[space, key] = moment
        return value

    async def put(
        self, space: str, key: str, value: bytes, *, ttl: float | None = None, now: datetime | None = None
    ) -> None:
        """Store the value, for `ttl` seconds if given. A value larger than the whole cache is not stored."""
        moment = now or utc_now()
        uses, self._uses = self._uses, {}
        expires = None if ttl is None else moment + timedelta(seconds=ttl)
        row = {"space": space, "key": key, "value": value, "size": len(value), "expires": expires}
        await self._write(self._put_row, {**row, "used": moment}, uses)

    def _put_row(
        self, connection: Connection, row: dict[str, Any], uses: Mapping[CacheKey, datetime]
    ) -> None:
        _update_last_uses(connection, uses)
        if row["size"] > self._limits.size:
            connection.execute(delete(cache).where(cache.c.space == row["space"], cache.c.key == row["key"]))
        else:
            connection.execute(upsert(connection, cache), row)
        self._evict(connection, row["used"])

    def _evict(self, connection: Connection, now: datetime) -> None:
        connection.execute(delete(cache).where(cache.c.expires <= now))
        entries, size = connection.execute(
            select(func.count(), func.coalesce(func.sum(cache.c.size), 0))
        ).one()
        if entries <= self._limits.entries and size <= self._limits.size:
            return
        newest_first = (cache.c.used.desc(), cache.c.space, cache.c.key)
        ranked = select(
            cache.c.space,
            cache.c.key,
            func.row_number().over(order_by=newest_first).label("entries"),
            func.sum(cache.c.size).over(order_by=newest_first).label("size"),
        ).subquery()
        surplus = select(ranked.c.space, ranked.c.key).where(
            or_(ranked.c.entries > self._limits.entries, ranked.c.size > self._limits.size)
        )
        connection.execute(delete(cache).where(tuple_(cache.c.space, cache.c.key).in_(surplus)))


def _update_last_uses(connection: Connection, uses: Mapping[CacheKey, datetime]) -> None:
    if not uses:
        return
    note = update(cache).where(cache.c.space == bindparam("in_space"), cache.c.key == bindparam("in_key"))
    connection.execute(
        note.where(cache.c.used < bindparam("at")).values(used=bindparam("at")),
        [{"in_space": space, "in_key": key, "at": at} for (space, key), at in uses.items()],
    )
