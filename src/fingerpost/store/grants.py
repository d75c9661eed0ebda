"""What a person allowed, and the spending of it.

Finding a grant and spending it is one statement in one write transaction, so a
one-time grant is spent once, however many processes ask for it at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, case, or_, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from fingerpost.frozen import frozen
from fingerpost.records import Grant, utc_now
from fingerpost.store.columns import Moment
from fingerpost.store.database import Database
from fingerpost.store.schema import grants
from fingerpost.store.statements import insert_ignoring
from fingerpost.store.writer import StoreWriter

_GRANT_COLUMNS = tuple(item.name for item in fields(Grant))


@frozen
class _SpendRequest:
    """Names that are no columns: SQLAlchemy keeps those for the values of an UPDATE."""

    this_call: str
    this_conversation: str | None
    this_asker: str | None
    this_operation: str | None
    now: datetime


class GrantStore:
    """Permissions, given and spent."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def add(self, grant: Grant) -> None:
        """Keep a permission. Adding one again changes nothing, least of all a spent one."""
        await self._writer.write(add_grants, grant)

    async def add_and_spend(self, grant: Grant, *, now: datetime | None = None) -> bool:
        """Keep a one-time permission and use it in the same breath. Whether nobody had done so before."""
        await self.add(grant)
        assert grant.call_fingerprint is not None
        return await self.spend(call_fingerprint=grant.call_fingerprint, now=now) is not None

    async def spend(
        self,
        *,
        call_fingerprint: str,
        conversation: str | None = None,
        asker: str | None = None,
        operation: str | None = None,
        now: datetime | None = None,
    ) -> Grant | None:
        """Use a permission for this call and return it, or None when there is none.

        A grant for the exact call goes before one for the operation, and what expires first goes first.
        A grant for the exact call may be bound to an asker in the place of a conversation. A one-time
        grant is gone after this; any other stays until it expires.
        """
        wish = _SpendRequest(
            this_call=call_fingerprint,
            this_conversation=conversation,
            this_asker=asker,
            this_operation=operation,
            now=now or utc_now(),
        )
        return await self._writer.write(_spend_grants, wish)

    async def list_active(self, *, now: datetime | None = None) -> list[Grant]:
        """Every permission that could be used at `now`, the one that expires first at the front."""
        query = select(grants).where(_is_usable(now or utc_now())).order_by(grants.c.expires)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [_build_grant(row) for row in rows]


def add_grants(connection: Connection, new: Sequence[Grant]) -> list[None]:
    """Write permissions, within a transaction that may hold more than them."""
    rows = [{name: getattr(grant, name) for name in _GRANT_COLUMNS} for grant in new]
    connection.execute(insert_ignoring(connection, grants), rows)
    return [None] * len(new)


def _spend_grants(connection: Connection, requests: Sequence[_SpendRequest]) -> list[Grant | None]:
    return [_spend_grant(connection, wish) for wish in requests]


def _spend_grant(connection: Connection, request: _SpendRequest) -> Grant | None:
    row = connection.execute(_SPEND_STATEMENT, asdict(request)).one_or_none()
    return None if row is None else _build_grant(row)


def _is_usable(now: ColumnElement[datetime] | datetime) -> ColumnElement[bool]:
    return and_(grants.c.expires > now, or_(~grants.c.one_time, grants.c.spent_at.is_(None)))


def _covers_call() -> ColumnElement[bool]:
    """An exact grant may be narrowed further; what it leaves open does not matter. NULL equals nothing."""
    conversation = grants.c.conversation == bindparam("this_conversation")
    operation = grants.c.operation == bindparam("this_operation")
    exact = and_(
        grants.c.call_fingerprint == bindparam("this_call"),
        or_(grants.c.conversation.is_(None), conversation, grants.c.conversation == bindparam("this_asker")),
        or_(grants.c.operation.is_(None), operation),
    )
    return or_(exact, and_(grants.c.call_fingerprint.is_(None), conversation, operation))


def _build_spend_statement() -> ReturningUpdate[Any]:
    now = bindparam("now", type_=Moment)
    best = (
        select(grants.c.grant_id)
        .where(_is_usable(now), _covers_call())
        .order_by(grants.c.call_fingerprint.is_(None), grants.c.expires, grants.c.grant_id)
        .limit(1)
        .scalar_subquery()
    )
    spent_at = case((grants.c.one_time, now), else_=grants.c.spent_at)
    statement = update(grants).where(grants.c.grant_id == best, _is_usable(now)).values(spent_at=spent_at)
    return statement.returning(grants)


# Made once: putting it together costs ten times as much as running it.
_SPEND_STATEMENT: Final = _build_spend_statement()


def _build_grant(row: Row[Any]) -> Grant:
    return Grant(**{name: getattr(row, name) for name in _GRANT_COLUMNS})
