"""Whether what a server sent can be carried as JSON: a quick yes for nearly everything.

Every result of every call is looked at. Writing it once, in C, takes a tenth of the time that walking
through it takes; only what does not plainly come through is walked, and then there are words for it.
"""

from __future__ import annotations

from typing import Final

import orjson

from fingerpost.records import check_json
from fingerpost.records.json import MAX_DEPTH

# What only looks like a value of JSON is left to the walk.
_STRICTLY: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)


def json_fault(value: object, *, max_depth: int = MAX_DEPTH) -> str | None:
    """Why `value` cannot be carried, or None when it can; as `check_json`, and sooner."""
    return None if _is_plainly_sound(value, max_depth) else check_json(value, max_depth=max_depth)


def _is_plainly_sound(value: object, max_depth: int) -> bool:
    try:
        data = orjson.dumps(value, option=_STRICTLY)
    except TypeError:  # half a character, a long integer, no JSON at all
        return False
    # What JSON has no word for (NaN) is written as null, and what is deep has many brackets.
    return b"null" not in data and data.count(b"[") + data.count(b"{") <= max_depth
