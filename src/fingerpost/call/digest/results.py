"""Full results, kept for a while so that whoever read the digest can read on.

They lie in the store's cache, so old ones make room by themselves. A handle is
made from the call's id, and only of letters, so that every handle takes the same room
in a digest. It is no secret: each result is kept with the caller it was for, and read
by them alone. Packing, unpacking and paging happen in a thread: a result may be many
megabytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from typing import Final

import anyio.to_thread
import orjson

from fingerpost.call.digest.paging import PageStartCache, count_pages, find_page_starts
from fingerpost.call.digest.parts import decode_block, get_blocks, parse_result, read_parts
from fingerpost.call.digest.tokens import count_tokens
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.store import Cache

CACHE_SPACE: Final = "results"
MAX_KEPT_BYTES: Final = 24 * 1024 * 1024  # packed; a larger one would push everything else out
MAX_UNPACKED_BYTES: Final = 160 * 1024 * 1024
PAGE_TOKENS: Final = 2_000
_MIN_PAGE_TOKENS: Final = 50
_LETTERS: Final = 13  # 61 bits
_HANDLE: Final = re.compile(rf"\bres_[a-z]{{{_LETTERS}}}\b")
_MAX_HANDLES: Final = 8


@frozen
class ResultPage:
    """One page of a full result."""

    handle: str
    text: str
    page: int
    pages: int  # about, for texts of millions of characters
    tokens: int
    references: tuple[str, ...] = ()


def build_handle(call_id: str) -> str:
    """`res_` and thirteen letters: the same for the same call."""
    number = int.from_bytes(hashlib.blake2b(call_id.encode(), digest_size=16).digest(), "big")
    letters: list[str] = []
    for _ in range(_LETTERS):
        number, place = divmod(number, 26)
        letters.append("abcdefghijklmnopqrstuvwxyz"[place])
    return "res_" + "".join(letters)


def find_handles(texts: Iterable[str]) -> tuple[str, ...]:
    """The handles these texts name, each once, the latest first; only so many of the latest."""
    found = [handle for text in texts for handle in _HANDLE.findall(text)]
    return tuple(dict.fromkeys(reversed(found)))[:_MAX_HANDLES]


class ResultStore:
    """The full results of recent calls."""

    def __init__(self, cache: Cache, *, keep_seconds: float = 86_400) -> None:
        self._cache = cache
        self._keep_seconds = keep_seconds
        self._bookmarks = PageStartCache()

    async def keep(self, call_id: str, result: JsonObject, *, caller: str | None = None) -> str:
        """Keep the result, or as much of its text as is reasonable; the handle to fetch it by."""
        packed = await anyio.to_thread.run_sync(_pack, result)
        handle = build_handle(call_id)
        await self._cache.put(CACHE_SPACE, handle, _prefix_caller(caller, packed), ttl=self._keep_seconds)
        return handle

    async def read_page(
        self, handle: str, *, page: int = 1, tokens: int = PAGE_TOKENS, caller: str | None = None
    ) -> ResultPage | None:
        """One page of the text; None when the handle is unknown or its time is over, or no such page.

        A caller reads their own results; without one it is the owner of the house who reads, any of them.
        """
        packed = await self._get(handle, caller)
        if packed is None:
            return None
        tokens = max(_MIN_PAGE_TOKENS, tokens)
        return await anyio.to_thread.run_sync(_build_page, packed, handle, page, tokens, self._bookmarks)

    async def is_kept(self, handle: str, *, caller: str | None) -> bool:
        """Whether this caller can read it (`read_page`) now."""
        return await self._get(handle, caller) is not None

    async def read_part(self, handle: str, index: int) -> tuple[str, bytes] | None:
        """Kind and bytes of one part of the result, counted from 1."""
        packed = await self._get(handle, None)
        if packed is None:
            return None
        return await anyio.to_thread.run_sync(_extract_part, packed, index)

    async def _get(self, handle: str, caller: str | None) -> bytes | None:
        kept = await self._cache.get(CACHE_SPACE, handle)
        if kept is None:
            return None
        owner, _, packed = kept.partition(b"\n")
        return packed if caller is None or owner == json.dumps(caller).encode() else None


def _prefix_caller(caller: str | None, packed: bytes) -> bytes:
    """With whose it is, on a line of its own."""
    return json.dumps(caller).encode() + b"\n" + packed


def _pack(result: JsonObject) -> bytes:
    packed = _compress(result)
    if packed is not None:
        return packed
    text = "\n".join(part.text for part in read_parts(result))
    text = f"{text[: MAX_KEPT_BYTES // 4]}\n… only this much was kept: the whole is too large …"
    packed = _compress({"content": [{"type": "text", "text": text}]})
    assert packed is not None  # at most four bytes to a character, and packing never makes it longer by much
    return packed


def _compress(result: JsonObject) -> bytes | None:
    try:
        packed = zlib.compress(_serialize(result), 1)
    except (RecursionError, ValueError, TypeError):  # not something that came over the wire
        return None
    return packed if len(packed) <= MAX_KEPT_BYTES else None


def _serialize(result: JsonObject) -> bytes:
    try:
        return orjson.dumps(result)
    except TypeError:  # integers beyond 64 bits, half a character
        return json.dumps(result, ensure_ascii=False).encode("utf-8", "replace")


def _unpack(packed: bytes) -> JsonObject:
    return parse_result(zlib.decompressobj().decompress(packed, MAX_UNPACKED_BYTES))


def _build_page(
    packed: bytes, handle: str, page: int, tokens: int, bookmarks: PageStartCache
) -> ResultPage | None:
    parts = read_parts(_unpack(packed))
    text = "\n".join(part.text for part in parts)
    marked = (handle, packed[-4:], tokens)  # with its checksum: a call that goes on is kept again
    starts = find_page_starts(text, page, tokens, bookmarks.get_starts(marked))
    if starts is None:
        return None
    pages, starts = count_pages(text, page, tokens, starts)
    bookmarks.keep_starts(marked, starts)
    read = text[starts[page - 1] : starts[page]]
    return ResultPage(
        handle=handle,
        text=read,
        page=page,
        pages=pages,
        tokens=count_tokens(read),
        references=tuple(part.reference for part in parts if part.reference is not None),
    )


def _extract_part(packed: bytes, index: int) -> tuple[str, bytes] | None:
    found = get_blocks(_unpack(packed))
    return decode_block(found[index - 1]) if 1 <= index <= len(found) else None
