"""JSON written in one way only, for fingerprints: keys in order, ASCII, no white space."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, cast

import orjson

_SORTED: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
# Both ways write fractions differently, and one of them writes null for what is no number.
_DOUBTFUL: Final = re.compile(rb"[\[:,](?:-?[0-9]+[.eE]|null)")


def canonical(value: object) -> bytes:
    """`value`, which `check_json` has let pass, as the bytes its fingerprint is made of."""
    return _quickly(value) or _written(value).encode()


def _quickly(value: object) -> bytes | None:
    """The same bytes as `_written`, five times faster, where both ways to write them agree."""
    try:
        data = orjson.dumps(value, option=_SORTED)
    except TypeError:  # mappings that are no dicts, half a character, a long integer
        return None
    # DEL is written in two ways, too.
    return data if data.isascii() and b"\x7f" not in data and not _DOUBTFUL.search(data) else None


def _as_dict(value: object) -> dict[str, object]:
    """For mappings that are not dicts; anything else was refused before it came here."""
    if not isinstance(value, Mapping):
        message = f"a {type(value).__name__} cannot be written as JSON"
        raise TypeError(message)
    return dict(cast("Mapping[str, object]", value))


_written = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_as_dict).encode
