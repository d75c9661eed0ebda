"""Decides whether a tool that seems to read is certain to, so that it may run without approval."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from fingerpost.catalog.effects import (
    MAX_PARTS,
    NEGATION,
    NOUN_LIKE,
    READ_VERBS,
    READING_WORDS,
    STRONG_DESTROY_VERBS,
    STRONG_WRITE_VERBS,
    TIMESTAMP_WORDS,
    add_inflections,
    collect_parameters,
    find_in_name,
)
from fingerpost.catalog.words import MAX_TEXT_LENGTH, parse_word_set, split_words, to_singular
from fingerpost.data_files import read_patterns, read_word_sets
from fingerpost.records import Effect, JsonObject
from fingerpost.regex import prepare_re
from fingerpost.schemas import get_types, is_list, is_object

_SETS: Final = read_word_sets("fingerpost.catalog", "certainty.txt")
_PATTERNS: Final = read_patterns("fingerpost.catalog", "doubts.txt")


def _join_words(title: str) -> str:
    return "|".join(sorted(_SETS[title]))


# After a reading verb these words make it act: `get_rid_of`, `check_in`, `read_aloud`, `retrieve_funds`.
_ACTING_OBJECTS: Final = _SETS["acting_objects"]
_LANGUAGES: Final = prepare_re(_PATTERNS["languages"], re.IGNORECASE)
_VAGUE_NAMES: Final = parse_word_set("query run execute eval evaluate process handle call invoke request")


# Opening verbs of a description, in the base form or the third person: "Get", "Returns".
_OPENING_BASE: Final = READING_WORDS | READ_VERBS - parse_word_set("ask has is reason screenshot")
_OPENING: Final = add_inflections(_OPENING_BASE) | {"echoes"}
# These also need a reading name: "Provide feedback", "Answer a ticket", "Assess a fee".
_WEAK_OPENING: Final = parse_word_set("give provide") | add_inflections(_SETS["weak_opening"])
_OPENING_NOUNS: Final = parse_word_set("lookup search searches listing list overview details information")
_LABEL = prepare_re(r"^(?:[A-Z][A-Z ]{2,40}|Legacy tool|Deprecated|Read[- ]only):\s+")  # "FIRST STEP: Get …"
_LEADING: Final = _SETS["leading"]
_MAX_LEADING: Final = 8
_OPENING_PHRASES = prepare_re(_PATTERNS["opening"])
_OBJECT_FIRST_VERBS: Final = parse_word_set("get list search find read count describe show")
_PREPOSITIONS: Final = parse_word_set("of on in for with from about") | {","}

# Words that can stand in a verb position but do not act.
_HARMLESS: Final = add_inflections(_OPENING_BASE | READ_VERBS) | _SETS["harmless"]
# Not acting in "It takes a city", but acting after another verb: "and takes it".
_NEUTRAL: Final = _SETS["neutral"]
_VERB_ENDING = prepare_re(r"(?:at|iz|is|ifi)es$")
_PLURALS: Final = _SETS["plurals"]
# Words that start an object after a verb.
_OBJECT: Final = _SETS["object"]
_BOUNDARY: Final = parse_word_set("and or then but by afterwards thereby plus")
_TOOL_SUBJECT: Final = parse_word_set("it tool this call function server service api operation command")
_AUXILIARY: Final = parse_word_set("will can may must should would could to also then automatically always")
_OTHER_SUBJECTS: Final = parse_word_set("you your users user agents models assistant clients client callers")

_SENTENCE = prepare_re(r"(?<=[.!?])\s+|\n+|;\s*|[•–—]|\s-+\s")
_PIECE = prepare_re(r"[\w'’-]+|[,:()]")
_ACTS: Final = add_inflections(STRONG_WRITE_VERBS | STRONG_DESTROY_VERBS | _SETS["acts"]) - _HARMLESS
_ACTS_AS_NOUN: Final = add_inflections(NOUN_LIKE | _SETS["acts_as_noun"])
_PASSIVE = prepare_re(
    r"\b(?:is|are|gets?|being|(?:will|would)(?: \w+)? be)\s+"
    r"(?:then|also|automatically|immediately|permanently|always|afterwards)?\s*"
    rf"({_join_words('passive')}|logged out)\b(?!\s+by\b)"
)
_CONDITION = prepare_re(_PATTERNS["condition"])
_EFFECT_WORDS = prepare_re(_PATTERNS["effects"])
_FOR_SALE = prepare_re(_PATTERNS["for sale"], re.IGNORECASE)

# Hebrew: opening verbs for reading, and acting verbs with the prefixes `and`/`the`/`that`.
_HEBREW = prepare_re(r"[\u0590-\u05ff]")
_HEBREW_READS = prepare_re(rf"^(?:ה?כלי\s+(?:זה\s+)?|כלי\s+ש?)?ו?ש?(?:{_join_words('hebrew_reads')})(?=\s|$)")
_HEBREW_ACTS = prepare_re(
    rf"(?:^|[\s,.;:(])[והש]{{0,2}}(?:{_join_words('hebrew_acts')})[תהיםו]{{0,2}}(?=[\s,.;:)]|$)"
)
_OTHER_SCRIPT = prepare_re(r"[^\W\d_A-Za-z\u00aa-\u024f\u0370-\u03ff\u0590-\u05ff\u2070-\u209c]")


_PROGRAMS: Final = _SETS["programs"]
_ADDRESSES: Final = parse_word_set("callback endpoint href uri uris url urls webhook website")
_BODIES: Final = _SETS["bodies"]
_CHANGING: Final = _SETS["changing"]
_DESTINATIONS: Final = parse_word_set("filename savepath outfile outdir")
_DESTINATION_PAIRS: Final = frozenset(
    (first, second)
    for first in ("output", "save", "target", "dest", "destination", "export", "download")
    for second in ("path", "file", "dir", "directory", "folder", "filename", "to", "as", "location")
)
_FILTER_PREFIXES: Final = _SETS["filter_prefixes"]  # `include_body`
_QUESTION = prepare_re(_PATTERNS["question"], re.IGNORECASE)
# Query languages that can only read.
_READ_LANGUAGES = prepare_re(
    r"\b(?:promql|logql|traceql|metricsql|jql|lucene|xpath|jsonpath)\b", re.IGNORECASE
)
_SEARCHING: Final = add_inflections(parse_word_set("search find lookup list look get count match")) | {
    "searching"
}
_PLAIN_KINDS: Final = frozenset({"boolean", "integer", "number", "null"})
# `source_code`, not `country_code`
_WRITTEN_CODE: Final = parse_word_set("javascript js my python program source user")
_IDENTIFIER_WORDS: Final = TIMESTAMP_WORDS | _SETS["identifier_words"]  # `script_name`
_NO_PROGRAM: Final = parse_word_set("cron filter key projection")  # `filter_expression`


def find_doubt(definition: JsonObject) -> str:
    """Return why it is not certain that this tool only reads. An empty string means it is certain."""
    name = str(definition.get("name", ""))
    described = definition.get("description")
    text = described if isinstance(described, str) else ""
    return (
        _find_doubt_in_name(name)
        or _find_doubt_in_titles(definition)
        or _find_doubt_in_description(name, text)
        or find_parameter_doubt(definition, programs_only=False)
    )


def _find_doubt_in_name(name: str) -> str:
    words = split_words(name)
    for before, word in pairwise(words):
        if before in READ_VERBS and word in _ACTING_OBJECTS and (before, word) != ("look", "up"):
            return f"{before} {word!r} in its name may mean that it acts"
    if _LANGUAGES.search(name):
        return "its name speaks of a language in which anything can be said"
    return ""


def _find_doubt_in_titles(definition: JsonObject) -> str:
    annotations = definition.get("annotations")
    hinted = annotations.get("title") if isinstance(annotations, Mapping) else None
    for title in (definition.get("title"), hinted):
        if isinstance(title, str):
            found = find_in_name(title)
            if found is not None and found.effect is not Effect.READ and not found.doubtful:
                return found.reason.replace("its name", "its title", 1)
    return ""


def find_parameter_doubt(definition: JsonObject, *, programs_only: bool) -> str:
    """Return why the parameters suggest more than reading. `programs_only`: the hints are trusted."""
    name, described = str(definition.get("name", "")), definition.get("description")
    text = described if isinstance(described, str) else ""
    found = collect_parameters(definition.get("inputSchema"))
    if not found.complete:
        return f"its parameters are more than {MAX_PARTS} parts"
    for parameter, part in found.named:
        if programs_only:
            if _is_program_parameter(split_words(parameter)) and not _is_bounded(part):
                return f"its parameter {parameter!r} may take a program"
        elif (reason := _find_doubt_in_parameter(name, text, parameter, part)) is not None:
            return reason
    return ""


def _find_doubt_in_description(name: str, text: str) -> str:
    if not text.strip():
        return "it has no description that says so"
    if len(text) > MAX_TEXT_LENGTH:
        return "its description is longer than what is read of it"
    if _OTHER_SCRIPT.search(text):
        return "its description is in a language that is not judged"
    if _FOR_SALE.search(text):
        return "its description speaks of selling"
    text = NEGATION.sub(" ", _LABEL.sub("", text).lower())
    if _HEBREW.search(text):
        return _find_doubt_in_hebrew(text)
    if (found := _EFFECT_WORDS.search(text)) is not None:
        return f"its description says {found[0].strip()!r}"
    sentences = [sentence for sentence in _SENTENCE.split(text.strip()) if sentence.strip()]
    first = sentences[0] if sentences else ""
    if not _starts_with_reading_verb(name, first) and not _starts_with_read_noun(name, first):
        return "its description does not begin with what it reads"
    for number, sentence in enumerate(sentences):
        if (word := _find_acting_word(sentence, first=number == 0)) is not None:
            return f"its description says {word!r}"
    return ""


def _find_doubt_in_hebrew(text: str) -> str:
    if (found := _HEBREW_ACTS.search(text)) is not None:
        return f"its description says {found[0].strip()!r}"
    if not _HEBREW_READS.search(text.strip()):
        return "its description does not begin with what it reads"
    return ""


def _starts_with_reading_verb(name: str, sentence: str) -> bool:
    """Return whether the sentence starts with a reading verb: "Get …", "This tool will fetch …"."""
    if _OPENING_PHRASES.match(sentence):
        return True
    for word in re.findall(r"[\w'’-]+", sentence)[: _MAX_LEADING + 1]:
        if word in _OPENING or word in _OPENING_NOUNS:
            return word not in _WEAK_OPENING or not READ_VERBS.isdisjoint(split_words(name))
        if word not in _LEADING and not word.endswith("ly"):
            return word in ("web", "text", "code") and bool(re.search(r"\bsearch\b", sentence))
    return False


def _starts_with_read_noun(name: str, sentence: str) -> bool:
    """Return whether the sentence starts with the object of the name: "Issues of …" for `list_issues`."""
    words = split_words(name)
    if not words or words[0] not in _OBJECT_FIRST_VERBS or "new" in sentence:
        return False
    things = {to_singular(word) for word in words[1:]}
    pieces = _PIECE.findall(sentence)
    for place, word in enumerate(pieces[:_MAX_LEADING]):
        if to_singular(word) in things:
            following = pieces[place + 1] if place + 1 < len(pieces) else ""
            return place > 0 or following in _PREPOSITIONS
        if word not in _LEADING:
            return False
    return False


def _find_acting_word(sentence: str, *, first: bool) -> str | None:
    """Return a word that says that the tool does more than read, or None."""
    if (passive := _find_passive_act(sentence)) is not None:
        return passive
    if first and (opening := _OPENING_PHRASES.match(sentence)):
        sentence = f"get {sentence[opening.end() :]}"
    pieces = _PIECE.findall(sentence)
    boundary, ours, conditional = True, first, False
    for place, piece in enumerate(pieces):
        if piece in ",:()":
            boundary, conditional = True, False
            continue
        if piece in _OTHER_SUBJECTS and boundary:
            ours = False  # "You can get all …", "Users may …"
        if not conditional and boundary and (verb := _get_verb_at(pieces, place, ours=ours, first=first)):
            return verb
        if piece in _TOOL_SUBJECT or piece in _BOUNDARY or piece in _AUXILIARY:
            ours = ours or piece in _TOOL_SUBJECT
            boundary = True
        elif _CONDITION.fullmatch(piece):
            boundary, conditional = _parse_condition(pieces, place, first=first)
        else:
            boundary = boundary and (piece in _LEADING or piece.endswith("ly"))
    return None


def _parse_condition(pieces: list[str], place: int, *, first: bool) -> tuple[bool, bool]:
    """Return whether a verb of the tool may follow, and whether what follows has another subject."""
    word = pieces[place]
    if word in ("that", "which"):  # "a tool that deletes": about the tool only if it was just named
        return place <= 4 and any(one in _TOOL_SUBJECT for one in pieces[:place]), False
    if first and word in ("after", "before", "while") and place + 1 < len(pieces):
        gerund = pieces[place + 1].endswith("ing")  # "Returns the file after moving it"
        return gerund, not gerund
    return False, True


def _find_passive_act(sentence: str) -> str | None:
    """Return a passive verb such as in "which is burned afterwards", but not in "files that are deleted"."""
    found = _PASSIVE.search(sentence)
    if found is None:
        return None
    before = sentence[: found.start()].rstrip()
    return found[1] if before.endswith(", which") or not _CONDITION.search(before) else None


def _get_verb_at(pieces: list[str], place: int, *, ours: bool, first: bool) -> str | None:
    """Return the word at this position if it is an acting verb where a clause may have its verb."""
    word = pieces[place]
    if word in _HARMLESS or len(word) < 2:
        return None
    before = pieces[place - 1] if place else ""
    following = pieces[place + 1] if place + 1 < len(pieces) else ""
    governs = following in _OBJECT
    joined = before in _BOUNDARY or before == ","
    if word in _NEUTRAL:
        return word if governs and joined and first else None
    third = word.endswith("s") and not word.endswith("ss") and before != "to"
    if word in _ACTS:
        if word in _ACTS_AS_NOUN and not governs and not (third and joined and _is_thing(following)):
            return None
        return word if ours or third else None
    if third and joined and _VERB_ENDING.search(word) and word not in _PLURALS:
        return word
    if not governs:
        return None
    # An unknown word in verb position with an object is treated as a verb.
    if third or word.endswith("ing"):
        return word if third or place > 0 else None
    return word if first and joined else None


def _is_thing(word: str) -> bool:
    """Return whether a word may be the object of a verb: no preposition, participle or punctuation."""
    return (
        word.isalpha()
        and word not in _HARMLESS
        and word not in _BOUNDARY
        and not word.endswith(("ed", "ing"))
    )


def _find_doubt_in_parameter(name: str, text: str, parameter: str, part: JsonObject) -> str | None:
    words = split_words(parameter)
    if not words:
        return None
    opening, last = words[0], words[-1]
    if opening in _CHANGING and last not in TIMESTAMP_WORDS:
        return f"its parameter {parameter!r} speaks of changing something"
    if _is_bounded(part):
        return None
    if _is_program_parameter(words):
        return f"its parameter {parameter!r} may take a program"
    if last in _ADDRESSES:
        return f"its parameter {parameter!r} takes an address"
    if last in _BODIES and len(words) < 3 and opening not in _FILTER_PREFIXES:
        return f"its parameter {parameter!r} takes what would be written"
    destination = last in _DESTINATIONS or tuple(words[-2:]) in _DESTINATION_PAIRS
    if destination and not name.lower().endswith(f"_by_{parameter.lower()}"):  # what is looked for
        return f"its parameter {parameter!r} names a place to write to"
    if _LANGUAGES.search(parameter) or (
        to_singular(last) == "query"
        and (_LANGUAGES.search(_get_description(part)) or not _is_search(name, text))
    ):
        return f"its parameter {parameter!r} may be a statement that does anything"
    return None


def _is_program_parameter(words: tuple[str, ...]) -> bool:
    if not words:
        return False
    if "code" in words and (words[0] == "code" or not _WRITTEN_CODE.isdisjoint(words)):
        return True
    return (
        not _PROGRAMS.isdisjoint(words) and words[0] not in _NO_PROGRAM and words[-1] not in _IDENTIFIER_WORDS
    )


def _is_search(name: str, text: str) -> bool:
    """Return whether the tool's text says that `query` is a search text and not a statement to execute."""
    if _LANGUAGES.search(text):
        return False
    if _READ_LANGUAGES.search(text) or _QUESTION.search(text):
        return True
    words = set(split_words(name))
    if not words.isdisjoint(_VAGUE_NAMES):
        return False
    return not words.isdisjoint(_SEARCHING) or not _SEARCHING.isdisjoint(split_words(text)[:_MAX_LEADING])


def _get_description(part: JsonObject) -> str:
    described = part.get("description")
    return described[:MAX_TEXT_LENGTH] if isinstance(described, str) else ""


def _is_bounded(part: JsonObject) -> bool:
    """Return whether this is a number, a boolean or an enum, which cannot contain a command."""
    if "enum" in part or "const" in part:
        return True
    kinds = set(_iterate_types(part))
    return bool(kinds) and kinds <= _PLAIN_KINDS


def _iterate_types(part: JsonObject) -> Iterator[str]:
    yield from get_types(part)
    for keyword in ("anyOf", "oneOf"):
        branches = part.get(keyword)
        for branch in branches if is_list(branches) else ():
            if is_object(branch):
                yield from _iterate_types(branch) if "enum" not in branch else ("null",)
