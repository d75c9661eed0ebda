"""Lines and server-sent events from bytes, with limits."""

from __future__ import annotations

import math
import re
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

from fingerpost.frozen import frozen

EDGE_SIZE: Final = 4096  # bytes kept at each end of a line that is too long


class LineLimitExceeded(Exception):
    """More bytes than allowed arrived without a line end."""


class LineEdges(bytes):
    """The start and end of a line that is longer than allowed. The middle was not kept."""


class LineSplitter:
    """Splits bytes into lines. Time is linear in the input and memory is limited by `limit`.

    The parts of an unfinished line are joined once, at its end; joining on every read would take quadratic
    time.

    A line that is too long is skipped up to `max_skipped` bytes. Its edges are returned, and reading
    continues after it.
    """

    def __init__(self, limit: int, *, max_skipped: int = 0) -> None:
        self._limit = limit
        self._max_skipped = max_skipped
        self._pieces: list[bytes] = []
        self._size = 0
        self.overlong: bytes | None = None  # the start of the line being skipped
        self._tail = b""  # the end of that line so far

    def split(self, data: bytes) -> list[bytes]:
        """Return the lines completed by `data`, without line ends. Raises `LineLimitExceeded`."""
        first, *rest = data.split(b"\n")
        self._add(first)
        if not rest:
            return []
        lines = [self._take_line()]
        *whole, last = rest
        for line in whole:
            if len(line) <= self._limit:
                lines.append(line)
            else:
                self._add(line)
                lines.append(self._take_line())
        self._add(last)
        return lines

    def _take_line(self) -> bytes:
        line = b"".join(self._pieces) if self.overlong is None else LineEdges(self.overlong + self._tail)
        self._pieces, self._size = [], 0
        self.overlong, self._tail = None, b""
        return line

    @property
    def remainder(self) -> bytes:
        """The bytes after the last line end."""
        return b"".join(self._pieces)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self.overlong is not None or self._size > self._limit:
            self._skip(piece)
        elif piece:
            self._pieces.append(piece)

    def _skip(self, piece: bytes) -> None:
        if self._size > self._limit + self._max_skipped:
            raise LineLimitExceeded
        if self.overlong is None:
            self._pieces.append(piece)
            held = b"".join(self._pieces)
            self.overlong, piece, self._pieces = held[:EDGE_SIZE], held[EDGE_SIZE:], []
        self._tail = (self._tail + piece[-EDGE_SIZE:])[-EDGE_SIZE:]


@frozen
class SseEvent:
    """One event: its data, and what is needed to resume the stream."""

    data: bytes
    kind: str = "message"
    event_id: str | None = None
    retry_ms: int | None = None


class SseEventTooLarge(Exception):
    """An event, or the whole stream if it is limited, has more bytes than allowed."""


class SseParser:
    """Parses bytes to events.

    `error_field`: a field `error`, which is not in the standard, is read as data. llama.cpp ends a stream
    with it.
    """

    def __init__(self, limit: int, *, error_field: bool = False) -> None:
        self._limit = limit
        self._error_field = error_field
        self._lines = LineSplitter(limit)
        # Of the stream, until it is known whether it starts with a byte order mark.
        self._head: bytes | None = b""
        self._after_return = False  # whether the last byte was a carriage return
        self._reset()

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._kind = "message"
        self._id: str | None = None
        self._retry: int | None = None

    def parse(self, chunk: bytes) -> list[SseEvent]:
        """Return the events completed by `chunk`. Raises `SseEventTooLarge`."""
        try:
            lines = self._lines.split(self._normalize_line_ends(self._strip_byte_order_mark(chunk)))
        except LineLimitExceeded:
            raise SseEventTooLarge from None
        return [event for line in lines if (event := self._parse_line(line)) is not None]

    def finish(self) -> list[SseEvent]:
        """Return the event that the stream ended in, without the empty line after it."""
        last = self._lines.remainder if self._head is None else self._head
        events = [self._parse_line(last) if last else None, self._take_event()]
        return [event for event in events if event is not None]

    def _strip_byte_order_mark(self, chunk: bytes) -> bytes:
        """Remove a byte order mark before the first line."""
        if self._head is None:
            return chunk
        self._head += chunk
        if len(self._head) < len(BOM_UTF8) and BOM_UTF8.startswith(self._head):
            return b""  # it may still become a byte order mark
        chunk, self._head = self._head.removeprefix(BOM_UTF8), None
        return chunk

    def _normalize_line_ends(self, chunk: bytes) -> bytes:
        """Convert CR and CRLF to LF, also when a chunk ends between CR and LF."""
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
                self._add_data(value)
            case b"error" if self._error_field:
                self._add_data(b'{"error": %b}' % value)
            case b"event":
                self._kind = value.decode("utf-8", "replace")
            case b"id":
                self._id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                self._retry = int(value)
            case _:
                pass  # a comment (empty field name) or an unknown field
        return None

    def _add_data(self, value: bytes) -> None:
        self._size += len(value)
        if self._size > self._limit:
            raise SseEventTooLarge
        self._data.append(value)

    def _take_event(self) -> SseEvent | None:
        event = SseEvent(
            data=b"\n".join(self._data), kind=self._kind, event_id=self._id, retry_ms=self._retry
        )
        empty = not self._data and self._id is None and self._retry is None
        self._reset()
        return None if empty else event


class SseStream:
    """The events of a stream, read one at a time."""

    def __init__(
        self, read_chunk: Callable[[], Awaitable[bytes]], *, event_limit: int, whole_limit: int | None
    ) -> None:
        self._more = read_chunk
        self._event_limit = event_limit
        self._reader: SseParser | None = None
        self._left = math.inf if whole_limit is None else whole_limit
        self._waiting: deque[SseEvent] = deque()

    async def read_event(self) -> SseEvent | None:
        """Return the next event, or None at the end. Raises `SseEventTooLarge`."""
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


# The usual form of a reply: one complete event in one chunk.
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
    """Yield the events of a stream until it ends. Raises `SseEventTooLarge`."""

    async def more() -> bytes:
        async for chunk in chunks:
            if chunk:
                return chunk
        return b""

    events = SseStream(more, event_limit=event_limit, whole_limit=whole_limit)
    while (event := await events.read_event()) is not None:
        yield event
