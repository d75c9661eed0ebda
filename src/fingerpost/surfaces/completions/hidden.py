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

HIDDEN_CACHE: Final = "completions.hidden"
HIDDEN_TTL_S: Final = 24 * 3600.0
MAX_HIDDEN_IN_MEMORY: Final = 500
MAX_HIDDEN_BYTES: Final = 1024 * 1024
MAX_RESTORED: Final = 200  # messages with calls that are looked at, the newest, for one request


@frozen
class HiddenMessageList:
    """Messages in order."""

    messages: tuple[Message, ...]


class HiddenMessages:
    """Messages by the ids of the calls that followed them, for each caller and conversation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def remember(
        self, caller_key: str, calls: Iterable[JsonObject], messages: tuple[Message, ...]
    ) -> None:
        """Remember what stood before these calls; also for the time after a restart."""
        key = _build_hidden_key(caller_key, calls)
        self._recent[key] = messages
        self._recent.move_to_end(key)
        if len(self._recent) > MAX_HIDDEN_IN_MEMORY:
            self._recent.popitem(last=False)
        value = to_json(HiddenMessageList(messages=messages))
        if len(value) <= MAX_HIDDEN_BYTES:
            await self._store.cache.put(HIDDEN_CACHE, key, value, ttl=HIDDEN_TTL_S)

    async def restore_messages(self, caller_key: str, since: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages with what was kept of them put back.

        Each is put back once, however often a caller repeats a call: before the last, since the
        newest is what is kept.
        """
        calling = [at for at, message in enumerate(since) if message.tool_calls][-MAX_RESTORED:]
        places = {_build_hidden_key(caller_key, since[at].tool_calls): at for at in calling}
        kept = {at: await self._read_messages(key) for key, at in places.items()}
        whole: list[Message] = []
        for at, message in enumerate(since):
            whole += kept.get(at, ())
            whole.append(message)
        return tuple(whole)

    async def _read_messages(self, key: str) -> tuple[Message, ...]:
        if (recent := self._recent.get(key)) is not None:
            return recent
        value = await self._store.cache.get(HIDDEN_CACHE, key)
        return () if value is None else from_json(HiddenMessageList, value).messages


def _build_hidden_key(caller_key: str, calls: Iterable[JsonObject]) -> str:
    ids = sorted(str(call.get("id", "")) for call in calls)
    return hashlib.sha256(json.dumps([caller_key, *ids]).encode()).hexdigest()
