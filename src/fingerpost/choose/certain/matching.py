"""Values matched to parameters by what they are: only where exactly one fits exactly one."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.words import parse_word_set
from fingerpost.choose.certain.fits import NEUTRAL_LABELS, convert_value, has_matching_role
from fingerpost.choose.certain.joined import group_joined_values
from fingerpost.choose.certain.listed import is_option_meant
from fingerpost.choose.certain.measures import allows_bare_number, has_slot_word, is_number_meant
from fingerpost.choose.certain.slots import ParameterSlot
from fingerpost.choose.certain.taking import AssignedArgument, FillState
from fingerpost.choose.certain.values import RequestValue, ValueKind
from fingerpost.records import Json

_MAX_ROUNDS: Final = 12
_COPY_NAMES: Final = frozenset({"cc", "bcc"})
_VALUE_ARTICLES: Final = parse_word_set("of for the from by to in a an my with")
_OPERATOR_BETWEEN = re.compile(r"^\s?(?:and|plus|\+|times|\*|×|ו-?|ועוד|,)\s?$")
_ORDERED_NAMES: Final = (
    ("a", "b"),
    ("x", "y"),
    ("num1", "num2"),
    ("first", "second"),
    ("number1", "number2"),
)


def assign_unique_matches(state: FillState) -> None:
    """Everything that fits in one way only, required parameters first, until nothing more does."""
    for _ in range(_MAX_ROUNDS):
        before = len(state.assigned)
        for slot in state.get_open_slots():
            if slot.required:
                _assign_slot(state, slot)
        if len(state.assigned) == before:
            break
    for slot in state.get_open_slots():
        if not slot.required and _is_found_by_type(slot):
            _assign_slot(state, slot)
    _assign_in_order(state)


def drop_partial_groups(state: FillState) -> None:
    """Of "5 or 10 minutes" neither is certain: one of several things joined is not taken alone."""
    used = set(state.iterate_used_spans())
    for group in group_joined_values(state.values, state.text):
        spans = {(value.start, value.end) for value in group}
        if spans <= used:
            continue
        for name, taken in list(state.assigned.items()):
            if not taken.is_named and spans & set(taken.spans):
                del state.assigned[name]


def _is_found_by_type(slot: ParameterSlot) -> bool:
    """An optional parameter is found by its type, never by being free for any text."""
    return bool(slot.kinds - {ValueKind.SQL, ValueKind.PATTERN}) or bool(slot.options)


def _assign_slot(state: FillState, slot: ParameterSlot) -> None:
    candidates = _find_candidates(state, slot)
    alone = [(made, value) for made, value in candidates if not _fits_other_slot(state, slot, value)]
    if len(alone) != len(candidates) or not alone:
        return
    if slot.parameter.is_list:
        made: Json = list(dict.fromkeys(str(one) for one, _ in alone))
    elif len({_build_value_key(made, value) for made, value in alone}) == 1:
        made = alone[0][0]
    else:
        return
    said = ", ".join(dict.fromkeys(value.text for _, value in alone))
    reason = f'"{said}" is the only {alone[0][1].kind.value} for {slot.name}'
    spans = tuple((value.start, value.end) for _, value in alone)
    state.assign(slot, AssignedArgument(argument=made, reason=reason, spans=spans))


def _build_value_key(made: Json, value: RequestValue) -> str:
    """The same thing said twice is one thing; the same number twice may count two things."""
    return f"{made!r} {value.start}" if value.kind is ValueKind.NUMBER else repr(made)


def _find_candidates(state: FillState, slot: ParameterSlot) -> list[tuple[Json, RequestValue]]:
    found: list[tuple[Json, RequestValue]] = []
    for value in state.get_free_values():
        made = convert_value(slot, value)
        if made is not None and _is_value_eligible(state, slot, value):
            found.append((made, value))
    return found


def _is_value_eligible(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    if value.kind is ValueKind.OPTION and not _is_the_option(state, slot, value):
        return False
    if value.kind is ValueKind.NUMBER and not _is_number_eligible(state, slot, value):
        return False
    if value.kind is ValueKind.TEXT and not (slot.required and _is_search_text(state, slot, value)):
        return False
    if {*slot.words, value.label} & _COPY_NAMES and slot.words[-1:] != (value.label,):
        return False
    if value.kind is ValueKind.ID and not _is_only_id(state, value):
        return False
    return has_matching_role(slot, value, state.values, state.slots)


def _is_search_text(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    """A quoted file name is a file, not something to search for."""
    if slot.words[-1:] not in (("query",), ("q",), ("search",), ("topic",), ("keyword",)):
        return True
    return not any(other.kind is ValueKind.PATH and other.start == value.start for other in state.values)


def _is_number_eligible(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    others = [
        other for other in state.get_free_values() if other.kind is ValueKind.NUMBER and other is not value
    ]
    if any(other.reading is None for other in others):
        return False  # "more than 5": a number that is not meant stands beside it
    if not slot.required:
        # "The last 2 of the 10 lines": the number with such a word is the one that is meant.
        return is_number_meant(slot, value) and (bool(value.cue) or not any(other.cue for other in others))
    if has_slot_word(slot, value):
        return True
    alone = all(other.unit or _are_ordered([slot, *state.get_open_slots()]) for other in others)
    return alone and allows_bare_number(slot)


def _is_only_id(state: FillState, value: RequestValue) -> bool:
    """Whether the other ids say whose they are: "of customer CUS-2" does, "what blocks OPS-7" does not."""
    return all(
        other.text == value.text
        or (other.label not in NEUTRAL_LABELS and {*other.before[1:2]} & _VALUE_ARTICLES)
        for other in state.get_free_values()
        if other.kind is ValueKind.ID and not other.denied
    )


def _is_the_option(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    """Whether the mention means this parameter, and no other of its values is mentioned in the same role."""
    others = any(
        other.kind is ValueKind.OPTION
        and other.reading != value.reading
        and other.reading in slot.options
        and not other.denied
        and (slot.role is None or other.role is value.role)
        for other in state.values
    )
    return not others and is_option_meant(slot, value, state.text)


def _fits_other_slot(state: FillState, slot: ParameterSlot, value: RequestValue) -> bool:
    """Whether the value would do for another open parameter; a required one goes before optional ones."""
    return any(
        other.required >= slot.required
        and _is_value_eligible(state, other, value)
        and convert_value(other, value) is not None
        for other in state.get_open_slots()
        if other.name != slot.name
    )


def _assign_in_order(state: FillState) -> None:
    """ "Add 5 and 7": two numbers joined by "and", two parameters that say first and second."""
    numbers = [value for value in state.get_free_values() if value.kind is ValueKind.NUMBER]
    wanted = [slot for slot in state.get_open_slots() if slot.required and slot.is_number]
    if len(numbers) != 2 or len(wanted) != 2 or not _are_ordered(wanted):
        return
    if _OPERATOR_BETWEEN.match(state.text[numbers[0].end : numbers[1].start]) is None:
        return
    made = [convert_value(slot, value) for slot, value in zip(wanted, numbers, strict=True)]
    if None in made:
        return
    for slot, value, argument in zip(wanted, numbers, made, strict=True):
        reason = f"{value.text} stands where {slot.name} stands in order"
        state.assign(
            slot, AssignedArgument(argument=argument, reason=reason, spans=((value.start, value.end),))
        )


def _are_ordered(wanted: list[ParameterSlot]) -> bool:
    names = tuple(slot.name.lower() for slot in wanted)
    return names in _ORDERED_NAMES or (
        "first" in wanted[0].description_words and "second" in wanted[1].description_words
    )
