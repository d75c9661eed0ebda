"""Sign-ins kept in memory."""

from __future__ import annotations


class MemoryTokens:
    """A `SignInStore` that forgets everything when the process ends."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    async def get(self, server: str) -> bytes | None:
        return self.entries.get(server)

    async def put(self, server: str, data: bytes) -> None:
        self.entries[server] = data

    async def remove(self, server: str) -> None:
        self.entries.pop(server, None)
