"""JSON written in one way only, for fingerprints: keys in order, ASCII, no white space."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, cast

import orjson

_SORTED_OPTIONS: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
# Both ways write fractions differently, and one of them writes null for what is no number.
_AMBIGUOUS_JSON: Final = re.compile(rb"[\[:,](?:-?[0-9]+[.eE]|null)")


def to_canonical_json(value: object) -> bytes:
    """`value`, which `check_json` has let pass, as the bytes its fingerprint is made of."""
    return _encode_quickly(value) or _encode_canonical(value).encode()


def _encode_quickly(value: object) -> bytes | None:
    """The same bytes as `_encode_canonical`, five times faster, where both ways to write them agree."""
    try:
        data = orjson.dumps(value, option=_SORTED_OPTIONS)
    except TypeError:  # mappings that are no dicts, half a character, a long integer
        return None
    # DEL is written in two ways, too.
    return data if data.isascii() and b"\x7f" not in data and not _AMBIGUOUS_JSON.search(data) else None


def _to_dict(value: object) -> dict[str, object]:
    """For mappings that are not dicts; anything else was refused before it came here."""
    if not isinstance(value, Mapping):
        message = f"a {type(value).__name__} cannot be written as JSON"
        raise TypeError(message)
    return dict(cast("Mapping[str, object]", value))


_encode_canonical = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_to_dict
).encode
