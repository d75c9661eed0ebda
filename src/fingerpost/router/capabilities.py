"""What was found out about model servers, kept over restarts."""

from __future__ import annotations

from typing import Final

from fingerpost.store.cache import Cache

CAPABILITY_SPACE: Final = "capabilities"
CAPABILITY_TTL_S: Final = 7 * 86_400.0  # servers are upgraded; after so long they are looked at afresh


class StoredCapabilities:
    """A `CapabilityMemory` in the store."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def get(self, key: str) -> bytes | None:
        return await self._cache.get(CAPABILITY_SPACE, key)

    async def put(self, key: str, value: bytes) -> None:
        await self._cache.put(CAPABILITY_SPACE, key, value, ttl=CAPABILITY_TTL_S)
