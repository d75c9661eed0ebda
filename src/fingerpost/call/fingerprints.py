"""What makes a call the same call.

A person approves one exact call. Its fingerprint covers the tool, every
argument and the definition they were shown it by, so that a call changed in
any of the three is another call, and the approval says nothing about it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

import orjson

from fingerpost.records import JsonObject


def call_fingerprint(definition_fingerprint: str, tool: str, arguments: JsonObject) -> str:
    """SHA-256 over the three together. The order of keys does not matter; everything else does.

    `1`, `1.0`, `true` and `"1"` stay four different values: a tool may treat them differently.
    """
    parts = [definition_fingerprint, tool, arguments]
    return hashlib.sha256(_quickly(parts, arguments) or _written(parts).encode()).hexdigest()


def operation_key(operation: str, definition_fingerprint: str | None) -> str:
    """What a grant for a conversation is bound to: the operation, as defined when it was granted."""
    return f"{operation}@{definition_fingerprint[:16]}" if definition_fingerprint else operation


def _quickly(parts: Sequence[object], arguments: JsonObject) -> bytes | None:
    """The same bytes as `_written`, much sooner, where all is ASCII and the arguments are flat.

    Numbers with a point are left to the other: the two write them differently.
    """
    if type(arguments) is not dict:
        return None
    values = cast("Mapping[str, object]", arguments).values()
    if not _FLAT.issuperset(map(type, values)):
        return None
    try:
        data = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # half a character, or an integer beyond 64 bits
        return None
    return data if data.isascii() and b"\x7f" not in data else None  # DEL is written in two ways


_FLAT: Final = frozenset({str, int, bool, type(None)})


def _as_dict(value: object) -> dict[str, object]:
    """For mappings that are not dicts; nothing else gets past the check of the arguments."""
    if not isinstance(value, Mapping):
        message = f"a {type(value).__name__} cannot be an argument"
        raise TypeError(message)
    return dict(cast("Mapping[str, object]", value))


_written = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_as_dict).encode
