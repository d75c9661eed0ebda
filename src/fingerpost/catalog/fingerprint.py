"""What makes a definition the same definition.

The fingerprint covers everything a model or a person decides by: name, title,
description, both schemas and the annotations. It leaves out `_meta`, `icons`
and whatever a future protocol adds: those serve programs and screens, servers
fill them afresh on every reply (cache hints, signed picture addresses), and a
tool that is blocked for a new picture teaches people to accept without reading.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final, cast

import orjson

from fingerpost.records import JsonObject

FINGERPRINTED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_SORTED: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_FRACTION = re.compile(rb"[\[:,]-?[0-9]+[.eE]")


def fingerprint(definition: JsonObject) -> str:
    """SHA-256 over the parts that matter, whatever the order of keys and the white space."""
    parts = essence(definition)
    return hashlib.sha256(_quickly(parts) or _written(parts)).hexdigest()


def _written(parts: JsonObject) -> bytes:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_as_dict)
    return text.encode()


def _quickly(parts: JsonObject) -> bytes | None:
    """The same bytes, five times faster, where both ways to write them agree: no fractions, all ASCII."""
    try:
        data = orjson.dumps(parts, option=_SORTED)
    except TypeError:  # mappings that are no dicts, half a character, a long integer
        return None
    agreed = data.isascii() and b"\x7f" not in data and _FRACTION.search(data) is None
    return data if agreed else None


def essence(definition: JsonObject) -> JsonObject:
    """The fingerprinted parts alone. A part that is null counts as absent."""
    return {part: definition[part] for part in FINGERPRINTED if definition.get(part) is not None}


def _as_dict(value: object) -> dict[str, object]:
    """For mappings that are not dicts; anything else was refused before it came here."""
    if not isinstance(value, Mapping):
        message = f"a {type(value).__name__} cannot be part of a definition"
        raise TypeError(message)
    return dict(cast("Mapping[str, object]", value))
