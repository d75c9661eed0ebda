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
from fingerpost.servers.ring import LineLimitExceeded, LineSplitter


@frozen
class SseEvent:
    """One event: its data, and what a client needs to pick the stream up again."""

    data: bytes
    kind: str = "message"
    event_id: str | None = None
    retry_ms: int | None = None


class SseEventTooLarge(Exception):
    """An event, or the whole stream where that is bounded, has more bytes than allowed."""


class SseParser:
    """Bytes in, events out."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = LineSplitter(limit)
        self._head: bytes | None = b""  # of the stream, until it is known whether a mark stands before it
        self._after_return = False  # the last byte was a carriage return
        self._reset()

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._kind = "message"
        self._id: str | None = None
        self._retry: int | None = None

    def parse(self, chunk: bytes) -> list[SseEvent]:
        """The events that `chunk` completes. Raises `SseEventTooLarge`."""
        try:
            lines = self._lines.split(self._normalize_line_ends(self._strip_byte_order_mark(chunk)))
        except LineLimitExceeded:
            raise SseEventTooLarge from None
        return [event for line in lines if (event := self._parse_line(line)) is not None]

    def _strip_byte_order_mark(self, chunk: bytes) -> bytes:
        """A byte order mark may stand before the first line."""
        if self._head is None:
            return chunk
        self._head += chunk
        if len(self._head) < len(BOM_UTF8) and BOM_UTF8.startswith(self._head):
            return b""  # it may still become one
        chunk, self._head = self._head.removeprefix(BOM_UTF8), None
        return chunk

    def _normalize_line_ends(self, chunk: bytes) -> bytes:
        """Lines may end with a line feed, a carriage return, or both, and a chunk between the two."""
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        if b"\r" not in chunk:
            return chunk
        self._after_return = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _parse_line(self, line: bytes) -> SseEvent | None:
        if not line:
            return self._take_event()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                self._size += len(value)
                if self._size > self._limit:
                    raise SseEventTooLarge
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

    def _take_event(self) -> SseEvent | None:
        event = SseEvent(
            data=b"\n".join(self._data), kind=self._kind, event_id=self._id, retry_ms=self._retry
        )
        empty = not self._data and self._id is None and self._retry is None
        self._reset()
        return None if empty else event


class SseStream:
    """The events of a stream, one after the other; `more` gives its next piece, or nothing at its end."""

    def __init__(
        self, read_chunk: Callable[[], Awaitable[bytes]], *, event_limit: int, whole_limit: int | None
    ) -> None:
        self._more = read_chunk
        self._event_limit = event_limit
        self._reader: SseParser | None = None
        self._left = math.inf if whole_limit is None else whole_limit
        self._waiting: deque[SseEvent] = deque()

    async def read_event(self) -> SseEvent | None:
        """The next event; None when there is no more. Raises `SseEventTooLarge`."""
        while not self._waiting:
            piece = await self._more()
            if not piece:
                return None
            self._left -= len(piece)
            if self._left < 0:
                raise SseEventTooLarge
            if self._reader is None and (event := _parse_single_event(piece, self._event_limit)) is not None:
                return event
            self._reader = self._reader or SseParser(self._event_limit)
            self._waiting.extend(self._reader.parse(piece))
        return self._waiting.popleft()


# As nearly all replies come: one whole event in one piece.
_SINGLE_EVENT: Final = re.compile(
    rb"(?:id: ?([^\r\n]*)\r?\n)?(?:event: ?message\r?\n)?data: ?([^\r\n]*)\r?\n\r?\n"
)


def _parse_single_event(piece: bytes, limit: int) -> SseEvent | None:
    found = _SINGLE_EVENT.fullmatch(piece) if len(piece) <= limit else None
    if found is None:
        return None
    event_id, data = found.groups()
    return SseEvent(data=data, event_id=None if event_id is None else event_id.decode("utf-8", "replace"))


async def read_events(
    chunks: AsyncIterator[bytes], *, event_limit: int, whole_limit: int | None
) -> AsyncGenerator[SseEvent]:
    """The events of a stream until it ends. Raises `SseEventTooLarge`."""

    async def more() -> bytes:
        async for chunk in chunks:
            if chunk:
                return chunk
        return b""

    events = SseStream(more, event_limit=event_limit, whole_limit=whole_limit)
    while (event := await events.read_event()) is not None:
        yield event
