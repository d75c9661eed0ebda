"""Memories that models store for a person, and answer preferences of callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, insert, or_, select

from fingerpost.frozen import frozen
from fingerpost.records import Effort
from fingerpost.store.schema import memories, preferences
from fingerpost.store.writer import StorePart

MAX_IDS_PER_STATEMENT: Final = 500  # ids in one statement


@frozen
class MemoryOwner:
    """A person and their current conversation (None if there is none)."""

    person: str | None = None
    conversation: str | None = None


@frozen
class Memory:
    """One memory. `conversation` is None if it applies to all conversations of the person."""

    memory_id: str
    text: str
    at: datetime
    person: str | None = None
    conversation: str | None = None


@frozen(kw_only=False)
class MemoryStamp:
    """Changes whenever an owner's memories change: memories are never edited, and numbers are never
    reused.
    """

    count: int
    newest: int


class MemoryStore(StorePart):
    """Stores memories."""

    async def add(self, memory: Memory, *, max_memories: int) -> int:
        """Store a memory. Beyond `max_memories` the person's oldest ones are deleted; return how many."""
        return await self._writer.write(_add_memories, (memory, max_memories))

    async def list_all(self, owner: MemoryOwner, *, limit: int | None = None) -> list[Memory]:
        """Return the memories visible to the owner in their conversation, newest first."""
        query = (
            select(memories)
            .where(_build_visibility_condition(owner))
            .order_by(memories.c.seq.desc())
            .limit(limit)
        )
        return await self._database.read(
            lambda connection: [_build_memory(row) for row in connection.execute(query)]
        )

    async def get_stamp(self, owner: MemoryOwner) -> MemoryStamp:
        query = select(func.count(), func.max(memories.c.seq)).where(_build_visibility_condition(owner))
        count, newest = await self._database.read(lambda connection: connection.execute(query).one())
        return MemoryStamp(count, newest or 0)

    async def forget(self, owner: MemoryOwner, ids: Sequence[str]) -> int:
        """Delete those of these memories that the owner can see and return their number."""
        return await self._writer.write(_forget_memories, (owner, tuple(ids)))

    async def forget_all(self, owner: MemoryOwner, *, conversation_only: bool = False) -> int:
        """Delete all memories of the person, or only those of this conversation."""
        return await self._writer.write(_forget_all_memories, (owner, conversation_only))


def _build_person_condition(person: str | None) -> ColumnElement[bool]:
    return memories.c.person.is_(None) if person is None else memories.c.person == person


def _build_visibility_condition(owner: MemoryOwner) -> ColumnElement[bool]:
    """Return the condition for the person's general memories and those of their current conversation."""
    everywhere = memories.c.conversation.is_(None)
    conversation = owner.conversation
    where = everywhere if conversation is None else or_(everywhere, memories.c.conversation == conversation)
    return and_(_build_person_condition(owner.person), where)


def _add_memories(connection: Connection, new: Sequence[tuple[Memory, int]]) -> list[int]:
    return [_add_memory(connection, memory, most) for memory, most in new]


def _add_memory(connection: Connection, memory: Memory, max_memories: int) -> int:
    connection.execute(
        insert(memories),
        {
            "memory_id": memory.memory_id,
            "person": memory.person,
            "conversation": memory.conversation,
            "at": memory.at,
            "text": memory.text,
        },
    )
    kept = (
        select(memories.c.seq).where(_build_person_condition(memory.person)).order_by(memories.c.seq.desc())
    )
    oldest = connection.execute(kept.offset(max(1, max_memories)).limit(1)).scalar()
    if oldest is None:
        return 0
    gone = delete(memories).where(_build_person_condition(memory.person), memories.c.seq <= oldest)
    return connection.execute(gone).rowcount


def _forget_memories(
    connection: Connection, wanted: Sequence[tuple[MemoryOwner, tuple[str, ...]]]
) -> list[int]:
    return [_forget_ids(connection, owner, ids) for owner, ids in wanted]


def _forget_ids(connection: Connection, owner: MemoryOwner, ids: tuple[str, ...]) -> int:
    gone = 0
    for begin in range(0, len(ids), MAX_IDS_PER_STATEMENT):
        some = ids[begin : begin + MAX_IDS_PER_STATEMENT]
        gone += connection.execute(
            delete(memories).where(_build_visibility_condition(owner), memories.c.memory_id.in_(some))
        ).rowcount
    return gone


def _forget_all_memories(connection: Connection, wanted: Sequence[tuple[MemoryOwner, bool]]) -> list[int]:
    return [_forget_owner(connection, owner, only) for owner, only in wanted]


def _forget_owner(connection: Connection, owner: MemoryOwner, conversation_only: bool) -> int:
    gone = delete(memories).where(_build_person_condition(owner.person))
    if conversation_only:
        # Matches nothing if there is no conversation.
        gone = gone.where(memories.c.conversation == owner.conversation)
    return connection.execute(gone).rowcount


def _build_memory(row: Row[Any]) -> Memory:
    return Memory(
        memory_id=row.memory_id, text=row.text, at=row.at, person=row.person, conversation=row.conversation
    )


class PreferenceStore(StorePart):
    """Preferred effort (quick or thorough) by caller, shared by all processes."""

    async def get_efforts(self) -> Mapping[str, Effort]:
        """Return the preferred effort by caller."""
        return await self._database.read(_read_efforts)

    async def set_effort(self, caller: str, effort: Effort | None) -> None:
        """Set this caller's preferred effort. None restores the default."""
        await self._writer.write(_set_efforts, (caller, effort))


def _read_efforts(connection: Connection) -> dict[str, Effort]:
    return {row.caller: Effort(row.effort) for row in connection.execute(select(preferences)).all()}


def _set_efforts(connection: Connection, wanted: Sequence[tuple[str, Effort | None]]) -> list[None]:
    for caller, effort in wanted:
        connection.execute(delete(preferences).where(preferences.c.caller == caller))
        if effort is not None:
            connection.execute(insert(preferences), {"caller": caller, "effort": effort.value})
    return [None] * len(wanted)
