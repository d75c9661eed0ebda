"""What a person allowed, and the spending of it.

Finding a grant and spending it is one statement in one write transaction, so a
one-time grant is spent once, however many processes ask for it at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, false, literal, or_, select, update

from fingerpost.records import Grant, utc_now
from fingerpost.store.columns import Moment
from fingerpost.store.database import Database
from fingerpost.store.schema import grants
from fingerpost.store.statements import insert_new
from fingerpost.store.writer import Writer

_COLUMNS = tuple(item.name for item in fields(Grant))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    call_fingerprint: str
    conversation: str | None
    operation: str | None
    now: datetime


class Grants:
    """Permissions, given and spent."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    async def add(self, grant: Grant) -> None:
        """Keep a permission. Adding one again changes nothing, least of all a spent one."""
        await self._writer.submit(_add, grant)

    async def spend(
        self,
        *,
        call_fingerprint: str,
        conversation: str | None = None,
        operation: str | None = None,
        now: datetime | None = None,
    ) -> Grant | None:
        """Use a permission for this call and return it, or None when there is none.

        A grant for the exact call goes before one for the operation, and what expires first goes first.
        A one-time grant is gone after this; any other stays until it expires.
        """
        wish = _Wish(
            call_fingerprint=call_fingerprint,
            conversation=conversation,
            operation=operation,
            now=now or utc_now(),
        )
        return await self._writer.submit(_spend, wish)

    async def active(self, *, now: datetime | None = None) -> list[Grant]:
        """Every permission that could be used at `now`, the one that expires first at the front."""
        query = select(grants).where(_usable(now or utc_now())).order_by(grants.c.expires)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [_grant(row) for row in rows]


def _add(connection: Connection, new: Sequence[Grant]) -> list[None]:
    rows = [{name: getattr(grant, name) for name in _COLUMNS} for grant in new]
    connection.execute(insert_new(connection, grants), rows)
    return [None] * len(new)


def _spend(connection: Connection, wishes: Sequence[_Wish]) -> list[Grant | None]:
    return [_spend_one(connection, wish) for wish in wishes]


def _spend_one(connection: Connection, wish: _Wish) -> Grant | None:
    usable = _usable(wish.now)
    best = (
        select(grants.c.grant_id)
        .where(usable, _covers(wish))
        .order_by(grants.c.call_fingerprint.is_(None), grants.c.expires, grants.c.grant_id)
        .limit(1)
        .scalar_subquery()
    )
    spent_at = case((grants.c.one_time, literal(wish.now, Moment)), else_=grants.c.spent_at)
    statement = update(grants).where(grants.c.grant_id == best, usable).values(spent_at=spent_at)
    row = connection.execute(statement.returning(grants)).one_or_none()
    return None if row is None else _grant(row)


def _usable(now: datetime) -> ColumnElement[bool]:
    return and_(grants.c.expires > now, or_(~grants.c.one_time, grants.c.spent_at.is_(None)))


def _covers(wish: _Wish) -> ColumnElement[bool]:
    """An exact grant may be narrowed further; what it leaves open does not matter. NULL equals nothing."""
    exact = and_(
        grants.c.call_fingerprint == wish.call_fingerprint,
        or_(grants.c.conversation.is_(None), _same(grants.c.conversation, wish.conversation)),
        or_(grants.c.operation.is_(None), _same(grants.c.operation, wish.operation)),
    )
    scoped = and_(
        grants.c.call_fingerprint.is_(None),
        _same(grants.c.conversation, wish.conversation),
        _same(grants.c.operation, wish.operation),
    )
    return or_(exact, scoped)


def _same(column: ColumnElement[Any], value: str | None) -> ColumnElement[bool]:
    return column == value if value is not None else false()


def _grant(row: Row[Any]) -> Grant:
    return Grant(**{name: getattr(row, name) for name in _COLUMNS})
