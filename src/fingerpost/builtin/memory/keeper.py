"""Memories in the store, and an index for each person who searches theirs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.to_thread

from fingerpost.builtin.kit import Caller, ToolRefused
from fingerpost.builtin.memory.secrets import secret_in
from fingerpost.builtin.passages import Passage, PassageIndex
from fingerpost.builtin.premises import Premises
from fingerpost.frozen import frozen
from fingerpost.narrow.lexical.words import terms_of
from fingerpost.records import LOCAL_NAME, new_id, utc_now
from fingerpost.store import Memories, Memory, Owner, Store
from fingerpost.store.memories import Stamp

MOST_INDEXES: Final = 32  # of people who searched last


@frozen
class Found:
    """A memory a search came upon; scores are comparable within one search."""

    memory: Memory
    score: float


@dataclass(slots=True)
class _Shelf:
    """What one owner can see, searchable. Memories are never changed, so each is read once."""

    index: PassageIndex
    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])
    stamp: Stamp | None = None

    def bring_up_to_date(self, standing: Sequence[Memory]) -> None:
        now = {memory.memory_id: memory for memory in standing}
        for gone in self.memories.keys() - now.keys():
            self.index.remove(gone)
        for name in now.keys() - self.memories.keys():
            self.index.put(name, [Passage(source=name, text=now[name].text)])
        self.memories = now

    def search(self, query: str, limit: int, within: frozenset[str] | None) -> tuple[Found, ...]:
        wanted = None if within is None else within.__contains__
        hits = self.index.search(query, limit, within=wanted)
        known = ((hit, self.memories.get(hit.passage.source)) for hit in hits)
        return tuple(Found(memory=memory, score=hit.score) for hit, memory in known if memory is not None)


class Keeper:
    """Remembers and forgets for whoever calls, within their own memories."""

    def __init__(self, premises: Premises) -> None:
        self._premises = premises
        self._settings = premises.settings.builtin.memory
        self._shelves: OrderedDict[Owner, _Shelf] = OrderedDict()
        self._locks: dict[Owner, anyio.Lock] = {}
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
    def most_bytes(self) -> int:
        return self._settings.text_bytes

    async def store(self, owner: Owner, text: str) -> tuple[Memory, int]:
        """Keep it; how many of the oldest went for it. Raises `ToolRefused` for what must not be kept."""
        if len(text.encode("utf-8", "replace")) > self.most_bytes:
            message = f"A memory may have {self.most_bytes:,} bytes, and this has more."
            raise ToolRefused(message, hint="Remember the essence of it, or raise builtin.memory.text_bytes.")
        kind = await anyio.to_thread.run_sync(secret_in, text)
        if kind is not None:
            message = f"This looks like {kind}, and secrets are not remembered."
            raise ToolRefused(message, hint="Leave it out and remember the rest, or where it is kept.")
        memory = Memory(
            memory_id=new_id("mem"),
            text=text,
            at=utc_now(),
            person=owner.person,
            conversation=owner.conversation,
        )
        return memory, await (await self._memories()).add(memory, most=self._settings.most)

    async def all(self, owner: Owner) -> list[Memory]:
        """Everything they can see, newest first."""
        return await (await self._memories()).all(owner)

    async def search(
        self, owner: Owner, query: str, limit: int, *, within: frozenset[str] | None = None
    ) -> tuple[Found, ...]:
        """The best first; `within` are the ids that count."""
        shelf = await self._shelf(owner)
        return await anyio.to_thread.run_sync(shelf.search, query, limit, within)

    async def matching(self, owner: Owner, query: str) -> list[Memory]:
        """Those that hold every word of the query: forgetting is exact where searching is generous."""
        standing = await self.all(owner)
        return await anyio.to_thread.run_sync(_holding, standing, query)

    async def forget(self, owner: Owner, ids: Sequence[str]) -> int:
        return await (await self._memories()).forget(owner, ids)

    async def forget_all(self, owner: Owner, *, conversation_only: bool) -> int:
        return await (await self._memories()).forget_all(owner, conversation_only=conversation_only)

    async def _shelf(self, owner: Owner) -> _Shelf:
        """Their index as the store stands: another process may have changed it."""
        memories = await self._memories()
        async with self._locks.setdefault(owner, anyio.Lock()):
            if owner not in self._shelves:
                # Vectors are kept in no file: what is forgotten leaves nothing behind.
                self._shelves[owner] = _Shelf(
                    PassageIndex(meaning=self._premises.settings.flags.dense_scores)
                )
            shelf = self._shelves[owner]
            self._shelves.move_to_end(owner)
            stamp = await memories.stamp(owner)
            if shelf.stamp != stamp:
                standing = await memories.all(owner)
                await anyio.to_thread.run_sync(shelf.bring_up_to_date, standing)
                shelf.stamp = stamp
        while len(self._shelves) > MOST_INDEXES:
            oldest, old = self._shelves.popitem(last=False)
            old.index.close()
            self._locks.pop(oldest, None)
        return shelf

    async def _memories(self) -> Memories:
        if self._premises.router is not None:
            return self._premises.router.store.memories
        async with self._opening:
            if self._alone is None:
                if self._stack is None:
                    message = "The memory is not open."
                    raise ToolRefused(message)
                opening = Store.open(self._premises.settings.store.url)
                self._alone = await self._stack.enter_async_context(opening)
        return self._alone.memories


def owner_of(caller: Caller) -> Owner:
    """Whose memories the call is about."""
    person = None if caller.user == LOCAL_NAME else caller.user
    return Owner(person=person, conversation=caller.conversation)


def _holding(standing: Sequence[Memory], query: str) -> list[Memory]:
    wanted = set(terms_of(query))
    return [memory for memory in standing if wanted and wanted <= set(terms_of(memory.text))]
