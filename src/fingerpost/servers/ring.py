"""Byte buffers with a bound: the newest part of a stream, and a stream cut into lines."""

from __future__ import annotations

from collections import deque
from typing import Final

EDGE_SIZE: Final = 4096  # bytes at each end of a line that is too long


class RingBuffer:
    """The last `limit` bytes of whatever was written. Used for a child's stderr."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        if self._limit == 0:
            return
        data = data[-self._limit :]
        self._chunks.append(data)
        self._size += len(data)
        while self._size - len(self._chunks[0]) >= self._limit:
            self._size -= len(self._chunks.popleft())

    def read_tail(self, limit: int | None = None) -> bytes:
        """The newest bytes, at most `limit` of them."""
        kept = b"".join(self._chunks)[-self._limit :] if self._limit else b""
        return kept if limit is None else kept[len(kept) - min(limit, len(kept)) :]

    def read_text(self, limit: int | None = None) -> str:
        """The newest bytes as text; whatever is not UTF-8 is shown as a replacement character."""
        return self.read_tail(limit).decode("utf-8", "replace")


class LineLimitExceeded(Exception):
    """More bytes than allowed came without the end of a line."""


class LineEdges(bytes):
    """The beginning and the end of a line that is longer than allowed; what was between was not kept."""


class LineSplitter:
    """Bytes in, whole lines out. Work and memory are linear in what comes in, and bounded by `limit`.

    The pieces of an unfinished line are kept apart and joined once, when its
    end arrives: joining on every read would cost the square of its length.

    `passed_over`: up to this many bytes of a line that is too long are read and left out; of such a line
    the edges are given, and what comes after it is read as ever.
    """

    def __init__(self, limit: int, *, max_skipped: int = 0) -> None:
        self._limit = limit
        self._passed_over = max_skipped
        self._pieces: list[bytes] = []
        self._size = 0
        self.overlong: bytes | None = None  # the beginning of the line that is being passed over
        self._end = b""  # of that line, so far

    def split(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their line ends. Raises `LineLimitExceeded`."""
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
        line = b"".join(self._pieces) if self.overlong is None else LineEdges(self.overlong + self._end)
        self._pieces, self._size = [], 0
        self.overlong, self._end = None, b""
        return line

    @property
    def remainder(self) -> bytes:
        """What came after the last line end."""
        return b"".join(self._pieces)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self.overlong is not None or self._size > self._limit:
            self._skip(piece)
        elif piece:
            self._pieces.append(piece)

    def _skip(self, piece: bytes) -> None:
        if self._size > self._limit + self._passed_over:
            raise LineLimitExceeded
        if self.overlong is None:
            self._pieces.append(piece)
            held = b"".join(self._pieces)
            self.overlong, piece, self._pieces = held[:EDGE_SIZE], held[EDGE_SIZE:], []
        self._end = (self._end + piece[-EDGE_SIZE:])[-EDGE_SIZE:]
