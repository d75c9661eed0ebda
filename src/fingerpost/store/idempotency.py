"""Idempotency keys: which call a caller made under a key, and what came of it.

Claiming a key is one write transaction, so of two calls with the same key one runs, whatever the
number of processes on the same store. A key is its caller's own, and is forgotten when it expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from fingerpost.frozen import frozen
from fingerpost.store.database import Database
from fingerpost.store.schema import idempotency_keys as table
from fingerpost.store.writer import StoreWriter


class IdempotencyState(StrEnum):
    """How far the call of a key has come."""

    RUNNING = "running"
    DONE = "done"
    UNKNOWN = "unknown"  # it may or may not have taken effect


@frozen
class KeyedCall:
    """One key, and the call that was made under it."""

    caller: str  # empty: nobody in particular
    key: str
    call_fingerprint: str  # of tool and arguments
    tool: str
    call_id: str
    began: datetime
    expires: datetime
    state: IdempotencyState = IdempotencyState.RUNNING
    outcome: bytes | None = None  # as JSON, once it is done


class IdempotencyStore:
    """The keys in use."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def claim(self, wanted: KeyedCall) -> KeyedCall | None:
        """Take the key for this call. None: it is taken now; else the call that has it."""
        return await self._writer.write(_claim_keys, wanted)

    async def finish(self, call: KeyedCall) -> None:
        """Record how the call of a key ended: its state and its outcome."""
        await self._writer.write(_finish_calls, call)

    async def release(self, call: KeyedCall) -> None:
        """Nothing came of the call: its key may be used again."""
        await self._writer.write(_release_keys, call)


def _claim_keys(connection: Connection, wanted: Sequence[KeyedCall]) -> list[KeyedCall | None]:
    return [_claim_key(connection, call) for call in wanted]


def _claim_key(connection: Connection, call: KeyedCall) -> KeyedCall | None:
    """The transaction holds the write lock: what is not there now, nobody else puts there meanwhile."""
    connection.execute(delete(table).where(table.c.expires <= call.began))
    there = select(table).where(table.c.caller == call.caller, table.c.key == call.key)
    row = connection.execute(there).one_or_none()
    if row is None:
        connection.execute(insert(table), asdict(call))
        return None
    values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(KeyedCall)}
    values["state"] = IdempotencyState(row.state)
    return KeyedCall(**values)


def _finish_calls(connection: Connection, ended: Sequence[KeyedCall]) -> list[None]:
    for call in ended:
        connection.execute(
            update(table).where(_is_key_of(call)).values(state=call.state.value, outcome=call.outcome)
        )
    return [None] * len(ended)


def _release_keys(connection: Connection, ended: Sequence[KeyedCall]) -> list[None]:
    for call in ended:
        connection.execute(delete(table).where(_is_key_of(call)))
    return [None] * len(ended)


def _is_key_of(call: KeyedCall) -> ColumnElement[bool]:
    return and_(table.c.caller == call.caller, table.c.key == call.key, table.c.call_id == call.call_id)
