"""What a description says that its tool does, beyond the verb it opens with.

"Finds expired sessions, deletes them." "Lists files. It will also remove them."
"This tool deletes all files." The text is cut into clauses, and of each only the
verb counts whose subject is the tool: the one a clause opens with, or one that
follows words such as `this tool`, `it`, `will`, `can be used to`. What somebody
else does (`who deletes`, `that can delete`), what was done (`deleted files`) and
what is denied (`without modifying`) says nothing about the tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fingerpost.catalog import verbs
from fingerpost.catalog.words import parse_word_set
from fingerpost.frozen import frozen
from fingerpost.records import Effect

# Verbs that say little when a tool does it ("enables you to search"), or that name programs.
_DESTROY_VERBS: Final = verbs.STRONG_DESTROY_VERBS - parse_word_set(
    "bash cleanup exec execute powershell shell sudo"
) | parse_word_set("cancel clear flush invalidate prune reset revert revoke")
_WRITE_VERBS: Final = verbs.STRONG_WRITE_VERBS - parse_word_set(
    "apply assign attach disable enable replace toggle"
)
_IMPERATIVE_VERBS: Final = {
    **dict.fromkeys(_WRITE_VERBS, Effect.WRITE),
    **dict.fromkeys(_DESTROY_VERBS, Effect.DESTROY),
}
_THIRD_PERSON_VERBS: Final = {
    **dict.fromkeys(verbs.build_third_persons(_WRITE_VERBS), Effect.WRITE),
    **dict.fromkeys(verbs.build_third_persons(_DESTROY_VERBS), Effect.DESTROY),
}
_DESTROY_GERUNDS: Final = parse_word_set(
    "deleting destroying erasing expunging purging removing truncating wiping"
)
_CREATE_VERBS: Final = parse_word_set("create creates")  # a deed, unless it is something to read that is made
_READABLE_NOUNS: Final = parse_word_set(
    """
    chart charts diagram diagrams embedding embeddings graph list map overview preview report snapshot
    summaries summary
    """
)
_LOSS_PARTICIPLES: Final = parse_word_set(
    "deleted destroyed erased expunged overwritten purged removed terminated truncated wiped"
)
_EFFECT_WORDS: Final = (
    _LOSS_PARTICIPLES | _DESTROY_GERUNDS | _IMPERATIVE_VERBS.keys() | _THIRD_PERSON_VERBS.keys() | {"rid"}
)

DENIAL = re.compile(
    r"\b(?:does not|do not|doesn't|don't|never|without|cannot|can't|won't|not)\b[^.;,\n]*", re.IGNORECASE
)
_CLAUSE_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")
_CLAUSE_END = re.compile(r"([,;:()|•–—/]|\s-+\s|\b(?:and|or|then|but)\b)")
_CLAUSE_WORD = re.compile(r"\w+(?:['’-]\w+)*")

# `update time`, `delete flag`, `updates on`: here the word before is no verb.
_AFTER_NOUN: Final = parse_word_set(
    """
    about access action actions api at by can command commands count counts date dates endpoint event events
    flag flags for frequency from has have history if in info information interval is log logs marker method
    mode of on operation operations option options per permission permissions rate request requests
    settings since statement statements status tag that time times timestamp timestamps to token type types
    was were when which will with
    """
)
_ADVERBS: Final = parse_word_set(
    "afterwards also always both even first including just now once only simply so thereby therefore thus"
)
_TOOL_NOUNS: Final = (
    "action|api|call|command|endpoint|function|helper|interface|method|module|operation|plugin|request|route"
    "|script|server|service|skill|tool|utility|workflow"
)
# "This tool", "a simple utility", "use this", "it"; and what may stand between it and the verb.
_SUBJECT = re.compile(
    rf"(?:\w+ly\s+|afterwards\s+)?(?:(?:use|using|call)\s+)?"
    rf"(?:(?:this|the|an?|our)\s+(?:[\w-]+\s+){{0,3}}?(?:{_TOOL_NOUNS})|{_TOOL_NOUNS}|this|it)\s+"
)
_ADVERBS_BETWEEN: Final = parse_word_set(
    """
    ability able allow allows be can capable could designed developers enables for going help helps intended
    is it let lets makes may meant might must of one people permits possibility possible provides purpose
    shall should supposed that the to used user users want wants which will would you
    """
)
_LEADING_WORDS: Final = parse_word_set(
    "allow allows can could enables help helps lets may might must permits shall should used will"
)
# "Manages a list by allowing the user to add, delete": the tool again, later in the clause.
_ALLOWING_PATTERN = re.compile(
    r"\b(?:by allowing|allowing|enabling|letting|the ability|including the ability)\s(?=.*\bto\b)"
)
# "The message will be deleted", "all of them are then removed"; not "what will be deleted".
_LOSING_PATTERN = re.compile(
    rf"(?:will\s+(?:\w+\s+)?be|gets?|(?:is|are)\s+(?:then|also|\w+ly))\s+(?:\w+ly\s+)?({'|'.join(sorted(_LOSS_PARTICIPLES))})\b"
)
_SOMETIMES_WORDS: Final = parse_word_set(
    """
    after although as because before being for get gets how if list lists no none nothing once since than that
    though to unless until was were what when where whether which while who whom whose why
    """
)


def find_worst_effect(text: str) -> tuple[Effect, str] | None:
    """The worst that the clauses of this text say the tool does, and the word that says so."""
    text = text.lower()
    if _EFFECT_WORDS.isdisjoint(_CLAUSE_WORD.findall(text)):
        return None  # nearly always
    found: tuple[Effect, str] | None = None
    for clause in _split_clauses(DENIAL.sub(" ", text)):
        said = _find_clause_effect(clause)
        if said is not None and said[0] is Effect.DESTROY:
            return said
        found = found or said
    return found


@frozen(kw_only=False)
class _Clause:
    text: str
    commanding: bool  # a bare verb is what the tool does: so in the first sentence, which is about the tool


def _split_clauses(text: str) -> Iterator[_Clause]:
    for number, sentence in enumerate(_CLAUSE_SENTENCE_END.split(text.strip())):
        parts = ["", *_CLAUSE_END.split(sentence)]  # each after what divides it from the one before
        for before, part in zip(parts[::2], parts[1::2], strict=True):
            if stripped := part.strip():
                yield _Clause(stripped, number == 0 and before not in ("(", ")", "/"))


def _find_clause_effect(clause: _Clause) -> tuple[Effect, str] | None:
    return _find_active_effect(clause) or _find_passive_effect(clause.text)


def _find_active_effect(clause: _Clause) -> tuple[Effect, str] | None:
    text = clause.text
    subject = _ALLOWING_PATTERN.search(text) or _SUBJECT.match(text)
    words = _CLAUSE_WORD.findall(text[subject.end() :] if subject else text)
    verb = _find_verb(words, led=subject is not None)
    if verb is None:
        return None
    place, led = verb
    word = words[place]
    following = words[place + 1] if place + 1 < len(words) else ""
    if following in _AFTER_NOUN or (
        word in _CREATE_VERBS and not _READABLE_NOUNS.isdisjoint(words[place + 1 : place + 4])
    ):
        return None
    if word == "gets" and words[place + 1 : place + 3] == ["rid", "of"]:
        return Effect.DESTROY, "gets rid of"
    if word in _THIRD_PERSON_VERBS and following:
        return _THIRD_PERSON_VERBS[word], word
    if word in _DESTROY_GERUNDS and (led or clause.commanding) and following:
        return Effect.DESTROY, word
    if word in _IMPERATIVE_VERBS and (led or (clause.commanding and following)):
        return _IMPERATIVE_VERBS[word], word
    return None


def _find_verb(words: list[str], *, led: bool) -> tuple[int, bool] | None:
    """Where the clause's verb is to be found, and whether words such as `will` lead to it."""
    for place, word in enumerate(words):
        if word in _ADVERBS or (word.endswith("ly") and word not in _IMPERATIVE_VERBS):
            continue
        if (led or word in _LEADING_WORDS) and word in _ADVERBS_BETWEEN:
            led = True
            continue
        return place, led
    return None


def _find_passive_effect(clause: str) -> tuple[Effect, str] | None:
    found = _LOSING_PATTERN.search(clause)
    if found is None or not _SOMETIMES_WORDS.isdisjoint(_CLAUSE_WORD.findall(clause[: found.start()])):
        return None
    return Effect.DESTROY, found[1]
