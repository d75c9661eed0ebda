"""Memories in the store, and an index for each person who searches theirs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.to_thread

from fingerpost.builtin.kit import ToolCaller, ToolRefused
from fingerpost.builtin.memory.secrets import find_secret
from fingerpost.builtin.passages import PassageIndex, TextPassage
from fingerpost.builtin.premises import BuiltinHost
from fingerpost.frozen import frozen
from fingerpost.narrow.lexical.words import iterate_terms
from fingerpost.records import LOCAL_NAME, create_id, utc_now
from fingerpost.store import Memory, MemoryOwner, MemoryStore, Store
from fingerpost.store.memories import MemoryStamp

MAX_INDEXES: Final = 32  # of people who searched last


@frozen
class FoundMemory:
    """A memory a search came upon; scores are comparable within one search."""

    memory: Memory
    score: float


@dataclass(slots=True)
class _OwnerIndex:
    """What one owner can see, searchable. Memories are never changed, so each is read once."""

    index: PassageIndex
    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])
    stamp: MemoryStamp | None = None

    def update(self, memories: Sequence[Memory]) -> None:
        now = {memory.memory_id: memory for memory in memories}
        for gone in self.memories.keys() - now.keys():
            self.index.remove(gone)
        for name in now.keys() - self.memories.keys():
            self.index.set_source(name, [TextPassage(source=name, text=now[name].text)])
        self.memories = now

    def search(self, query: str, limit: int, within: frozenset[str] | None) -> tuple[FoundMemory, ...]:
        wanted = None if within is None else within.__contains__
        hits = self.index.search(query, limit, within=wanted)
        known = ((hit, self.memories.get(hit.passage.source)) for hit in hits)
        return tuple(
            FoundMemory(memory=memory, score=hit.score) for hit, memory in known if memory is not None
        )


class MemoryKeeper:
    """Remembers and forgets for whoever calls, within their own memories."""

    def __init__(self, host: BuiltinHost) -> None:
        self._host = host
        self._settings = host.settings.builtin.memory
        self._shelves: OrderedDict[MemoryOwner, _OwnerIndex] = OrderedDict()
        self._locks: dict[MemoryOwner, anyio.Lock] = {}
        self._alone: Store | None = None
        self._stack: AsyncExitStack | None = None
        self._opening = anyio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Where the server runs alone it opens the store itself, when it is first needed."""
        async with AsyncExitStack() as stack:
            self._stack = stack
            try:
                yield
            finally:
                self._stack = self._alone = None
                await anyio.to_thread.run_sync(self._close_indexes)

    def _close_indexes(self) -> None:
        while self._shelves:
            self._shelves.popitem()[1].index.close()

    @property
    def max_bytes(self) -> int:
        return self._settings.text_bytes

    async def store(self, owner: MemoryOwner, text: str) -> tuple[Memory, int]:
        """Keep it; how many of the oldest went for it. Raises `ToolRefused` for what must not be kept."""
        if len(text.encode("utf-8", "replace")) > self.max_bytes:
            message = f"A memory may have {self.max_bytes:,} bytes, and this has more."
            raise ToolRefused(message, hint="Remember the essence of it, or raise builtin.memory.text_bytes.")
        kind = await anyio.to_thread.run_sync(find_secret, text)
        if kind is not None:
            message = f"This looks like {kind}, and secrets are not remembered."
            raise ToolRefused(message, hint="Leave it out and remember the rest, or where it is kept.")
        memory = Memory(
            memory_id=create_id("mem"),
            text=text,
            at=utc_now(),
            person=owner.person,
            conversation=owner.conversation,
        )
        return memory, await (await self._get_memories()).add(memory, max_memories=self._settings.most)

    async def list_all(self, owner: MemoryOwner) -> list[Memory]:
        """Everything they can see, newest first."""
        return await (await self._get_memories()).list_all(owner)

    async def search(
        self, owner: MemoryOwner, query: str, limit: int, *, within: frozenset[str] | None = None
    ) -> tuple[FoundMemory, ...]:
        """The best first; `within` are the ids that count."""
        shelf = await self._get_owner_index(owner)
        return await anyio.to_thread.run_sync(shelf.search, query, limit, within)

    async def find_matching(self, owner: MemoryOwner, query: str) -> list[Memory]:
        """Those that hold every word of the query: forgetting is exact where searching is generous."""
        standing = await self.list_all(owner)
        return await anyio.to_thread.run_sync(_filter_holding, standing, query)

    async def forget(self, owner: MemoryOwner, ids: Sequence[str]) -> int:
        return await (await self._get_memories()).forget(owner, ids)

    async def forget_all(self, owner: MemoryOwner, *, conversation_only: bool) -> int:
        return await (await self._get_memories()).forget_all(owner, conversation_only=conversation_only)

    async def _get_owner_index(self, owner: MemoryOwner) -> _OwnerIndex:
        """Their index as the store stands: another process may have changed it."""
        memories = await self._get_memories()
        async with self._locks.setdefault(owner, anyio.Lock()):
            if owner not in self._shelves:
                # Vectors are kept in no file: what is forgotten leaves nothing behind.
                self._shelves[owner] = _OwnerIndex(
                    PassageIndex(by_meaning=self._host.settings.flags.dense_scores)
                )
            shelf = self._shelves[owner]
            self._shelves.move_to_end(owner)
            stamp = await memories.get_stamp(owner)
            if shelf.stamp != stamp:
                standing = await memories.list_all(owner)
                await anyio.to_thread.run_sync(shelf.update, standing)
                shelf.stamp = stamp
        while len(self._shelves) > MAX_INDEXES:
            oldest, old = self._shelves.popitem(last=False)
            old.index.close()
            self._locks.pop(oldest, None)
        return shelf

    async def _get_memories(self) -> MemoryStore:
        if self._host.router is not None:
            return self._host.router.store.memories
        async with self._opening:
            if self._alone is None:
                if self._stack is None:
                    message = "The memory is not open."
                    raise ToolRefused(message)
                opening = Store.open(self._host.settings.store.url)
                self._alone = await self._stack.enter_async_context(opening)
        return self._alone.memories


def build_owner(caller: ToolCaller) -> MemoryOwner:
    """Whose memories the call is about."""
    person = None if caller.user == LOCAL_NAME else caller.user
    return MemoryOwner(person=person, conversation=caller.conversation)


def _filter_holding(memories: Sequence[Memory], query: str) -> list[Memory]:
    wanted = set(iterate_terms(query))
    return [memory for memory in memories if wanted and wanted <= set(iterate_terms(memory.text))]
