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
from fingerpost.catalog.choices import collect_choices
from fingerpost.catalog.clauses import DENIAL, find_worst_effect
from fingerpost.catalog.words import parse_word_set, split_words, to_singular
from fingerpost.frozen import frozen
from fingerpost.records import Effect, JsonObject

DANGER: Final = {Effect.READ: 0, Effect.WRITE: 1, Effect.DESTROY: 2}
_MAX_NAME_WORDS: Final = 64
_OPENING_WORDS: Final = 8
_MAX_CHOICE_LENGTH: Final = 200
_NO_PROPERTIES: Final[JsonObject] = {}

# In descriptions only verbs that are hardly ever nouns count.
_READ_WORDS: Final = verbs.add_inflections(
    (verbs.READ_VERBS | verbs.READING_WORDS)
    - parse_word_set("answer diff echo match output present reason round screenshot")
) | {"echoes"}
_WRITE_WORDS: Final = verbs.add_inflections(verbs.STRONG_WRITE_VERBS)
_DESTROY_WORDS: Final = verbs.add_inflections(
    verbs.STRONG_DESTROY_VERBS - {"bash", "shell", "powershell", "exec", "execute"}
)
_OPENING_WRITE_WORDS: Final = verbs.add_inflections(verbs.WRITE_VERBS - verbs.NOUN_LIKE)
_OPENING_DESTROY_WORDS: Final = verbs.add_inflections(
    verbs.DESTROY_VERBS - verbs.NOUN_LIKE - {"run", "execute", "exec", "evaluate"}
)
_RUN_VERBS: Final = parse_word_set("run runs execute executes evaluate evaluates")
_SETTLING_WORDS: Final = verbs.add_inflections(parse_word_set("load resolve scan verify wait"))
_CONVERT_PATTERN = re.compile(
    r"converts?\b[^.]*\b(?:units?|time ?zones?|coordinates|degrees|temperatures?|number bases?)\b",
    re.IGNORECASE,
)
_PROGRAM_WORDS: Final = parse_word_set(
    "bash code command commands javascript program programs python script scripts shell"
)
_ACTION_PARAMETERS: Final = parse_word_set(
    "action actions cmd command method mode op operation operations verb"
)
# Any other parameter may choose as well, but there only a verb that is nothing else counts.
_TELLING_CHOICES: Final = (verbs.STRONG_WRITE_VERBS | verbs.STRONG_DESTROY_VERBS) - parse_word_set(
    "bash exec execute powershell shell sudo"
)
# These parameters speak of what others did or may do, or of what is left out of an answer.
_NON_ACTION_PARAMETERS: Final = parse_word_set(
    "change changes event events filter filters missing permission permissions scope scopes trigger triggers"
)
_FREE_PROGRAM: Final = ("cmd", "code", "command", "script", "shell")

_ADD_ON_PATTERN = re.compile(r"\badd-on", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|\n")
_IRREVERSIBLE_PATTERN = re.compile(
    r"\bpermanently\b|\birreversibl[ey]\b|\b(?:cannot|can't|can not) be (?:undone|reversed|recovered)\b",
    re.IGNORECASE,
)
_LOSS_PATTERN = re.compile(
    r"\boverwrit(?:e|es|ing)\b|\barbitrary (?:code|commands?|sql|javascript|python)\b|\bshell commands?\b",
    re.IGNORECASE,
)
_QUERY_LANGUAGE = re.compile(r"sql(?![a-z])|graphql|cypher", re.IGNORECASE)
_READ_ONLY_PATTERN = re.compile(r"\bread[- ]?only\b|\bselect (?:quer|statement)", re.IGNORECASE)


@frozen(kw_only=False)
class EffectFinding:
    """An effect, and what says so. A doubtful one may be settled by the server's own claim."""

    effect: Effect
    reason: str
    doubtful: bool = False
    word: str = ""  # the doubtful one

    def get_weight(self) -> tuple[int, bool]:
        """By danger, then by certainty."""
        return DANGER[self.effect], not self.doubtful


def find_in_name(name: str) -> EffectFinding | None:
    """What the verbs of the name say, or None when it has none."""
    spoken = _drop_things(split_words(name)[:_MAX_NAME_WORDS])
    for word in spoken:
        if word in verbs.STRONG_DESTROY_VERBS:
            return _build_name_finding(Effect.DESTROY, word)
    for pair in zip(spoken, (to_singular(word) for word in spoken[1:]), strict=False):
        if (effect := verbs.VERB_PHRASES.get(pair)) is not None:
            return _build_name_finding(effect, " ".join(pair))
    return _find_first_verb(spoken)


def _build_name_finding(effect: Effect, word: str) -> EffectFinding:
    return EffectFinding(effect, f"its name says {word!r}")


def _find_first_verb(spoken: tuple[str, ...]) -> EffectFinding | None:
    reader = bool(spoken) and spoken[-1] in verbs.READERS  # `label_searcher`, `block_info`
    for place, word in enumerate(spoken):
        if reader and word in verbs.NOUN_LIKE:
            continue
        if word in verbs.DESTROY_VERBS:
            return _build_name_finding(Effect.DESTROY, word)
        if word in verbs.WRITE_VERBS:
            return _build_name_finding(Effect.WRITE, word)
        if word in verbs.AMBIGUOUS_VERBS:
            return EffectFinding(
                Effect.WRITE, f"its name says {word!r}, which may mean anything", doubtful=True, word=word
            )
        if word in verbs.READ_VERBS:
            return _find_after_reading(spoken[place + 1 :]) or _build_name_finding(Effect.READ, word)
    if spoken and (reader or spoken[-1] in verbs.READ_NOUNS):
        return _build_name_finding(Effect.READ, spoken[-1])
    return None


def _find_after_reading(rest: tuple[str, ...]) -> EffectFinding | None:
    """`get_or_create`, `find_and_close`: a reading verb first, and then one that acts."""
    joined = False
    about = bool(rest) and rest[-1] in verbs.RECORD_WORDS  # `get_update_history`
    for word in rest:
        if (word in verbs.STRONG_WRITE_VERBS and not about) or (joined and word in verbs.WRITE_VERBS):
            return _build_name_finding(Effect.WRITE, word)
        if joined and word in verbs.DESTROY_VERBS:
            return _build_name_finding(Effect.DESTROY, word)
        joined = joined or word in verbs.CONNECTOR_WORDS
    return None


def _drop_things(spoken: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    skip = False
    for place, word in enumerate(spoken):
        if skip:
            skip = False
            continue
        following = to_singular(spoken[place + 1]) if place + 1 < len(spoken) else ""
        skip = (word, following) in verbs.THING_WORDS
        if not skip:
            kept.append(word)
    return tuple(kept)


def find_in_description(text: str) -> EffectFinding | None:
    """For a name that says nothing: the first verb of the description, or what it warns of."""
    if (loss := find_warning(text)) is not None:
        return loss
    for word in _get_opening_words(text)[:_OPENING_WORDS]:
        if word in _DESTROY_WORDS or word in _RUN_VERBS:
            return _build_description_finding(Effect.DESTROY, word)
        if word in _WRITE_WORDS:
            return _build_description_finding(Effect.WRITE, word)
        if word in _READ_WORDS:
            return find_against_reading(text) or _build_description_finding(Effect.READ, word)
    return find_second_effect(text)


def settle_doubt(named: EffectFinding, text: str) -> EffectFinding | None:
    """What a doubtful name means, where the description says that the tool reads."""
    if named.word not in verbs.SETTLED_BY_DESCRIPTION:
        return None
    described = find_in_description(text)
    opening = _get_opening_words(text)
    if described is None and opening and (opening[0] in _SETTLING_WORDS or _CONVERT_PATTERN.match(text)):
        described = _build_description_finding(Effect.READ, opening[0])
    return described if described is not None and described.effect is Effect.READ else None


def _build_description_finding(effect: Effect, word: str) -> EffectFinding:
    return EffectFinding(effect, f"its description says {word!r}")


def find_against_reading(text: str) -> EffectFinding | None:
    """What the description says that a tool which only reads would not."""
    found = [each for each in (_find_opening_verb(text), find_second_effect(text)) if each is not None]
    return max(found, key=EffectFinding.get_weight, default=None)


def _find_opening_verb(text: str) -> EffectFinding | None:
    """What the first word says, where it says that something is done."""
    opening = _get_opening_words(text)
    if not opening:
        return None
    first = opening[0]
    runs = first in _RUN_VERBS and bool(_PROGRAM_WORDS & set(opening)) and not is_claimed_read_only(text)
    if runs or first in _OPENING_DESTROY_WORDS:
        return _build_description_finding(Effect.DESTROY, first)
    return _build_description_finding(Effect.WRITE, first) if first in _OPENING_WRITE_WORDS else None


def find_second_effect(text: str) -> EffectFinding | None:
    """What the description says the tool does beside the verb it opens with."""
    if _IRREVERSIBLE_PATTERN.search(_get_first_sentence(text)):
        return EffectFinding(Effect.DESTROY, "its description says that it cannot be undone")
    second = _find_second_verb(_get_opening_words(text))
    if second is not None and second.effect is Effect.DESTROY:
        return second
    done = find_worst_effect(text)
    if done is None or (second is not None and done[0] is not Effect.DESTROY):
        return second
    return _build_description_finding(*done)


def _find_second_verb(opening: tuple[str, ...]) -> EffectFinding | None:
    """ "Reads the queue and clears it": a verb after `and`."""
    for before, word in pairwise(opening):
        if before in verbs.CONNECTOR_WORDS and word in _DESTROY_WORDS:
            return _build_description_finding(Effect.DESTROY, word)
        if before in verbs.CONNECTOR_WORDS and word in _WRITE_WORDS:
            return _build_description_finding(Effect.WRITE, word)
    return None


def find_warning(text: str) -> EffectFinding | None:
    """Words of loss anywhere in the description, unless they are denied."""
    if _IRREVERSIBLE_PATTERN.search(text):
        return EffectFinding(Effect.DESTROY, "its description says that it cannot be undone")
    # Most texts speak of no loss at all. Where one does, what it denies does not count.
    if _LOSS_PATTERN.search(text) and (found := _LOSS_PATTERN.search(DENIAL.sub(" ", text))) is not None:
        return _build_description_finding(Effect.DESTROY, found[0].lower())
    return None


def is_claimed_read_only(text: str) -> bool:
    return _READ_ONLY_PATTERN.search(text) is not None


def find_in_choices(definition: JsonObject) -> EffectFinding | None:
    """The worst that a parameter lets choose: `action: read | delete`. Harmless choices prove nothing."""
    found = collect_choices(definition.get("inputSchema"))
    worst = max(
        (
            judged
            for name, choice in found.offered
            if (judged := _find_choice_effect(name, choice)) is not None
        ),
        key=EffectFinding.get_weight,
        default=None,
    )
    if worst is None:
        return (
            None
            if found.complete
            else EffectFinding(Effect.WRITE, "its parameters are too many to look through")
        )
    return EffectFinding(
        worst.effect, worst.reason.replace("its name", "a choice it offers", 1), worst.doubtful
    )


def _find_choice_effect(name: str, choice: str) -> EffectFinding | None:
    """What choosing this does. Only a parameter that is there to choose what to do is read as a name is."""
    if name.lower() in _ACTION_PARAMETERS:
        judged = find_in_name(choice)
        return None if judged is None or judged.effect is Effect.READ else judged
    spoken = split_words(choice[:_MAX_CHOICE_LENGTH])
    if (
        not spoken
        or spoken[0] not in _TELLING_CHOICES
        or not _NON_ACTION_PARAMETERS.isdisjoint(split_words(name))
    ):
        return None
    if spoken[0] in verbs.STRONG_DESTROY_VERBS:
        return None if spoken[-1] in verbs.TIMESTAMP_WORDS else _build_name_finding(Effect.DESTROY, spoken[0])
    return _build_name_finding(Effect.WRITE, spoken[0]) if len(spoken) == 1 else None


def find_query_language(definition: JsonObject, text: str) -> EffectFinding | None:
    """A tool that takes SQL as it comes can do anything SQL can, unless it says it only reads."""
    properties = _get_properties(definition)
    taken = next((name for name in ("sql", "statement") if name in properties), None)
    spoken = _QUERY_LANGUAGE.search(f"{definition.get('name')} {text}")
    language = taken or (spoken[0].lower() if spoken else None)
    if language is None or is_claimed_read_only(text):
        return None
    return EffectFinding(Effect.DESTROY, f"it passes {language} on as it comes")


def find_program_parameter(definition: JsonObject) -> EffectFinding | None:
    """For a name that says nothing: a parameter for code or a command means that it is run."""
    properties = _get_properties(definition)
    for name in _FREE_PROGRAM:
        schema = properties.get(name)
        if isinstance(schema, Mapping) and schema.get("type") == "string" and "enum" not in schema:
            return EffectFinding(Effect.DESTROY, f"it takes a {name!r} to run")
    return None


def _get_properties(definition: JsonObject) -> JsonObject:
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else _NO_PROPERTIES


def _get_opening_words(text: str) -> tuple[str, ...]:
    return split_words(_ADD_ON_PATTERN.sub("addon", DENIAL.sub(" ", _get_first_sentence(text))))


def _get_first_sentence(text: str) -> str:
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0]
