"""Results of tools: normalised to the protocol, checked for emptiness, hashed, and cached."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, cast

import orjson

from fingerpost.call.execution.upstream import TimeSource, is_input_required
from fingerpost.errors import ServerReplyInvalid
from fingerpost.frozen import frozen
from fingerpost.records import Call, CallContext, Effect, ErrorKind, Json, JsonObject


@frozen(kw_only=False)
class ResultHash:
    """The hash and the size of a result."""

    digest: str
    size: int


def hash_result(result: JsonObject) -> ResultHash:
    """Hash everything except `_meta`, which servers change with every response."""
    hashed = {key: value for key, value in result.items() if key != "_meta"}
    try:
        data = orjson.dumps(hashed, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):  # integers beyond 64 bits, which JSON allows
        data = json.dumps(hashed, sort_keys=True).encode()
    return ResultHash(hashlib.blake2b(data, digest_size=16).hexdigest(), len(data))


def hash_error(error: ErrorKind, detail: str) -> str:
    """Hash an error. A tool's own message is included; other messages may contain a countdown."""
    message = detail if error is ErrorKind.EXECUTION_FAILED else ""
    return f"{error}:{hashlib.blake2b(message.encode(), digest_size=16).hexdigest()}"


_EMPTY_VALUES = frozenset({"", "[]", "{}", "null", '""'})
_MAX_CHECKED_LENGTH = 64  # longer text cannot be just brackets and white space


def is_empty_result(result: JsonObject) -> bool:
    """Return whether a result has no structured content and only blank text or an empty value."""
    if is_input_required(result):
        return False
    structured = result.get("structuredContent")
    if structured is not None and not _is_empty_structured(structured):
        return False
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return content is None
    return all(map(_is_empty_block, cast("Sequence[Json]", content)))


def _is_empty_structured(structured: Json) -> bool:
    if isinstance(structured, dict):
        members = cast("JsonObject", structured)
        # Server libraries wrap a bare value as {"result": value}.
        return not members or (set(members) == {"result"} and members["result"] in ("", None, [], {}))
    return structured in ("", [], {})


def _is_empty_block(block: Json) -> bool:
    if not isinstance(block, dict):
        return False
    members = cast("JsonObject", block)
    text = members.get("text")
    if members.get("type") != "text" or not isinstance(text, str):
        return False
    stripped = text.strip()
    return len(stripped) <= _MAX_CHECKED_LENGTH and "".join(stripped.split()) in _EMPTY_VALUES


MAX_SHOWN_ENTRIES: Final = 3  # invalid entries
MAX_SHOWN_LENGTH: Final = 100  # characters of each
_TEXT_BOOLEANS: Final = {"true": True, "false": False}
_BINARY_BLOCK_TYPES: Final = ("image", "audio")


def normalize_result(result: JsonObject, call: Call) -> JsonObject:
    """Return the result, unchanged if it is valid. Raises `ServerReplyInvalid` if it is no result."""
    if _is_valid(result):
        return result
    if is_input_required(result):
        _check_questions(result, call)
        return result
    if _is_task(result):
        message = f"{call.tool} answered with a task that was not requested"
        raise ServerReplyInvalid(message, server=call.server, hint="report this to the server's author")
    return _repair_result(result)


def _is_valid(result: JsonObject) -> bool:
    content = result.get("content")
    if type(content) is not list or type(result.get("isError", False)) is not bool:
        return False
    if result.get("resultType", "complete") != "complete":
        return False
    return all(map(_is_block, cast("list[Json]", content)))


def _is_block(block: Json) -> bool:
    """Return whether clients can read the block. Unknown kinds are passed on."""
    if not isinstance(block, dict):
        return False
    kind = block.get("type")
    if kind == "text":
        return isinstance(block.get("text"), str)
    if kind in _BINARY_BLOCK_TYPES:
        return isinstance(block.get("data"), str)
    if kind == "resource_link":
        return isinstance(block.get("uri"), str) and isinstance(block.get("name"), str)
    if kind == "resource":
        return _is_resource(block.get("resource"))
    return isinstance(kind, str)


def _is_resource(resource: Json) -> bool:
    if not isinstance(resource, Mapping) or not isinstance(resource.get("uri"), str):
        return False
    return isinstance(resource.get("text"), str) or isinstance(resource.get("blob"), str)


def _check_questions(result: JsonObject, call: Call) -> None:
    asked, state = result.get("inputRequests"), result.get("requestState")
    if state is not None and not isinstance(state, str):
        why = "its requestState is not text"
    elif asked is not None and not isinstance(asked, Mapping):
        why = "its inputRequests are not an object"
    else:
        return
    message = f"{call.tool} asked for input in a way that cannot be answered: {why}"
    raise ServerReplyInvalid(message, server=call.server, hint="report this to the server's author")


def _is_task(result: JsonObject) -> bool:
    if result.get("resultType") == "task":
        return True
    has_content = "content" in result or "structuredContent" in result
    return isinstance(result.get("task"), Mapping) and not has_content


def _repair_result(result: JsonObject) -> JsonObject:
    kept, left_out = _split_blocks(result.get("content"))
    if left_out:
        kept.append({"type": "text", "text": _build_note(left_out)})
    made: dict[str, Json] = {**result, "content": kept}
    failed = result.get("isError")
    if failed is None:
        made.pop("isError", None)
    elif not isinstance(failed, bool):  # an invalid flag counts as a failure
        made["isError"] = _TEXT_BOOLEANS.get(failed, True) if isinstance(failed, str) else True
    return made


def _split_blocks(content: Json) -> tuple[list[Json], list[Json]]:
    """Return the valid blocks and the invalid entries."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [{"type": "text", "text": content}], []
    entries = cast("Sequence[Json]", content) if isinstance(content, list | tuple) else (content,)
    kept: list[Json] = []
    left_out: list[Json] = []
    for entry in entries:
        block = _repair_block(entry)
        (kept if _is_block(block) else left_out).append(block)
    return kept, left_out


def _repair_block(entry: Json) -> Json:
    """Convert a plain text, or a block without type or name, if there is only one reading."""
    if isinstance(entry, str):
        return {"type": "text", "text": entry}
    if not isinstance(entry, Mapping):
        return entry
    if entry.get("type") is None and isinstance(entry.get("text"), str):
        return {**entry, "type": "text"}
    if entry.get("type") == "resource_link" and not isinstance(entry.get("name"), str):
        return {**entry, "name": entry.get("uri")}
    return entry if isinstance(entry, dict) else dict(entry)


def _build_note(left_out: Sequence[Json]) -> str:
    shown = [_show_beginning(entry) for entry in left_out[:MAX_SHOWN_ENTRIES]]
    more = f" and {len(left_out) - MAX_SHOWN_ENTRIES:,} more" if len(left_out) > MAX_SHOWN_ENTRIES else ""
    return f"[Left out because clients cannot read it: {'; '.join(shown)}{more}]"


def _show_beginning(entry: Json) -> str:
    """Return the beginning of the entry without serialising all of it."""
    if isinstance(entry, Mapping):
        return f"a block of the type {json.dumps(entry.get('type'), default=str)[:MAX_SHOWN_LENGTH]}"
    if isinstance(entry, list | tuple):
        return "a list"
    return json.dumps(entry)[:MAX_SHOWN_LENGTH]


MAX_CACHE_BYTES = 64 * 1024 * 1024
MAX_ENTRY_BYTES = 8 * 1024 * 1024


@frozen(kw_only=False)
class CachedResult:
    """A cached result and its age in seconds."""

    result: JsonObject
    age: float


@frozen(kw_only=False)
class _CacheEntry:
    server: str
    result: JsonObject
    size: int
    since: float
    expires: float


CacheKey = tuple[str, str | None, str | None, str | None]


class ResultCache:
    """An LRU cache of results, limited in number, bytes and age."""

    def __init__(self, *, entries: int, clock: TimeSource, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_entries = entries
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[CacheKey, _CacheEntry] = OrderedDict()
        self._epochs: dict[str, int] = {}
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._bytes

    def is_cacheable(self, call: Call) -> bool:
        """Return whether results of this call are cached at all."""
        return self._max_entries > 0 and call.cache_seconds > 0 and call.effect is Effect.READ

    def get_epoch(self, server: str) -> int:
        """Return the number of writes so far. Read it before the call and pass it to `keep`."""
        return self._epochs.get(server, 0)

    def find(self, call: Call, context: CallContext) -> CachedResult | None:
        """Return the fresh result of the same call by the same caller, or None."""
        key = _build_cache_key(call, context)
        kept = self._kept.get(key) if self.is_cacheable(call) else None
        if kept is None:
            return None
        now = self._clock()
        if kept.expires <= now:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return CachedResult(kept.result, now - kept.since)

    def keep(self, call: Call, context: CallContext, result: JsonObject, *, size: int, epoch: int) -> None:
        """Cache a result. It is ignored if a write has happened since `epoch`."""
        if not self.is_cacheable(call) or size > min(MAX_ENTRY_BYTES, self._max_bytes):
            return
        if epoch != self.get_epoch(call.server):
            return
        key = _build_cache_key(call, context)
        self._drop(key)
        now = self._clock()
        self._kept[key] = _CacheEntry(call.server, result, size, now, now + call.cache_seconds)
        self._bytes += size
        while len(self._kept) > self._max_entries or self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def invalidate(self, server: str) -> None:
        """Drop the server's results, because something was or may have been written."""
        self._epochs[server] = self.get_epoch(server) + 1
        for key in [key for key, kept in self._kept.items() if kept.server == server]:
            self._drop(key)

    def _drop(self, key: CacheKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size


def _build_cache_key(call: Call, context: CallContext) -> CacheKey:
    # A caller without a name is identified by the conversation only.
    conversation = context.conversation if context.caller is None else None
    return (call.fingerprint, context.caller, context.profile, conversation)
