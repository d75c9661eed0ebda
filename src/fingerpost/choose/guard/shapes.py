"""The shape of a call in JSON: which key holds the tool's name, which the arguments, which are company.

A value is a call only if every key is one that calls have. So a package file with a
`name`, a tool's definition with its `parameters`, or a log line about a call are data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from fingerpost.choose.guard.names import WrittenToolNames, has_action_name, is_distinctive, is_namespaced
from fingerpost.choose.guard.vocabulary import split_words
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, check_json

MAX_CALLS: Final = 32  # of one block
_MAX_NESTING: Final = 4  # wrappers within wrappers

_TOOL_NAME_KEYS: Final = split_words(
    "name tool toolname function functionname func action recipientname recipient api apiname call"
    " toolid usetool selectedtool שם כלי שםהכלי פעולה פונקציה"
)
_VAGUE_NAME_KEYS: Final = split_words(
    "action func api call recipient פעולה"
)  # events and logs have them, too
_SURE_ARGUMENT_KEYS: Final = split_words(
    "actioninput toolinput toolargs toolarguments toolparameters actionargs"
)
_TOOL_NAME: Final = re.compile(r"[^\W\d][\w.\-/:]{1,120}")
_ARGUMENT_KEYS: Final = split_words(
    "arguments args parameters params param input inputs actioninput toolinput kwargs toolargs"
    " toolarguments functionargs functionarguments functionparameters toolparameters toolparams"
    " actionargs parameter ארגומנטים פרמטרים קלט קלטלפעולה"
)
_WRAPPER_KEYS: Final = split_words(
    "toolcalls toolcall functioncall functioncalls calls tooluses tooluse actions invoke toolrequest"
    " toolrequests message choices קריאות קריאהלכלי"
)
_ACCOMPANYING_KEYS: Final = split_words(
    "id type index callid toolcallid thought thoughts reason reasoning rationale explanation server"
    " servername confidence jsonrpc method role content refusal plan remaining finishreason step"
    " stepnumber purpose mcpserver מזהה סוג מחשבה"
)
CALL_KEYS: Final = _TOOL_NAME_KEYS | _ARGUMENT_KEYS | _WRAPPER_KEYS | _ACCOMPANYING_KEYS
_REQUEST_KEYS: Final = split_words("query question prompt task searchquery")  # what a record does not have
_IGNORED_KEY_CHARACTERS: Final = re.compile(r"[\W_]+")


@frozen
class WrittenCall:
    """A call as it was written."""

    name: str
    arguments: JsonObject | None
    has_keywords: bool = True  # as program text: every value has its parameter's name
    is_explicit: bool = False  # as JSON: a tool's name, and an object that is nothing but its arguments
    is_doubtful: bool = False  # as JSON: the same, where the name may be that of a record


def is_name_key(plain: str) -> bool:
    return plain in _TOOL_NAME_KEYS


def fold_key(key: str) -> str:
    return _IGNORED_KEY_CHARACTERS.sub("", key).casefold()


def find_calls(value: object, names: WrittenToolNames, *, depth: int = 0) -> tuple[WrittenCall, ...]:
    """The calls this JSON value is made of; nothing when it is not made of calls."""
    if depth > _MAX_NESTING:
        return ()
    if isinstance(value, list):
        return _find_calls_in_list(cast("Sequence[object]", value), names, depth)
    if not isinstance(value, dict) or not value:
        return ()
    entries = {fold_key(str(key)): item for key, item in cast("Mapping[object, object]", value).items()}
    if len(entries) == 1 and (
        only := _parse_call_named_by_key(cast("Mapping[object, object]", value), names)
    ):
        return (only,)
    if not entries.keys() <= CALL_KEYS:
        return ()
    return _find_wrapped_calls(entries, names, depth) or _parse_plain_call(entries)


def _find_calls_in_list(
    values: Sequence[object], names: WrittenToolNames, depth: int
) -> tuple[WrittenCall, ...]:
    if (
        len(values) == 2
        and isinstance(values[0], str)
        and isinstance(values[1], dict)
        and names.is_known(values[0])
    ):
        return (WrittenCall(name=values[0], arguments=parse_json_arguments(cast("object", values[1]))),)
    found: list[WrittenCall] = []
    for value in values[:MAX_CALLS]:
        calls = find_calls(value, names, depth=depth + 1)
        if not calls:
            return ()
        found.extend(calls)
    return tuple(found)


def _parse_call_named_by_key(value: Mapping[object, object], names: WrittenToolNames) -> WrittenCall | None:
    """`{"get_weather": {"city": "Haifa"}}`"""
    ((key, item),) = value.items()
    if not isinstance(key, str) or not is_distinctive(key) or not isinstance(item, dict):
        return None
    arguments = parse_json_arguments(cast("object", item))
    asks = arguments is not None and not _REQUEST_KEYS.isdisjoint(map(fold_key, arguments))
    acts = has_action_name(key)
    if not names.is_known(key) and (acts is False or fold_key(key) in CALL_KEYS):
        return None
    sure = is_namespaced(key) or acts is True or asks
    return WrittenCall(name=key, arguments=arguments, is_explicit=sure, is_doubtful=not sure)


def _find_wrapped_calls(
    entries: Mapping[str, object], names: WrittenToolNames, depth: int
) -> tuple[WrittenCall, ...]:
    for key, item in entries.items():
        inside = key in _WRAPPER_KEYS or (key in _TOOL_NAME_KEYS and isinstance(item, dict))
        remote = key == "params" and entries.get("method") == "tools/call"
        if (inside or remote) and isinstance(item, dict | list):
            return find_calls(cast("object", item), names, depth=depth + 1)
    return ()


def _parse_plain_call(entries: Mapping[str, object]) -> tuple[WrittenCall, ...]:
    named = next((key for key in entries if key in _TOOL_NAME_KEYS and isinstance(entries[key], str)), None)
    if named is None:
        return ()
    written = str(entries[named])
    given = next((key for key in entries if key in _ARGUMENT_KEYS), None)
    if given is None and not is_distinctive(written):
        return ()
    arguments: JsonObject | None = parse_json_arguments(entries[given]) if given is not None else {}
    if arguments is None and not is_distinctive(written):
        return ()
    if arguments is not None and _is_parameter_schema(arguments):
        return ()
    whole = arguments is not None or given in _SURE_ARGUMENT_KEYS
    explicit = given is not None and whole and _TOOL_NAME.fullmatch(written) is not None
    sure = is_distinctive(written) or named not in _VAGUE_NAME_KEYS or given in _SURE_ARGUMENT_KEYS
    return (WrittenCall(name=written, arguments=arguments, is_explicit=explicit and sure),)


def parse_json_arguments(value: object) -> JsonObject | None:
    """Arguments, also when they are JSON in a string; None when they are neither."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if value is None:
        return {}
    if not isinstance(value, dict) or check_json(cast("object", value)) is not None:
        return None
    return cast("dict[str, Json]", value)


def _is_parameter_schema(arguments: JsonObject) -> bool:
    """The parameters of a definition, not the arguments of a call."""
    return isinstance(arguments.get("properties"), dict) or arguments.get("type") == "object"
