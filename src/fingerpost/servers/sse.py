"""Reading server-sent events from bytes, within bounds.

The HTTP library's own reader turns bytes that are not UTF-8 into replacement
characters, so that a damaged reply would pass for a good one; this one leaves
the bytes for the message parser to judge.
"""

from __future__ import annotations

import math
import re
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.servers.ring import LineSplitter, LineTooLong


@frozen
class StreamEvent:
    """One event: its data, and what a client needs to pick the stream up again."""

    data: bytes
    kind: str = "message"
    event_id: str | None = None
    retry_ms: int | None = None


class EventTooLarge(Exception):
    """An event, or the whole stream where that is bounded, has more bytes than allowed."""


class EventReader:
    """Bytes in, events out."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = LineSplitter(limit)
        self._head: bytes | None = b""  # of the stream, until it is known whether a mark stands before it
        self._after_return = False  # the last byte was a carriage return
        self._fresh()

    def _fresh(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._kind = "message"
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """The events that `chunk` completes. Raises `EventTooLarge`."""
        try:
            lines = self._lines.feed(self._with_plain_ends(self._without_mark(chunk)))
        except LineTooLong:
            raise EventTooLarge from None
        return [event for line in lines if (event := self._line(line)) is not None]

    def _without_mark(self, chunk: bytes) -> bytes:
        """A byte order mark may stand before the first line."""
        if self._head is None:
            return chunk
        self._head += chunk
        if len(self._head) < len(BOM_UTF8) and BOM_UTF8.startswith(self._head):
            return b""  # it may still become one
        chunk, self._head = self._head.removeprefix(BOM_UTF8), None
        return chunk

    def _with_plain_ends(self, chunk: bytes) -> bytes:
        """Lines may end with a line feed, a carriage return, or both, and a chunk between the two."""
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        if b"\r" not in chunk:
            return chunk
        self._after_return = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _line(self, line: bytes) -> StreamEvent | None:
        if not line:
            return self._finish()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                self._size += len(value)
                if self._size > self._limit:
                    raise EventTooLarge
                self._data.append(value)
            case b"event":
                self._kind = value.decode("utf-8", "replace")
            case b"id":
                self._id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                self._retry = int(value)
            case _:
                pass  # a comment (empty field name), or a field of a later standard
        return None

    def _finish(self) -> StreamEvent | None:
        event = StreamEvent(
            data=b"\n".join(self._data), kind=self._kind, event_id=self._id, retry_ms=self._retry
        )
        empty = not self._data and self._id is None and self._retry is None
        self._fresh()
        return None if empty else event


class Events:
    """The events of a stream, one after the other; `more` gives its next piece, or nothing at its end."""

    def __init__(
        self, more: Callable[[], Awaitable[bytes]], *, event_limit: int, whole_limit: int | None
    ) -> None:
        self._more = more
        self._event_limit = event_limit
        self._reader: EventReader | None = None
        self._left = math.inf if whole_limit is None else whole_limit
        self._waiting: deque[StreamEvent] = deque()

    async def next(self) -> StreamEvent | None:
        """The next event; None when there is no more. Raises `EventTooLarge`."""
        while not self._waiting:
            piece = await self._more()
            if not piece:
                return None
            self._left -= len(piece)
            if self._left < 0:
                raise EventTooLarge
            if self._reader is None and (event := _only_event(piece, self._event_limit)) is not None:
                return event
            self._reader = self._reader or EventReader(self._event_limit)
            self._waiting.extend(self._reader.feed(piece))
        return self._waiting.popleft()


# As nearly all replies come: one whole event in one piece.
_EVENT: Final = re.compile(rb"(?:id: ?([^\r\n]*)\r?\n)?(?:event: ?message\r?\n)?data: ?([^\r\n]*)\r?\n\r?\n")


def _only_event(piece: bytes, limit: int) -> StreamEvent | None:
    found = _EVENT.fullmatch(piece) if len(piece) <= limit else None
    if found is None:
        return None
    event_id, data = found.groups()
    return StreamEvent(data=data, event_id=None if event_id is None else event_id.decode("utf-8", "replace"))


async def read_events(
    chunks: AsyncIterator[bytes], *, event_limit: int, whole_limit: int | None
) -> AsyncGenerator[StreamEvent]:
    """The events of a stream until it ends. Raises `EventTooLarge`."""

    async def more() -> bytes:
        async for chunk in chunks:
            if chunk:
                return chunk
        return b""

    events = Events(more, event_limit=event_limit, whole_limit=whole_limit)
    while (event := await events.next()) is not None:
        yield event
