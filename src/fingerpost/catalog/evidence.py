"""What a tool's own words say about its effect: its name, its description, its choices.

A name is read for its first verb; a description for its first sentence, which
is about the tool itself, and for what else it says the tool does (`clauses`); a
parameter that chooses what to do (`action`, `method`) for the worst it can
choose (`choices`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from fingerpost.catalog import verbs
from fingerpost.catalog.choices import choices
from fingerpost.catalog.clauses import DENIAL, deed
from fingerpost.catalog.words import singular, word_set, words
from fingerpost.frozen import frozen
from fingerpost.records import Effect, JsonObject

DANGER: Final = {Effect.READ: 0, Effect.WRITE: 1, Effect.DESTROY: 2}
_MOST_NAME_WORDS: Final = 64
_OPENING_WORDS: Final = 8
_LONGEST_CHOICE: Final = 200
_NOTHING: Final[JsonObject] = {}

# In descriptions only verbs that are hardly ever nouns count.
_SAYS_READ: Final = verbs.inflected(
    (verbs.READ | verbs.SAID_OF_READING)
    - word_set("answer diff echo match output present reason round screenshot")
) | {"echoes"}
_SAYS_WRITE: Final = verbs.inflected(verbs.STRONG_WRITE)
_SAYS_DESTROY: Final = verbs.inflected(
    verbs.STRONG_DESTROY - {"bash", "shell", "powershell", "exec", "execute"}
)
_OPENS_WRITE: Final = verbs.inflected(verbs.WRITE - verbs.NOUN_LIKE)
_OPENS_DESTROY: Final = verbs.inflected(
    verbs.DESTROY - verbs.NOUN_LIKE - {"run", "execute", "exec", "evaluate"}
)
_RUNS: Final = word_set("run runs execute executes evaluate evaluates")
_SETTLING: Final = verbs.inflected(word_set("load resolve scan verify wait"))
_CONVERTS = re.compile(
    r"converts?\b[^.]*\b(?:units?|time ?zones?|coordinates|degrees|temperatures?|number bases?)\b",
    re.IGNORECASE,
)
_PROGRAMS: Final = word_set(
    "bash code command commands javascript program programs python script scripts shell"
)
_CHOOSING: Final = word_set("action actions cmd command method mode op operation operations verb")
# Any other parameter may choose as well, but there only a verb that is nothing else counts.
_TELLING: Final = (verbs.STRONG_WRITE | verbs.STRONG_DESTROY) - word_set(
    "bash exec execute powershell shell sudo"
)
# These parameters speak of what others did or may do, or of what is left out of an answer.
_NOT_CHOOSING: Final = word_set(
    "change changes event events filter filters missing permission permissions scope scopes trigger triggers"
)
_FREE_PROGRAM: Final = ("cmd", "code", "command", "script", "shell")

_ADD_ON = re.compile(r"\badd-on", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|\n")
_FINAL = re.compile(
    r"\bpermanently\b|\birreversibl[ey]\b|\b(?:cannot|can't|can not) be (?:undone|reversed|recovered)\b",
    re.IGNORECASE,
)
_LOSS = re.compile(
    r"\boverwrit(?:e|es|ing)\b|\barbitrary (?:code|commands?|sql|javascript|python)\b|\bshell commands?\b",
    re.IGNORECASE,
)
_QUERY_LANGUAGE = re.compile(r"sql(?![a-z])|graphql|cypher", re.IGNORECASE)
_READ_ONLY = re.compile(r"\bread[- ]?only\b|\bselect (?:quer|statement)", re.IGNORECASE)


@frozen(kw_only=False)
class Finding:
    """An effect, and what says so. A doubtful one may be settled by the server's own claim."""

    effect: Effect
    reason: str
    doubtful: bool = False
    word: str = ""  # the doubtful one

    def weight(self) -> tuple[int, bool]:
        """By danger, then by certainty."""
        return DANGER[self.effect], not self.doubtful


def in_name(name: str) -> Finding | None:
    """What the verbs of the name say, or None when it has none."""
    spoken = _without_things(words(name)[:_MOST_NAME_WORDS])
    for word in spoken:
        if word in verbs.STRONG_DESTROY:
            return _said(Effect.DESTROY, word)
    for pair in zip(spoken, (singular(word) for word in spoken[1:]), strict=False):
        if (effect := verbs.PHRASES.get(pair)) is not None:
            return _said(effect, " ".join(pair))
    return _first_verb(spoken)


def _said(effect: Effect, word: str) -> Finding:
    return Finding(effect, f"its name says {word!r}")


def _first_verb(spoken: tuple[str, ...]) -> Finding | None:
    reader = bool(spoken) and spoken[-1] in verbs.READERS  # `label_searcher`, `block_info`
    for place, word in enumerate(spoken):
        if reader and word in verbs.NOUN_LIKE:
            continue
        if word in verbs.DESTROY:
            return _said(Effect.DESTROY, word)
        if word in verbs.WRITE:
            return _said(Effect.WRITE, word)
        if word in verbs.AMBIGUOUS:
            return Finding(
                Effect.WRITE, f"its name says {word!r}, which may mean anything", doubtful=True, word=word
            )
        if word in verbs.READ:
            return _after_reading(spoken[place + 1 :]) or _said(Effect.READ, word)
    if spoken and (reader or spoken[-1] in verbs.READ_NOUNS):
        return _said(Effect.READ, spoken[-1])
    return None


def _after_reading(rest: tuple[str, ...]) -> Finding | None:
    """`get_or_create`, `find_and_close`: a reading verb first, and then one that acts."""
    joined = False
    about = bool(rest) and rest[-1] in verbs.RECORDS  # `get_update_history`
    for word in rest:
        if (word in verbs.STRONG_WRITE and not about) or (joined and word in verbs.WRITE):
            return _said(Effect.WRITE, word)
        if joined and word in verbs.DESTROY:
            return _said(Effect.DESTROY, word)
        joined = joined or word in verbs.CONNECTORS
    return None


def _without_things(spoken: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    skip = False
    for place, word in enumerate(spoken):
        if skip:
            skip = False
            continue
        following = singular(spoken[place + 1]) if place + 1 < len(spoken) else ""
        skip = (word, following) in verbs.THINGS
        if not skip:
            kept.append(word)
    return tuple(kept)


def in_description(text: str) -> Finding | None:
    """For a name that says nothing: the first verb of the description, or what it warns of."""
    if (loss := warning(text)) is not None:
        return loss
    for word in _opening(text)[:_OPENING_WORDS]:
        if word in _SAYS_DESTROY or word in _RUNS:
            return _described(Effect.DESTROY, word)
        if word in _SAYS_WRITE:
            return _described(Effect.WRITE, word)
        if word in _SAYS_READ:
            return against_reading(text) or _described(Effect.READ, word)
    return beside(text)


def settle(named: Finding, text: str) -> Finding | None:
    """What a doubtful name means, where the description says that the tool reads."""
    if named.word not in verbs.SETTLED_BY_DESCRIPTION:
        return None
    described = in_description(text)
    opening = _opening(text)
    if described is None and opening and (opening[0] in _SETTLING or _CONVERTS.match(text)):
        described = _described(Effect.READ, opening[0])
    return described if described is not None and described.effect is Effect.READ else None


def _described(effect: Effect, word: str) -> Finding:
    return Finding(effect, f"its description says {word!r}")


def against_reading(text: str) -> Finding | None:
    """What the description says that a tool which only reads would not."""
    found = [each for each in (_opened(text), beside(text)) if each is not None]
    return max(found, key=Finding.weight, default=None)


def _opened(text: str) -> Finding | None:
    """What the first word says, where it says that something is done."""
    opening = _opening(text)
    if not opening:
        return None
    first = opening[0]
    runs = first in _RUNS and bool(_PROGRAMS & set(opening)) and not claims_read_only(text)
    if runs or first in _OPENS_DESTROY:
        return _described(Effect.DESTROY, first)
    return _described(Effect.WRITE, first) if first in _OPENS_WRITE else None


def beside(text: str) -> Finding | None:
    """What the description says the tool does beside the verb it opens with."""
    if _FINAL.search(_first_sentence(text)):
        return Finding(Effect.DESTROY, "its description says that it cannot be undone")
    second = _second_verb(_opening(text))
    if second is not None and second.effect is Effect.DESTROY:
        return second
    done = deed(text)
    if done is None or (second is not None and done[0] is not Effect.DESTROY):
        return second
    return _described(*done)


def _second_verb(opening: tuple[str, ...]) -> Finding | None:
    """ "Reads the queue and clears it": a verb after `and`."""
    for before, word in pairwise(opening):
        if before in verbs.CONNECTORS and word in _SAYS_DESTROY:
            return _described(Effect.DESTROY, word)
        if before in verbs.CONNECTORS and word in _SAYS_WRITE:
            return _described(Effect.WRITE, word)
    return None


def warning(text: str) -> Finding | None:
    """Words of loss anywhere in the description, unless they are denied."""
    if _FINAL.search(text):
        return Finding(Effect.DESTROY, "its description says that it cannot be undone")
    # Most texts speak of no loss at all. Where one does, what it denies does not count.
    if _LOSS.search(text) and (found := _LOSS.search(DENIAL.sub(" ", text))) is not None:
        return _described(Effect.DESTROY, found[0].lower())
    return None


def claims_read_only(text: str) -> bool:
    return _READ_ONLY.search(text) is not None


def in_choices(definition: JsonObject) -> Finding | None:
    """The worst that a parameter lets choose: `action: read | delete`. Harmless choices prove nothing."""
    found = choices(definition.get("inputSchema"))
    worst = max(
        (judged for name, choice in found.offered if (judged := _chosen(name, choice)) is not None),
        key=Finding.weight,
        default=None,
    )
    if worst is None:
        return (
            None if found.complete else Finding(Effect.WRITE, "its parameters are too many to look through")
        )
    return Finding(worst.effect, worst.reason.replace("its name", "a choice it offers", 1), worst.doubtful)


def _chosen(name: str, choice: str) -> Finding | None:
    """What choosing this does. Only a parameter that is there to choose what to do is read as a name is."""
    if name.lower() in _CHOOSING:
        judged = in_name(choice)
        return None if judged is None or judged.effect is Effect.READ else judged
    spoken = words(choice[:_LONGEST_CHOICE])
    if not spoken or spoken[0] not in _TELLING or not _NOT_CHOOSING.isdisjoint(words(name)):
        return None
    if spoken[0] in verbs.STRONG_DESTROY:
        return None if spoken[-1] in verbs.STAMPS else _said(Effect.DESTROY, spoken[0])
    return _said(Effect.WRITE, spoken[0]) if len(spoken) == 1 else None


def takes_query_language(definition: JsonObject, text: str) -> Finding | None:
    """A tool that takes SQL as it comes can do anything SQL can, unless it says it only reads."""
    properties = _properties(definition)
    taken = next((name for name in ("sql", "statement") if name in properties), None)
    spoken = _QUERY_LANGUAGE.search(f"{definition.get('name')} {text}")
    language = taken or (spoken[0].lower() if spoken else None)
    if language is None or claims_read_only(text):
        return None
    return Finding(Effect.DESTROY, f"it passes {language} on as it comes")


def takes_program(definition: JsonObject) -> Finding | None:
    """For a name that says nothing: a parameter for code or a command means that it is run."""
    properties = _properties(definition)
    for name in _FREE_PROGRAM:
        schema = properties.get(name)
        if isinstance(schema, Mapping) and schema.get("type") == "string" and "enum" not in schema:
            return Finding(Effect.DESTROY, f"it takes a {name!r} to run")
    return None


def _properties(definition: JsonObject) -> JsonObject:
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else _NOTHING


def _opening(text: str) -> tuple[str, ...]:
    return words(_ADD_ON.sub("addon", DENIAL.sub(" ", _first_sentence(text))))


def _first_sentence(text: str) -> str:
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0]
