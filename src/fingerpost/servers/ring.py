"""Byte buffers with a bound: the newest part of a stream, and a stream cut into lines."""

from __future__ import annotations

from collections import deque


class Ring:
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

    def tail(self, limit: int | None = None) -> bytes:
        """The newest bytes, at most `limit` of them."""
        kept = b"".join(self._chunks)[-self._limit :] if self._limit else b""
        return kept if limit is None else kept[len(kept) - min(limit, len(kept)) :]

    def text(self, limit: int | None = None) -> str:
        """The newest bytes as text; whatever is not UTF-8 is shown as a replacement character."""
        return self.tail(limit).decode("utf-8", "replace")


class LineTooLong(Exception):
    """More bytes than allowed came without the end of a line."""


class LineSplitter:
    """Bytes in, whole lines out. Work and memory are linear in what comes in, and bounded by `limit`.

    The pieces of an unfinished line are kept apart and joined once, when its
    end arrives: joining on every read would cost the square of its length.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their line ends. Raises `LineTooLong`."""
        first, *rest = data.split(b"\n")
        self._add(first)
        if not rest:
            return []
        lines = [b"".join(self._pieces)]
        *whole, last = rest
        lines.extend(whole)
        self._pieces, self._size = [], 0
        if any(len(line) > self._limit for line in whole):
            raise LineTooLong
        self._add(last)
        return lines

    @property
    def rest(self) -> bytes:
        """What came after the last line end."""
        return b"".join(self._pieces)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise LineTooLong
        if piece:
            self._pieces.append(piece)
