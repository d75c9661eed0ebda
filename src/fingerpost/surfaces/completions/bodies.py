"""Bodies: bytes to JSON and back, within bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio.to_thread
import orjson
from pydantic_core import from_json

from fingerpost.records.json import MAX_DEPTH, check_json
from fingerpost.surfaces.completions.faults import CompletionError

_LARGE_BODY: Final = 1024 * 1024  # bytes: reading more takes a while, so a thread does it
_LARGE_NUMBER = re.compile(rb"\d{200}|\d[eE]\+?\d{3}")  # it may be one that cannot be written again


async def parse_object(body: bytes) -> Mapping[str, Any]:
    """The object in these bytes. Raises `CompletionError`."""
    value = (
        await anyio.to_thread.run_sync(_decode_json, body) if len(body) > _LARGE_BODY else _decode_json(body)
    )
    if not isinstance(value, dict):
        raise CompletionError(400, "The body has to be a JSON object.")
    return cast("dict[str, Any]", value)


def _decode_json(body: bytes) -> object:
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise CompletionError(400, "The body is not valid JSON in UTF-8.", code="invalid_json") from error
    # Only a body with many brackets can be deep: counting them is far cheaper than walking.
    deep = body.count(b"[") + body.count(b"{") > MAX_DEPTH
    if (deep or _LARGE_NUMBER.search(body)) and (reason := check_json(value)) is not None:
        raise CompletionError(400, f"The body {reason}.", code="invalid_json")
    return value


def encode_json(value: object) -> bytes:
    """JSON on one line. What orjson refuses (huge integers, odd text) is written the slow way."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), default=str).encode()


def build_too_large_error(limit: int) -> CompletionError:
    return CompletionError(
        413,
        f"A request has at most {limit:,} bytes here; send fewer or smaller pictures and files.",
        headers=((b"connection", b"close"),),
    )


def get_fields(value: object) -> Mapping[str, object]:
    """The fields of an object; of anything else, none."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
