"""Calls that wait for approval, grants given by people, and idempotency keys of calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any, Final

from pydantic_core import from_json as parse_json
from pydantic_core import to_json as write_json
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    insert,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from fingerpost.errors import CallError
from fingerpost.records import Decision, Grant, IdempotencyState, JsonObject, KeyedCall, Pending, utc_now
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import insert_ignoring
from fingerpost.store.schema import Moment, approvals, grants
from fingerpost.store.schema import idempotency_keys as table
from fingerpost.store.writer import StorePart

_GRANT_COLUMNS = tuple(item.name for item in fields(Grant))


class GrantStore(StorePart):
    """Stores and spends grants."""

    async def add(self, grant: Grant) -> None:
        """Store a grant. Adding an existing one changes nothing, even if it was spent."""
        await self._write(_add_grants, (grant,))

    async def add_and_spend(self, grant: Grant, *, now: datetime | None = None) -> bool:
        """Store a one-time grant and spend it. Return whether it was not spent before."""
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
        """Spend a grant for this call and return it, or None if there is none.

        A grant for the exact call is preferred over one for the operation, then the one that expires first. A
        grant for the exact call may be bound to an asker instead of a conversation. A one-time grant is used
        up; others stay until they expire.
        """
        # Not the names of the columns, which SQLAlchemy reserves in an UPDATE.
        values = {
            "this_call": call_fingerprint,
            "this_conversation": conversation,
            "this_asker": asker,
            "this_operation": operation,
            "now": now or utc_now(),
        }
        row = await self._write(lambda connection: connection.execute(_SPEND_STATEMENT, values).one_or_none())
        return None if row is None else _build_grant(row)

    async def list_active(self, *, now: datetime | None = None) -> list[Grant]:
        """Return all usable grants at `now`, the first to expire first."""
        query = select(grants).where(_build_usable_condition(now or utc_now())).order_by(grants.c.expires)
        return await self._read_records(query, _build_grant)


def _add_grants(connection: Connection, new: Sequence[Grant]) -> None:
    rows = [{name: getattr(grant, name) for name in _GRANT_COLUMNS} for grant in new]
    connection.execute(insert_ignoring(connection, grants), rows)


def _build_usable_condition(now: ColumnElement[datetime] | datetime) -> ColumnElement[bool]:
    return and_(grants.c.expires > now, or_(~grants.c.one_time, grants.c.spent_at.is_(None)))


def _build_coverage_condition() -> ColumnElement[bool]:
    """Return the condition for grants that cover a call. Empty fields of an exact grant match anything."""
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
        .where(_build_usable_condition(now), _build_coverage_condition())
        .order_by(grants.c.call_fingerprint.is_(None), grants.c.expires, grants.c.grant_id)
        .limit(1)
        .scalar_subquery()
    )
    spent_at = case((grants.c.one_time, now), else_=grants.c.spent_at)
    statement = (
        update(grants)
        .where(grants.c.grant_id == best, _build_usable_condition(now))
        .values(spent_at=spent_at)
    )
    return statement.returning(grants)


# Built once: building it takes ten times as long as executing it.
_SPEND_STATEMENT: Final = _build_spend_statement()


def _build_grant(row: Row[Any]) -> Grant:
    return Grant(**{name: getattr(row, name) for name in _GRANT_COLUMNS})


MAX_JOINED_REQUESTS = 100  # requests that wait for one call


class ApprovalStore(StorePart):
    """Stores approval requests and decisions."""

    async def add(self, pending: Pending) -> None:
        """Store a waiting call. Adding an existing one changes nothing."""
        await self._write(_add_pending, pending)

    async def add_or_join(self, pending: Pending, *, now: datetime | None = None) -> Pending:
        """Store a waiting call, or return the same call of the same asker if it already waits."""
        return await self._write(_add_or_join, pending, now or utc_now())

    async def get(self, pending_id: str, *, now: datetime | None = None) -> Pending | None:
        """Return the call in its state at `now`, or None if it does not exist."""
        moment = now or utc_now()
        return await self._database.read(lambda connection: _read_pending(connection, pending_id, moment))

    async def list_waiting(self, *, now: datetime | None = None) -> list[Pending]:
        """Return all waiting calls, oldest first."""
        moment = now or utc_now()
        return await self._list(_select_waiting(moment), moment)

    async def _list(self, query: Select[Any], now: datetime) -> list[Pending]:
        return await self._read_records(query, lambda row: _build_pending(row, now))

    async def list_recent(
        self,
        *,
        decided: bool | None = None,
        limit: int = 50,
        before: str | None = None,
        now: datetime | None = None,
    ) -> list[Pending]:
        """Return the newest calls, newest first. `before` (a `pending_id`) continues after an older one.

        `decided` selects only decided or expired calls (True) or only waiting ones (False).
        """
        moment = now or utc_now()
        return await self._list(_select_recent(decided, limit, before, moment), moment)

    async def list_expired(self, *, since: datetime, now: datetime | None = None) -> list[Pending]:
        """Return calls that expired without a decision since then, oldest first."""
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
        return await self._list(query, moment)

    async def find_last_decision(
        self,
        call_fingerprint: str,
        *,
        conversation: str | None,
        caller: str | None,
        asker: str | None = None,
        since: datetime,
    ) -> Pending | None:
        """Return the last decision since then about this exact call of this asker, or None."""
        query = (
            select(approvals)
            .where(
                approvals.c.decided_at >= since,
                approvals.c.record.contains(call_fingerprint, autoescape=True),
            )
            .order_by(approvals.c.decided_at.desc())
        )
        asked = (call_fingerprint, asker or conversation, caller)
        decisions = await self._list(query, since)
        return next((decision for decision in decisions if _get_request_key(decision) == asked), None)

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
        """Decide a waiting call and return its state: with this decision, with an earlier one, or expired.

        `grants` are stored in the same transaction, only if this decision takes effect. Check `decision` of
        the result. Raises `CallError` if the call does not exist.
        """
        if decision not in (Decision.APPROVED, Decision.REJECTED):
            raise ValueError(f"a person approves or rejects; {decision.value!r} is not a decision")
        moment = now or utc_now()
        values: dict[str, Any] = {
            "decision": decision.value,
            "decided_by": by,
            "decided_at": moment,
            "decision_reason": reason,
            "edited_arguments": None if edited_arguments is None else write_json(edited_arguments).decode(),
        }
        result = await self._write(_decide, pending_id, values, grants, moment)
        if result is None:
            message = f"no call {pending_id!r} waits for a decision"
            raise CallError(message, hint="`fingerpost approvals` lists the waiting calls.")
        return result


def _add_pending(connection: Connection, pending: Pending) -> None:
    row = {
        "pending_id": pending.pending_id,
        "record": to_json(pending).decode(),
        "created": pending.created,
        "expires": pending.expires,
        "decision": pending.decision.value,
    }
    connection.execute(insert_ignoring(connection, approvals), row)


def _add_or_join(connection: Connection, asked: Pending, now: datetime) -> Pending:
    alike = approvals.c.record.contains(asked.call_fingerprint, autoescape=True)
    for row in connection.execute(_select_waiting(now).where(alike)):
        waiting = _build_pending(row, now)
        if _get_request_key(waiting) == _get_request_key(asked):
            return _join_pending(connection, waiting, asked.packet_id)
    _add_pending(connection, asked)
    return asked


def _join_pending(connection: Connection, waiting: Pending, packet_id: str | None) -> Pending:
    """Add another request to the same waiting call."""
    if packet_id is None or packet_id in waiting.packets or len(waiting.joined) >= MAX_JOINED_REQUESTS:
        return waiting
    joined = replace(waiting, joined=(*waiting.joined, packet_id))
    record = to_json(joined).decode()
    connection.execute(
        update(approvals).where(approvals.c.pending_id == waiting.pending_id).values(record=record)
    )
    return joined


def _get_request_key(pending: Pending) -> tuple[str, str | None, str | None]:
    """Return the key of a request: call, conversation (or asker, in every session) and caller."""
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
        created_at = select(approvals.c.created).where(approvals.c.pending_id == before).scalar_subquery()
        older = or_(
            approvals.c.created < created_at,
            and_(approvals.c.created == created_at, approvals.c.pending_id < before),
        )
        query = query.where(older)
    return query


def _decide(
    connection: Connection, pending_id: str, values: dict[str, Any], grants: Sequence[Grant], now: datetime
) -> Pending | None:
    # The condition is in the statement, so only one of two processes finds the call waiting.
    waiting = update(approvals).where(
        approvals.c.pending_id == pending_id,
        approvals.c.decision == Decision.WAITING.value,
        approvals.c.expires > now,
    )
    if connection.execute(waiting.values(**values)).rowcount == 1 and grants:
        _add_grants(connection, grants)
    return _read_pending(connection, pending_id, now)


def _read_pending(connection: Connection, pending_id: str, now: datetime) -> Pending | None:
    query = select(approvals).where(approvals.c.pending_id == pending_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else _build_pending(row, now)


def _build_pending(row: Row[Any], now: datetime) -> Pending:
    pending = from_json(Pending, row.record)
    decision = Decision(row.decision)
    if decision is Decision.WAITING:
        return replace(pending, decision=Decision.EXPIRED) if pending.expires <= now else pending
    if row.decided_at is None:  # the call was added with a decision
        return pending
    return replace(
        pending,
        decision=decision,
        decided_by=row.decided_by,
        decided_at=row.decided_at,
        decision_reason=row.decision_reason,
        edited_arguments=None if row.edited_arguments is None else parse_json(row.edited_arguments),
    )


class IdempotencyStore(StorePart):
    """Stores the idempotency keys in use."""

    async def claim(self, wanted: KeyedCall) -> KeyedCall | None:
        """Claim the key for this call. Return None on success, else the call that has the key."""
        return await self._write(_claim_key, wanted)

    async def finish(self, call: KeyedCall) -> None:
        """Record the state and outcome of the finished call."""
        end = update(table).where(_build_key_condition(call))
        await self._execute(end.values(state=call.state.value, outcome=call.outcome))

    async def release(self, call: KeyedCall) -> None:
        """Release the key, because the call did not take place."""
        await self._execute(delete(table).where(_build_key_condition(call)))


def _claim_key(connection: Connection, call: KeyedCall) -> KeyedCall | None:
    connection.execute(delete(table).where(table.c.expires <= call.began))
    there = select(table).where(table.c.caller == call.caller, table.c.key == call.key)
    row = connection.execute(there).one_or_none()
    if row is None:
        connection.execute(insert(table), asdict(call))
        return None
    values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(KeyedCall)}
    values["state"] = IdempotencyState(row.state)
    return KeyedCall(**values)


def _build_key_condition(call: KeyedCall) -> ColumnElement[bool]:
    return and_(table.c.caller == call.caller, table.c.key == call.key, table.c.call_id == call.call_id)
