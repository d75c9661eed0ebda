"""An event stream (`text/event-stream`) to one client, kept alive while nothing happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from fingerpost.surfaces.web.asgi import EVENT_STREAM_HEADERS, AsgiMessage, Header, Receive, Send
from fingerpost.surfaces.web.hearing import wait_for_disconnect

HEARTBEAT_S: Final = 15.0  # proxies cut connections on which nothing moves


class EventStream:
    """Writes frames. Use `open_event_stream`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._writing = anyio.Lock()

    async def send_event(
        self, payload: bytes, *, event: str | None = None, event_id: str | None = None
    ) -> None:
        """One event. `payload` is one line, as JSON is."""
        head = "".join(
            f"{name}: {value}\n" for name, value in (("event", event), ("id", event_id)) if value is not None
        )
        await self._write_frame(b"%sdata: %s\n\n" % (head.encode(), payload))

    async def send_comment(self, text: str = "") -> None:
        """Something no client shows: that we are still here."""
        await self._write_frame(b": %s\n\n" % " ".join(text.split()).encode())

    async def _write_frame(self, frame: bytes) -> None:
        async with self._writing:
            await self._send_frame(frame)

    async def _send_frame(self, frame: bytes) -> None:
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})


@asynccontextmanager
async def open_event_stream(
    receive: Receive, send: Send, *, headers: Iterable[Header] = (), heartbeat: float = HEARTBEAT_S
) -> AsyncGenerator[EventStream]:
    """The stream, its head sent. When the client leaves, the block is cancelled."""
    start: AsgiMessage = {
        "type": "http.response.start",
        "status": 200,
        "headers": [*EVENT_STREAM_HEADERS, *headers],
    }
    await send(start)
    stream = EventStream(send)
    gone = False
    async with anyio.create_task_group() as tasks:

        async def keep_alive() -> None:
            while True:
                await anyio.sleep(heartbeat)
                await stream.send_comment()

        async def watch() -> None:
            nonlocal gone
            await wait_for_disconnect(receive)
            gone = True
            tasks.cancel_scope.cancel()

        tasks.start_soon(keep_alive)
        tasks.start_soon(watch)
        yield stream
        tasks.cancel_scope.cancel()
    if not gone:
        await send({"type": "http.response.body", "body": b""})
