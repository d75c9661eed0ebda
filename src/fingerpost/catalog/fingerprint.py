"""What makes a definition the same definition.

The fingerprint covers everything a model or a person decides by: name, title,
description, both schemas, the annotations, and every member that no protocol
knows, since nobody can say who will read it. It leaves out `_meta`, `icons` and
`execution`: those serve programs and screens, servers fill them afresh on every
reply (cache hints, signed picture addresses), and a tool that is blocked for a
new picture teaches people to accept without reading.
"""

from __future__ import annotations

import hashlib
from typing import Final

from fingerpost.records import JsonObject
from fingerpost.records.canonical import to_canonical_json

FINGERPRINTED_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
UNFINGERPRINTED_FIELDS: Final = frozenset({"_meta", "icons", "execution"})
_KNOWN_FIELDS: Final = UNFINGERPRINTED_FIELDS.union(FINGERPRINTED_FIELDS)


def compute_fingerprint(definition: JsonObject) -> str:
    """SHA-256 over the parts that matter, whatever the order of keys and the white space."""
    return hashlib.sha256(to_canonical_json(extract_fingerprinted(definition))).hexdigest()


def compute_text_fingerprint(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def extract_fingerprinted(definition: JsonObject) -> JsonObject:
    """The fingerprinted parts alone, the unknown ones last. A part that is null counts as absent."""
    parts = {part: definition[part] for part in FINGERPRINTED_FIELDS if definition.get(part) is not None}
    if not definition.keys() <= _KNOWN_FIELDS:
        unknown = sorted(definition.keys() - _KNOWN_FIELDS)
        parts.update((part, definition[part]) for part in unknown if definition[part] is not None)
    return parts
