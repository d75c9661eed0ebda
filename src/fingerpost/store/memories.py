"""Memories that models store for a person, and answer preferences of callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select

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
    """Changes with an owner's memories: they are never edited, and numbers are never reused."""

    count: int
    newest: int


class MemoryStore(StorePart):
    """Stores memories."""

    async def add(self, memory: Memory, *, max_memories: int) -> int:
        """Store a memory. Beyond `max_memories` the person's oldest ones are deleted; return how many."""
        return await self._write(_add_memory, memory, max_memories)

    async def list_all(self, owner: MemoryOwner, *, limit: int | None = None) -> list[Memory]:
        """Return the memories visible to the owner in their conversation, newest first."""
        columns = [column for column in memories.c if column is not memories.c.seq]
        query = (
            select(*columns)
            .where(_build_visibility_condition(owner))
            .order_by(memories.c.seq.desc())
            .limit(limit)
        )
        return [Memory(**values) for values in await self._read_mappings(query)]

    async def get_stamp(self, owner: MemoryOwner) -> MemoryStamp:
        query = select(func.count(), func.max(memories.c.seq)).where(_build_visibility_condition(owner))
        [row] = await self._read_rows(query)
        count, newest = tuple(row)
        return MemoryStamp(count, newest or 0)

    async def forget(self, owner: MemoryOwner, ids: Sequence[str]) -> int:
        """Delete those of these memories that the owner can see and return their number."""
        return await self._write(_forget_ids, owner, ids)

    async def forget_all(self, owner: MemoryOwner, *, conversation_only: bool = False) -> int:
        """Delete all memories of the person, or only those of this conversation."""
        gone = delete(memories).where(_build_person_condition(owner.person))
        if conversation_only:
            # Matches nothing if there is no conversation.
            gone = gone.where(memories.c.conversation == owner.conversation)
        return await self._execute(gone)


def _build_person_condition(person: str | None) -> ColumnElement[bool]:
    return memories.c.person.is_(None) if person is None else memories.c.person == person


def _build_visibility_condition(owner: MemoryOwner) -> ColumnElement[bool]:
    """Return the condition for the person's general memories and those of their current conversation."""
    everywhere = memories.c.conversation.is_(None)
    conversation = owner.conversation
    where = everywhere if conversation is None else or_(everywhere, memories.c.conversation == conversation)
    return and_(_build_person_condition(owner.person), where)


def _add_memory(connection: Connection, memory: Memory, max_memories: int) -> int:
    connection.execute(insert(memories), asdict(memory))
    kept = (
        select(memories.c.seq).where(_build_person_condition(memory.person)).order_by(memories.c.seq.desc())
    )
    oldest = connection.execute(kept.offset(max(1, max_memories)).limit(1)).scalar()
    if oldest is None:
        return 0
    gone = delete(memories).where(_build_person_condition(memory.person), memories.c.seq <= oldest)
    return connection.execute(gone).rowcount


def _forget_ids(connection: Connection, owner: MemoryOwner, ids: Sequence[str]) -> int:
    gone = 0
    for begin in range(0, len(ids), MAX_IDS_PER_STATEMENT):
        some = ids[begin : begin + MAX_IDS_PER_STATEMENT]
        gone += connection.execute(
            delete(memories).where(_build_visibility_condition(owner), memories.c.memory_id.in_(some))
        ).rowcount
    return gone


class PreferenceStore(StorePart):
    """Preferred effort (quick or thorough) by caller, shared by all processes."""

    async def get_efforts(self) -> Mapping[str, Effort]:
        """Return the preferred effort by caller."""
        return {row.caller: Effort(row.effort) for row in await self._read_rows(select(preferences))}

    async def set_effort(self, caller: str, effort: Effort | None) -> None:
        """Set this caller's preferred effort. None restores the default."""
        if effort is None:
            await self._execute(delete(preferences).where(preferences.c.caller == caller))
        else:
            await self._execute(self._upsert(preferences), {"caller": caller, "effort": effort.value})
