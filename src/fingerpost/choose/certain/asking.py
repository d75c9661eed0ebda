"""What a person is asked, in English or Hebrew: plain words, the values that would do, an example."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.certain.slots import Slot, slots_of
from fingerpost.choose.certain.values import Kind
from fingerpost.records import Json, MissingArgument, Question, ToolCard
from fingerpost.redaction import scrub

LONGEST_ABOUT: Final = 140
LONGEST_NAME: Final = 70
MOST_OPTIONS: Final = 12
_UNSEEN = re.compile("[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_SENTENCE = re.compile(r"(?<=[.!?])\s")

_EXAMPLES: Final = {
    Kind.PATH: "docs/notes.md",
    Kind.URL: "https://example.com",
    Kind.HOST: "example.com",
    Kind.EMAIL: "dana@example.com",
    Kind.DATE: "2026-12-31",
    Kind.MOMENT: "2026-12-31T14:30:00Z",
    Kind.TIME: "14:30",
    Kind.ZONE: "Asia/Tokyo",
    Kind.REVISION: "HEAD~1",
    Kind.CITY: "Paris",
    Kind.LANGUAGE: "fr",
    Kind.CURRENCY: "EUR",
    Kind.PATTERN: "*.md",
    Kind.SQL: "SELECT * FROM visits",
}
_WORDS: Final = {
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


def question_for(card: ToolCard, missing: tuple[MissingArgument, ...], language: str = "en") -> str:
    """One question that names everything still needed, with what would do and an example."""
    says = _WORDS["he" if language == "he" else "en"]
    slots = {slot.name: slot for slot in slots_of(card)}
    lines = [_need(one, slots.get(one.name), card, says) for one in missing]
    if len(lines) == 1:
        return says["one"].format(tool=plain(card.key), what=lines[0], hint="")
    return "\n".join(
        [says["many"].format(tool=plain(card.key)), *(f"- {line}" for line in lines), says["how"]]
    )


def ask_for(card: ToolCard, missing: tuple[MissingArgument, ...], language: str = "en") -> Question:
    """The same as a record."""
    return Question(text=question_for(card, missing, language), tool=card.key, missing=missing)


def which_tool(cards: tuple[ToolCard, ...], language: str = "en") -> Question:
    """Which of a few tools is meant."""
    says = _WORDS["he" if language == "he" else "en"]
    lines = [
        f"{number}. {plain(card.key)}: {plain(_first_sentence(card.description))}"
        for number, card in enumerate(cards, 1)
    ]
    keys = tuple(card.key for card in cards)
    return Question(
        text="\n".join([says["which"], *lines]), missing=(MissingArgument(name="tool", options=keys),)
    )


def confirm_tool(card: ToolCard, language: str = "en") -> Question:
    """Whether a tool that may destroy something is really meant."""
    says = _WORDS["he" if language == "he" else "en"]
    # No tool is named: an answer to this chooses the tool, it does not fill in its arguments.
    wanted = MissingArgument(name="tool", options=(card.key,))
    return Question(text=says["confirm"].format(tool=plain(card.key)), missing=(wanted,))


def plain(text: str, longest: int = LONGEST_ABOUT) -> str:
    """A stranger's text as one short line of whole words, without anything hidden in it."""
    line = " ".join(_UNSEEN.sub(" ", scrub(text[:2000])).split())
    if len(line) <= longest:
        return line
    cut = line[:longest]
    words = cut.rpartition(" ")[0]
    return f"{(words if len(words) >= longest // 2 else cut[:-1]).rstrip(' .,;:(')}…"


def _first_sentence(text: str) -> str:
    return _SENTENCE.split(text[:600].strip(), maxsplit=1)[0]


def _need(one: MissingArgument, slot: Slot | None, card: ToolCard, says: dict[str, str]) -> str:
    about = plain(one.name, LONGEST_NAME)
    if one.description:
        about = f"{about} ({plain(one.description, LONGEST_ABOUT - len(about))})"
    if slot is not None and slot.secret:
        return f"{about}; {says['secret']}"
    if one.options:
        options = ", ".join(plain(option) for option in one.options[:MOST_OPTIONS])
        return f"{about}, {says['options'].format(options=options)}"
    if slot is None or not slot.parameter.shape.type:
        return f"{about}, {says['json']}"
    example = _example(slot, card)
    return f"{about}, {says['example'].format(example=example)}" if example else about


def _example(slot: Slot, card: ToolCard) -> str:
    """What its own knowledge gives, else one by kind; a description that has one already needs none."""
    written: Json = card.intelligence.parameters.examples.get(slot.name)
    if isinstance(written, str | int | float) and not isinstance(written, bool):
        return plain(str(written))
    if re.search(r"\be\.?g\.|\bfor example\b", slot.parameter.description, re.IGNORECASE):
        return ""
    if slot.parameter.shape.type == "boolean":
        return "yes"
    if slot.is_number:
        return next((str(number) for number in (10, 1, 5, 100) if slot.parameter.shape.admits(number)), "")
    return next((_EXAMPLES[kind] for kind in sorted(slot.kinds) if kind in _EXAMPLES), "")
