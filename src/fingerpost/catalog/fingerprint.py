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
from collections.abc import Mapping
from typing import Final, cast

from fingerpost.records import JsonObject

FINGERPRINTED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


def fingerprint(definition: JsonObject) -> str:
    """SHA-256 over the parts that matter, whatever the order of keys and the white space."""
    text = json.dumps(
        essence(definition), sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_as_dict
    )
    return hashlib.sha256(text.encode()).hexdigest()


def essence(definition: JsonObject) -> JsonObject:
    """The fingerprinted parts alone. A part that is null counts as absent."""
    return {part: definition[part] for part in FINGERPRINTED if definition.get(part) is not None}


def _as_dict(value: object) -> dict[str, object]:
    """For mappings that are not dicts; anything else was refused before it came here."""
    if not isinstance(value, Mapping):
        message = f"a {type(value).__name__} cannot be part of a definition"
        raise TypeError(message)
    return dict(cast("Mapping[str, object]", value))
