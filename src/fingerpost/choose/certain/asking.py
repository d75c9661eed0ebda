"""What a person is asked, in English or Hebrew: plain words, the values that would do, an example."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.certain.slots import ParameterSlot, build_slots
from fingerpost.choose.certain.values import ValueKind
from fingerpost.records import Json, MissingArgument, Question, ToolCard
from fingerpost.redaction import scrub

MAX_DESCRIPTION_LENGTH: Final = 140
MAX_SHOWN_NAME_LENGTH: Final = 70
MAX_SHOWN_VALUES: Final = 12
_INVISIBLE = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")

_EXAMPLE_BY_KIND: Final = {
    ValueKind.PATH: "docs/notes.md",
    ValueKind.URL: "https://example.com",
    ValueKind.HOST: "example.com",
    ValueKind.EMAIL: "dana@example.com",
    ValueKind.DATE: "2026-12-31",
    ValueKind.MOMENT: "2026-12-31T14:30:00Z",
    ValueKind.TIME: "14:30",
    ValueKind.ZONE: "Asia/Tokyo",
    ValueKind.REVISION: "HEAD~1",
    ValueKind.CITY: "Paris",
    ValueKind.LANGUAGE: "fr",
    ValueKind.CURRENCY: "EUR",
    ValueKind.PATTERN: "*.md",
    ValueKind.SQL: "SELECT * FROM visits",
}
_PHRASES: Final = {
    "en": {
        "one": 'To use {tool} I need one more thing: {what}.{hint}',
        "many": "To use {tool} I still need:",
        "options": "one of: {options}",
        "example": "for example {example}",
        "secret": "I never take this from a message: set it where the server is configured",
        "json": "as JSON",
        "how": "Answer with the values, one per line, as name: value.",
        "which": "Which of these do you mean? Answer with its number or name.",
        "confirm": "Do you want me to use {tool}? It may change or delete things for good. Answer yes or no.",
    },
    "he": {
        "one": "כדי להשתמש ב-{tool} חסר לי עוד דבר אחד: {what}.{hint}",
        "many": "כדי להשתמש ב-{tool} חסר לי עוד:",
        "options": "אחד מאלה: {options}",
        "example": "לדוגמה {example}",
        "secret": "את זה אני לא לוקח מהודעה: יש להגדיר את זה בהגדרות השרת",
        "json": "בפורמט JSON",
        "how": "אפשר לענות בשורות, כל ערך בשורה משלו: שם: ערך.",
        "which": "לאיזה מאלה הכוונה? אפשר לענות במספר או בשם.",
        "confirm": "להשתמש ב-{tool}? הפעולה עלולה לשנות או למחוק דברים לצמיתות. נא לענות כן או לא.",
    },
}  # fmt: skip


def format_missing_question(
    card: ToolCard, missing: tuple[MissingArgument, ...], language: str = "en"
) -> str:
    """One question that names everything still needed, with what would do and an example."""
    says = _PHRASES["he" if language == "he" else "en"]
    slots = {slot.name: slot for slot in build_slots(card)}
    lines = [_describe_missing(one, slots.get(one.name), card, says) for one in missing]
    if len(lines) == 1:
        return says["one"].format(tool=to_short_line(card.key), what=lines[0], hint="")
    return "\n".join(
        [says["many"].format(tool=to_short_line(card.key)), *(f"- {line}" for line in lines), says["how"]]
    )


def build_missing_question(
    card: ToolCard, missing: tuple[MissingArgument, ...], language: str = "en"
) -> Question:
    """The same as a record."""
    return Question(text=format_missing_question(card, missing, language), tool=card.key, missing=missing)


def build_which_tool_question(cards: tuple[ToolCard, ...], language: str = "en") -> Question:
    """Which of a few tools is meant."""
    says = _PHRASES["he" if language == "he" else "en"]
    lines = [
        f"{number}. {to_short_line(card.key)}: {to_short_line(_get_first_sentence(card.description))}"
        for number, card in enumerate(cards, 1)
    ]
    keys = tuple(card.key for card in cards)
    return Question(
        text="\n".join([says["which"], *lines]), missing=(MissingArgument(name="tool", options=keys),)
    )


def build_confirm_question(card: ToolCard, language: str = "en") -> Question:
    """Whether a tool that may destroy something is really meant."""
    says = _PHRASES["he" if language == "he" else "en"]
    # No tool is named: an answer to this chooses the tool, it does not fill in its arguments.
    wanted = MissingArgument(name="tool", options=(card.key,))
    return Question(text=says["confirm"].format(tool=to_short_line(card.key)), missing=(wanted,))


def to_short_line(text: str, longest: int = MAX_DESCRIPTION_LENGTH) -> str:
    """A stranger's text as one short line of whole words, without anything hidden in it."""
    line = " ".join(_INVISIBLE.sub(" ", scrub(text[:2000])).split())
    if len(line) <= longest:
        return line
    cut = line[:longest]
    words = cut.rpartition(" ")[0]
    return f"{(words if len(words) >= longest // 2 else cut[:-1]).rstrip(' .,;:(')}…"


def _get_first_sentence(text: str) -> str:
    return _SENTENCE_END.split(text[:600].strip(), maxsplit=1)[0]


def _describe_missing(
    missing: MissingArgument, slot: ParameterSlot | None, card: ToolCard, phrases: dict[str, str]
) -> str:
    about = to_short_line(missing.name, MAX_SHOWN_NAME_LENGTH)
    if missing.description:
        about = f"{about} ({to_short_line(missing.description, MAX_DESCRIPTION_LENGTH - len(about))})"
    if slot is not None and slot.is_secret:
        return f"{about}; {phrases['secret']}"
    if missing.options:
        options = ", ".join(to_short_line(option) for option in missing.options[:MAX_SHOWN_VALUES])
        return f"{about}, {phrases['options'].format(options=options)}"
    if slot is None or not slot.parameter.shape.type:
        return f"{about}, {phrases['json']}"
    example = _find_example(slot, card)
    return f"{about}, {phrases['example'].format(example=example)}" if example else about


def _find_example(slot: ParameterSlot, card: ToolCard) -> str:
    """What its own knowledge gives, else one by kind; a description that has one already needs none."""
    written: Json = card.intelligence.parameters.examples.get(slot.name)
    if isinstance(written, str | int | float) and not isinstance(written, bool):
        return to_short_line(str(written))
    if re.search(r"\be\.?g\.|\bfor example\b", slot.parameter.description, re.IGNORECASE):
        return ""
    if slot.parameter.shape.type == "boolean":
        return "yes"
    if slot.is_number:
        return next((str(number) for number in (10, 1, 5, 100) if slot.parameter.shape.accepts(number)), "")
    return next((_EXAMPLE_BY_KIND[kind] for kind in sorted(slot.kinds) if kind in _EXAMPLE_BY_KIND), "")
