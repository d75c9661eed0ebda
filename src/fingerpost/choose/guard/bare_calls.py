"""An answer that is nothing but a call, in whatever syntax: `{{call brew_tea cups=2}}`, `RUN brew_tea {}`.

Which marks a model puts around a call cannot be foreseen; that there is nothing else can be seen. Every
word is one of tools and calls, the name of something that acts, or an argument. A sentence has other words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from fingerpost.choose.guard.reading import parse_json_value
from fingerpost.choose.guard.shapes import fold_key, is_name_key
from fingerpost.choose.guard.vocabulary import split_words

MAX_BARE_CALL_LENGTH: Final = 2_000
_CALLING_WORDS: Final = split_words(
    "tool tools function functions call calls calling called invoke invoking invocation use"
    " using uses run running"
    " execute executing request action api mcp plugin helper agent skill toolcall functioncall"
    " כלי קריאה הפעלה"
)
_NEUTRAL_CALL_WORDS: Final = split_words(
    "the a with and of to name names args arg arguments argument input inputs params parameters"
    " parameter json xml"
    " yaml python param id type start begin end finish assistant memory for כלי עם"
)
_BARE_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+")
_BARE_TOKEN: Final = re.compile(r"[^\W\d][\w.\-]*")
_JSON_NAME_FIELDS: Final = split_words("toolcall functioncall command method")
_ARGUMENT_PATTERN: Final = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'(?:[^'\\]|\\.)*'|[\w\-]+[ \t]*=[ \t]*[^\s,;)\]}|>]*"
    r"|^[ \t]+(?:- )?[\w\-]{1,40}:(?!//)[^\n]*$|\b[\w\-]{1,40}:(?!//)[ \t]*[\w.\-\"]+",
    re.MULTILINE,
)
_OPENING_BRACKET: Final = re.compile(r"[({\[]")
_DIRECT_CALL: Final = re.compile(r"\s?(?:\[[^\[\]\n]{0,300}\]|\([^()\n]{0,300}\))")
_CODE_FENCE: Final = re.compile(r"\A\s*[`~]{3,}\w*\s*|\s*[`~]{3,}\s*\Z")
_NOT_A_CALL_END: Final = re.compile(r"=\s*\Z|>>>\s*\Z")  # a value that is kept, a line of a session


def may_be_bare_call(text: str) -> bool:
    """Whether an answer that begins so can still be nothing but a call."""
    if len(text) > MAX_BARE_CALL_LENGTH:
        return False
    at = text.lstrip()[:1]
    if at in ("{", "["):
        return True
    for found in _BARE_TOKEN.finditer(text):
        if found.end() == len(text):
            return True  # the word may go on
        written = found[0].rstrip(".-")
        if _is_tool_like_name(written):
            return True
        if not _is_call_word(written):
            return False
    return True


def is_bare_call(text: str) -> bool:
    """Whether this whole answer is nothing but a call."""
    if len(text) > MAX_BARE_CALL_LENGTH or not may_be_bare_call(text):
        return False
    inner = _CODE_FENCE.sub("", text).strip()
    if inner.startswith(("{", "[")) and (value := parse_json_value(inner)) is not None:
        return isinstance(value, dict) and _is_json_call(cast("Mapping[str, object]", value))
    name = next(
        (found for found in _BARE_TOKEN.finditer(text) if _is_tool_like_name(found[0].rstrip(".-"))), None
    )
    if name is None:
        return False
    lead, behind = text[: name.start()], text[name.start() + len(name[0].rstrip(".-")) :].lstrip("\"'")
    before = _BARE_TOKEN.findall(lead)
    said = any(map(_is_calling_word, before)) or (lead.strip() == "<" and behind.rstrip().endswith("/>"))
    if _NOT_A_CALL_END.search(lead) or not (said or _OPENING_BRACKET.match(behind.lstrip())):
        return False
    left = _ARGUMENT_PATTERN.sub(" ", _DIRECT_CALL.sub(" ", behind, count=1) if said else behind)
    return has_only_call_words(left)


def has_only_call_words(text: str) -> bool:
    """Whether a text has no word that is not one of tools and calls."""
    return all(_is_call_word(word) or _is_tool_like_name(word) for word in _BARE_TOKEN.findall(text))


def _is_call_word(word: str) -> bool:
    parts = [part for part in re.split(r"[_.\-]+", word.casefold()) if part]
    return bool(parts) and all(part in _CALLING_WORDS or part in _NEUTRAL_CALL_WORDS for part in parts)


def _is_calling_word(word: str) -> bool:
    return any(part in _CALLING_WORDS for part in re.split(r"[_.\-]+", word.casefold()))


def _is_tool_like_name(word: str) -> bool:
    return _BARE_NAME.fullmatch(word) is not None and not _is_call_word(word)


def _is_json_call(value: Mapping[str, object]) -> bool:
    """`{"tool": "brew_tea", "cups": 2}`"""
    named = (
        item
        for key, item in value.items()
        if (is_name_key(fold_key(key)) and fold_key(key) != "name") or fold_key(key) in _JSON_NAME_FIELDS
    )
    return any(isinstance(item, str) and _is_tool_like_name(item) for item in named)
