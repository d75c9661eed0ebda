"""Whether what a server sent can be carried as JSON: a quick yes for nearly everything.

Every result of every call is looked at, and every definition of a tool. Writing it once, in C, takes a
tenth of the time that walking through it takes; only what does not plainly come through is walked, and
then there are words for it.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from fingerpost.records.json import MAX_DEPTH, check_json

# What only looks like a value of JSON is left to the walk.
_STRICT_OPTIONS: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)
# Many schemas say "null", which is a text. It begins with the word itself because that is looked for thirty
# times as fast as one of several signs before it.
_NULL: Final = re.compile(rb"null(?<=[:,\[]null)")


def find_json_fault(value: object, *, max_depth: int = MAX_DEPTH) -> str | None:
    """Why `value` cannot be carried, or None when it can; as `check_json`, and sooner."""
    return None if encode_if_valid(value, max_depth) is not None else check_json(value, max_depth=max_depth)


def encode_if_valid(value: object, max_depth: int) -> bytes | None:
    """`value` as JSON, where one can see by that alone that it can be carried; None: walk through it."""
    try:
        data = orjson.dumps(value, option=_STRICT_OPTIONS)
    except TypeError:  # half a character, a long integer, no JSON at all
        return None
    # What JSON has no word for (NaN) is written as null, and what is deep has many brackets.
    return data if data.count(b"[") + data.count(b"{") <= max_depth and not _has_null(data) else None


def _has_null(data: bytes) -> bool:
    return data == b"null" or _NULL.search(data) is not None
