"""Calls that are written without any marker: JSON, lists of calls, words in square brackets.

JSON is everywhere in answers, so it is a call only if it has a call's shape and names a
real tool. What cannot become one any more is let go at once, not held until its end.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.brackets import value_end
from fingerpost.choose.guard.modes import Until
from fingerpost.choose.guard.names import Names, distinctive, is_invented
from fingerpost.choose.guard.reading import json_value
from fingerpost.choose.guard.shapes import CALL_KEYS, calls_in, is_name_key, plain_key
from fingerpost.choose.guard.verdicts import WAIT, Hide, Place, Show, Verdict
from fingerpost.records import JsonObject

_LONGEST_HEAD: Final = 400
_NO_NAMES: Final = Names(())
_NAME_ONLY: Final = re.compile(r"[^\W\d][\w.\-/:]{1,120}")
_CUT_CALL: Final = re.compile(
    r"\s*\[?\s*\{\s*[\"'](?:name|tool|tool_name|function|recipient_name)[\"']\s*:\s*[\"'][^\W\d][\w.\-/:]{1,120}[\"']"
    r"\s*,\s*[\"'](?:arguments|parameters|args|params|input|tool_input)[\"']\s*:\s*(?:[\"']?\{|\Z)",
    re.IGNORECASE,
)
SEARCHED: Final = 4_000  # characters of a value without an end in which a name is looked for
_KEY: Final = re.compile(r"[\s\[]{0,200}\{\s{0,200}([\"']?)([^\W\d][\w \-./]{0,60})\1\s{0,20}:")
_KEY_BEGUN: Final = re.compile(
    r"[\s\[]{0,200}(?:\{\s{0,200}(?:[\"']?(?:[^\W\d][\w \-./]{0,60})?[\"']?\s{0,20})?)?\Z"
)
_NAME_VALUE: Final = re.compile(r"\s{0,40}([\"'])([^\"'\\\n]{0,160})\1")
_NAME_VALUE_BEGUN: Final = re.compile(r"\s{0,40}(?:[\"'][^\"'\\\n]{0,160})?\Z")
_LOOSE_NAME: Final = re.compile(
    r"[\"']?(?:name|tool|tool_name|function|function_name|action|recipient_name|toolname|שם"
    r"|כלי)[\"']?\s{0,10}:\s{0,10}"
    r"[\"']([^\"'\n]{1,160})(?:[\"']|\Z)",
    re.IGNORECASE,
)


def examine_brace(place: Place) -> Verdict:
    """What the `{` at this place begins."""
    if place.text.startswith("{{{", place.at):
        return Show(place.last_two("{"))
    if place.text.startswith("{{", place.at):
        return _template(place)
    return examine_json(place)


def examine_json(place: Place) -> Verdict:
    """An object or a list of objects, as far as it can still be a call."""
    head = place.text[place.at : place.at + _LONGEST_HEAD]
    possible = call_head(head, place.names, unknown=True)
    if possible is None and not _over(place):
        return WAIT
    unknown = possible is not False and place.takes_unknown
    if possible is False or (not unknown and call_head(head, place.names, unknown=False) is False):
        return Show(place.at + 1)
    end = value_end(place.text[place.at : place.limit], 0)
    if end is None and not place.closed:
        return WAIT
    value = place.text[place.at : place.at + end if end is not None else place.limit]
    call = names_real_tool(value, place.names) and not (place.about and place.line)
    if not call and unknown and has_call_shape(value, place.request):
        alone = ends_line(place, place.at + len(value))
        if alone is None:
            return WAIT
        call = alone
    if call:
        return Hide(place.at + len(value), "json", None if end is not None else Until(_NEVER))
    return Show(place.at + 1, blind=place.at + (len(value) if end is not None else SEARCHED))


_NEVER: Final = re.compile(r"(?!)")


def ends_line(place: Place, end: int) -> bool | None:
    """Whether nothing follows in the line: a sentence that goes on speaks of what it holds."
    " None: not known yet."""
    behind, complete = place.ahead(end, 40)
    line, newline, _ = behind.partition("\n")
    if line.strip(" \t,;.`*_)]"):
        return False
    return True if newline or complete else None


def _over(place: Place) -> bool:
    return place.final or len(place.text) - place.at >= _LONGEST_HEAD


def call_head(head: str, names: Names, *, unknown: bool) -> bool | None:
    """Whether JSON that begins so can be a call; None: too little of it has come.

    `unknown`: also of a tool that is not known.
    """
    key = _KEY.match(head)
    if key is None:
        return None if _KEY_BEGUN.match(head) else False
    plain = plain_key(key[2])
    if plain not in CALL_KEYS:
        return distinctive(key[2]) and (names.knows(key[2]) or (unknown and is_invented(key[2])))
    if not is_name_key(plain):
        return True
    value = _NAME_VALUE.match(head, key.end())
    if value is not None:
        return names.knows(value[2]) or (unknown and _NAME_ONLY.fullmatch(value[2]) is not None)
    if _NAME_VALUE_BEGUN.match(head, key.end()):
        return None
    return head[key.end() :].lstrip().startswith("{")


def has_call_shape(text: str, request: str) -> bool:
    """Whether this is a name and arguments and nothing else, in whole or broken off, whatever the name."""
    value = json_value(text)
    if value is not None:
        calls = calls_in(value, _NO_NAMES)
        return bool(calls) and all(
            call.explicit or (call.doubtful and _repeats(call.arguments or {}, request)) for call in calls
        )
    return _CUT_CALL.match(text) is not None


def _repeats(arguments: JsonObject, request: str) -> bool:
    """Whether every value is taken from the request: those of a call are, a record says something new."""
    asked = request.casefold()
    values = [re.findall(r"\w{2,}", str(value).casefold()) for value in arguments.values()]
    return bool(values) and all(any(word in asked for word in words) for words in values)


def names_real_tool(text: str, names: Names) -> bool:
    """Whether this is a call of a real tool, in whole or broken off."""
    value = json_value(text)
    if value is not None:
        return any(names.knows(call.written) for call in calls_in(value, names))
    written = _LOOSE_NAME.search(text[:SEARCHED])
    if written is None:
        return False
    whole = text.rstrip().endswith(("}", "]"))
    keys = {
        plain_key(found) for found in re.findall(r"[\"']?\b(\w{1,40})[\"']?\s{0,10}:", text[:_LONGEST_HEAD])
    }
    if names.knows(written[1]):
        return bool(keys & CALL_KEYS) if not whole else bool(keys & CALL_KEYS - {"name"})
    return not whole and len(written[1]) > 3 and written.end() == len(text) and names.begins(written[1])


def _template(place: Place) -> Verdict:
    """`{{get_weather(city="Haifa")}}`, `{{tool: get_weather}}`"""
    rest, complete = place.ahead(place.at, _LONGEST_HEAD)
    found = re.match(
        r"\{\{\s{0,9}(?:(?:tool|function|call"
        r"|tool_call)\s{0,3}[:|]?\s{0,3})?([\w.\-/]{2,120})\s{0,9}([(:|}{]|\Z)",
        rest,
    )
    if not complete and re.match(r"\{\{[\s\w.\-/:|]{0,160}\Z", rest):
        return WAIT
    if found is None:
        return Show(place.at + 1)
    closing = rest.find("}}")
    if closing < 0 and not complete:
        return WAIT
    if (
        closing > 0
        and (place.names.knows(found[1]) or (place.takes_unknown and is_invented(found[1])))
        and distinctive(found[1])
        and found[2] != "}"
        and not place.about
    ):
        return Hide(place.at + closing + 2, "marker")
    return Show(place.at + 1)
