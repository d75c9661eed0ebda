"""A question of a server must not pass for one of ours.

To the person all questions come from the same client connection. The answer to a
server's question goes to that server and approves nothing here; but a person should not
be fooled either. So a server's words that speak in our name get a line before them, and
characters that draw nothing are spelled out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Final, cast

from fingerpost.catalog import escape_invisible_except
from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.asking.capabilities import ELICIT_METHOD

_OUR_NAME: Final = "fingerpost"

# Letters of other scripts that look like those of our name.
_LOOKALIKE_LETTERS: Final = str.maketrans(
    {
        "і": "i",
        "ı": "i",
        "ո": "n",
        "ɡ": "g",
        "е": "e",
        "г": "r",
        "р": "p",
        "о": "o",
        "ο": "o",
        "ѕ": "s",
        "т": "t",
    }
)


def mark_question(server: str, method: str, params: JsonObject) -> JsonObject:
    """The question with everything unseen spelled out, and a line before it when it speaks in our name."""
    message = params.get("message")
    if method != ELICIT_METHOD or not isinstance(message, str):
        return params
    told = escape_invisible_except(message, keep="\n\t\\")
    if _claims_our_name(message):
        told = f"[The server {escape_invisible_except(server)[:80]} asks this, not Fingerpost.]\n{told}"
    return params if told == message else {**params, "message": told}


def mark_result(server: str, result: JsonObject) -> JsonObject:
    """An `input_required` result of a server, its questions marked likewise and its state untouched."""
    asked = result.get("inputRequests")
    if not isinstance(asked, Mapping):
        return result
    questions: dict[str, Json] = {
        key: _mark_entry(server, entry) for key, entry in cast("JsonObject", asked).items()
    }
    return result if questions == asked else {**result, "inputRequests": questions}


def _mark_entry(server: str, entry: Json) -> Json:
    if not isinstance(entry, Mapping):
        return entry
    method, params = entry.get("method"), entry.get("params")
    if not isinstance(method, str) or not isinstance(params, Mapping):
        return entry
    changed = mark_question(server, method, params)
    return entry if changed is params else {**entry, "params": changed}


def _claims_our_name(message: str) -> bool:
    plain = unicodedata.normalize("NFKD", message).casefold().translate(_LOOKALIKE_LETTERS)
    letters = "".join(character for character in plain if character.isalpha())
    return _OUR_NAME in letters
