"""Heads of requests a connection has seen before.

A client sends the same head with every call on a connection: only the length of the body differs. Such a
head need not be taken apart again, which is a twentieth of what a call costs. It is known again byte for
byte; whatever else comes goes to the parser. Nothing outlives the connection: a head may hold a credential.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from fingerpost.frozen import frozen

if TYPE_CHECKING:
    from uvicorn._types import HTTPScope

MAX_HEADS: Final = 4  # heads of one connection
MAX_HEAD_LENGTH: Final = 4096  # bytes of a head that is kept
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH_HEADER: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})(?=\r\n)", re.IGNORECASE)
# What is about this one message, or about what comes after it.
_UNCACHED_HEADERS: Final = frozenset({b"expect", b"te", b"trailer", b"transfer-encoding", b"upgrade"})


@frozen(kw_only=False, eq=False)
class CachedHead:
    """A head around the digits of its length, and what the parser made of it."""

    before: bytes
    after: bytes  # to the empty line
    scope: HTTPScope
    place: int  # of the length among the headers

    def build_scope(self, digits: bytes, state: dict[str, Any]) -> HTTPScope:
        """As the parser would have made it."""
        headers = list(self.scope["headers"])
        headers[self.place] = (b"content-length", digits)
        scope = self.scope.copy()
        scope["headers"] = headers
        scope["state"] = state
        return scope


class HeadCache:
    """Those of one connection, the newest last."""

    def __init__(self) -> None:
        self._known: list[CachedHead] = []

    def find(self, data: bytes) -> tuple[CachedHead, bytes, bytes] | None:
        """The known head of a request that is whole, its length as sent, and its body."""
        for head in self._known:
            if not data.startswith(head.before):
                continue
            end = data.find(_HEAD_END, len(head.before)) + len(_HEAD_END)
            digits = data[len(head.before) : end - len(head.after)]
            if (
                data.endswith(head.after, 0, end)
                and digits.isdigit()
                and len(digits) < 10
                and int(digits) == len(data) - end
            ):
                return head, digits, data[end:]
        return None

    def store(self, data: bytes, scope: HTTPScope) -> None:
        """Keep the head of a request that came in one piece, was whole, and leaves the connection open."""
        end = data.find(_HEAD_END) + len(_HEAD_END)
        lengths = _LENGTH_HEADER.findall(data, 0, end)
        if end > MAX_HEAD_LENGTH or len(lengths) != 1 or int(lengths[0]) != len(data) - end:
            return
        names = [name for name, _ in scope["headers"]]
        if not _UNCACHED_HEADERS.isdisjoint(names) or names.count(b"content-length") != 1:
            return
        if any(name == b"connection" and value.lower() != b"keep-alive" for name, value in scope["headers"]):
            return
        found = _LENGTH_HEADER.search(data, 0, end)
        assert found is not None
        before, after = data[: found.start(1)], data[found.end(1) : end]
        kept = scope.copy()
        kept["headers"] = list(scope["headers"])
        self._known.append(CachedHead(before, after, kept, names.index(b"content-length")))
        del self._known[:-MAX_HEADS]
