"""Which decision a conversation waits for, so that any message in it can go on.

Most clients send the whole conversation, and the answer that spoke of the call stands in it. One that
names its conversation and sends only what is new says nothing of the call: it is remembered here.
"""

from __future__ import annotations

import hashlib
from typing import Final

from fingerpost.store import Store

SPACE: Final = "completions.awaited"
KEPT_S: Final = 24 * 3600.0
_NOTHING: Final = b""  # put in the place of what is over


class Awaited:
    """The call that each conversation waits for, by caller and conversation; also after a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def by(self, whose: str) -> str | None:
        """The id of the call that waits, or waited and nobody went on with."""
        value = await self._store.cache.get(SPACE, _key(whose))
        return value.decode() if value else None

    async def keep(self, whose: str, pending_id: str) -> None:
        await self._store.cache.put(SPACE, _key(whose), pending_id.encode(), ttl=KEPT_S)

    async def forget(self, whose: str) -> None:
        """It was gone on with: what is said now is a request of its own again."""
        await self._store.cache.put(SPACE, _key(whose), _NOTHING, ttl=KEPT_S)


def _key(whose: str) -> str:
    return hashlib.sha256(whose.encode("utf-8", "surrogatepass")).hexdigest()
