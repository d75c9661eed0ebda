"""Answers of a moment ago, for tools whose reads a person allowed to be answered from memory.

Only `cache_seconds` under `[[tools]]` allows it: no server says how long an answer of a tool holds (the
protocol has lifetimes for lists and resources, not for `tools/call`), and what a tool reads may change
without a call of ours.

Kept by call and by who asked: what one caller may see is not shown to another. A write to a server makes
all its kept answers stale, also those still on their way, which is what the epochs are for. Errors and
empty results are not kept: the next try may bring more.
"""

from __future__ import annotations

from collections import OrderedDict

from fingerpost.call.execution.door import TimeSource
from fingerpost.frozen import frozen
from fingerpost.records import Call, CallContext, Effect, JsonObject

MAX_CACHE_BYTES = 64 * 1024 * 1024
MAX_ENTRY_BYTES = 8 * 1024 * 1024


@frozen(kw_only=False)
class CachedResult:
    """An answer from memory, and how many seconds old it is."""

    result: JsonObject
    age: float


@frozen(kw_only=False)
class _CacheEntry:
    server: str
    result: JsonObject
    size: int
    since: float
    expires: float


CacheKey = tuple[str, str | None, str | None, str | None]


class ResultCache:
    """Bounded in number, bytes and age; what was used least recently goes first."""

    def __init__(self, *, entries: int, clock: TimeSource, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._entries = entries
        self._most_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[CacheKey, _CacheEntry] = OrderedDict()
        self._epochs: dict[str, int] = {}
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._bytes

    def is_cacheable(self, call: Call) -> bool:
        """Whether answers to this call are kept at all."""
        return self._entries > 0 and call.cache_seconds > 0 and call.effect is Effect.READ

    def get_epoch(self, server: str) -> int:
        """The number of writes so far: take it before asking, give it when keeping."""
        return self._epochs.get(server, 0)

    def find(self, call: Call, context: CallContext) -> CachedResult | None:
        """The answer to the same call of the same caller, when it is fresh."""
        key = _build_cache_key(call, context)
        kept = self._kept.get(key) if self.is_cacheable(call) else None
        if kept is None:
            return None
        now = self._clock()
        if kept.expires <= now:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return CachedResult(kept.result, now - kept.since)

    def keep(self, call: Call, context: CallContext, result: JsonObject, *, size: int, epoch: int) -> None:
        """Keep a good answer that was asked for in `get_epoch`."""
        if not self.is_cacheable(call) or size > min(MAX_ENTRY_BYTES, self._most_bytes):
            return
        if epoch != self.get_epoch(call.server):
            return
        key = _build_cache_key(call, context)
        self._drop(key)
        now = self._clock()
        self._kept[key] = _CacheEntry(call.server, result, size, now, now + call.cache_seconds)
        self._bytes += size
        while len(self._kept) > self._entries or self._bytes > self._most_bytes:
            self._drop(next(iter(self._kept)))

    def invalidate(self, server: str) -> None:
        """Something was, or may have been, written: what was read there before is stale."""
        self._epochs[server] = self.get_epoch(server) + 1
        for key in [key for key, kept in self._kept.items() if kept.server == server]:
            self._drop(key)

    def _drop(self, key: CacheKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size


def _build_cache_key(call: Call, context: CallContext) -> CacheKey:
    # A caller without a name is known by the conversation only.
    conversation = context.conversation if context.caller is None else None
    return (call.fingerprint, context.caller, context.profile, conversation)
