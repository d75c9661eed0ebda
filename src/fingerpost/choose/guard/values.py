"""Calls that are written without any marker: JSON, lists of calls, words in square brackets.

JSON is everywhere in answers, so it is a call only if it has a call's shape and names a
real tool. What cannot become one any more is let go at once, not held until its end.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.brackets import find_value_end
from fingerpost.choose.guard.modes import UntilCloser
from fingerpost.choose.guard.names import WrittenToolNames, is_distinctive, is_tool_like
from fingerpost.choose.guard.reading import parse_json_value
from fingerpost.choose.guard.shapes import CALL_KEYS, find_calls, fold_key, is_name_key
from fingerpost.choose.guard.verdicts import WAIT_FOR_MORE, HideUntil, ScanPosition, ScanVerdict, ShowUntil
from fingerpost.records import JsonObject

_MAX_JSON_HEAD_LENGTH: Final = 400
_NO_NAMES: Final = WrittenToolNames(())
_PLAIN_NAME: Final = re.compile(r"[^\W\d][\w.\-/:]{1,120}")
_TRUNCATED_CALL: Final = re.compile(
    r"\s*\[?\s*\{\s*[\"'](?:name|tool|tool_name|function|recipient_name)[\"']\s*:\s*[\"'][^\W\d][\w.\-/:]{1,120}[\"']"
    r"\s*,\s*[\"'](?:arguments|parameters|args|params|input|tool_input)[\"']\s*:\s*(?:[\"']?\{|\Z)",
    re.IGNORECASE,
)
MAX_SEARCHED_LENGTH: Final = 4_000  # characters of a value without an end in which a name is looked for
_JSON_KEY: Final = re.compile(r"[\s\[]{0,200}\{\s{0,200}([\"']?)([^\W\d][\w \-./]{0,60})\1\s{0,20}:")
_JSON_KEY_START: Final = re.compile(
    r"[\s\[]{0,200}(?:\{\s{0,200}(?:[\"']?(?:[^\W\d][\w \-./]{0,60})?[\"']?\s{0,20})?)?\Z"
)
_JSON_NAME_VALUE: Final = re.compile(r"\s{0,40}([\"'])([^\"'\\\n]{0,160})\1")
_JSON_NAME_VALUE_START: Final = re.compile(r"\s{0,40}(?:[\"'][^\"'\\\n]{0,160})?\Z")
_UNQUOTED_NAME: Final = re.compile(
    r"[\"']?(?:name|tool|tool_name|function|function_name|action|recipient_name|toolname|שם"
    r"|כלי)[\"']?\s{0,10}:\s{0,10}"
    r"[\"']([^\"'\n]{1,160})(?:[\"']|\Z)",
    re.IGNORECASE,
)


def examine_brace(position: ScanPosition) -> ScanVerdict:
    """What the `{` at this place begins."""
    if position.text.startswith("{{{", position.at):
        return ShowUntil(position.find_last_two("{"))
    if position.text.startswith("{{", position.at):
        return _examine_template(position)
    return examine_json(position)


def examine_json(position: ScanPosition) -> ScanVerdict:
    """An object or a list of objects, as far as it can still be a call."""
    head = position.text[position.at : position.at + _MAX_JSON_HEAD_LENGTH]
    possible = may_be_call_head(head, position.names, allow_unknown=True)
    if possible is None and not _is_over_limit(position):
        return WAIT_FOR_MORE
    unknown = possible is not False and position.accepts_unknown_tools
    if possible is False or (
        not unknown and may_be_call_head(head, position.names, allow_unknown=False) is False
    ):
        return ShowUntil(position.at + 1)
    end = find_value_end(position.text[position.at : position.limit], 0)
    if end is None and not position.is_closed:
        return WAIT_FOR_MORE
    value = position.text[position.at : position.at + end if end is not None else position.limit]
    call = is_real_tool_call(value, position.names) and not (position.is_about_syntax and position.line)
    if not call and unknown and has_call_shape(value, position.request):
        alone = is_line_end(position, position.at + len(value))
        if alone is None:
            return WAIT_FOR_MORE
        call = alone
    if call:
        return HideUntil(
            position.at + len(value), "json", None if end is not None else UntilCloser(_NEVER_MATCHES)
        )
    return ShowUntil(
        position.at + 1,
        values_checked_to=position.at + (len(value) if end is not None else MAX_SEARCHED_LENGTH),
    )


_NEVER_MATCHES: Final = re.compile(r"(?!)")


def is_line_end(position: ScanPosition, end: int) -> bool | None:
    """Whether nothing follows in the line: a sentence that goes on speaks of what it holds."
    " None: not known yet."""
    behind, complete = position.look_ahead(end, 40)
    line, newline, _ = behind.partition("\n")
    if line.strip(" \t,;.`*_)]"):
        return False
    return True if newline or complete else None


def _is_over_limit(position: ScanPosition) -> bool:
    return position.final or len(position.text) - position.at >= _MAX_JSON_HEAD_LENGTH


def may_be_call_head(head: str, names: WrittenToolNames, *, allow_unknown: bool) -> bool | None:
    """Whether JSON that begins so can be a call; None: too little of it has come.

    `unknown`: also of a tool that is not known.
    """
    key = _JSON_KEY.match(head)
    if key is None:
        return None if _JSON_KEY_START.match(head) else False
    plain = fold_key(key[2])
    if plain not in CALL_KEYS:
        return is_distinctive(key[2]) and (names.is_known(key[2]) or (allow_unknown and is_tool_like(key[2])))
    if not is_name_key(plain):
        return True
    value = _JSON_NAME_VALUE.match(head, key.end())
    if value is not None:
        return names.is_known(value[2]) or (allow_unknown and _PLAIN_NAME.fullmatch(value[2]) is not None)
    if _JSON_NAME_VALUE_START.match(head, key.end()):
        return None
    return head[key.end() :].lstrip().startswith("{")


def has_call_shape(text: str, request: str) -> bool:
    """Whether this is a name and arguments and nothing else, in whole or broken off, whatever the name."""
    value = parse_json_value(text)
    if value is not None:
        calls = find_calls(value, _NO_NAMES)
        return bool(calls) and all(
            call.is_explicit or (call.is_doubtful and _repeats_request(call.arguments or {}, request))
            for call in calls
        )
    return _TRUNCATED_CALL.match(text) is not None


def _repeats_request(arguments: JsonObject, request: str) -> bool:
    """Whether every value is taken from the request: those of a call are, a record says something new."""
    asked = request.casefold()
    values = [re.findall(r"\w{2,}", str(value).casefold()) for value in arguments.values()]
    return bool(values) and all(any(word in asked for word in words) for words in values)


def is_real_tool_call(text: str, names: WrittenToolNames) -> bool:
    """Whether this is a call of a real tool, in whole or broken off."""
    value = parse_json_value(text)
    if value is not None:
        return any(names.is_known(call.name) for call in find_calls(value, names))
    written = _UNQUOTED_NAME.search(text[:MAX_SEARCHED_LENGTH])
    if written is None:
        return False
    whole = text.rstrip().endswith(("}", "]"))
    keys = {
        fold_key(found)
        for found in re.findall(r"[\"']?\b(\w{1,40})[\"']?\s{0,10}:", text[:_MAX_JSON_HEAD_LENGTH])
    }
    if names.is_known(written[1]):
        return bool(keys & CALL_KEYS) if not whole else bool(keys & CALL_KEYS - {"name"})
    return not whole and len(written[1]) > 3 and written.end() == len(text) and names.is_prefix(written[1])


def _examine_template(position: ScanPosition) -> ScanVerdict:
    """`{{get_weather(city="Haifa")}}`, `{{tool: get_weather}}`"""
    rest, complete = position.look_ahead(position.at, _MAX_JSON_HEAD_LENGTH)
    found = re.match(
        r"\{\{\s{0,9}(?:(?:tool|function|call"
        r"|tool_call)\s{0,3}[:|]?\s{0,3})?([\w.\-/]{2,120})\s{0,9}([(:|}{]|\Z)",
        rest,
    )
    if not complete and re.match(r"\{\{[\s\w.\-/:|]{0,160}\Z", rest):
        return WAIT_FOR_MORE
    if found is None:
        return ShowUntil(position.at + 1)
    closing = rest.find("}}")
    if closing < 0 and not complete:
        return WAIT_FOR_MORE
    if (
        closing > 0
        and (position.names.is_known(found[1]) or (position.accepts_unknown_tools and is_tool_like(found[1])))
        and is_distinctive(found[1])
        and found[2] != "}"
        and not position.is_about_syntax
    ):
        return HideUntil(position.at + closing + 2, "marker")
    return ShowUntil(position.at + 1)
