"""JSON as bytes, quickly where that is possible and completely where it is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import orjson


def encode_json(value: object) -> bytes:
    """`value` as JSON. Integers beyond 64 bits and half characters are said, too."""
    try:
        return orjson.dumps(value, default=_to_plain)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), default=_to_plain).encode()


def _to_plain(value: object) -> object:
    """Mappings that are no dicts; anything else never came out of JSON."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    message = f"a {type(value).__name__} is not JSON"
    raise TypeError(message)
