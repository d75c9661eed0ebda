"""What came before calls that were handed back and the caller has not seen: kept until they come again.

A model may call routed tools before, or beside, a tool of the caller's. The caller gets only the
calls of their own; when the results come, the rest is put back where it stood.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Message
from fingerpost.records.codec import from_json, to_json
from fingerpost.store import Store

SPACE: Final = "completions.hidden"
KEPT_S: Final = 24 * 3600.0
IN_MEMORY: Final = 500
MOST_BYTES: Final = 1024 * 1024
MOST_RESTORED: Final = 200  # messages with calls that are looked at, the newest, for one request


@frozen
class Kept:
    """Messages in order."""

    messages: tuple[Message, ...]


class Hidden:
    """Messages by the ids of the calls that followed them, for each caller and conversation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def keep(self, whose: str, calls: Iterable[JsonObject], messages: tuple[Message, ...]) -> None:
        """Remember what stood before these calls; also for the time after a restart."""
        key = _key(whose, calls)
        self._recent[key] = messages
        self._recent.move_to_end(key)
        if len(self._recent) > IN_MEMORY:
            self._recent.popitem(last=False)
        value = to_json(Kept(messages=messages))
        if len(value) <= MOST_BYTES:
            await self._store.cache.put(SPACE, key, value, ttl=KEPT_S)

    async def restored(self, whose: str, since: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages with what was kept of them put back.

        Each is put back once, however often a caller repeats a call: before the last, since the
        newest is what is kept.
        """
        calling = [at for at, message in enumerate(since) if message.tool_calls][-MOST_RESTORED:]
        places = {_key(whose, since[at].tool_calls): at for at in calling}
        kept = {at: await self._before(key) for key, at in places.items()}
        whole: list[Message] = []
        for at, message in enumerate(since):
            whole += kept.get(at, ())
            whole.append(message)
        return tuple(whole)

    async def _before(self, key: str) -> tuple[Message, ...]:
        if (recent := self._recent.get(key)) is not None:
            return recent
        value = await self._store.cache.get(SPACE, key)
        return () if value is None else from_json(Kept, value).messages


def _key(whose: str, calls: Iterable[JsonObject]) -> str:
    ids = sorted(str(call.get("id", "")) for call in calls)
    return hashlib.sha256(json.dumps([whose, *ids]).encode()).hexdigest()
