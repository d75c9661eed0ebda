"""A bounded LRU cache in the database.

Reads must not cause writes. So uses are recorded in memory and written with the next `put`, before eviction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, func, or_, select, tuple_, update

from fingerpost.frozen import frozen
from fingerpost.records import utc_now
from fingerpost.store.database import Database, upsert
from fingerpost.store.schema import cache
from fingerpost.store.writer import StoreWriter

CacheKey = tuple[str, str]


@frozen
class CacheLimits:
    """Limits for all spaces together."""

    entries: int = 10_000
    size: int = 64 * 1024 * 1024


@frozen
class _CachePut:
    cache_key: CacheKey
    value: bytes
    expires: datetime | None
    now: datetime
    uses: Mapping[CacheKey, datetime]


class Cache:
    """Values by space and key. A space is the owner of the values: `listing`, `embedding`."""

    def __init__(self, database: Database, writer: StoreWriter, limits: CacheLimits) -> None:
        self._database = database
        self._writer = writer
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
        value: bytes | None = await self._database.read(lambda connection: connection.execute(query).scalar())
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
        await self._writer.write(
            self._write_puts,
            _CachePut(cache_key=(space, key), value=value, expires=expires, now=moment, uses=uses),
        )

    def _write_puts(self, connection: Connection, puts: Sequence[_CachePut]) -> list[None]:
        for item in puts:
            _update_last_uses(connection, item.uses)
            if len(item.value) > self._limits.size:
                connection.execute(
                    delete(cache).where(cache.c.space == item.cache_key[0], cache.c.key == item.cache_key[1])
                )
                continue
            row = {
                "space": item.cache_key[0],
                "key": item.cache_key[1],
                "value": item.value,
                "size": len(item.value),
                "expires": item.expires,
                "used": item.now,
            }
            connection.execute(upsert(connection, cache), row)
        self._evict(connection, max(item.now for item in puts))
        return [None] * len(puts)

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
