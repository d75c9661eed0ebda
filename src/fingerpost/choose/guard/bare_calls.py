"""An answer that is nothing but a call, in whatever syntax: `{{call brew_tea cups=2}}`, `RUN brew_tea {}`.

Which marks a model puts around a call cannot be foreseen; that there is nothing else can be seen. Every
word is one of tools and calls, the name of something that acts, or an argument. A sentence has other words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from fingerpost.choose.guard.reading import json_value
from fingerpost.choose.guard.shapes import is_name_key, plain_key
from fingerpost.choose.guard.vocabulary import words

LONGEST_ALONE: Final = 2_000
_CALLING: Final = words(
    "tool tools function functions call calls calling called invoke invoking invocation use"
    " using uses run running"
    " execute executing request action api mcp plugin helper agent skill toolcall functioncall"
    " כלי קריאה הפעלה"
)
_BESIDE: Final = words(
    "the a with and of to name names args arg arguments argument input inputs params parameters"
    " parameter json xml"
    " yaml python param id type start begin end finish assistant memory for כלי עם"
)
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+")
_TOKEN: Final = re.compile(r"[^\W\d][\w.\-]*")
_JSON_NAMES: Final = words("toolcall functioncall command method")
_ARGUMENTS: Final = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'(?:[^'\\]|\\.)*'|[\w\-]+[ \t]*=[ \t]*[^\s,;)\]}|>]*"
    r"|^[ \t]+(?:- )?[\w\-]{1,40}:(?!//)[^\n]*$|\b[\w\-]{1,40}:(?!//)[ \t]*[\w.\-\"]+",
    re.MULTILINE,
)
_HOLDS: Final = re.compile(r"[({\[]")
_DIRECT: Final = re.compile(r"\s?(?:\[[^\[\]\n]{0,300}\]|\([^()\n]{0,300}\))")
_FENCE: Final = re.compile(r"\A\s*[`~]{3,}\w*\s*|\s*[`~]{3,}\s*\Z")
_NOT_A_CALL: Final = re.compile(r"=\s*\Z|>>>\s*\Z")  # a value that is kept, a line of a session


def may_be_call_alone(begun: str) -> bool:
    """Whether an answer that begins so can still be nothing but a call."""
    if len(begun) > LONGEST_ALONE:
        return False
    at = begun.lstrip()[:1]
    if at in ("{", "["):
        return True
    for found in _TOKEN.finditer(begun):
        if found.end() == len(begun):
            return True  # the word may go on
        written = found[0].rstrip(".-")
        if _is_name(written):
            return True
        if not _is_vocabulary(written):
            return False
    return True


def is_call_alone(text: str) -> bool:
    """Whether this whole answer is nothing but a call."""
    if len(text) > LONGEST_ALONE or not may_be_call_alone(text):
        return False
    inner = _FENCE.sub("", text).strip()
    if inner.startswith(("{", "[")) and (value := json_value(inner)) is not None:
        return isinstance(value, dict) and _is_json_call(cast("Mapping[str, object]", value))
    name = next((found for found in _TOKEN.finditer(text) if _is_name(found[0].rstrip(".-"))), None)
    if name is None:
        return False
    lead, behind = text[: name.start()], text[name.start() + len(name[0].rstrip(".-")) :].lstrip("\"'")
    before = _TOKEN.findall(lead)
    said = any(map(_is_calling, before)) or (lead.strip() == "<" and behind.rstrip().endswith("/>"))
    if _NOT_A_CALL.search(lead) or not (said or _HOLDS.match(behind.lstrip())):
        return False
    left = _ARGUMENTS.sub(" ", _DIRECT.sub(" ", behind, count=1) if said else behind)
    return says_nothing(left)


def says_nothing(text: str) -> bool:
    """Whether a text has no word that is not one of tools and calls."""
    return all(_is_vocabulary(word) or _is_name(word) for word in _TOKEN.findall(text))


def _is_vocabulary(word: str) -> bool:
    parts = [part for part in re.split(r"[_.\-]+", word.casefold()) if part]
    return bool(parts) and all(part in _CALLING or part in _BESIDE for part in parts)


def _is_calling(word: str) -> bool:
    return any(part in _CALLING for part in re.split(r"[_.\-]+", word.casefold()))


def _is_name(word: str) -> bool:
    return _NAME.fullmatch(word) is not None and not _is_vocabulary(word)


def _is_json_call(value: Mapping[str, object]) -> bool:
    """`{"tool": "brew_tea", "cups": 2}`"""
    named = (
        item
        for key, item in value.items()
        if (is_name_key(plain_key(key)) and plain_key(key) != "name") or plain_key(key) in _JSON_NAMES
    )
    return any(isinstance(item, str) and _is_name(item) for item in named)
