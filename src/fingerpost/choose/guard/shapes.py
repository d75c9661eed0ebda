"""The shape of a call in JSON: which key holds the tool's name, which the arguments, which are company.

A value is a call only if every key is one that calls have. So a package file with a
`name`, a tool's definition with its `parameters`, or a log line about a call are data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from fingerpost.choose.guard.names import Names, distinctive, is_namespaced, names_action
from fingerpost.choose.guard.vocabulary import words
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, check_json

MOST_CALLS: Final = 32  # of one block
_DEEPEST: Final = 4  # wrappers within wrappers

_NAME_KEYS: Final = words(
    "name tool toolname function functionname func action recipientname recipient api apiname call"
    " toolid usetool selectedtool שם כלי שםהכלי פעולה פונקציה"
)
_VAGUE_NAME_KEYS: Final = words("action func api call recipient פעולה")  # events and logs have them, too
_SURE_ARGUMENT_KEYS: Final = words("actioninput toolinput toolargs toolarguments toolparameters actionargs")
_TOOL_NAME: Final = re.compile(r"[^\W\d][\w.\-/:]{1,120}")
_ARGUMENT_KEYS: Final = words(
    "arguments args parameters params param input inputs actioninput toolinput kwargs toolargs"
    " toolarguments functionargs functionarguments functionparameters toolparameters toolparams"
    " actionargs parameter ארגומנטים פרמטרים קלט קלטלפעולה"
)
_WRAPPERS: Final = words(
    "toolcalls toolcall functioncall functioncalls calls tooluses tooluse actions invoke toolrequest"
    " toolrequests message choices קריאות קריאהלכלי"
)
_COMPANY: Final = words(
    "id type index callid toolcallid thought thoughts reason reasoning rationale explanation server"
    " servername confidence jsonrpc method role content refusal plan remaining finishreason step"
    " stepnumber purpose mcpserver מזהה סוג מחשבה"
)
CALL_KEYS: Final = _NAME_KEYS | _ARGUMENT_KEYS | _WRAPPERS | _COMPANY
_ASKING_KEYS: Final = words("query question prompt task searchquery")  # what a record does not have
_IGNORED: Final = re.compile(r"[\W_]+")


@frozen
class Call:
    """A call as it was written."""

    written: str
    arguments: JsonObject | None
    keyworded: bool = True  # as program text: every value has its parameter's name
    explicit: bool = False  # as JSON: a tool's name, and an object that is nothing but its arguments
    doubtful: bool = False  # as JSON: the same, where the name may be that of a record


def is_name_key(plain: str) -> bool:
    return plain in _NAME_KEYS


def plain_key(key: str) -> str:
    return _IGNORED.sub("", key).casefold()


def calls_in(value: object, names: Names, *, depth: int = 0) -> tuple[Call, ...]:
    """The calls this JSON value is made of; nothing when it is not made of calls."""
    if depth > _DEEPEST:
        return ()
    if isinstance(value, list):
        return _calls_in_list(cast("Sequence[object]", value), names, depth)
    if not isinstance(value, dict) or not value:
        return ()
    entries = {plain_key(str(key)): item for key, item in cast("Mapping[object, object]", value).items()}
    if len(entries) == 1 and (only := _named_by_key(cast("Mapping[object, object]", value), names)):
        return (only,)
    if not entries.keys() <= CALL_KEYS:
        return ()
    return _wrapped(entries, names, depth) or _plainly(entries)


def _calls_in_list(values: Sequence[object], names: Names, depth: int) -> tuple[Call, ...]:
    if (
        len(values) == 2
        and isinstance(values[0], str)
        and isinstance(values[1], dict)
        and names.knows(values[0])
    ):
        return (Call(written=values[0], arguments=as_arguments(cast("object", values[1]))),)
    found: list[Call] = []
    for value in values[:MOST_CALLS]:
        calls = calls_in(value, names, depth=depth + 1)
        if not calls:
            return ()
        found.extend(calls)
    return tuple(found)


def _named_by_key(value: Mapping[object, object], names: Names) -> Call | None:
    """`{"get_weather": {"city": "Haifa"}}`"""
    ((key, item),) = value.items()
    if not isinstance(key, str) or not distinctive(key) or not isinstance(item, dict):
        return None
    arguments = as_arguments(cast("object", item))
    asks = arguments is not None and not _ASKING_KEYS.isdisjoint(map(plain_key, arguments))
    acts = names_action(key)
    if not names.knows(key) and (acts is False or plain_key(key) in CALL_KEYS):
        return None
    sure = is_namespaced(key) or acts is True or asks
    return Call(written=key, arguments=arguments, explicit=sure, doubtful=not sure)


def _wrapped(entries: Mapping[str, object], names: Names, depth: int) -> tuple[Call, ...]:
    for key, item in entries.items():
        inside = key in _WRAPPERS or (key in _NAME_KEYS and isinstance(item, dict))
        remote = key == "params" and entries.get("method") == "tools/call"
        if (inside or remote) and isinstance(item, dict | list):
            return calls_in(cast("object", item), names, depth=depth + 1)
    return ()


def _plainly(entries: Mapping[str, object]) -> tuple[Call, ...]:
    named = next((key for key in entries if key in _NAME_KEYS and isinstance(entries[key], str)), None)
    if named is None:
        return ()
    written = str(entries[named])
    given = next((key for key in entries if key in _ARGUMENT_KEYS), None)
    if given is None and not distinctive(written):
        return ()
    arguments: JsonObject | None = as_arguments(entries[given]) if given is not None else {}
    if arguments is None and not distinctive(written):
        return ()
    if arguments is not None and _is_schema(arguments):
        return ()
    whole = arguments is not None or given in _SURE_ARGUMENT_KEYS
    explicit = given is not None and whole and _TOOL_NAME.fullmatch(written) is not None
    sure = distinctive(written) or named not in _VAGUE_NAME_KEYS or given in _SURE_ARGUMENT_KEYS
    return (Call(written=written, arguments=arguments, explicit=explicit and sure),)


def as_arguments(value: object) -> JsonObject | None:
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


def _is_schema(arguments: JsonObject) -> bool:
    """The parameters of a definition, not the arguments of a call."""
    return isinstance(arguments.get("properties"), dict) or arguments.get("type") == "object"
