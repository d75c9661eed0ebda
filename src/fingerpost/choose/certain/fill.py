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

from fingerpost.catalog.words import word_set
from fingerpost.choose.certain.found import LONGEST_TEXT, standing, values_of
from fingerpost.choose.certain.listed import option_values, take_switches
from fingerpost.choose.certain.matching import drop_halves, take_fitting
from fingerpost.choose.certain.naming import reserve_secrets, take_named
from fingerpost.choose.certain.phrases import take_phrase
from fingerpost.choose.certain.slots import Slot, slots_of
from fingerpost.choose.certain.tables.zones import ZONES
from fingerpost.choose.certain.taking import Taken, Taking
from fingerpost.choose.certain.values import Kind
from fingerpost.frozen import frozen
from fingerpost.records import Entity, Json, JsonObject, MissingArgument, Signals, ToolCard

_OWN_ZONE = re.compile(r"[Uu]se '([A-Za-z_/+-]{3,50})' as local time ?zone")
_SPOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
# A request for the time that holds no other words is about here and now.
_ABOUT_TIME: Final = word_set(
    """
    what what's whats which is it the a time current currently now right tell me please show get give
    local here my clock hour exact today can could you do have know i and at in to from of zone timezone
    convert be when will would hi hey מה השעה עכשיו כרגע עכשו כאן אצלי פה בבקשה תגיד לי אפשר הזמן המר את
    שעה שעון זמן
    """
)


@frozen
class Filled:
    """The arguments that are certain, those a person must give, and why."""

    arguments: JsonObject = field(default_factory=dict[str, Json])
    missing: tuple[MissingArgument, ...] = ()  # required, in the schema's order
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    leftover: tuple[Entity, ...] = ()  # what the request holds, wants used, and no argument uses
    denied: int = 0  # how many things it names only to be left alone

    @property
    def complete(self) -> bool:
        return not self.missing


def fill(
    card: ToolCard,
    text: str,
    signals: Signals,
    *,
    today: date,
    zone: str | None = None,
    need: str | None = None,
) -> Filled:
    """The arguments of one tool, as far as the request says them for certain.

    `need` is the part of the request this tool is for, when it asks for several
    things; `zone` is the person's own time zone.
    """
    said = (need or text)[:LONGEST_TEXT]
    taking = _taking(card, said, signals, today)
    decide(taking, card)
    _take_local_zone(taking, zone)
    return filled_of(taking, signals)


def decide(taking: Taking, card: ToolCard) -> None:
    """Take everything that is certain, what is said most plainly first."""
    reserve_secrets(taking)
    take_named(taking)
    take_switches(taking)
    take_fitting(taking)
    drop_halves(taking)
    take_phrase(taking, card)


def _taking(card: ToolCard, said: str, signals: Signals, today: date) -> Taking:
    slots = slots_of(card)
    held = values_of(said, signals, today)
    values = tuple(sorted((*held, *option_values(said, slots, held)), key=lambda value: value.start))
    return Taking(text=said, slots=slots, values=values)


def _take_local_zone(taking: Taking, zone: str | None) -> None:
    """The person's own time zone, where the tool wants one and the request names no place at all."""
    for slot in taking.open_slots():
        local = _OWN_ZONE.search(slot.parameter.description)
        allowed = local is not None or "local" in slot.words
        if Kind.ZONE not in slot.kinds or not slot.required or not allowed or _speaks_of_elsewhere(taking):
            continue
        own = zone or (local[1] if local is not None else None)
        if own in ZONES:
            taking.take(slot, Taken(argument=own, reason="no place is named: the local time zone"))
            return


def _speaks_of_elsewhere(taking: Taking) -> bool:
    """Whether words remain that might name a place."""
    rest = list(taking.text)
    for start, end in taking.used():
        rest[start:end] = " " * (end - start)
    return any(word.lower() not in _ABOUT_TIME for word in _SPOKEN.findall("".join(rest)))


def filled_of(taking: Taking, signals: Signals) -> Filled:
    """What was decided, and what is still to be asked."""
    missing = tuple(
        _missing(slot) for slot in taking.slots if slot.required and slot.name not in taking.taken
    )
    return Filled(
        arguments={name: taken.argument for name, taken in taking.taken.items()},
        missing=missing,
        reasons={name: taken.reason for name, taken in taking.taken.items()},
        leftover=_leftover(taking, signals),
        denied=len(
            {value.start for value in taking.values if value.denied and value.kind is not Kind.OPTION}
        ),
    )


def _missing(slot: Slot) -> MissingArgument:
    return MissingArgument(
        name=slot.name,
        description=" ".join(slot.parameter.description.split())[:300],
        options=slot.options,
    )


def _leftover(taking: Taking, signals: Signals) -> tuple[Entity, ...]:
    denied = {value.start for value in taking.values if value.denied}
    return tuple(
        entity
        for entity, start in standing(taking.text, signals.entities)
        if start not in denied and taking.is_free(start, start + len(entity.text))
    )
