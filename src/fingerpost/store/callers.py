"""Users, quotas of callers, and how much of them all processes together have used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, delete, func, select

from fingerpost.frozen import frozen
from fingerpost.records import Quota, QuotaSubject, User, create_id, utc_now
from fingerpost.records.access import DAY_S, MINUTE_S, find_quota
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import upsert
from fingerpost.store.schema import instances, quota_slots, quota_use, quotas, to_microseconds, users
from fingerpost.store.writer import StorePart

# A process takes at most this share of what is left: the last units are taken one at a time, so that no
# process keeps many that another one needs.
LEASE_SHARE: Final = 8


@frozen
class UsedLimit:
    """How much of a limit is used. Of a rate, this includes units that a process took and did not use."""

    of: QuotaSubject
    name: str
    limit: str
    used: float
    most: float


@frozen
class _QuotaUse:
    """What a subject, such as `user dana`, used in one period."""

    subject: str
    measure: str
    period: int
    used: float


class UserStore(StorePart):
    """Users with roles, and users that are disabled."""

    async def list_all(self) -> list[User]:
        """Return all users by name."""
        query = select(users.c.record).order_by(users.c.name)
        return await self._read_records(query, lambda row: from_json(User, row.record))

    async def put(self, user: User) -> None:
        """Store a user, or replace the one of this name."""
        row = {"name": user.name, "record": to_json(user).decode(), "created": utc_now()}
        await self._execute(self._upsert(users, _keep_created), row)

    async def remove(self, name: str) -> bool:
        """Delete a user. Return False if there is none of this name."""
        return await self._execute(delete(users).where(users.c.name == name)) > 0


def _keep_created(new: Mapping[str, ColumnElement[Any]]) -> Mapping[str, ColumnElement[Any]]:
    return {"record": new["record"]}


class QuotaStore(StorePart):
    """Stored quotas, and counters that all processes share."""

    async def list_all(self) -> list[Quota]:
        """Return the stored quotas, the newest first."""
        query = select(quotas).order_by(quotas.c.created.desc(), quotas.c.quota_id)
        return await self._read_records(query, lambda row: from_json(Quota, row.record))

    async def put(self, quota: Quota) -> Quota:
        """Store a quota, or replace the one with its id. Return it with its id."""
        stored = quota if quota.quota_id else replace(quota, quota_id=create_id("quo"))
        row = {"quota_id": stored.quota_id, "record": to_json(stored).decode(), "created": utc_now()}
        await self._execute(self._upsert(quotas, _keep_created), row)
        return stored

    async def remove(self, quota_id: str) -> bool:
        """Delete a quota. Return False if there is none with this id."""
        return await self._execute(delete(quotas).where(quotas.c.quota_id == quota_id)) > 0

    async def take_units(self, subject: str, measure: str, period: int, *, wanted: int, limit: int) -> int:
        """Take up to `wanted` units of this period and return how many: 0 if the limit is reached."""
        return await self._write(_take_units, subject, measure, period, wanted=wanted, limit=limit)

    async def take_slots(self, subject: str, instance_id: str, *, needed: int, limit: int) -> int:
        """Take slots until this process holds `needed` or the limit is reached. Return how many it holds."""
        return await self._write(_take_slots, subject, instance_id, needed=needed, limit=limit)

    async def set_slots(self, subject: str, instance_id: str, held: int) -> None:
        """Return all slots of this process but `held`."""
        await self._write(_set_slots, subject, instance_id, held)

    def add_use_soon(self, subject: str, measure: str, period: int, used: float) -> None:
        """Count this use soon. Returns at once."""
        use = _QuotaUse(subject=subject, measure=measure, period=period, used=used)
        self._writer.write_soon(_add_uses, use)

    async def get_use(self, subjects: Sequence[tuple[str, str, int]]) -> list[float]:
        """Return the use of each subject, measure and period."""

        def read(connection: Connection) -> list[float]:
            return [_get_used(connection, *one) for one in subjects]

        return await self._database.read(read)

    async def measure_use(self, quotas: Sequence[Quota]) -> tuple[UsedLimit, ...]:
        """Return what is used of these quotas now, the fullest first."""
        used = (_build_used(use, quotas) for use in await self._list_use())
        found = (one for one in used if one is not None)
        return tuple(sorted(found, key=lambda one: (-one.used / one.most, one.name)))

    async def _list_use(self) -> list[_QuotaUse]:
        """Return what all subjects used in this minute and on this day, and the slots they hold."""
        moment = utc_now()
        minute, day = int(moment.timestamp() // MINUTE_S), int(moment.timestamp() // DAY_S)
        now = to_microseconds(moment)

        def read(connection: Connection) -> list[_QuotaUse]:
            rows = connection.execute(select(quota_use).where(quota_use.c.period.in_((minute, day)))).all()
            held = func.sum(quota_slots.c.held)
            query = select(quota_slots.c.subject, held.label("held")).group_by(quota_slots.c.subject)
            alive = _list_alive(connection, now)
            slots = connection.execute(query.where(quota_slots.c.instance_id.in_(alive))).all()
            taken = [(row.subject, row.measure, row.period, row.used) for row in rows]
            taken += [(row.subject, "running", minute, float(row.held)) for row in slots]
            return [
                _QuotaUse(subject=subject, measure=measure, period=period, used=used)
                for subject, measure, period, used in taken
            ]

        return await self._database.read(read)


def _build_used(use: _QuotaUse, quotas: Sequence[Quota]) -> UsedLimit | None:
    of, _, name = use.subject.partition(" ")
    quota = find_quota(quotas, of, name)
    most = None if quota is None else getattr(quota, use.measure)
    if quota is None or most is None:
        return None
    return UsedLimit(of=quota.of, name=name, limit=use.measure, used=use.used, most=most)


def _get_used(connection: Connection, subject: str, measure: str, period: int) -> float:
    query = select(quota_use.c.used).where(
        quota_use.c.subject == subject, quota_use.c.measure == measure, quota_use.c.period == period
    )
    return connection.execute(query).scalar() or 0.0


def _take_units(
    connection: Connection, subject: str, measure: str, period: int, *, wanted: int, limit: int
) -> int:
    left = limit - int(_get_used(connection, subject, measure, period))
    if left < 1:
        return 0
    granted = max(1, min(wanted, left // LEASE_SHARE))
    _add_uses(connection, [_QuotaUse(subject=subject, measure=measure, period=period, used=float(granted))])
    return granted


def _add_uses(connection: Connection, uses: Sequence[_QuotaUse]) -> list[None]:
    statement = upsert(connection, quota_use, lambda new: {"used": quota_use.c.used + new["used"]})
    for use in uses:
        connection.execute(statement, asdict(use))
    for measure, period in {(use.measure, use.period) for use in uses}:
        # The previous period stays: the clock of another process may be a little behind.
        old = delete(quota_use).where(quota_use.c.measure == measure, quota_use.c.period < period - 1)
        connection.execute(old)
    return [None] * len(uses)


def _list_alive(connection: Connection, now: int) -> list[str]:
    rows = connection.execute(select(instances.c.instance_id, instances.c.seen, instances.c.lease_s)).all()
    return [
        row.instance_id for row in rows if now <= to_microseconds(row.seen + timedelta(seconds=row.lease_s))
    ]


def _take_slots(connection: Connection, subject: str, instance_id: str, *, needed: int, limit: int) -> int:
    query = select(quota_slots.c.instance_id, quota_slots.c.held).where(quota_slots.c.subject == subject)
    held = {row.instance_id: row.held for row in connection.execute(query)}
    own = held.get(instance_id, 0)
    alive = {*_list_alive(connection, to_microseconds(utc_now())), instance_id}
    left = limit - sum(count for instance, count in held.items() if instance in alive)
    now_held = max(own, min(needed, own + left))
    if now_held != own:
        _set_slots(connection, subject, instance_id, now_held)
    return now_held


def _set_slots(connection: Connection, subject: str, instance_id: str, held: int) -> None:
    if held:
        row = {"subject": subject, "instance_id": instance_id, "held": held}
        connection.execute(upsert(connection, quota_slots), row)
    else:
        here = (quota_slots.c.subject == subject, quota_slots.c.instance_id == instance_id)
        connection.execute(delete(quota_slots).where(*here))
