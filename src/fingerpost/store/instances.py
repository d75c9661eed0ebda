"""The running processes on this store, and what each of them works on alone.

A process says that it is alive every few seconds. One that has not done so for the length of its lease
counts as gone: it was killed, or its machine is. What it had claimed, another may claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, func, insert, select

from fingerpost.frozen import frozen
from fingerpost.records import utc_now
from fingerpost.store.database import Database
from fingerpost.store.schema import claims, instances, journal
from fingerpost.store.statements import upsert
from fingerpost.store.writer import StoreWriter

LEASE_SECONDS = 30.0


@frozen
class Instance:
    """One process: `since_seq` is the number of the last event in the journal when it started."""

    instance_id: str
    seen: datetime
    lease_s: float
    since_seq: int


@frozen
class _InstanceClaim:
    name: str
    instance_id: str
    now: datetime


class InstanceStore:
    """Who is alive, and who works on what."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def renew_lease(
        self, instance_id: str, *, lease_s: float = LEASE_SECONDS, now: datetime | None = None
    ) -> None:
        """This process is alive, and will say so again before `lease_s` seconds are over."""
        beaten = Instance(instance_id=instance_id, seen=now or utc_now(), lease_s=lease_s, since_seq=0)
        await self._writer.write(_renew_leases, beaten)

    async def end(self, instance_id: str) -> None:
        """This process is over, and works on nothing any more."""
        await self._writer.write(_end_instances, instance_id)

    async def list_expired(self, *, now: datetime | None = None) -> list[Instance]:
        """Those whose lease is over."""
        moment = now or utc_now()
        found = await self._database.read(_list_instances)
        return [one for one in found if not _is_alive(one, moment)]

    async def claim(self, name: str, instance_id: str, *, now: datetime | None = None) -> bool:
        """Work on this alone. False while a process that is alive does, this one included."""
        return await self._writer.write(
            _claim_names, _InstanceClaim(name=name, instance_id=instance_id, now=now or utc_now())
        )

    async def release(self, name: str, instance_id: str) -> None:
        """Work on it no more."""
        await self._writer.write(_release_names, (name, instance_id))


def _is_alive(one: Instance, now: datetime) -> bool:
    return now - one.seen <= timedelta(seconds=one.lease_s)


def _list_instances(connection: Connection) -> list[Instance]:
    rows = connection.execute(select(instances)).all()
    return [
        Instance(instance_id=row.instance_id, seen=row.seen, lease_s=row.lease_s, since_seq=row.since_seq)
        for row in rows
    ]


def _renew_leases(connection: Connection, beaten: Sequence[Instance]) -> list[None]:
    since = connection.execute(select(func.max(journal.c.seq))).scalar() or 0
    statement = upsert(connection, instances, lambda new: {"seen": new["seen"], "lease_s": new["lease_s"]})
    for one in beaten:
        row = {"instance_id": one.instance_id, "seen": one.seen, "lease_s": one.lease_s, "since_seq": since}
        connection.execute(statement, row)
    return [None] * len(beaten)


def _end_instances(connection: Connection, ended: Sequence[str]) -> list[None]:
    connection.execute(delete(claims).where(claims.c.instance_id.in_(ended)))
    connection.execute(delete(instances).where(instances.c.instance_id.in_(ended)))
    return [None] * len(ended)


def _claim_names(connection: Connection, wanted: Sequence[_InstanceClaim]) -> list[bool]:
    return [_claim_name(connection, claim) for claim in wanted]


def _claim_name(connection: Connection, claim: _InstanceClaim) -> bool:
    """Transactions that write follow one another, so two processes cannot both find it free."""
    holder = connection.execute(
        select(claims.c.instance_id).where(claims.c.name == claim.name)
    ).scalar_one_or_none()
    if holder is not None:
        alive = {one.instance_id for one in _list_instances(connection) if _is_alive(one, claim.now)}
        if holder in alive:
            return False
    connection.execute(delete(claims).where(claims.c.name == claim.name))
    connection.execute(insert(claims), {"name": claim.name, "instance_id": claim.instance_id})
    return True


def _release_names(connection: Connection, released: Sequence[tuple[str, str]]) -> list[None]:
    for name, instance_id in released:
        connection.execute(delete(claims).where(claims.c.name == name, claims.c.instance_id == instance_id))
    return [None] * len(released)
