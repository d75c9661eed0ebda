"""Values the request gives by name: `limit=5`, `subject "Lunch"`, "a branch called dev-2"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from fingerpost.catalog.words import parse_word_set, split_words
from fingerpost.choose.certain.fits import convert_value
from fingerpost.choose.certain.measures import parse_bare_number
from fingerpost.choose.certain.slots import ParameterSlot
from fingerpost.choose.certain.taking import AssignedArgument, FillState
from fingerpost.choose.certain.values import RequestValue, ValueKind
from fingerpost.records import Json

_NAME_ENDINGS: Final = parse_word_set("name id number key line")  # "table 'users'" names `table_name`
_QUOTED = re.compile(r"\"([^\"\n]{1,1000})\"|'([^'\n]{1,1000})'|`([^`\n]{1,1000})`")
_VALUE_TOKEN = re.compile(r"[^\s,;\"'`]{1,300}")
_LINE_REST = re.compile(r"[^\n]{1,2000}")
_NEXT_PAIR = re.compile(r"[,;]? \w{2,30} ?[:=]")
_BETWEEN_NAME_AND_VALUE = re.compile(r"\s{0,2}(?:(?:is|of|to|the|as|:|=)\s{1,2}){0,2}[\"'`“‘«„]?$")
_CALLED_PATTERN: Final = r"(?:called|named|בשם) [\"'`]?([^\s,;\"'`?!]{1,100})"
_IDENTIFIER = re.compile(r"[A-Za-z]\w{0,60}(?:_\w{1,60}|[a-z][A-Z]\w{0,60})")
_BOOLEAN_WORDS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_HEBREW_NOUNS: Final = {
    "branch": "ענף",
    "table": "טבלה",
    "file": "קובץ",
    "directory": "תיקייה",
    "folder": "תיקייה",
    "user": "משתמש",
    "repo": "מאגר",
}
_SECRET_WORDS: Final = re.compile(
    r"(?:password|passwd|passphrase|secret|token|api[ _-]?key|pin|סיסמה|סיסמא)(?: is|:|=)? ?[\"'`]?",
    re.IGNORECASE,
)


def reserve_secrets(state: FillState) -> None:
    """What follows a word like "password" is nobody's argument."""
    for match in _SECRET_WORDS.finditer(state.text):
        if word := _VALUE_TOKEN.match(state.text, match.end()):
            state.reserved_spans.append((match.end(), word.end()))


def assign_named(state: FillState) -> None:
    """Every parameter the request names together with its value."""
    for slot in state.get_open_slots():
        found = [
            *_find_pairs(slot, state),
            *_find_adjacent_values(slot, state),
            *_find_called_values(slot, state),
        ]
        chosen = {repr(taken.argument): taken for taken in found}
        if len(chosen) == 1:
            state.assign(slot, next(iter(chosen.values())))


@lru_cache(maxsize=2048)
def _build_name_pattern(name: str) -> str:
    """A pattern for the name as people write it: `max_length`, "max length", `maxLength`."""
    return r"[\s_-]?".join(re.escape(word) for word in split_words(name[:80])) or re.escape(name[:80])


def _find_pairs(slot: ParameterSlot, state: FillState) -> Iterator[AssignedArgument]:
    """`name=value` and `name: value`."""
    pattern = rf"(?<![\w-])(?:--)?{_build_name_pattern(slot.name)}\s?(=|:(?!//)) ?"
    for match in re.finditer(pattern, state.text, re.IGNORECASE):
        read = _read_pair(slot, state, match.end(), colon=match[1] == ":")
        if read is not None and state.is_free(match.start(), read[1]):
            yield _build_assignment(slot, read[0], match.start(), read[1])


def _read_pair(slot: ParameterSlot, state: FillState, start: int, *, colon: bool) -> tuple[Json, int] | None:
    text = state.text
    for value in state.values:
        if value.start - start in (0, 1) and (made := convert_value(slot, value)) is not None:
            return ([made] if slot.parameter.is_list else made), value.end + (value.start - start)
    if quoted := _QUOTED.match(text, start):
        return _convert_word(slot, next(part for part in quoted.groups() if part)), quoted.end()
    if colon and slot.is_text and not slot.parameter.is_list and (rest := _LINE_REST.match(text, start)):
        said = rest.group()
        if following := _NEXT_PAIR.search(said):
            said = said[: following.start()]
        return said.strip() or None, start + len(said)
    if token := _VALUE_TOKEN.match(text, start):
        return _convert_word(slot, token.group().rstrip(".?!)")), token.end()
    return None


def _convert_word(slot: ParameterSlot, word: str) -> Json:
    """A word somebody wrote behind a parameter's name, as its type has it."""
    shape = slot.parameter.shape
    if shape.type == "boolean":
        return _BOOLEAN_WORDS.get(word.lower())
    if shape.type in ("integer", "number"):
        return parse_bare_number(word)
    if slot.options:
        same = [option for option in slot.options if option.lower() == word.lower()]
        return same[0] if same else None
    # What needs understanding (a date, a zone, an address) was offered as a value before.
    plain = slot.kinds <= {
        ValueKind.PATH,
        ValueKind.ID,
        ValueKind.HOST,
        ValueKind.REVISION,
        ValueKind.PATTERN,
        ValueKind.CITY,
    }
    if not plain:
        return None
    return [word] if slot.parameter.is_list else word


def _find_adjacent_values(slot: ParameterSlot, state: FillState) -> Iterator[AssignedArgument]:
    """A value right behind the parameter's name: `subject "Lunch"`, "width 800"."""
    if slot.kinds - {ValueKind.NUMBER, ValueKind.SQL, ValueKind.PATTERN} and (
        len(slot.words) < 2 or ValueKind.ID in slot.kinds
    ):
        return  # "the file a.txt" says what a.txt is, not which parameter it is for
    for value in state.get_free_values():
        if value.kind is ValueKind.OPTION or value.denied:
            continue
        made = _convert_named_value(slot, value)
        if made is not None and _follows_name(slot, value, state.text):
            yield _build_assignment(
                slot, [made] if slot.parameter.is_list else made, value.start, value.end, named=False
            )


def _convert_named_value(slot: ParameterSlot, value: RequestValue) -> Json:
    if value.kind is ValueKind.NUMBER and slot.is_number and not value.unit:
        if not isinstance(value.reading, float):
            return None
        return int(value.text) if value.text.lstrip("-").isdigit() else value.reading
    return convert_value(slot, value)


def _follows_name(slot: ParameterSlot, value: RequestValue, text: str) -> bool:
    head = text[max(0, value.start - 90) : value.start]
    between = _BETWEEN_NAME_AND_VALUE.search(head)
    if between is None:
        return False
    head = head[: between.start()]
    return any(re.search(rf"(?<![\w-]){name}$", head, re.IGNORECASE) for name in _list_short_names(slot))


def _list_short_names(slot: ParameterSlot) -> Iterator[str]:
    """The name, and without an ending that nobody says: `table` for `table_name`."""
    name = split_words(slot.name[:80])
    if len("".join(name)) >= 3:
        yield _build_name_pattern(slot.name)
    if len(name) > 1 and name[-1] in _NAME_ENDINGS:
        yield r"[\s_-]?".join(map(re.escape, name[:-1]))
    if name == ("title",):
        yield "titled"


def _find_called_values(slot: ParameterSlot, state: FillState) -> Iterator[AssignedArgument]:
    """ "a branch called dev-2", and an identifier right behind the noun: "table order_items"."""
    name = split_words(slot.name[:80])
    if slot.parameter.shape.type != "string" or slot.kinds or slot.options or slot.parameter.is_list:
        return
    if len(name) < 2 or name[-1] not in _NAME_ENDINGS:
        return
    nouns = [r"[\s_-]?".join(map(re.escape, name[:-1])), *filter(None, [_HEBREW_NOUNS.get(name[-2])])]
    for noun in nouns:
        for match in re.finditer(rf"(?<!\w){noun}s? {_CALLED_PATTERN}", state.text, re.IGNORECASE):
            yield _build_assignment(slot, match[1].rstrip("."), match.start(1), match.end(1))
        for match in re.finditer(rf"(?<!\w){noun} (\w{{2,100}})(?!\w)", state.text, re.IGNORECASE):
            if _IDENTIFIER.fullmatch(match[1]):
                yield _build_assignment(slot, match[1], match.start(1), match.end(1))


def _build_assignment(
    slot: ParameterSlot, argument: Json, start: int, end: int, *, named: bool = True
) -> AssignedArgument:
    reason = f"the request gives {slot.name} by name"
    return AssignedArgument(argument=argument, reason=reason, spans=((start, end),), is_named=named)
