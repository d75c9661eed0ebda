"""Calls that wait for a person.

A pending call is a row, so it survives a restart and any process may decide it.
The first decision stands. Whoever decides later gets the standing one back and
sees by whom and when; so two people who press the button together are told the
same. A call whose time has passed is expired, whether or not anybody looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic_core import from_json as parse_json
from pydantic_core import to_json as write_json
from sqlalchemy import Connection, Row, Select, and_, not_, or_, select, update

from fingerpost.errors import CallError
from fingerpost.frozen import frozen
from fingerpost.records import Decision, Grant, JsonObject, Pending, utc_now
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import Database
from fingerpost.store.grants import add_grants
from fingerpost.store.schema import approvals
from fingerpost.store.statements import insert_ignoring
from fingerpost.store.writer import StoreWriter

MAX_JOINED_REQUESTS = 100  # requests that wait for one call


@frozen
class _DecisionRequest:
    pending_id: str
    decision: Decision
    by: str
    reason: str | None
    edited_arguments: str | None
    grants: Sequence[Grant]
    now: datetime


@frozen
class _ApprovalRequest:
    pending: Pending
    now: datetime


class ApprovalStore:
    """Asks, and remembers what was answered."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def add(self, pending: Pending) -> None:
        """Keep a call that waits. Adding one again changes nothing."""
        await self._writer.write(_add_pending, pending)

    async def add_or_join(self, pending: Pending, *, now: datetime | None = None) -> Pending:
        """Keep a call that waits, or return the same call of the same asker when that waits already."""
        return await self._writer.write(_add_or_join, _ApprovalRequest(pending=pending, now=now or utc_now()))

    async def get(self, pending_id: str, *, now: datetime | None = None) -> Pending | None:
        """The call as it stands at `now`, or None when no such call ever waited."""
        moment = now or utc_now()
        return await self._database.read(lambda connection: _read_pending(connection, pending_id, moment))

    async def list_waiting(self, *, now: datetime | None = None) -> list[Pending]:
        """Every call that still waits, oldest first."""
        moment = now or utc_now()
        return await self._database.read(
            lambda connection: [
                _build_pending(row, moment) for row in connection.execute(_select_waiting(moment))
            ]
        )

    async def list_recent(
        self,
        *,
        decided: bool | None = None,
        limit: int = 50,
        before: str | None = None,
        now: datetime | None = None,
    ) -> list[Pending]:
        """The newest calls that waited, newest first; `before` (a `pending_id`) goes on from an older one.

        `decided`: only those that wait no more (True; expired ones count), or only those that do (False).
        """
        moment = now or utc_now()
        return await self._database.read(
            lambda connection: [
                _build_pending(row, moment)
                for row in connection.execute(_select_recent(decided, limit, before, moment))
            ]
        )

    async def list_expired(self, *, since: datetime, now: datetime | None = None) -> list[Pending]:
        """Calls whose time was over between then and now before anybody decided, oldest first."""
        moment = now or utc_now()
        query = (
            select(approvals)
            .where(
                approvals.c.decision == Decision.WAITING.value,
                approvals.c.expires <= moment,
                approvals.c.expires > since,
            )
            .order_by(approvals.c.created)
        )
        return await self._database.read(
            lambda connection: [_build_pending(row, moment) for row in connection.execute(query)]
        )

    async def find_last_decision(
        self,
        call_fingerprint: str,
        *,
        conversation: str | None,
        caller: str | None,
        asker: str | None = None,
        since: datetime,
    ) -> Pending | None:
        """What was decided last, since then, about this very call of this asker."""
        query = (
            select(approvals)
            .where(
                approvals.c.decided_at >= since,
                approvals.c.record.contains(call_fingerprint, autoescape=True),
            )
            .order_by(approvals.c.decided_at.desc())
        )
        asked = (call_fingerprint, asker or conversation, caller)

        def find(connection: Connection) -> Pending | None:
            words = (_build_pending(row, since) for row in connection.execute(query))
            return next((word for word in words if _get_request_key(word) == asked), None)

        return await self._database.read(find)

    async def decide(
        self,
        pending_id: str,
        decision: Decision,
        *,
        by: str,
        reason: str | None = None,
        edited_arguments: JsonObject | None = None,
        grants: Sequence[Grant] = (),
        now: datetime | None = None,
    ) -> Pending:
        """Decide a waiting call and return it as it stands: with this decision, an earlier one, or expired.

        `grants` are kept in the same transaction, and only if this decision is the one that stands.
        Look at `decision` of what comes back. Raises `CallError` when no such call ever waited.
        """
        if decision not in (Decision.APPROVED, Decision.REJECTED):
            message = f"a person approves or rejects; {decision.value!r} is not a decision"
            raise ValueError(message)
        verdict = _DecisionRequest(
            pending_id=pending_id,
            decision=decision,
            by=by,
            reason=reason,
            edited_arguments=None if edited_arguments is None else write_json(edited_arguments).decode(),
            grants=grants,
            now=now or utc_now(),
        )
        standing = await self._writer.write(_decide, verdict)
        if standing is None:
            message = f"no call {pending_id!r} waits for a decision"
            raise CallError(message, hint="Look at the list of waiting calls for its id.")
        return standing


def _add_pending(connection: Connection, new: Sequence[Pending]) -> list[None]:
    connection.execute(insert_ignoring(connection, approvals), [_pending_to_row(pending) for pending in new])
    return [None] * len(new)


def _add_or_join(connection: Connection, requests: Sequence[_ApprovalRequest]) -> list[Pending]:
    return [_add_or_join_one(connection, question) for question in requests]


def _add_or_join_one(connection: Connection, request: _ApprovalRequest) -> Pending:
    # Transactions that write follow one another, so two processes cannot both find nothing waiting.
    asked = request.pending
    alike = approvals.c.record.contains(asked.call_fingerprint, autoescape=True)
    for row in connection.execute(_select_waiting(request.now).where(alike)):
        waiting = _build_pending(row, request.now)
        if _get_request_key(waiting) == _get_request_key(asked):
            return _join_pending(connection, waiting, asked.packet_id)
    _add_pending(connection, [asked])
    return asked


def _join_pending(connection: Connection, waiting: Pending, packet_id: str | None) -> Pending:
    """One more request waits for the same call."""
    if packet_id is None or packet_id in waiting.packets or len(waiting.joined) >= MAX_JOINED_REQUESTS:
        return waiting
    joined = replace(waiting, joined=(*waiting.joined, packet_id))
    record = to_json(joined).decode()
    connection.execute(
        update(approvals).where(approvals.c.pending_id == waiting.pending_id).values(record=record)
    )
    return joined


def _get_request_key(pending: Pending) -> tuple[str, str | None, str | None]:
    """What was asked for, where and by whom: who asks the same asks again, an asker in any session."""
    return (pending.call_fingerprint, pending.asker or pending.conversation, pending.caller)


def _select_waiting(now: datetime) -> Select[Any]:
    return (
        select(approvals)
        .where(approvals.c.decision == Decision.WAITING.value, approvals.c.expires > now)
        .order_by(approvals.c.created)
    )


def _select_recent(decided: bool | None, limit: int, before: str | None, now: datetime) -> Select[Any]:
    query = select(approvals).order_by(approvals.c.created.desc(), approvals.c.pending_id.desc()).limit(limit)
    waits = and_(approvals.c.decision == Decision.WAITING.value, approvals.c.expires > now)
    if decided is not None:
        query = query.where(not_(waits) if decided else waits)
    if before is not None:
        asked = select(approvals.c.created).where(approvals.c.pending_id == before).scalar_subquery()
        older = or_(
            approvals.c.created < asked, and_(approvals.c.created == asked, approvals.c.pending_id < before)
        )
        query = query.where(older)
    return query


def _pending_to_row(pending: Pending) -> dict[str, Any]:
    return {
        "pending_id": pending.pending_id,
        "record": to_json(pending).decode(),
        "created": pending.created,
        "expires": pending.expires,
        "decision": pending.decision.value,
    }


def _decide(connection: Connection, requests: Sequence[_DecisionRequest]) -> list[Pending | None]:
    return [_decide_one(connection, verdict) for verdict in requests]


def _decide_one(connection: Connection, request: _DecisionRequest) -> Pending | None:
    # The condition is in the statement: of two processes only one finds the call waiting.
    decided = connection.execute(
        update(approvals)
        .where(
            approvals.c.pending_id == request.pending_id,
            approvals.c.decision == Decision.WAITING.value,
            approvals.c.expires > request.now,
        )
        .values(
            decision=request.decision.value,
            decided_by=request.by,
            decided_at=request.now,
            decision_reason=request.reason,
            edited_arguments=request.edited_arguments,
        )
    )
    if request.grants and decided.rowcount == 1:
        add_grants(connection, request.grants)
    return _read_pending(connection, request.pending_id, request.now)


def _read_pending(connection: Connection, pending_id: str, now: datetime) -> Pending | None:
    query = select(approvals).where(approvals.c.pending_id == pending_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else _build_pending(row, now)


def _build_pending(row: Row[Any], now: datetime) -> Pending:
    asked = from_json(Pending, row.record)
    decision = Decision(row.decision)
    if decision is Decision.WAITING:
        return replace(asked, decision=Decision.EXPIRED) if asked.expires <= now else asked
    if row.decided_at is None:  # it was added with its decision made
        return asked
    return replace(
        asked,
        decision=decision,
        decided_by=row.decided_by,
        decided_at=row.decided_at,
        decision_reason=row.decision_reason,
        edited_arguments=None if row.edited_arguments is None else parse_json(row.edited_arguments),
    )
