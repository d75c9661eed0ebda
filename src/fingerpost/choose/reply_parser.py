"""Parse JSON objects and confidences from model replies."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar, cast

from fingerpost.frozen import frozen
from fingerpost.llm import Ask, ModelReply, ModelRequest
from fingerpost.records import Json, JsonObject, Message
from fingerpost.records.json import to_valid_text
from fingerpost.redaction import scrub

T = TypeVar("T")

_MAX_REPEATED_LENGTH: Final = 2_000
_MAX_TEXT_LENGTH: Final = 20_000


@frozen
class UnusableReply:
    """A reply that cannot be parsed, with a description of the problem for the model."""

    problem: str


async def ask_and_parse(
    ask: Ask, request: ModelRequest, parse: Callable[[ModelReply], T | UnusableReply]
) -> T | UnusableReply:
    """Ask the model and parse the reply. If it is unusable, ask once more with the problem.

    A `ModelError` is not caught.
    """
    reply = await ask(request)
    found = parse(reply)
    if not isinstance(found, UnusableReply):
        return found
    return parse(await ask(_build_retry_request(request, reply, found.problem)))


def _build_retry_request(request: ModelRequest, reply: ModelReply, problem: str) -> ModelRequest:
    text = to_valid_text(reply.text[:_MAX_REPEATED_LENGTH]).strip()
    before = (Message(role="assistant", text=text),) if text else ()
    correction = (
        f"That could not be used: {problem}. Answer once more, with JSON only, in the form asked for."
    )
    return replace(request, messages=(*request.messages, *before, Message(role="user", text=correction)))


def build_unusable_reply(reply: ModelReply, problem: str) -> UnusableReply:
    """Build an unusable reply with this problem, and a note if the reply was truncated."""
    cut = "; it was cut short, so answer more briefly" if reply.finish == "length" else ""
    return UnusableReply(problem=f"{problem}{cut}")


def get_plain_fields(entry: object) -> Mapping[str, Json]:
    """Return the fields of an object under normalized names: `Tool-Name` becomes `tool_name`. Return nothing
    for other values.
    """
    if not isinstance(entry, Mapping):
        return {}
    written = cast("JsonObject", entry)
    return {re.sub(r"[\s-]+", "_", key[:64].strip().casefold()): value for key, value in written.items()}


def parse_confidence(value: object) -> float | None:
    """Parse a confidence to 0..1 as models write it: 0.85, 85, "85%". Return None if it is none.

    Values from 1 to below 2 become 1, values from 2 to 100 are percent, and negative values become 0.
    """
    if isinstance(value, str):
        value = _parse_number(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -math.inf < value <= 100:  # NaN, infinite, or out of range
        return None
    return min(1.0, max(0.0, float(value))) if value < 2 else value / 100


def _parse_number(text: str) -> float | None:
    share = text.endswith("%")
    digits = text.removesuffix("%").strip().replace(",", ".", 1)
    if not re.fullmatch(r"[+-]?(?:[0-9]{1,9}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})", digits):
        return None
    return float(digits) / 100 if share and float(digits) <= 100 else None if share else float(digits)


def to_single_line(value: object, limit: int) -> str:
    """Return the text on one line with at most `limit` characters. Return an empty string for other
    values.
    """
    if not isinstance(value, str):
        return ""
    line = scrub(" ".join(to_valid_text(value[:_MAX_TEXT_LENGTH]).split()))
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
