"""JSON out of what a model wrote.

Asked for JSON, models answer with JSON, with JSON in a code fence, with JSON between
two sentences, with a comma too many, after thinking aloud in other JSON. This finds
the value that fits the schema, and gives nothing rather than a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn, cast

from fingerpost.llm.judging import SchemaMatcher
from fingerpost.records import Json, JsonObject

MAX_REPLY_LENGTH: Final = 256_000  # characters looked at
MAX_ATTEMPTS: Final = 200  # places in prose where JSON might begin
MAX_CHARACTERS_READ: Final = 4 * MAX_REPLY_LENGTH  # characters read in vain at such places, all together
MAX_FENCES: Final = 50

_THOUGHT_END: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FENCE: Final = re.compile(r"```[^\n`]{0,40}\n(.*?)```", re.DOTALL)
_OPENING: Final = re.compile(r"[{\[]")
# A string (even one that never ends) is passed over whole, so that a comma inside it stays.
_SPARE_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*[}\]])', re.DOTALL)


def structured(text: str, schema: JsonObject | None = None) -> Json | None:
    """The JSON value in `text` that satisfies `schema` (None: any object or array), or None.

    Of several the last one counts: models think first and answer then.
    """
    judge = SchemaMatcher(schema)
    for value in _iterate_values(strip_reasoning(text[:MAX_REPLY_LENGTH])):
        if judge.accepts(value):
            return cast("Json", value)
    return None


def strip_reasoning(text: str) -> str:
    """What a reasoning model wrote after it had finished thinking."""
    end = 0
    for found in _THOUGHT_END.finditer(text):
        end = found.end()
    return text[end:].strip() or text.strip()


def _iterate_values(text: str) -> Iterator[object]:
    """Everything in `text` that reads as JSON, the likeliest first."""
    for candidate in (text, *reversed(_FENCE.findall(text)[-MAX_FENCES:])):
        yield from _iterate_parsed(candidate)
    yield from reversed(list(_iterate_embedded(text)))
    mended = _SPARE_COMMA.sub(lambda match: match[0] if match[0] != "," else "", text)
    if mended != text:
        yield from reversed(list(_iterate_embedded(mended)))


def _iterate_parsed(text: str) -> Iterator[object]:
    try:
        yield json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return


def _iterate_embedded(text: str) -> Iterator[object]:
    """Objects and arrays that begin somewhere in the text, each taken whole."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = wasted = 0
    for _ in range(MAX_ATTEMPTS):
        opening = _OPENING.search(text, at)
        if opening is None or wasted > MAX_CHARACTERS_READ:
            return
        try:
            value, at = decoder.raw_decode(text, opening.start())
        except json.JSONDecodeError as error:
            at, wasted = opening.end(), wasted + error.pos - opening.start()
        except (ValueError, RecursionError):
            at, wasted = opening.end(), wasted + len(text) // 50
        else:
            yield value


def _refuse_constant(constant: str) -> NoReturn:
    message = f"{constant} is not JSON"
    raise ValueError(message)
