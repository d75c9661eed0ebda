"""A long list in pages, each ready to be sent.

A cursor names the last entry of the page before, not a position: when the list
has changed meanwhile, the next page still goes on behind that entry, and nothing
is skipped or told twice.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.surfaces.gateway.exchange import EncodedResult, JsonRpcError

INVALID_PARAMS: Final = -32602
_MAX_PAGES_CACHED: Final = 16  # joined; joining one again costs little


@frozen
class CacheHints:
    """What a 2026-07-28 client is told about keeping a list."""

    milliseconds: int
    private: bool

    @property
    def encoded(self) -> bytes:
        scope = b"private" if self.private else b"public"
        return b',"resultType":"complete","ttlMs":%d,"cacheScope":"%s"' % (self.milliseconds, scope)


@dataclass(slots=True)
class ListPages:
    """The pages of one list. `names` are the entries' identities, in order; `bodies` their JSON."""

    member: str
    names: Sequence[str]
    bodies: Sequence[bytes]
    size: int
    _joined: dict[tuple[int, CacheHints | None], EncodedResult] = field(
        default_factory=dict[tuple[int, "CacheHints | None"], EncodedResult]
    )
    _places: dict[str, int] = field(default_factory=dict[str, int])  # behind each entry, by its cursor
    _fingerprint: bytes = b""

    @property
    def fingerprint(self) -> bytes:
        """The same for the same list."""
        if not self._fingerprint:
            digest = hashlib.blake2b(digest_size=16)
            for body in self.bodies:
                digest.update(b"%d:" % len(body))
                digest.update(body)
            self._fingerprint = digest.digest()
        return self._fingerprint

    def get_page(self, cursor: object, hints: CacheHints | None) -> EncodedResult:
        """The page that begins at this cursor (None: the first)."""
        start = 0 if cursor is None else self._find_start(cursor)
        page = self._joined.get((start, hints))
        if page is None:
            page = self._join_entries(start, hints)
            if start % self.size == 0 and len(self._joined) < _MAX_PAGES_CACHED:
                self._joined[start, hints] = page
        return page

    def _join_entries(self, start: int, hints: CacheHints | None) -> EncodedResult:
        end = start + self.size
        parts = [b'{"%s":[' % self.member.encode(), b",".join(self.bodies[start:end]), b"]"]
        if end < len(self.bodies):
            parts.append(b',"nextCursor":"%s"' % build_cursor(self.names[end - 1]).encode())
        if hints is not None:
            parts.append(hints.encoded)
        parts.append(b"}")
        return EncodedResult(b"".join(parts))

    def _find_start(self, cursor: object) -> int:
        if not self._places:
            self._places = {build_cursor(name): index + 1 for index, name in enumerate(self.names)}
        start = self._places.get(cursor) if isinstance(cursor, str) else None
        if start is None:
            message = "this cursor leads nowhere: the list has changed since; ask for its first page again"
            raise JsonRpcError(INVALID_PARAMS, message)
        return start


def build_cursor(name: str) -> str:
    """An opaque word for an entry: the same whenever and wherever it is made."""
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=12).digest()
    return base64.urlsafe_b64encode(digest).decode()
