"""An event stream that begins late: until something is said, a fault can still be an HTTP status."""

from __future__ import annotations

from typing import Final

import anyio

from fingerpost.surfaces.web.asgi import EVENT_HEADERS, Header, Send

FIRST_BEAT_S: Final = 10.0  # then the client hears that we are at work, whatever comes of it
BEAT_S: Final = 15.0
DONE: Final = b"[DONE]"


class Line:
    """Frames to one client."""

    def __init__(self, send: Send, headers: tuple[Header, ...]) -> None:
        self._send = send
        self._headers = headers
        self._writing = anyio.Lock(fast_acquire=True)
        self.opened = False

    def add(self, headers: tuple[Header, ...]) -> None:
        """Headers that are known before the first frame."""
        self._headers = (*self._headers, *headers)

    async def data(self, payload: bytes, *, event: str | None = None) -> None:
        head = b"" if event is None else b"event: %s\n" % event.encode()
        await self._write(b"%sdata: %s\n\n" % (head, payload))

    async def comment(self, words: str = "") -> None:
        """Something no client shows: that we are still here, and why it takes a while."""
        await self._write(b": %s\n\n" % " ".join(words.split()).encode())

    async def keep_alive(self) -> None:
        await anyio.sleep(FIRST_BEAT_S)
        while True:
            await self.comment()
            await anyio.sleep(BEAT_S)

    async def close(self) -> None:
        if self.opened:
            await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, frame: bytes) -> None:
        async with self._writing:
            if not self.opened:
                self.opened = True
                headers = [*EVENT_HEADERS, *self._headers]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": frame, "more_body": True})
