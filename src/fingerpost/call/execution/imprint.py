"""A result as a few bytes: enough to tell whether it is the same as before, and how large it is."""

from __future__ import annotations

import hashlib
import json

import orjson

from fingerpost.frozen import frozen
from fingerpost.records import ErrorKind, JsonObject


@frozen(kw_only=False)
class ResultHash:
    """The hash and the size of a result."""

    digest: str
    size: int


def hash_result(result: JsonObject) -> ResultHash:
    """Over everything but `_meta`, which servers fill afresh on every reply."""
    told = {key: value for key, value in result.items() if key != "_meta"}
    try:
        data = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):  # integers beyond 64 bits, which JSON allows
        data = json.dumps(told, sort_keys=True).encode()
    return ResultHash(hashlib.blake2b(data, digest_size=16).hexdigest(), len(data))


def hash_error(error: ErrorKind, detail: str) -> str:
    """What a tool says of its error is its answer; what we say of a server may hold a countdown."""
    told = detail if error is ErrorKind.EXECUTION_FAILED else ""
    return f"{error}:{hashlib.blake2b(told.encode(), digest_size=16).hexdigest()}"
