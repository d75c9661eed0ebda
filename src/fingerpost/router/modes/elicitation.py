"""Questions that tools ask during a call, and parsing of a person's free-text answer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from fingerpost.call.execution import is_input_required
from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.words import parse_word_set
from fingerpost.records import (
    AskingCall,
    ErrorKind,
    Json,
    JsonObject,
    MissingArgument,
    Outcome,
    Question,
    Selection,
    to_valid_text,
)
from fingerpost.redaction import scrub
from fingerpost.schemas import get_properties, get_required, is_object

MAX_ANSWER_LENGTH: Final = 20_000
MAX_FIELDS: Final = 50
_YES: Final = parse_word_set(
    "yes y yep yeah ok okay sure approve approved agreed true go ja oui si sí sim כן בטח אישור"
)
_NO: Final = parse_word_set(
    "no n nope reject rejected deny denied never false stop cancel nein non não לא ביטול"
)
_FIRST_WORD: Final = re.compile(r"\W{0,5}(\w{1,40})\b[\s.,;:!–—-]{0,10}")
_NAMED: Final = re.compile(r"^[^\S\n]{0,10}(\w[\w -]{0,60}?)[^\S\n]{0,5}[:=](.{0,20000})$", re.MULTILINE)
_UNPARSED: Final = object()


def parse_answer(schema: JsonObject, reply: str) -> dict[str, Json] | None:
    """Return the answer to a question with this schema, or None if the text does not contain one."""
    text = reply.strip()[:MAX_ANSWER_LENGTH]
    fields = _read_fields(schema)
    if not text or not fields:
        return None
    answer = _parse_object(text, fields) or _parse_lines(text, fields) or _parse_single(text, fields)
    return answer if answer and all(name in answer for name in get_required(schema)) else None


def get_options(schema: JsonObject) -> tuple[str, ...]:
    """Return the allowed values of the first field if it is restricted to some."""
    first = next(iter(_read_fields(schema).values()), None)
    return () if first is None else tuple(_read_options(first))


def _read_fields(schema: JsonObject) -> dict[str, JsonObject]:
    known = [(name, field) for name, field in get_properties(schema).items() if is_object(field)]
    return dict(known[:MAX_FIELDS])


def _parse_object(text: str, fields: Mapping[str, JsonObject]) -> dict[str, Json] | None:
    """Parse an answer that is a JSON object."""
    if not text.startswith("{"):
        return None
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _convert_values(cast("dict[str, Json]", given), fields) if isinstance(given, dict) else None


def _parse_lines(text: str, fields: Mapping[str, JsonObject]) -> dict[str, Json] | None:
    """Parse an answer with one `name: value` per line."""
    names = {name.casefold(): name for name in fields}
    written = [(found[1].strip().casefold(), found[2].strip()) for found in _NAMED.finditer(text)]
    return _convert_values({names[name]: value for name, value in written if name in names}, fields)


def _convert_values(given: Mapping[str, Json], fields: Mapping[str, JsonObject]) -> dict[str, Json] | None:
    """Convert each value to its field's type. Return None if one does not fit or there are none."""
    made = {name: _convert_value(value, fields[name]) for name, value in given.items() if name in fields}
    if not made or any(value is _UNPARSED for value in made.values()):
        return None
    return cast("dict[str, Json]", made)


def _parse_single(text: str, fields: Mapping[str, JsonObject]) -> dict[str, Json]:
    """Use the whole answer for the first field. Text that remains or does not fit goes to a text field."""
    (name, field), *others = fields.items()
    spare = next((other for other, schema in others if _accepts_text(schema)), None)
    if field.get("type") == "boolean":
        verdict, rest = _parse_yes_no(text)
        answer: dict[str, Json] = {} if verdict is None else {name: verdict}
        return {**answer, spare: rest} if spare is not None and rest else answer
    value = _convert_value(text, field)
    if value is not _UNPARSED:
        return {name: cast("Json", value)}
    return {} if spare is None else {spare: text}


def _accepts_text(field: JsonObject) -> bool:
    return field.get("type") == "string" and not _read_options(field)


def _parse_yes_no(text: str) -> tuple[bool | None, str]:
    """Return yes or no by the first word, and the remaining text."""
    found = _FIRST_WORD.match(text)
    word = "" if found is None else found[1].casefold()
    if found is None or word not in _YES | _NO:
        return None, text
    return word in _YES, text[found.end() :].strip()


def _convert_value(value: Json, field: JsonObject) -> object:
    """Convert a value to the field's type. Return `_UNPARSED` if it does not fit."""
    kind = field.get("type")
    if kind == "boolean":
        return value if isinstance(value, bool) else _parse_boolean(value)
    if kind in ("integer", "number"):
        return _parse_number(value, whole=kind == "integer")
    if not isinstance(value, str):
        return _UNPARSED
    options = _read_options(field)
    return _find_option(value, options) if options else value


def _parse_boolean(value: Json) -> object:
    word = value.strip().strip(".!").casefold() if isinstance(value, str) else ""
    return True if word in _YES else False if word in _NO else _UNPARSED


def _parse_number(value: Json, *, whole: bool) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return _UNPARSED
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return _UNPARSED
    if not math.isfinite(number) or (whole and not number.is_integer()):
        return _UNPARSED
    return int(number) if whole else number


def _read_options(field: JsonObject) -> dict[str, str]:
    """Return the field's options as display text mapped to value."""
    enum, choices = field.get("enum"), field.get("oneOf")
    if isinstance(enum, list | tuple):
        return {value: value for value in cast("Sequence[Json]", enum) if isinstance(value, str)}
    if not isinstance(choices, list | tuple):
        return {}
    made: dict[str, str] = {}
    for choice in cast("Sequence[Json]", choices):
        if isinstance(choice, Mapping) and isinstance(value := choice.get("const"), str):
            title = choice.get("title")
            made[title if isinstance(title, str) else value] = value
    return made


def _find_option(text: str, options: Mapping[str, str]) -> object:
    """Find an option by its text, ignoring case, or by its number."""
    word = text.strip().strip("\"'`“”.!").casefold()
    for title, value in options.items():
        if word in (title.casefold(), value.casefold()):
            return value
    if word.isdecimal() and 1 <= int(word[:4]) <= len(options):
        return [*options.values()][int(word[:4]) - 1]
    return _UNPARSED


MAX_QUESTION_LENGTH: Final = 4_000
MAX_OPTIONS: Final = 20
ONE_QUESTION_NOTE: Final = "It was not asked: another question goes first. Ask it again afterwards."


def is_question(outcome: Outcome) -> bool:
    """Return whether the call needs an answer from the person to continue."""
    return outcome.success and outcome.result is not None and is_input_required(outcome.result)


def is_waiting(outcome: Outcome) -> bool:
    """Return whether the run waits for an approval or an answer."""
    return outcome.pending_id is not None or is_question(outcome)


def refuse_if_unanswerable(outcome: Outcome) -> Outcome:
    """Return the outcome, as failed if its tool asks what a person cannot answer in text."""
    if not is_question(outcome) or _read_request(outcome) is not None:
        return outcome
    return refuse_question(outcome, f"{outcome.tool} asks a question that cannot be answered in text")


def refuse_question(outcome: Outcome, reason: str = ONE_QUESTION_NOTE) -> Outcome:
    """Return the call as failed because its question was not asked."""
    error = ErrorKind.OPERATION_NOT_SUPPORTED
    return replace(outcome, success=False, content=reason, error=error, result=None, detail=reason)


def build_question(outcome: Outcome, selection: Selection, conversation: str | None) -> Question:
    """Build the question for the person, with everything needed to continue the call."""
    found = _read_request(outcome)
    assert found is not None
    name, params = found
    schema = cast("JsonObject", params["requestedSchema"])
    options = get_options(schema)[:MAX_OPTIONS]
    lines = [_sanitize(str(params["message"]))]
    lines += [f"{number}. {_sanitize(option)}" for number, option in enumerate(options, start=1)]
    state = None if outcome.result is None else outcome.result.get("requestState")
    return Question(
        text="\n".join(lines),
        tool=outcome.tool,
        missing=(MissingArgument(name="answer", options=options),),
        call=AskingCall(
            call_id=outcome.call_id,
            arguments=selection.arguments,
            name=name,
            schema=schema,
            state=state if isinstance(state, str) else None,
            conversation=conversation,
        ),
    )


def _read_request(outcome: Outcome) -> tuple[str, Mapping[str, Json]] | None:
    """Return the only question of the round if a person can answer it in text."""
    asked = (outcome.result or {}).get("inputRequests")
    if not isinstance(asked, Mapping) or len(asked) != 1:
        return None
    ((name, request),) = asked.items()
    params = request.get("params") if isinstance(request, Mapping) else None
    if not isinstance(request, Mapping) or request.get("method") != "elicitation/create":
        return None
    fits = isinstance(params, Mapping) and isinstance(params.get("requestedSchema"), Mapping)
    fits = fits and "message" in cast("JsonObject", params)
    return (name, cast("JsonObject", params)) if fits else None


def _sanitize(text: str) -> str:
    """Mask secrets in a server's text and make invisible characters visible."""
    return escape_invisible_except(scrub(to_valid_text(text[:MAX_QUESTION_LENGTH])).strip(), keep="\n\t\\")
