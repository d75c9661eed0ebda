"""Listed values and switches named in words: "a high priority issue", "without including an image"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from fingerpost.catalog.words import STOP_WORDS, singular, word_set, words
from fingerpost.choose.certain.slots import Slot
from fingerpost.choose.certain.surroundings import around, placed
from fingerpost.choose.certain.tables.options import IN_HEBREW, ORDINARY
from fingerpost.choose.certain.taking import Taken, Taking
from fingerpost.choose.certain.values import Kind, Value

MOST_OPTIONS: Final = 200
SHORTEST: Final = 3  # letters; `in`, `no` and `it` are codes and words
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SKIPPED: Final = word_set("by as in is to the a an with of for on at be")
_ARTICLES: Final = word_set("the a an any all its their also")
_NOT: Final = word_set("not don't dont no without never doesn't לא בלי ללא")
_UNITS: Final = word_set("km cm mm kg mg ml lb oz ft gb mb kb tb hz kw")
_SWITCHED = re.compile(r"^ (?:mode|on|off|enabled|disabled)\b", re.IGNORECASE)


def option_values(text: str, slots: tuple[Slot, ...], held: tuple[Value, ...]) -> tuple[Value, ...]:
    """Each place where the request names a value some parameter lists."""
    solid = [value for value in held if value.kind in (Kind.PATH, Kind.URL, Kind.EMAIL, Kind.TEXT)]
    options = dict.fromkeys(option for slot in slots for option in slot.options)
    spoken = [(match.start(), match.end(), singular(match.group().lower())) for match in _WORD.finditer(text)]
    found: dict[tuple[int, int, str], Value] = {}
    for option in islice(options, MOST_OPTIONS):
        for start, end in _mentions(option, spoken, text):
            value = Value(kind=Kind.OPTION, text=text[start:end], start=start, end=end, reading=option)
            if not any(value.overlaps(other) for other in solid):
                found[start, end, option] = placed(value, text)
    return tuple(_longest(list(found.values())))


def option_counts(slot: Slot, value: Value, text: str) -> bool:
    """Whether a mention means this parameter: an ordinary word does only beside one of the parameter's."""
    if str(value.reading).lower() not in ORDINARY:
        return True
    content = {word for word in {*slot.words, *slot.about} - STOP_WORDS if len(word) > 2}
    content |= {word for word in slot.words if len(word) > 2}
    if value.noun in content:
        return True
    near = around(text, value.start, value.end).before
    before = [word for word in near if word not in _SKIPPED][:1]
    return any(word.startswith(known) for word in before for known in content)


def _mentions(option: str, spoken: list[tuple[int, int, str]], text: str) -> Iterator[tuple[int, int]]:
    wanted = tuple(singular(word) for word in words(option))
    if wanted and (len(option) >= SHORTEST or option.lower() in _UNITS):
        shouted = option.isupper() and option.isalpha()
        for place in range(len(spoken) - len(wanted) + 1):
            piece = spoken[place : place + len(wanted)]
            if tuple(word for _, _, word in piece) != wanted:
                continue
            start, end = piece[0][0], piece[-1][1]
            if not shouted or text[start:end] == option:
                yield start, end
    for hebrew in IN_HEBREW.get(option.lower(), ()):
        for match in re.finditer(rf"(?<![א-ת])[בלהו]{{0,2}}({hebrew})(?![א-ת])", text):
            yield match.span(1)


def _longest(found: list[Value]) -> Iterator[Value]:
    for value in found:
        longer = (other for other in found if other.overlaps(value))
        if not any(other.end - other.start > value.end - value.start for other in longer):
            yield value


def take_switches(taking: Taking) -> None:
    """Booleans whose name the request says, or says not."""
    for slot in taking.open_slots():
        if slot.parameter.shape.type != "boolean" or slot.parameter.many:
            continue
        found = list(_switched(slot, taking.text))
        if len({said for said, _, _ in found}) == 1:
            said, start, end = found[0]
            reason = f'"{taking.text[start:end]}" says it'
            taking.take(slot, Taken(argument=said, reason=reason, stretches=((start, end),), named=True))


def _switched(slot: Slot, text: str) -> Iterator[tuple[bool, int, int]]:
    name = words(slot.name[:80])
    spoken = list(_WORD.finditer(text))
    for place in range(len(spoken)):
        last = _says_name(name, spoken, place)
        if last is None:
            continue
        start, end = spoken[place].start(), spoken[last].end()
        switch = _SWITCHED.match(text[end : end + 12])
        # One word may be about anything ("ambiguous grammars"); it has to be spoken of as a switch.
        if len(name) < 2 and switch is None and text[max(0, start - 2) : start] != "--":
            continue
        denied = _is_denied([word.group().lower() for word in spoken[max(0, place - 3) : place]])
        off = switch is not None and switch.group().lower().strip() in ("off", "disabled")
        yield not (denied or off), start, end


def _is_denied(before: list[str]) -> bool:
    return any(word.replace("’", "'") in _NOT for word in before)


def _says_name(name: tuple[str, ...], spoken: list[re.Match[str]], place: int) -> int | None:
    """The place of the name's last word, if the name is said from here on; articles may stand between."""
    at = place
    for number, wanted in enumerate(name):
        while number and at < len(spoken) and spoken[at].group().lower() in _ARTICLES:
            at += 1
        if at >= len(spoken) or not _same(spoken[at].group().lower(), wanted):
            return None
        at += 1
    return at - 1 if name else None


def _same(said: str, wanted: str) -> bool:
    """`including` and `includes` say `include`."""
    if singular(said) == singular(wanted):
        return True
    stem = wanted.removesuffix("e")
    return len(stem) > 2 and said in (f"{stem}ing", f"{stem}es", f"{stem}ed", f"{wanted}ing", f"{wanted}ed")
