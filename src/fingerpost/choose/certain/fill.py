"""Arguments without a model: what the request says for certain, and what has to be asked.

Certain means: the request names the parameter, or exactly one thing in it can go
to exactly one parameter. Whatever could be meant in two ways is asked, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import date
from typing import Final

from fingerpost.catalog.words import parse_word_set
from fingerpost.choose.certain.found import MAX_REQUEST_LENGTH, extract_values, locate_entities
from fingerpost.choose.certain.listed import assign_switches, find_option_values
from fingerpost.choose.certain.matching import assign_unique_matches, drop_partial_groups
from fingerpost.choose.certain.naming import assign_named, reserve_secrets
from fingerpost.choose.certain.phrases import assign_search_phrase
from fingerpost.choose.certain.slots import ParameterSlot, build_slots
from fingerpost.choose.certain.tables.zones import ZONES
from fingerpost.choose.certain.taking import AssignedArgument, FillState
from fingerpost.choose.certain.values import ValueKind
from fingerpost.frozen import frozen
from fingerpost.records import Entity, Json, JsonObject, MissingArgument, Signals, ToolCard

_LOCAL_ZONE_NOTE = re.compile(r"[Uu]se '([A-Za-z_/+-]{3,50})' as local time ?zone")
_SPOKEN_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
# A request for the time that holds no other words is about here and now.
_TIME_WORDS: Final = parse_word_set(
    """
    what what's whats which is it the a time current currently now right tell me please show get give
    local here my clock hour exact today can could you do have know i and at in to from of zone timezone
    convert be when will would hi hey מה השעה עכשיו כרגע עכשו כאן אצלי פה בבקשה תגיד לי אפשר הזמן המר את
    שעה שעון זמן
    """
)


@frozen
class FilledArguments:
    """The arguments that are certain, those a person must give, and why."""

    arguments: JsonObject = field(default_factory=dict[str, Json])
    missing: tuple[MissingArgument, ...] = ()  # required, in the schema's order
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    unused_entities: tuple[Entity, ...] = ()  # what the request holds, wants used, and no argument uses
    excluded_count: int = 0  # how many things it names only to be left alone

    @property
    def is_complete(self) -> bool:
        return not self.missing


def fill_arguments(
    card: ToolCard,
    text: str,
    signals: Signals,
    *,
    today: date,
    zone: str | None = None,
    need: str | None = None,
) -> FilledArguments:
    """The arguments of one tool, as far as the request says them for certain.

    `need` is the part of the request this tool is for, when it asks for several
    things; `zone` is the person's own time zone.
    """
    said = (need or text)[:MAX_REQUEST_LENGTH]
    taking = _start_filling(card, said, signals, today)
    assign_arguments(taking, card)
    _take_local_zone(taking, zone)
    return build_filled_arguments(taking, signals)


def assign_arguments(state: FillState, card: ToolCard) -> None:
    """Take everything that is certain, what is said most plainly first."""
    reserve_secrets(state)
    assign_named(state)
    assign_switches(state)
    assign_unique_matches(state)
    drop_partial_groups(state)
    assign_search_phrase(state, card)


def _start_filling(card: ToolCard, text: str, signals: Signals, today: date) -> FillState:
    slots = build_slots(card)
    held = extract_values(text, signals, today)
    values = tuple(sorted((*held, *find_option_values(text, slots, held)), key=lambda value: value.start))
    return FillState(text=text, slots=slots, values=values)


def _take_local_zone(state: FillState, zone: str | None) -> None:
    """The person's own time zone, where the tool wants one and the request names no place at all."""
    for slot in state.get_open_slots():
        local = _LOCAL_ZONE_NOTE.search(slot.parameter.description)
        allowed = local is not None or "local" in slot.words
        if ValueKind.ZONE not in slot.kinds or not slot.required or not allowed or _may_name_place(state):
            continue
        own = zone or (local[1] if local is not None else None)
        if own in ZONES:
            state.assign(
                slot, AssignedArgument(argument=own, reason="no place is named: the local time zone")
            )
            return


def _may_name_place(state: FillState) -> bool:
    """Whether words remain that might name a place."""
    rest = list(state.text)
    for start, end in state.iterate_used_spans():
        rest[start:end] = " " * (end - start)
    return any(word.lower() not in _TIME_WORDS for word in _SPOKEN_WORD.findall("".join(rest)))


def build_filled_arguments(state: FillState, signals: Signals) -> FilledArguments:
    """What was decided, and what is still to be asked."""
    missing = tuple(
        _describe_missing_argument(slot)
        for slot in state.slots
        if slot.required and slot.name not in state.assigned
    )
    return FilledArguments(
        arguments={name: taken.argument for name, taken in state.assigned.items()},
        missing=missing,
        reasons={name: taken.reason for name, taken in state.assigned.items()},
        unused_entities=_find_unused_entities(state, signals),
        excluded_count=len(
            {value.start for value in state.values if value.denied and value.kind is not ValueKind.OPTION}
        ),
    )


def _describe_missing_argument(slot: ParameterSlot) -> MissingArgument:
    return MissingArgument(
        name=slot.name,
        description=" ".join(slot.parameter.description.split())[:300],
        options=slot.options,
    )


def _find_unused_entities(state: FillState, signals: Signals) -> tuple[Entity, ...]:
    denied = {value.start for value in state.values if value.denied}
    return tuple(
        entity
        for entity, start in locate_entities(state.text, signals.entities)
        if start not in denied and state.is_free(start, start + len(entity.text))
    )
