"""An event stream that begins late: until something is said, a fault can still be an HTTP status."""

from __future__ import annotations

from typing import Final

import anyio

from fingerpost.surfaces.web.asgi import EVENT_STREAM_HEADERS, Header, Send
from fingerpost.surfaces.web.events import HEARTBEAT_S, EventStream

FIRST_HEARTBEAT_S: Final = 10.0  # then the client hears that we are at work, whatever comes of it
DONE_FRAME: Final = b"[DONE]"


class LateEventStream(EventStream):
    """Frames to one client; the first opens the stream."""

    def __init__(self, send: Send, headers: tuple[Header, ...]) -> None:
        super().__init__(send)
        self._headers = headers
        self._writing = anyio.Lock(fast_acquire=True)  # a frame for each word of an answer
        self.opened = False

    def add_headers(self, headers: tuple[Header, ...]) -> None:
        """Headers that are known before the first frame."""
        self._headers = (*self._headers, *headers)

    async def keep_alive(self) -> None:
        await anyio.sleep(FIRST_HEARTBEAT_S)
        while True:
            await self.send_comment()
            await anyio.sleep(HEARTBEAT_S)

    async def close(self) -> None:
        if self.opened:
            await self._send({"type": "http.response.body", "body": b""})

    async def _send_frame(self, frame: bytes) -> None:
        if not self.opened:
            self.opened = True
            headers = [*EVENT_STREAM_HEADERS, *self._headers]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await super()._send_frame(frame)
