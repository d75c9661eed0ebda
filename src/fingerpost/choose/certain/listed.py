"""Listed values and switches named in words: "a high priority issue", "without including an image"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from fingerpost.catalog.words import STOP_WORDS, parse_word_set, split_words, to_singular
from fingerpost.choose.certain.slots import ParameterSlot
from fingerpost.choose.certain.surroundings import add_context, get_word_context
from fingerpost.choose.certain.tables.options import HEBREW_OPTION_WORDS, ORDINARY_WORDS
from fingerpost.choose.certain.taking import AssignedArgument, FillState
from fingerpost.choose.certain.values import RequestValue, ValueKind

MAX_LISTED_OPTIONS: Final = 200
MIN_OPTION_LENGTH: Final = 3  # letters; `in`, `no` and `it` are codes and words
_OPTION_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SKIPPED_WORDS: Final = parse_word_set("by as in is to the a an with of for on at be")
_OPTION_ARTICLES: Final = parse_word_set("the a an any all its their also")
_NEGATIONS: Final = parse_word_set("not don't dont no without never doesn't לא בלי ללא")
_UNIT_WORDS: Final = parse_word_set("km cm mm kg mg ml lb oz ft gb mb kb tb hz kw")
_SWITCH_SUFFIX = re.compile(r"^ (?:mode|on|off|enabled|disabled)\b", re.IGNORECASE)


def find_option_values(
    text: str, slots: tuple[ParameterSlot, ...], known_values: tuple[RequestValue, ...]
) -> tuple[RequestValue, ...]:
    """Each place where the request names a value some parameter lists."""
    solid = [
        value
        for value in known_values
        if value.kind in (ValueKind.PATH, ValueKind.URL, ValueKind.EMAIL, ValueKind.TEXT)
    ]
    options = dict.fromkeys(option for slot in slots for option in slot.options)
    spoken = [
        (match.start(), match.end(), to_singular(match.group().lower()))
        for match in _OPTION_WORD.finditer(text)
    ]
    found: dict[tuple[int, int, str], RequestValue] = {}
    for option in islice(options, MAX_LISTED_OPTIONS):
        for start, end in _find_mentions(option, spoken, text):
            value = RequestValue(
                kind=ValueKind.OPTION, text=text[start:end], start=start, end=end, reading=option
            )
            if not any(value.overlaps_with(other) for other in solid):
                found[start, end, option] = add_context(value, text)
    return tuple(_keep_longest(list(found.values())))


def is_option_meant(slot: ParameterSlot, value: RequestValue, text: str) -> bool:
    """Whether a mention means this parameter: an ordinary word does only beside one of the parameter's."""
    if str(value.reading).lower() not in ORDINARY_WORDS:
        return True
    content = {word for word in {*slot.words, *slot.description_words} - STOP_WORDS if len(word) > 2}
    content |= {word for word in slot.words if len(word) > 2}
    if value.noun in content:
        return True
    near = get_word_context(text, value.start, value.end).before
    before = [word for word in near if word not in _SKIPPED_WORDS][:1]
    return any(word.startswith(known) for word in before for known in content)


def _find_mentions(option: str, spoken: list[tuple[int, int, str]], text: str) -> Iterator[tuple[int, int]]:
    wanted = tuple(to_singular(word) for word in split_words(option))
    if wanted and (len(option) >= MIN_OPTION_LENGTH or option.lower() in _UNIT_WORDS):
        shouted = option.isupper() and option.isalpha()
        for place in range(len(spoken) - len(wanted) + 1):
            piece = spoken[place : place + len(wanted)]
            if tuple(word for _, _, word in piece) != wanted:
                continue
            start, end = piece[0][0], piece[-1][1]
            if not shouted or text[start:end] == option:
                yield start, end
    for hebrew in HEBREW_OPTION_WORDS.get(option.lower(), ()):
        for match in re.finditer(rf"(?<![א-ת])[בלהו]{{0,2}}({hebrew})(?![א-ת])", text):
            yield match.span(1)


def _keep_longest(found: list[RequestValue]) -> Iterator[RequestValue]:
    for value in found:
        longer = (other for other in found if other.overlaps_with(value))
        if not any(other.end - other.start > value.end - value.start for other in longer):
            yield value


def assign_switches(state: FillState) -> None:
    """Booleans whose name the request says, or says not."""
    for slot in state.get_open_slots():
        if slot.parameter.shape.type != "boolean" or slot.parameter.is_list:
            continue
        found = list(_find_switches(slot, state.text))
        if len({said for said, _, _ in found}) == 1:
            said, start, end = found[0]
            reason = f'"{state.text[start:end]}" says it'
            state.assign(
                slot, AssignedArgument(argument=said, reason=reason, spans=((start, end),), is_named=True)
            )


def _find_switches(slot: ParameterSlot, text: str) -> Iterator[tuple[bool, int, int]]:
    name = split_words(slot.name[:80])
    spoken = list(_OPTION_WORD.finditer(text))
    for place in range(len(spoken)):
        last = _match_name(name, spoken, place)
        if last is None:
            continue
        start, end = spoken[place].start(), spoken[last].end()
        switch = _SWITCH_SUFFIX.match(text[end : end + 12])
        # One word may be about anything ("ambiguous grammars"); it has to be spoken of as a switch.
        if len(name) < 2 and switch is None and text[max(0, start - 2) : start] != "--":
            continue
        denied = _is_denied([word.group().lower() for word in spoken[max(0, place - 3) : place]])
        off = switch is not None and switch.group().lower().strip() in ("off", "disabled")
        yield not (denied or off), start, end


def _is_denied(before: list[str]) -> bool:
    return any(word.replace("’", "'") in _NEGATIONS for word in before)


def _match_name(name: tuple[str, ...], spoken: list[re.Match[str]], place: int) -> int | None:
    """The place of the name's last word, if the name is said from here on; articles may stand between."""
    at = place
    for number, wanted in enumerate(name):
        while number and at < len(spoken) and spoken[at].group().lower() in _OPTION_ARTICLES:
            at += 1
        if at >= len(spoken) or not _is_same_stem(spoken[at].group().lower(), wanted):
            return None
        at += 1
    return at - 1 if name else None


def _is_same_stem(text: str, wanted: str) -> bool:
    """`including` and `includes` say `include`."""
    if to_singular(text) == to_singular(wanted):
        return True
    stem = wanted.removesuffix("e")
    return len(stem) > 2 and text in (f"{stem}ing", f"{stem}es", f"{stem}ed", f"{wanted}ing", f"{wanted}ed")
