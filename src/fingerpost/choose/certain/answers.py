"""What a person answers: which tool is meant, or the arguments that were missing.

Asked for one thing, whatever is answered is that thing, as far as it fits; asked for
several, each has to be named or be the only one of its kind.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from fingerpost.catalog.words import parse_word_set
from fingerpost.choose.certain.choosing import ToolOption
from fingerpost.choose.certain.fill import FilledArguments, assign_arguments, build_filled_arguments
from fingerpost.choose.certain.fits import convert_value
from fingerpost.choose.certain.found import MAX_REQUEST_LENGTH, extract_values
from fingerpost.choose.certain.listed import find_option_values
from fingerpost.choose.certain.measures import parse_bare_number
from fingerpost.choose.certain.slots import ParameterSlot, build_slots
from fingerpost.choose.certain.taking import AssignedArgument, FillState
from fingerpost.choose.certain.values import ValueKind
from fingerpost.records import Json, MissingArgument, Signals, ToolCard

MAX_PERSON_ANSWER_LENGTH: Final = 2000
_ANSWER_LEAD: Final = "in "  # "Tokyo" alone is understood as "in Tokyo"
_VERBATIM_KINDS: Final = frozenset(
    {
        ValueKind.PATH,
        ValueKind.ID,
        ValueKind.HOST,
        ValueKind.CITY,
        ValueKind.REVISION,
        ValueKind.PATTERN,
        ValueKind.SQL,
        ValueKind.EMAIL,
        ValueKind.URL,
    }
)
_REFUSALS: Final = parse_word_set("no n none neither cancel stop לא ביטול עזוב די") | {"no thanks", "אף אחד"}
_CONSENTS: Final = parse_word_set("yes y ok okay sure כן בטח אישור") | {"yes please"}
_YES_WORDS: Final = frozenset({"yes", "y", "true", "on", "כן"})
_NO_WORDS: Final = frozenset({"no", "n", "false", "off", "לא"})


def fill_answer(
    card: ToolCard,
    missing: tuple[MissingArgument, ...],
    answer: str,
    signals: Signals,
    *,
    today: date,
) -> FilledArguments:
    """The asked arguments as far as the answer gives them; the rest is still missing.

    `signals` are those of the answer.
    """
    names = {one.name for one in missing}
    slots = tuple(slot for slot in build_slots(card) if slot.name in names)
    said = answer.strip()[:MAX_REQUEST_LENGTH]
    if len(slots) == 1 and not slots[0].is_secret:
        taking = _match_single_slot(slots[0], said, signals, today)
    else:
        held = extract_values(said, signals, today)
        taking = FillState(text=said, slots=slots, values=(*held, *find_option_values(said, slots, held)))
        assign_arguments(taking, card)
    return build_filled_arguments(taking, signals)


def _match_single_slot(slot: ParameterSlot, said: str, signals: Signals, today: date) -> FillState:
    text = f"{_ANSWER_LEAD}{said}"
    held = extract_values(text, signals, today)
    taking = FillState(text=text, slots=(slot,), values=(*held, *find_option_values(text, (slot,), held)))
    argument = _use_whole_answer(slot, said)
    if argument is None:
        found = [made for value in taking.values if (made := convert_value(slot, value)) is not None]
        distinct = {repr(made): made for made in found}
        argument = next(iter(distinct.values())) if len(distinct) == 1 else None
    if argument is not None:
        made = [argument] if slot.parameter.is_list else argument
        taking.assign(
            slot, AssignedArgument(argument=made, reason="the person said so", spans=((0, len(text)),))
        )
    return taking


def _use_whole_answer(slot: ParameterSlot, text: str) -> Json:
    """The whole answer as the argument, where it needs no understanding."""
    plain = text.strip().strip("\"'`“”").strip()
    if not plain or len(plain) > MAX_PERSON_ANSWER_LENGTH:
        return None
    kind = slot.parameter.shape.type
    if slot.options:
        return next((option for option in slot.options if option.lower() == plain.lower()), None)
    if kind == "boolean":
        return True if plain.lower() in _YES_WORDS else False if plain.lower() in _NO_WORDS else None
    if kind in ("integer", "number"):
        return parse_bare_number(plain)
    if kind != "string" or not (slot.is_text or slot.kinds <= _VERBATIM_KINDS):
        return None
    # An address or an e-mail address is one word; where the answer is a sentence, it is looked for in it.
    if (
        slot.kinds & {ValueKind.EMAIL, ValueKind.URL, ValueKind.ID, ValueKind.HOST, ValueKind.REVISION}
        and " " in plain
    ):
        return None
    return None if slot.kinds & {ValueKind.EMAIL, ValueKind.URL} else plain


def is_refusal(answer: str) -> bool:
    """Whether the person does not want any of it."""
    said = answer.strip().strip(".!").lower()[:200]
    return said in _REFUSALS


def pick_option(alternatives: tuple[ToolOption, ...], answer: str) -> ToolOption | None:
    """The option a person means by "2", by its name, or by "yes" when there is only one."""
    said = answer.strip().strip(".!").lower()[:200]
    if said.isdecimal() and 1 <= int(said[:4]) <= len(alternatives):
        return alternatives[int(said[:4]) - 1]
    named = [one for one in alternatives if said in (one.card.key.lower(), one.card.name.lower())]
    if len(named) == 1:
        return named[0]
    return alternatives[0] if said in _CONSENTS and len(alternatives) == 1 else None
