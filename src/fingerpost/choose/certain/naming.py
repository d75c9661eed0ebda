"""Values the request gives by name: `limit=5`, `subject "Lunch"`, "a branch called dev-2"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from fingerpost.catalog.words import word_set, words
from fingerpost.choose.certain.fits import fitting
from fingerpost.choose.certain.measures import as_number
from fingerpost.choose.certain.slots import Slot
from fingerpost.choose.certain.taking import Taken, Taking
from fingerpost.choose.certain.values import Kind, Value
from fingerpost.records import Json

_ENDINGS: Final = word_set("name id number key line")  # "table 'users'" names `table_name`
_QUOTED = re.compile(r"\"([^\"\n]{1,1000})\"|'([^'\n]{1,1000})'|`([^`\n]{1,1000})`")
_TOKEN = re.compile(r"[^\s,;\"'`]{1,300}")
_REST = re.compile(r"[^\n]{1,2000}")
_NEXT_PAIR = re.compile(r"[,;]? \w{2,30} ?[:=]")
_BETWEEN = re.compile(r"\s{0,2}(?:(?:is|of|to|the|as|:|=)\s{1,2}){0,2}[\"'`“‘«„]?$")
_CALLED: Final = r"(?:called|named|בשם) [\"'`]?([^\s,;\"'`?!]{1,100})"
_IDENTIFIER = re.compile(r"[A-Za-z]\w{0,60}(?:_\w{1,60}|[a-z][A-Z]\w{0,60})")
_YES: Final = {
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


def reserve_secrets(taking: Taking) -> None:
    """What follows a word like "password" is nobody's argument."""
    for match in _SECRET_WORDS.finditer(taking.text):
        if word := _TOKEN.match(taking.text, match.end()):
            taking.reserved.append((match.end(), word.end()))


def take_named(taking: Taking) -> None:
    """Every parameter the request names together with its value."""
    for slot in taking.open_slots():
        found = [*_pairs(slot, taking), *_beside(slot, taking), *_called(slot, taking)]
        chosen = {repr(taken.argument): taken for taken in found}
        if len(chosen) == 1:
            taking.take(slot, next(iter(chosen.values())))


@lru_cache(maxsize=2048)
def _spoken(name: str) -> str:
    """A pattern for the name as people write it: `max_length`, "max length", `maxLength`."""
    return r"[\s_-]?".join(re.escape(word) for word in words(name[:80])) or re.escape(name[:80])


def _pairs(slot: Slot, taking: Taking) -> Iterator[Taken]:
    """`name=value` and `name: value`."""
    pattern = rf"(?<![\w-])(?:--)?{_spoken(slot.name)}\s?(=|:(?!//)) ?"
    for match in re.finditer(pattern, taking.text, re.IGNORECASE):
        read = _read_pair(slot, taking, match.end(), colon=match[1] == ":")
        if read is not None and taking.is_free(match.start(), read[1]):
            yield _taken(slot, read[0], match.start(), read[1])


def _read_pair(slot: Slot, taking: Taking, start: int, *, colon: bool) -> tuple[Json, int] | None:
    text = taking.text
    for value in taking.values:
        if value.start - start in (0, 1) and (made := fitting(slot, value)) is not None:
            return ([made] if slot.parameter.many else made), value.end + (value.start - start)
    if quoted := _QUOTED.match(text, start):
        return _as_argument(slot, next(part for part in quoted.groups() if part)), quoted.end()
    if colon and slot.is_text and not slot.parameter.many and (rest := _REST.match(text, start)):
        said = rest.group()
        if following := _NEXT_PAIR.search(said):
            said = said[: following.start()]
        return said.strip() or None, start + len(said)
    if token := _TOKEN.match(text, start):
        return _as_argument(slot, token.group().rstrip(".?!)")), token.end()
    return None


def _as_argument(slot: Slot, word: str) -> Json:
    """A word somebody wrote behind a parameter's name, as its type has it."""
    shape = slot.parameter.shape
    if shape.type == "boolean":
        return _YES.get(word.lower())
    if shape.type in ("integer", "number"):
        return as_number(word)
    if slot.options:
        same = [option for option in slot.options if option.lower() == word.lower()]
        return same[0] if same else None
    # What needs understanding (a date, a zone, an address) was offered as a value before.
    plain = slot.kinds <= {Kind.PATH, Kind.ID, Kind.HOST, Kind.REVISION, Kind.PATTERN, Kind.CITY}
    if not plain:
        return None
    return [word] if slot.parameter.many else word


def _beside(slot: Slot, taking: Taking) -> Iterator[Taken]:
    """A value right behind the parameter's name: `subject "Lunch"`, "width 800"."""
    if slot.kinds - {Kind.NUMBER, Kind.SQL, Kind.PATTERN} and (len(slot.words) < 2 or Kind.ID in slot.kinds):
        return  # "the file a.txt" says what a.txt is, not which parameter it is for
    for value in taking.free_values():
        if value.kind is Kind.OPTION or value.denied:
            continue
        made = _named_value(slot, value)
        if made is not None and _stands_behind_name(slot, value, taking.text):
            yield _taken(slot, [made] if slot.parameter.many else made, value.start, value.end, named=False)


def _named_value(slot: Slot, value: Value) -> Json:
    if value.kind is Kind.NUMBER and slot.is_number and not value.unit:
        if not isinstance(value.reading, float):
            return None
        return int(value.text) if value.text.lstrip("-").isdigit() else value.reading
    return fitting(slot, value)


def _stands_behind_name(slot: Slot, value: Value, text: str) -> bool:
    head = text[max(0, value.start - 90) : value.start]
    between = _BETWEEN.search(head)
    if between is None:
        return False
    head = head[: between.start()]
    return any(re.search(rf"(?<![\w-]){name}$", head, re.IGNORECASE) for name in _short_names(slot))


def _short_names(slot: Slot) -> Iterator[str]:
    """The name, and without an ending that nobody says: `table` for `table_name`."""
    name = words(slot.name[:80])
    if len("".join(name)) >= 3:
        yield _spoken(slot.name)
    if len(name) > 1 and name[-1] in _ENDINGS:
        yield r"[\s_-]?".join(map(re.escape, name[:-1]))
    if name == ("title",):
        yield "titled"


def _called(slot: Slot, taking: Taking) -> Iterator[Taken]:
    """ "a branch called dev-2", and an identifier right behind the noun: "table order_items"."""
    name = words(slot.name[:80])
    if slot.parameter.shape.type != "string" or slot.kinds or slot.options or slot.parameter.many:
        return
    if len(name) < 2 or name[-1] not in _ENDINGS:
        return
    nouns = [r"[\s_-]?".join(map(re.escape, name[:-1])), *filter(None, [_HEBREW_NOUNS.get(name[-2])])]
    for noun in nouns:
        for match in re.finditer(rf"(?<!\w){noun}s? {_CALLED}", taking.text, re.IGNORECASE):
            yield _taken(slot, match[1].rstrip("."), match.start(1), match.end(1))
        for match in re.finditer(rf"(?<!\w){noun} (\w{{2,100}})(?!\w)", taking.text, re.IGNORECASE):
            if _IDENTIFIER.fullmatch(match[1]):
                yield _taken(slot, match[1], match.start(1), match.end(1))


def _taken(slot: Slot, argument: Json, start: int, end: int, *, named: bool = True) -> Taken:
    reason = f"the request gives {slot.name} by name"
    return Taken(argument=argument, reason=reason, stretches=((start, end),), named=named)
