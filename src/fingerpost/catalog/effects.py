"""Determines the effect of a tool (read, write, destroy) from its name, description and schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from typing import Final, cast

from fingerpost.catalog.words import MAX_TEXT_LENGTH, parse_word_set, split_words, to_singular
from fingerpost.data_files import read_word_sets
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Json, JsonObject, Known, Source
from fingerpost.regex import prepare_re
from fingerpost.schemas import get_properties, is_list, iterate_parameters

_SETS: Final = read_word_sets("fingerpost.catalog", "effects.txt")

READ_VERBS: Final = _SETS["read_verbs"]
READING_WORDS: Final = _SETS["reading_words"]
READ_NOUNS: Final = _SETS["read_nouns"]
READERS: Final = _SETS["readers"]
STRONG_WRITE_VERBS: Final = _SETS["strong_write_verbs"]
WRITE_VERBS: Final = STRONG_WRITE_VERBS | _SETS["write_verbs"]
AMBIGUOUS_VERBS: Final = _SETS["ambiguous_verbs"]
SETTLED_BY_DESCRIPTION: Final = _SETS["settled_by_description"]
STRONG_DESTROY_VERBS: Final = _SETS["strong_destroy_verbs"]
DESTROY_VERBS: Final = STRONG_DESTROY_VERBS | _SETS["destroy_verbs"]
VERB_PHRASES: Final = {
    **dict.fromkeys(_SETS["write_phrases"], Effect.WRITE),
    **dict.fromkeys(_SETS["read_phrases"], Effect.READ),
}
NOUN_PAIRS: Final = _SETS["noun_pairs"]
NOUN_LIKE: Final = _SETS["noun_like"]
TIMESTAMP_WORDS: Final = parse_word_set("at by count date flag marker status time timestamp")  # `delete_time`
RECORD_WORDS: Final = _SETS["record_words"]
CONNECTOR_WORDS: Final = parse_word_set("and or then")
# Elsewhere in a name these are often nouns.
_LAST_DESTROY_VERBS: Final = (DESTROY_VERBS | {"pop"}) - NOUN_LIKE - parse_word_set("cmd eval run shutdown")
_JOINED_WRITE_VERBS: Final = WRITE_VERBS | {"capture"}


def add_inflections(verbs: frozenset[str]) -> frozenset[str]:
    """Return the verbs with their third person: `delete` and `deletes`."""
    return verbs | build_third_persons(verbs)


def build_third_persons(verbs: frozenset[str]) -> frozenset[str]:
    """Return `deletes` for `delete`."""
    return frozenset(map(_build_third_person, verbs))


def _build_third_person(verb: str) -> str:
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "sh", "ch", "x", "z")) else f"{verb}s"


MAX_PARTS: Final = 4000  # schemas and values


@frozen
class SchemaChoices:
    """The enum values of a schema with their parameters, and whether the whole schema was searched."""

    offered: tuple[tuple[str, str], ...]
    complete: bool


@frozen
class SchemaParameters:
    """The parts of a schema with the parameters they describe, and whether the whole schema was searched."""

    named: tuple[tuple[str, JsonObject], ...]
    complete: bool


def collect_parameters(schema: Json) -> SchemaParameters:
    """Return the parameters of this schema, including nested ones."""
    named = tuple(islice(iterate_parameters(schema), MAX_PARTS + 1))
    return SchemaParameters(named=named[:MAX_PARTS], complete=len(named) <= MAX_PARTS)


def collect_choices(schema: Json) -> SchemaChoices:
    """Return the enum values of this schema's parameters."""
    offered: dict[tuple[str, str], None] = {}
    left = MAX_PARTS
    for name, part in iterate_parameters(schema):
        values = part.get("enum")
        listed = [*(values if is_list(values) else ()), *((part["const"],) if "const" in part else ())]
        offered.update(dict.fromkeys((name, value) for value in listed[: left - 1] if isinstance(value, str)))
        left -= 1 + len(listed)
        if left < 0:
            break
    return SchemaChoices(offered=tuple(offered), complete=left >= 0)


# Excludes verbs that are vague for a tool ("enables you to search") or that name programs.
_CLAUSE_DESTROY_VERBS: Final = (
    STRONG_DESTROY_VERBS - _SETS["program_verbs"] - {"cleanup"} | _SETS["clause_destroy_verbs"]
)
_CLAUSE_WRITE_VERBS: Final = STRONG_WRITE_VERBS - _SETS["vague_write_verbs"]
_IMPERATIVE_VERBS: Final = {
    **dict.fromkeys(_CLAUSE_WRITE_VERBS, Effect.WRITE),
    **dict.fromkeys(_CLAUSE_DESTROY_VERBS, Effect.DESTROY),
}
_THIRD_PERSON_VERBS: Final = {
    **dict.fromkeys(build_third_persons(_CLAUSE_WRITE_VERBS), Effect.WRITE),
    **dict.fromkeys(build_third_persons(_CLAUSE_DESTROY_VERBS), Effect.DESTROY),
}
_DESTROY_GERUNDS: Final = _SETS["destroy_gerunds"]
# Writing, unless the created thing is something to read.
_CREATE_VERBS: Final = parse_word_set("create creates")
_READABLE_NOUNS: Final = _SETS["readable_nouns"]
_LOSS_PARTICIPLES: Final = _SETS["loss_participles"]
_EFFECT_WORDS: Final = (
    _LOSS_PARTICIPLES | _DESTROY_GERUNDS | _IMPERATIVE_VERBS.keys() | _THIRD_PERSON_VERBS.keys() | {"rid"}
)

NEGATION = prepare_re(
    r"\b(?:does not|do not|doesn't|don't|never|without|cannot|can't|won't|not)\b[^.;,\n]*", re.IGNORECASE
)
_CLAUSE_SENTENCE_END = prepare_re(r"[.!?](?=\s|$)|\n")
_CLAUSE_END = prepare_re(r"([,;:()|•–—/]|\s-+\s|\b(?:and|or|then|but)\b)")
_CLAUSE_WORD = prepare_re(r"\w+(?:['’-]\w+)*")

# `update time`, `delete flag`, `updates on`: the word before these is not a verb.
_AFTER_NOUN: Final = _SETS["after_noun"]
_ADVERBS: Final = _SETS["adverbs"]
_TOOL_NOUNS: Final = (
    "action|api|call|command|endpoint|function|helper|interface|method|module|operation|plugin|request|route"
    "|script|server|service|skill|tool|utility|workflow"
)
# "This tool", "a simple utility", "use this", "it", and the words allowed between it and the verb.
_SUBJECT = prepare_re(
    rf"(?:\w+ly\s+|afterwards\s+)?(?:(?:use|using|call)\s+)?"
    rf"(?:(?:this|the|an?|our)\s+(?:[\w-]+\s+){{0,3}}?(?:{_TOOL_NOUNS})|{_TOOL_NOUNS}|this|it)\s+"
)
_WORDS_BEFORE_VERB: Final = _SETS["words_before_verb"]
_LEADING_WORDS: Final = _SETS["leading_words"]
# "Manages a list by allowing the user to add, delete": further verbs of the tool later in the clause.
_ALLOWING_PATTERN = prepare_re(
    r"\b(?:by allowing|allowing|enabling|letting|the ability|including the ability)\s(?=.*\bto\b)"
)
# "The message will be deleted", "all of them are then removed", but not "what will be deleted".
_LOSING_PATTERN = prepare_re(
    rf"(?:will\s+(?:\w+\s+)?be|gets?|(?:is|are)\s+(?:then|also|\w+ly))\s+(?:\w+ly\s+)?({'|'.join(sorted(_LOSS_PARTICIPLES))})\b"
)
_SUBORDINATING_WORDS: Final = _SETS["subordinating_words"]


def find_worst_effect(text: str) -> tuple[Effect, str] | None:
    """Return the most dangerous effect in this text and the word for it, or None."""
    text = text.lower()
    if _EFFECT_WORDS.isdisjoint(_CLAUSE_WORD.findall(text)):
        return None  # the usual case
    found: tuple[Effect, str] | None = None
    for clause in _split_clauses(NEGATION.sub(" ", text)):
        clause_effect = _find_active_effect(clause) or _find_passive_effect(clause.text)
        if clause_effect is not None and clause_effect[0] is Effect.DESTROY:
            return clause_effect
        found = found or clause_effect
    return found


@frozen(kw_only=False)
class _Clause:
    text: str
    commanding: bool  # whether a bare verb is an action of the tool, as in the first sentence


def _split_clauses(text: str) -> Iterator[_Clause]:
    for number, sentence in enumerate(_CLAUSE_SENTENCE_END.split(text.strip())):
        parts = ["", *_CLAUSE_END.split(sentence)]  # each clause follows its separator
        for before, part in zip(parts[::2], parts[1::2], strict=True):
            if stripped := part.strip():
                yield _Clause(stripped, number == 0 and before not in ("(", ")", "/"))


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
    """Return the position of the clause's verb, and whether words such as `will` precede it."""
    for place, word in enumerate(words):
        if word in _ADVERBS or (word.endswith("ly") and word not in _IMPERATIVE_VERBS):
            continue
        if (led or word in _LEADING_WORDS) and word in _WORDS_BEFORE_VERB:
            led = True
            continue
        return place, led
    return None


def _find_passive_effect(clause: str) -> tuple[Effect, str] | None:
    found = _LOSING_PATTERN.search(clause)
    if found is None or not _SUBORDINATING_WORDS.isdisjoint(_CLAUSE_WORD.findall(clause[: found.start()])):
        return None
    return Effect.DESTROY, found[1]


DANGER: Final = {Effect.READ: 0, Effect.WRITE: 1, Effect.DESTROY: 2}
_MAX_NAME_WORDS: Final = 64
_MAX_OPENING_WORDS: Final = 8
_MAX_CHOICE_LENGTH: Final = 200

# In descriptions, only verbs that are rarely nouns count.
_READ_WORDS: Final = add_inflections(
    (READ_VERBS | READING_WORDS)
    - parse_word_set("answer diff echo match output present reason round screenshot")
) | {"echoes"}
_WRITE_WORDS: Final = add_inflections(STRONG_WRITE_VERBS)
_DESTROY_WORDS: Final = add_inflections(
    STRONG_DESTROY_VERBS - {"bash", "shell", "powershell", "exec", "execute"}
)
_OPENING_WRITE_WORDS: Final = add_inflections(WRITE_VERBS - NOUN_LIKE)
_OPENING_DESTROY_WORDS: Final = add_inflections(
    DESTROY_VERBS - NOUN_LIKE - {"run", "execute", "exec", "evaluate"}
)
_RUN_VERBS: Final = parse_word_set("run runs execute executes evaluate evaluates")
_SETTLING_WORDS: Final = add_inflections(parse_word_set("load resolve scan verify wait"))
_CONVERT_PATTERN = prepare_re(
    r"converts?\b[^.]*\b(?:units?|time ?zones?|coordinates|degrees|temperatures?|number bases?)\b",
    re.IGNORECASE,
)
_PROGRAM_WORDS: Final = _SETS["program_words"]
_ACTION_PARAMETERS: Final = _SETS["action_parameters"]
# Other parameters may select an action too, but only unambiguous verbs count there.
_UNAMBIGUOUS_VERBS: Final = (STRONG_WRITE_VERBS | STRONG_DESTROY_VERBS) - _SETS["program_verbs"]
# These parameters concern the actions of others, permissions, or what a result leaves out.
_NON_ACTION_PARAMETERS: Final = _SETS["non_action_parameters"]
_PROGRAM_PARAMETERS: Final = ("cmd", "code", "command", "script", "shell")

_ADD_ON_PATTERN = prepare_re(r"\badd-on", re.IGNORECASE)
_SENTENCE_END = prepare_re(r"[.!?](?:\s|$)|\n")
_IRREVERSIBLE_PATTERN = prepare_re(
    r"\bpermanently\b|\birreversibl[ey]\b|\b(?:cannot|can't|can not) be (?:undone|reversed|recovered)\b",
    re.IGNORECASE,
)
_LOSS_PATTERN = prepare_re(
    r"\boverwrit(?:e|es|ing)\b|\barbitrary (?:code|commands?|sql|javascript|python)\b|\bshell commands?\b",
    re.IGNORECASE,
)
_QUERY_LANGUAGE = prepare_re(r"sql(?![a-z])|graphql|cypher", re.IGNORECASE)
_READ_ONLY_PATTERN = prepare_re(r"\bread[- ]?only\b|\bselect (?:quer|statement)", re.IGNORECASE)


@frozen(kw_only=False)
class EffectFinding:
    """An effect and its evidence. A doubtful finding can be overruled by the server's annotations."""

    effect: Effect
    reason: str
    doubtful: bool = False
    word: str = ""  # the ambiguous verb

    def get_weight(self) -> tuple[int, bool]:
        """Return the sort key: by danger, then by certainty."""
        return DANGER[self.effect], not self.doubtful


def find_in_name(name: str) -> EffectFinding | None:
    """Return what the verbs of the name say, or None if it has none."""
    words = _drop_noun_pairs(split_words(name)[:_MAX_NAME_WORDS])
    for word in words:
        if word in STRONG_DESTROY_VERBS:
            return _build_name_finding(Effect.DESTROY, word)
    for first, second in pairwise(words):
        if (effect := VERB_PHRASES.get(f"{first}/{to_singular(second)}")) is not None:
            return _build_name_finding(effect, f"{first} {to_singular(second)}")
    return _find_first_verb(words)


def _build_name_finding(effect: Effect, word: str) -> EffectFinding:
    return EffectFinding(effect, f"its name says {word!r}")


def _find_first_verb(words: tuple[str, ...]) -> EffectFinding | None:
    reader = bool(words) and words[-1] in READERS  # `label_searcher`, `block_info`
    for place, word in enumerate(words):
        if reader and word in NOUN_LIKE:
            continue
        if word in DESTROY_VERBS:
            return _build_name_finding(Effect.DESTROY, word)
        if word in WRITE_VERBS:
            return _build_name_finding(Effect.WRITE, word)
        if word in AMBIGUOUS_VERBS:
            reason = f"its name says {word!r}, which may mean anything"
            return EffectFinding(Effect.WRITE, reason, doubtful=True, word=word)
        if word in READ_VERBS:
            return _find_after_reading(words[place + 1 :]) or _build_name_finding(Effect.READ, word)
    if words and (reader or words[-1] in READ_NOUNS):
        return _build_name_finding(Effect.READ, words[-1])
    return None


def _find_after_reading(rest: tuple[str, ...]) -> EffectFinding | None:
    """Find an acting verb after a reading verb: `get_or_create`, `find_and_close`, `list_clear`."""
    if rest and rest[-1] in _LAST_DESTROY_VERBS:
        return _build_name_finding(Effect.DESTROY, rest[-1])
    joined = False
    about = bool(rest) and rest[-1] in RECORD_WORDS  # `get_update_history`
    for word in rest:
        if (word in STRONG_WRITE_VERBS and not about) or (joined and word in _JOINED_WRITE_VERBS):
            return _build_name_finding(Effect.WRITE, word)
        if joined and word in DESTROY_VERBS:
            return _build_name_finding(Effect.DESTROY, word)
        joined = joined or word in CONNECTOR_WORDS
    return None


def _drop_noun_pairs(words: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    left = list(reversed(words))
    while left:
        word = left.pop()
        if left and f"{word}/{to_singular(left[-1])}" in NOUN_PAIRS:
            left.pop()
        else:
            kept.append(word)
    return tuple(kept)


def find_in_description(text: str) -> EffectFinding | None:
    """For a name without evidence, return the effect of the description's first verb or of a warning."""
    if (loss := find_warning(text)) is not None:
        return loss
    for word in _get_opening_words(text)[:_MAX_OPENING_WORDS]:
        if word in _DESTROY_WORDS or word in _RUN_VERBS:
            return _build_description_finding(Effect.DESTROY, word)
        if word in _WRITE_WORDS:
            return _build_description_finding(Effect.WRITE, word)
        if word in _READ_WORDS:
            return find_against_reading(text) or _build_description_finding(Effect.READ, word)
    return find_second_effect(text)


def settle_doubt(named: EffectFinding, text: str) -> EffectFinding | None:
    """Return the meaning of a doubtful name if the description says that the tool reads, else None."""
    if named.word not in SETTLED_BY_DESCRIPTION:
        return None
    described = find_in_description(text)
    opening = _get_opening_words(text)
    if described is None and opening and (opening[0] in _SETTLING_WORDS or _CONVERT_PATTERN.match(text)):
        described = _build_description_finding(Effect.READ, opening[0])
    return described if described is not None and described.effect is Effect.READ else None


def _build_description_finding(effect: Effect, word: str) -> EffectFinding:
    return EffectFinding(effect, f"its description says {word!r}")


def find_against_reading(text: str) -> EffectFinding | None:
    """Return evidence in the description that the tool does more than read."""
    found = [each for each in (_find_opening_verb(text), find_second_effect(text)) if each is not None]
    return max(found, key=EffectFinding.get_weight, default=None)


def _find_opening_verb(text: str) -> EffectFinding | None:
    """Return the effect of the first word if it is an acting verb."""
    opening = _get_opening_words(text)
    if not opening:
        return None
    first = opening[0]
    runs = first in _RUN_VERBS and bool(_PROGRAM_WORDS & set(opening)) and not is_claimed_read_only(text)
    if runs or first in _OPENING_DESTROY_WORDS:
        return _build_description_finding(Effect.DESTROY, first)
    return _build_description_finding(Effect.WRITE, first) if first in _OPENING_WRITE_WORDS else None


def find_second_effect(text: str) -> EffectFinding | None:
    """Return the effect that the description mentions in addition to its opening verb."""
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
    """Find a verb after `and`: "Reads the queue and clears it"."""
    for before, word in pairwise(opening):
        if before in CONNECTOR_WORDS and word in _DESTROY_WORDS:
            return _build_description_finding(Effect.DESTROY, word)
        if before in CONNECTOR_WORDS and word in _WRITE_WORDS:
            return _build_description_finding(Effect.WRITE, word)
    return None


def find_warning(text: str) -> EffectFinding | None:
    """Find words of data loss in the description, unless they are negated."""
    if _IRREVERSIBLE_PATTERN.search(text):
        return EffectFinding(Effect.DESTROY, "its description says that it cannot be undone")
    # Most texts mention no loss. Negated mentions do not count.
    if _LOSS_PATTERN.search(text) and (found := _LOSS_PATTERN.search(NEGATION.sub(" ", text))) is not None:
        return _build_description_finding(Effect.DESTROY, found[0].lower())
    return None


def is_claimed_read_only(text: str) -> bool:
    return _READ_ONLY_PATTERN.search(text) is not None


def find_in_choices(definition: JsonObject) -> EffectFinding | None:
    """Return the most dangerous effect of an enum value: `read | delete`. Harmless ones prove nothing."""
    found = collect_choices(definition.get("inputSchema"))
    judged = (_find_choice_effect(name, choice) for name, choice in found.offered)
    effects = (one for one in judged if one is not None)
    worst = max(effects, key=EffectFinding.get_weight, default=None)
    if worst is None:
        too_many = EffectFinding(Effect.WRITE, "its parameters are too many to look through")
        return None if found.complete else too_many
    reason = worst.reason.replace("its name", "a choice it offers", 1)
    return EffectFinding(worst.effect, reason, worst.doubtful)


def has_reading_choice(definition: JsonObject) -> bool:
    """Return whether one of the actions that can be chosen reads: `get | delete`."""
    return any(
        (found := find_in_name(choice)) is not None and found.effect is Effect.READ
        for name, choice in collect_choices(definition.get("inputSchema")).offered
        if name.lower() in _ACTION_PARAMETERS
    )


def _find_choice_effect(name: str, choice: str) -> EffectFinding | None:
    """Return the effect of an enum value, read like a name only if the parameter selects an action."""
    if name.lower() in _ACTION_PARAMETERS:
        judged = find_in_name(choice)
        return None if judged is None or judged.effect is Effect.READ else judged
    words = split_words(choice[:_MAX_CHOICE_LENGTH])
    acts = bool(words) and words[0] in _UNAMBIGUOUS_VERBS
    if not acts or not _NON_ACTION_PARAMETERS.isdisjoint(split_words(name)):
        return None
    if words[0] in STRONG_DESTROY_VERBS:
        return None if words[-1] in TIMESTAMP_WORDS else _build_name_finding(Effect.DESTROY, words[0])
    return _build_name_finding(Effect.WRITE, words[0]) if len(words) == 1 else None


def find_query_language(definition: JsonObject, text: str) -> EffectFinding | None:
    """Return the effect of a tool that takes raw SQL: anything, unless it says that it only reads."""
    properties = get_properties(definition.get("inputSchema"))
    taken = next((name for name in ("sql", "statement") if name in properties), None)
    mention = _QUERY_LANGUAGE.search(f"{definition.get('name')} {text}")
    language = taken or (mention[0].lower() if mention else None)
    if language is None or is_claimed_read_only(text):
        return None
    return EffectFinding(Effect.DESTROY, f"it passes {language} on as it comes")


def find_program_parameter(definition: JsonObject) -> EffectFinding | None:
    """For a name without evidence, treat a parameter for code or a command as execution."""
    properties = get_properties(definition.get("inputSchema"))
    for name in _PROGRAM_PARAMETERS:
        schema = properties.get(name)
        if isinstance(schema, Mapping) and schema.get("type") == "string" and "enum" not in schema:
            return EffectFinding(Effect.DESTROY, f"it takes a {name!r} to run")
    return None


def _get_opening_words(text: str) -> tuple[str, ...]:
    return split_words(_ADD_ON_PATTERN.sub("addon", NEGATION.sub(" ", _get_first_sentence(text))))


def _get_first_sentence(text: str) -> str:
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0]


_UNKNOWN_EFFECT: Final = Known(
    Effect.WRITE, Source.DEFAULT, "nothing says what it does, so it is treated as writing"
)


def judge_effect(definition: JsonObject) -> Known[Effect]:
    """Return the effect of the tool: the most dangerous one with credible evidence."""
    found = _find_in_words(definition)
    claimed = _read_annotations(definition.get("annotations"))
    if claimed is None:
        return _UNKNOWN_EFFECT if found is None else Known(found.effect, Source.INFERRED, found.reason)
    if found is None or found.doubtful or DANGER[claimed.effect] >= DANGER[found.effect]:
        return Known(claimed.effect, Source.ANNOTATION, claimed.reason)
    reason = f"{found.reason}; the server's claim ({claimed.reason}) is not believed"
    return Known(found.effect, Source.INFERRED, reason)


def _read_annotations(annotations: object) -> EffectFinding | None:
    """Return the effect from the annotations. Missing or non-boolean hints are ignored."""
    if not isinstance(annotations, Mapping):
        return None
    hints = cast("JsonObject", annotations)
    read_only, destructive = hints.get("readOnlyHint"), hints.get("destructiveHint")
    if destructive is True:
        return EffectFinding(Effect.DESTROY, "annotated as destructive")
    if read_only is True:
        return EffectFinding(Effect.READ, "annotated as read-only")
    if destructive is False:
        return EffectFinding(Effect.WRITE, "annotated as not destructive")
    if read_only is False:
        return EffectFinding(Effect.WRITE, "annotated as not read-only")
    return None


def _find_in_words(definition: JsonObject) -> EffectFinding | None:
    """Return the most dangerous effect in name, description and schema, by the strongest evidence."""
    name, description = definition.get("name"), definition.get("description")
    text = description[:MAX_TEXT_LENGTH] if isinstance(description, str) else ""
    named = find_in_name(name if isinstance(name, str) else "")
    if named is not None and named.doubtful and (settled := settle_doubt(named, text)) is not None:
        named = settled
    findings = [named, find_in_choices(definition), *_find_beyond_name(named, definition, text)]
    found = [finding for finding in findings if finding is not None]
    return max(found, key=EffectFinding.get_weight, default=None)


def _find_beyond_name(
    named: EffectFinding | None, definition: JsonObject, text: str
) -> list[EffectFinding | None]:
    """Return further evidence, depending on the finding from the name."""
    if named is None:
        query = find_query_language(definition, text)
        return [query, find_program_parameter(definition), find_in_description(text)]
    if named.effect is Effect.READ:
        asks_database = "query" in named.reason
        return [find_query_language(definition, text) if asks_database else None, find_against_reading(text)]
    return [find_warning(text), find_second_effect(text) if named.doubtful else None]
