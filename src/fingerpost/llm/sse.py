"""Server-sent events: bytes in whatever pieces they come, whole events out."""

from __future__ import annotations

import re
from typing import Final

# At the very end \r may be half of \r\n. Never `splitlines`: it also splits inside of text, at U+2028.
_LINE_END: Final = re.compile(rb"\r\n|\n|\r(?!\Z)")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class ModelEventParser:
    """Feed it bytes; it gives the data of every event that is complete.

    Comments and unknown fields are passed over, as the standard asks. `error` is not of the
    standard: llama.cpp ends a stream with it, and it must not be lost.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._data: list[str] = []
        self._begun = False

    def parse(self, piece: bytes) -> list[str]:
        """The events that end in this piece."""
        self._buffer += piece
        found: list[str] = []
        start = 0
        for end in _LINE_END.finditer(self._buffer, self._searched):
            self._parse_line(bytes(self._buffer[start : end.start()]), found)
            start = end.end()
        del self._buffer[:start]
        self._searched = len(self._buffer) - self._buffer.endswith(b"\r")
        return found

    def finish(self) -> list[str]:
        """The stream has ended: what was not closed with an empty line counts too."""
        found: list[str] = []
        self._parse_line(bytes(self._buffer).rstrip(b"\r"), found)
        self._parse_line(b"", found)
        self._buffer.clear()
        self._searched = 0
        return found

    def _parse_line(self, line: bytes, found: list[str]) -> None:
        if not self._begun:
            self._begun, line = True, line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            if self._data:
                found.append("\n".join(self._data))
                self._data = []
            return
        name, _, rest = line.partition(b":")
        value = rest.decode(errors="replace").removeprefix(" ")
        if name == b"data" and value.strip():
            self._data.append(value)
        elif name == b"error":
            self._data.append(f'{{"error": {value}}}')
