"""Which decision a conversation waits for, so that any message in it can go on.

Most clients send the whole conversation, and the answer that spoke of the call stands in it. One that
names its conversation and sends only what is new says nothing of the call: it is remembered here.
"""

from __future__ import annotations

import hashlib
from typing import Final

from fingerpost.store import Store

AWAITED_CACHE: Final = "completions.awaited"
AWAITED_TTL_S: Final = 24 * 3600.0
_NO_APPROVAL: Final = b""  # put in the place of what is over


class AwaitedApprovals:
    """The call that each conversation waits for, by caller and conversation; also after a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get_pending_id(self, caller_key: str) -> str | None:
        """The id of the call that waits, or waited and nobody went on with."""
        value = await self._store.cache.get(AWAITED_CACHE, _build_awaited_key(caller_key))
        return value.decode() if value else None

    async def remember(self, caller_key: str, pending_id: str) -> None:
        await self._store.cache.put(
            AWAITED_CACHE, _build_awaited_key(caller_key), pending_id.encode(), ttl=AWAITED_TTL_S
        )

    async def forget(self, caller_key: str) -> None:
        """It was gone on with: what is said now is a request of its own again."""
        await self._store.cache.put(
            AWAITED_CACHE, _build_awaited_key(caller_key), _NO_APPROVAL, ttl=AWAITED_TTL_S
        )


def _build_awaited_key(caller_key: str) -> str:
    return hashlib.sha256(caller_key.encode("utf-8", "surrogatepass")).hexdigest()
