"""What a person answers: which tool is meant, or the arguments that were missing.

Asked for one thing, whatever is answered is that thing, as far as it fits; asked for
several, each has to be named or be the only one of its kind.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from fingerpost.catalog.words import word_set
from fingerpost.choose.certain.choosing import Option
from fingerpost.choose.certain.fill import Filled, decide, filled_of
from fingerpost.choose.certain.fits import fitting
from fingerpost.choose.certain.found import LONGEST_TEXT, values_of
from fingerpost.choose.certain.listed import option_values
from fingerpost.choose.certain.measures import as_number
from fingerpost.choose.certain.slots import Slot, slots_of
from fingerpost.choose.certain.taking import Taken, Taking
from fingerpost.choose.certain.values import Kind
from fingerpost.records import Json, MissingArgument, Signals, ToolCard

LONGEST_ANSWER: Final = 2000
_LEAD: Final = "in "  # "Tokyo" alone is understood as "in Tokyo"
_AS_WRITTEN: Final = frozenset(
    {Kind.PATH, Kind.ID, Kind.HOST, Kind.CITY, Kind.REVISION, Kind.PATTERN, Kind.SQL, Kind.EMAIL, Kind.URL}
)
_REFUSALS: Final = word_set("no n none neither cancel stop לא ביטול עזוב די") | {"no thanks", "אף אחד"}
_CONSENTS: Final = word_set("yes y ok okay sure כן בטח אישור") | {"yes please"}
_YES: Final = frozenset({"yes", "y", "true", "on", "כן"})
_NO: Final = frozenset({"no", "n", "false", "off", "לא"})


def fill_answer(
    card: ToolCard,
    asked: tuple[MissingArgument, ...],
    answer: str,
    signals: Signals,
    *,
    today: date,
) -> Filled:
    """The asked arguments as far as the answer gives them; the rest is still missing.

    `signals` are those of the answer.
    """
    names = {one.name for one in asked}
    slots = tuple(slot for slot in slots_of(card) if slot.name in names)
    said = answer.strip()[:LONGEST_TEXT]
    if len(slots) == 1 and not slots[0].secret:
        taking = _single(slots[0], said, signals, today)
    else:
        held = values_of(said, signals, today)
        taking = Taking(text=said, slots=slots, values=(*held, *option_values(said, slots, held)))
        decide(taking, card)
    return filled_of(taking, signals)


def _single(slot: Slot, said: str, signals: Signals, today: date) -> Taking:
    text = f"{_LEAD}{said}"
    held = values_of(text, signals, today)
    taking = Taking(text=text, slots=(slot,), values=(*held, *option_values(text, (slot,), held)))
    argument = _whole(slot, said)
    if argument is None:
        found = [made for value in taking.values if (made := fitting(slot, value)) is not None]
        distinct = {repr(made): made for made in found}
        argument = next(iter(distinct.values())) if len(distinct) == 1 else None
    if argument is not None:
        made = [argument] if slot.parameter.many else argument
        taking.take(slot, Taken(argument=made, reason="the person said so", stretches=((0, len(text)),)))
    return taking


def _whole(slot: Slot, said: str) -> Json:
    """The whole answer as the argument, where it needs no understanding."""
    plain = said.strip().strip("\"'`“”").strip()
    if not plain or len(plain) > LONGEST_ANSWER:
        return None
    kind = slot.parameter.shape.type
    if slot.options:
        return next((option for option in slot.options if option.lower() == plain.lower()), None)
    if kind == "boolean":
        return True if plain.lower() in _YES else False if plain.lower() in _NO else None
    if kind in ("integer", "number"):
        return as_number(plain)
    if kind != "string" or not (slot.is_text or slot.kinds <= _AS_WRITTEN):
        return None
    # An address or an e-mail address is one word; where the answer is a sentence, it is looked for in it.
    if slot.kinds & {Kind.EMAIL, Kind.URL, Kind.ID, Kind.HOST, Kind.REVISION} and " " in plain:
        return None
    return None if slot.kinds & {Kind.EMAIL, Kind.URL} else plain


def refused(answer: str) -> bool:
    """Whether the person does not want any of it."""
    said = answer.strip().strip(".!").lower()[:200]
    return said in _REFUSALS


def picked(alternatives: tuple[Option, ...], answer: str) -> Option | None:
    """The option a person means by "2", by its name, or by "yes" when there is only one."""
    said = answer.strip().strip(".!").lower()[:200]
    if said.isdecimal() and 1 <= int(said[:4]) <= len(alternatives):
        return alternatives[int(said[:4]) - 1]
    named = [one for one in alternatives if said in (one.card.key.lower(), one.card.name.lower())]
    if len(named) == 1:
        return named[0]
    return alternatives[0] if said in _CONSENTS and len(alternatives) == 1 else None
