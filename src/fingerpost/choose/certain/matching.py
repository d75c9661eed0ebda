"""Values matched to parameters by what they are: only where exactly one fits exactly one."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.words import word_set
from fingerpost.choose.certain.fits import NEUTRAL_LABELS, fitting, role_fits
from fingerpost.choose.certain.joined import groups
from fingerpost.choose.certain.listed import option_counts
from fingerpost.choose.certain.measures import may_stand_alone, says_whose, speaks_for
from fingerpost.choose.certain.slots import Slot
from fingerpost.choose.certain.taking import Taken, Taking
from fingerpost.choose.certain.values import Kind, Value
from fingerpost.records import Json

_MOST_ROUNDS: Final = 12
_COPIES: Final = frozenset({"cc", "bcc"})
_ARTICLES: Final = word_set("of for the from by to in a an my with")
_SUMMED = re.compile(r"^\s?(?:and|plus|\+|times|\*|×|ו-?|ועוד|,)\s?$")
_ORDERED: Final = (("a", "b"), ("x", "y"), ("num1", "num2"), ("first", "second"), ("number1", "number2"))


def take_fitting(taking: Taking) -> None:
    """Everything that fits in one way only, required parameters first, until nothing more does."""
    for _ in range(_MOST_ROUNDS):
        before = len(taking.taken)
        for slot in taking.open_slots():
            if slot.required:
                _take(taking, slot)
        if len(taking.taken) == before:
            break
    for slot in taking.open_slots():
        if not slot.required and _may_be_found(slot):
            _take(taking, slot)
    _take_in_order(taking)


def drop_halves(taking: Taking) -> None:
    """Of "5 or 10 minutes" neither is certain: one of several things joined is not taken alone."""
    used = set(taking.used())
    for group in groups(taking.values, taking.text):
        spans = {(value.start, value.end) for value in group}
        if spans <= used:
            continue
        for name, taken in list(taking.taken.items()):
            if not taken.named and spans & set(taken.stretches):
                del taking.taken[name]


def _may_be_found(slot: Slot) -> bool:
    """An optional parameter is found by its type, never by being free for any text."""
    return bool(slot.kinds - {Kind.SQL, Kind.PATTERN}) or bool(slot.options)


def _take(taking: Taking, slot: Slot) -> None:
    candidates = _candidates(taking, slot)
    alone = [(made, value) for made, value in candidates if not _also_fits(taking, slot, value)]
    if len(alone) != len(candidates) or not alone:
        return
    if slot.parameter.many:
        made: Json = list(dict.fromkeys(str(one) for one, _ in alone))
    elif len({_mark(made, value) for made, value in alone}) == 1:
        made = alone[0][0]
    else:
        return
    said = ", ".join(dict.fromkeys(value.text for _, value in alone))
    reason = f'"{said}" is the only {alone[0][1].kind.value} for {slot.name}'
    spans = tuple((value.start, value.end) for _, value in alone)
    taking.take(slot, Taken(argument=made, reason=reason, stretches=spans))


def _mark(made: Json, value: Value) -> str:
    """The same thing said twice is one thing; the same number twice may count two things."""
    return f"{made!r} {value.start}" if value.kind is Kind.NUMBER else repr(made)


def _candidates(taking: Taking, slot: Slot) -> list[tuple[Json, Value]]:
    found: list[tuple[Json, Value]] = []
    for value in taking.free_values():
        made = fitting(slot, value)
        if made is not None and _counts(taking, slot, value):
            found.append((made, value))
    return found


def _counts(taking: Taking, slot: Slot, value: Value) -> bool:
    if value.kind is Kind.OPTION and not _is_the_option(taking, slot, value):
        return False
    if value.kind is Kind.NUMBER and not _number_counts(taking, slot, value):
        return False
    if value.kind is Kind.TEXT and not (slot.required and _is_words(taking, slot, value)):
        return False
    if {*slot.words, value.label} & _COPIES and slot.words[-1:] != (value.label,):
        return False
    if value.kind is Kind.ID and not _only_id(taking, value):
        return False
    return role_fits(slot, value, taking.values, taking.slots)


def _is_words(taking: Taking, slot: Slot, value: Value) -> bool:
    """A quoted file name is a file, not something to search for."""
    if slot.words[-1:] not in (("query",), ("q",), ("search",), ("topic",), ("keyword",)):
        return True
    return not any(other.kind is Kind.PATH and other.start == value.start for other in taking.values)


def _number_counts(taking: Taking, slot: Slot, value: Value) -> bool:
    others = [other for other in taking.free_values() if other.kind is Kind.NUMBER and other is not value]
    if any(other.reading is None for other in others):
        return False  # "more than 5": a number that is not meant stands beside it
    if not slot.required:
        # "The last 2 of the 10 lines": the number with such a word is the one that is meant.
        return speaks_for(slot, value) and (bool(value.cue) or not any(other.cue for other in others))
    if says_whose(slot, value):
        return True
    alone = all(other.unit or _say_their_order([slot, *taking.open_slots()]) for other in others)
    return alone and may_stand_alone(slot)


def _only_id(taking: Taking, value: Value) -> bool:
    """Whether the other ids say whose they are: "of customer CUS-2" does, "what blocks OPS-7" does not."""
    return all(
        other.text == value.text or (other.label not in NEUTRAL_LABELS and {*other.before[1:2]} & _ARTICLES)
        for other in taking.free_values()
        if other.kind is Kind.ID and not other.denied
    )


def _is_the_option(taking: Taking, slot: Slot, value: Value) -> bool:
    """Whether the mention means this parameter, and no other of its values is mentioned in the same role."""
    others = any(
        other.kind is Kind.OPTION
        and other.reading != value.reading
        and other.reading in slot.options
        and not other.denied
        and (slot.role is None or other.role is value.role)
        for other in taking.values
    )
    return not others and option_counts(slot, value, taking.text)


def _also_fits(taking: Taking, slot: Slot, value: Value) -> bool:
    """Whether the value would do for another open parameter; a required one goes before optional ones."""
    return any(
        other.required >= slot.required
        and _counts(taking, other, value)
        and fitting(other, value) is not None
        for other in taking.open_slots()
        if other.name != slot.name
    )


def _take_in_order(taking: Taking) -> None:
    """ "Add 5 and 7": two numbers joined by "and", two parameters that say first and second."""
    numbers = [value for value in taking.free_values() if value.kind is Kind.NUMBER]
    wanted = [slot for slot in taking.open_slots() if slot.required and slot.is_number]
    if len(numbers) != 2 or len(wanted) != 2 or not _say_their_order(wanted):
        return
    if _SUMMED.match(taking.text[numbers[0].end : numbers[1].start]) is None:
        return
    made = [fitting(slot, value) for slot, value in zip(wanted, numbers, strict=True)]
    if None in made:
        return
    for slot, value, argument in zip(wanted, numbers, made, strict=True):
        reason = f"{value.text} stands where {slot.name} stands in order"
        taking.take(slot, Taken(argument=argument, reason=reason, stretches=((value.start, value.end),)))


def _say_their_order(wanted: list[Slot]) -> bool:
    names = tuple(slot.name.lower() for slot in wanted)
    return names in _ORDERED or ("first" in wanted[0].about and "second" in wanted[1].about)
