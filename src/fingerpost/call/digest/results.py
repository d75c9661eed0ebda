"""Full results and assets, stored for a limited time and read page by page with their handle."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

import anyio.to_thread
import orjson

from fingerpost.call.digest.blocks import decode_block, get_blocks, parse_result, read_parts
from fingerpost.call.digest.tokens import count_tokens, find_reach
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, create_id

if TYPE_CHECKING:
    from fingerpost.store import Cache

MAX_COUNTED_LENGTH: Final = 500_000  # characters; for longer texts the number of pages is estimated
MAX_CACHED_TEXTS: Final = 64  # texts whose page starts are cached

PageStarts = tuple[int, ...]  # from the first page on, as far as searched; the end of the text is last


class PageStartCache:
    """The page starts found so far, for the most recently read texts."""

    def __init__(self) -> None:
        self._starts: OrderedDict[object, PageStarts] = OrderedDict()
        self._lock = Lock()  # pages are read in threads

    def get_starts(self, key: object) -> PageStarts:
        return self._starts.get(key, (0,))

    def keep_starts(self, key: object, starts: PageStarts) -> None:
        """Store page starts. Calls may come in any order, so the longer list is kept."""
        with self._lock:
            self._starts[key] = max(starts, self.get_starts(key), key=len)
            self._starts.move_to_end(key)
            while len(self._starts) > MAX_CACHED_TEXTS:
                self._starts.popitem(last=False)


def find_page_starts(text: str, page: int, tokens: int, known: PageStarts) -> PageStarts | None:
    """Return the page starts at least up to the end of this page, or None if there is no such page.

    Callers may pass any number, so pages certainly beyond the end are not searched.
    """
    if page < 1 or page - 1 > len(text) // compute_min_page_length(tokens):
        return None
    starts = list(known)
    while len(starts) <= page and (starts[-1] < len(text) or len(starts) == 1):  # an empty text has one page
        starts.append(find_page_end(text, starts[-1], tokens))
    return tuple(starts) if len(starts) > page else None


def count_pages(text: str, page: int, tokens: int, known: PageStarts) -> tuple[int, PageStarts]:
    """Return the number of pages and the page starts found meanwhile.

    Count if that is quick, else estimate. The number is never too low.
    """
    starts = list(known)
    if len(text) - starts[-1] > MAX_COUNTED_LENGTH:
        left = max(1, math.ceil(count_tokens(text[starts[page] :]) / tokens))
        return max(page + left, len(starts)), known
    while starts[-1] < len(text):
        starts.append(find_page_end(text, starts[-1], tokens))
    return len(starts) - 1, tuple(starts)


def compute_min_page_length(tokens: int) -> int:
    """Return the minimum number of characters of every page except the last.

    No character costs more than 10.5 tokens, and a page uses at least half of its tokens.
    """
    return max(1, tokens // 42)


def find_page_end(text: str, start: int, tokens: int) -> int:
    """Return the end of the page from `start`: after a line if possible, always within `tokens`."""
    end = find_reach(text, start, tokens)
    if end < len(text):
        end = text.rfind("\n", (start + end) // 2, end) + 1 or end
    return max(end, min(start + 1, len(text)))


CACHE_SPACE: Final = "results"
MAX_KEPT_BYTES: Final = 24 * 1024 * 1024  # compressed; a larger result would displace all others
MAX_UNPACKED_BYTES: Final = 160 * 1024 * 1024
PAGE_TOKENS: Final = 2_000
_MIN_PAGE_TOKENS: Final = 50
_HANDLE_LETTERS: Final = 13  # 61 bits
_HANDLE: Final = re.compile(rf"\bres_[a-z]{{{_HANDLE_LETTERS}}}\b")
_MAX_HANDLES: Final = 8
_PRIVATE_MARK: Final = b" private"  # after the JSON of the caller's name


@frozen
class ResultPage:
    """One page of a full result."""

    handle: str
    text: str
    page: int
    pages: int  # estimated for texts of millions of characters
    tokens: int
    references: tuple[str, ...] = ()
    private: bool = False  # of a tool that reads private data


def build_handle(call_id: str) -> str:
    """Return `res_` and thirteen letters, always the same for the same call."""
    number = int.from_bytes(hashlib.blake2b(call_id.encode(), digest_size=16).digest(), "big")
    letters: list[str] = []
    for _ in range(_HANDLE_LETTERS):
        number, letter_index = divmod(number, 26)
        letters.append("abcdefghijklmnopqrstuvwxyz"[letter_index])
    return "res_" + "".join(letters)


def find_handles(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the handles named in these texts without duplicates, latest first, limited in number."""
    found = [handle for text in texts for handle in _HANDLE.findall(text)]
    return tuple(dict.fromkeys(reversed(found)))[:_MAX_HANDLES]


class ResultStore:
    """The full results of recent calls."""

    def __init__(self, cache: Cache, *, keep_seconds: float = 86_400) -> None:
        self._cache = cache
        self._keep_seconds = keep_seconds
        self._page_starts = PageStartCache()

    async def keep(
        self, call_id: str, result: JsonObject, *, caller: str | None = None, private: bool = False
    ) -> str:
        """Store the result, or as much of its text as the size limit allows. Return its handle. `private`: it
        is of a tool that reads private data.
        """
        packed = await anyio.to_thread.run_sync(_pack, result)
        handle = build_handle(call_id)
        head = json.dumps(caller).encode() + (_PRIVATE_MARK if private else b"")
        await self._cache.put(CACHE_SPACE, handle, head + b"\n" + packed, ttl=self._keep_seconds)
        return handle

    async def read_page(
        self, handle: str, *, page: int = 1, tokens: int = PAGE_TOKENS, caller: str | None = None
    ) -> ResultPage | None:
        """Return one page of the text. None if the handle is unknown or expired, or there is no such page.

        A caller can read only its own results. Without a caller, the operator reads any result.
        """
        kept = await self._get(handle, caller)
        if kept is None:
            return None
        packed, private = kept
        tokens = max(_MIN_PAGE_TOKENS, tokens)
        found = await anyio.to_thread.run_sync(_build_page, packed, handle, page, tokens, self._page_starts)
        return None if found is None else replace(found, private=private)

    async def is_kept(self, handle: str, *, caller: str | None) -> bool:
        """Return whether this caller can read the result now (see `read_page`)."""
        return await self._get(handle, caller) is not None

    async def read_part(self, handle: str, index: int) -> tuple[str, bytes] | None:
        """Return the kind and bytes of one part of the result, counted from 1."""
        kept = await self._get(handle, None)
        return None if kept is None else await anyio.to_thread.run_sync(_extract_part, kept[0], index)

    async def _get(self, handle: str, caller: str | None) -> tuple[bytes, bool] | None:
        """Return the packed result, and whether it is private."""
        kept = await self._cache.get(CACHE_SPACE, handle)
        if kept is None:
            return None
        head, _, packed = kept.partition(b"\n")
        owner = head.removesuffix(_PRIVATE_MARK)
        if caller is not None and owner != json.dumps(caller).encode():
            return None
        return packed, owner != head


def _pack(result: JsonObject) -> bytes:
    packed = _compress(result)
    if packed is not None:
        return packed
    text = "\n".join(part.text for part in read_parts(result))
    text = f"{text[: MAX_KEPT_BYTES // 4]}\n… only this much was kept: the whole is too large …"
    packed = _compress({"content": [{"type": "text", "text": text}]})
    assert packed is not None  # at most four bytes per character, and compression adds little
    return packed


def _compress(result: JsonObject) -> bytes | None:
    try:
        packed = zlib.compress(_serialize(result), 1)
    except (RecursionError, ValueError, TypeError):  # not a result that came from a server
        return None
    return packed if len(packed) <= MAX_KEPT_BYTES else None


def _serialize(result: JsonObject) -> bytes:
    try:
        return orjson.dumps(result)
    except TypeError:  # integers beyond 64 bits, lone surrogates
        return json.dumps(result, ensure_ascii=False).encode("utf-8", "replace")


def _unpack(packed: bytes) -> JsonObject:
    return parse_result(zlib.decompressobj().decompress(packed, MAX_UNPACKED_BYTES))


def _build_page(
    packed: bytes, handle: str, page: int, tokens: int, page_starts: PageStartCache
) -> ResultPage | None:
    parts = read_parts(_unpack(packed))
    text = "\n".join(part.text for part in parts)
    marked = (handle, packed[-4:], tokens)  # with its checksum: a continued call stores its result again
    starts = find_page_starts(text, page, tokens, page_starts.get_starts(marked))
    if starts is None:
        return None
    pages, starts = count_pages(text, page, tokens, starts)
    page_starts.keep_starts(marked, starts)
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


RESULT_URI_PREFIX: Final = "fingerpost://results/"
_PART_NUMBER: Final = re.compile(r", part (\d{1,4})\b")
MEDIA_TYPES: Final[Mapping[str, str]] = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "glb": "model/gltf-binary",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "aac": "audio/aac",
}
DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
MAX_ASSET_BYTES: Final = 16 * 1024 * 1024  # must fit into `MAX_KEPT_BYTES` as compressed text


@frozen
class Asset:
    """Bytes with a media type and a file name."""

    name: str
    media_type: str
    data: bytes
    about: str = ""  # a description such as `a bar chart with 4 bars`
    private: bool = False  # of a tool that reads private data


@frozen
class KeptAsset:
    """A stored asset and its address."""

    handle: str
    name: str
    media_type: str
    size: int
    about: str

    @property
    def uri(self) -> str:
        return build_asset_uri(self.handle, self.name)

    @property
    def summary(self) -> str:
        """One line for models and people: what the asset is and how to fetch it."""
        return (
            f"Made {self.about}: {self.name}, {self.media_type}, {self.size:,} bytes, kept as {self.handle}. "
            f"To save it: `fingerpost result {self.handle} --out {self.name}`, "
            f"or GET /api/assets/{self.handle}."
        )


async def keep_asset(results: ResultStore, asset: Asset, *, caller: str | None) -> KeptAsset:
    """Store the asset for this caller."""
    block = await anyio.to_thread.run_sync(_build_block, asset)
    handle = await results.keep(create_id("ast"), {"content": [block]}, caller=caller)
    return KeptAsset(
        handle=handle,
        name=asset.name,
        media_type=asset.media_type,
        size=len(asset.data),
        about=asset.about,
    )


async def fetch_asset(results: ResultStore, handle: str, *, caller: str | None) -> Asset | None:
    """Return the asset with this handle. None if it is unknown, expired, or of another caller.

    Without a caller, the operator fetches any asset.
    """
    page = await results.read_page(handle, caller=caller)
    if page is None or len(page.references) != 1:  # a result with other content
        return None
    part_number = _PART_NUMBER.search(page.references[0])
    found = None if part_number is None else await results.read_part(handle, int(part_number[1]))
    if found is None:
        return None
    media_type, data = found
    name = parse_asset_name(page.references[0]) or "asset"
    return Asset(name=name, media_type=media_type, data=data, private=page.private)


def build_asset_uri(handle: str, name: str) -> str:
    return f"{RESULT_URI_PREFIX}{handle}/{quote(name)}"


def parse_asset_handle(uri: str) -> str | None:
    """Return the handle in a Fingerpost result URI."""
    return (
        uri.removeprefix(RESULT_URI_PREFIX).partition("/")[0] if uri.startswith(RESULT_URI_PREFIX) else None
    )


def parse_asset_name(reference: str) -> str:
    """Return the name in `image/png, 4 KB, part 1, fingerpost://results/res_…/chart.png`, or ""."""
    return unquote(reference.rpartition("/")[2]) if RESULT_URI_PREFIX in reference else ""


def _build_block(asset: Asset) -> JsonObject:
    encoded = base64.b64encode(asset.data).decode()
    # The handle depends on the call id and is not known yet. Readers of the URI know it.
    resource: JsonObject = {
        "uri": build_asset_uri("asset", asset.name),
        "mimeType": asset.media_type,
        "blob": encoded,
    }
    return {"type": "resource", "resource": resource}


def build_named_asset(stem: str, form: str, data: bytes, about: str) -> Asset:
    """Build an asset of one of the formats above, named after its topic."""
    return Asset(
        name=f"{build_file_stem(stem)}.{form}",
        media_type=MEDIA_TYPES.get(form, DEFAULT_MEDIA_TYPE),
        data=data,
        about=about,
    )


def build_file_stem(text: str, max_length: int = 40) -> str:
    """Return a file name made of lower-case ASCII letters, digits and dashes."""
    kept = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in text.lower())
    return "-".join(kept.split())[:max_length].strip("-") or "asset"
