"""What can be told about a tool from its definition alone.

Every figure here is a first guess that recorded use or a person replaces. The
guesses are deliberately coarse: a tier of latency, a size class, a handful of
words. Parts that a server makes arbitrarily large are read up to a bound.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from typing import Final, cast

from fingerpost.catalog.categories import GENERAL, classify
from fingerpost.catalog.words import STOP_WORDS, split_words, take_distinct
from fingerpost.records import (
    Effect,
    Intelligence,
    IntentSignals,
    Json,
    JsonObject,
    Known,
    LatencyProfile,
    LatencyTier,
    ParameterHints,
    ResponseProfile,
    Source,
)

MAX_KEYWORDS: Final = 24
MAX_PARAMETERS: Final = 64
MAX_EXAMPLES: Final = 16
MAX_EXAMPLE_LENGTH: Final = 200

DEFAULT_TIMEOUT: Final = 60_000
RESEARCH_TIMEOUT: Final = 300_000

_EMPTY_OBJECT: Final[JsonObject] = {}
_EXAMPLE_KEYWORDS: Final = frozenset({"default", "const", "examples", "enum"})

# Typical milliseconds, typical tokens and priority of a category; the default for what fits none.
_TYPICAL_VALUES: Final[Mapping[str, tuple[int, int, int]]] = {
    "files": (200, 1500, 80),
    "code": (1500, 1500, 60),
    "system": (2500, 800, 50),
    "web_search": (4000, 2000, 70),
    "web_page": (2000, 4000, 60),
    "data": (3000, 1200, 60),
    "communication": (1500, 600, 60),
    "planning": (1500, 600, 60),
    "knowledge": (1000, 1000, 60),
    "media": (8000, 500, 60),
    "commerce": (1500, 600, 60),
    "time_place": (800, 200, 60),
    GENERAL: (2000, 800, 50),
}
_WORDS_REASON: Final = "from its name, description and parameters"
_WRITE_TOKENS: Final = 150
_DEPRECATED_PRIORITY: Final = 10
_MAX_TOKENS: Final = 8000

# Words that announce a long wait, the longest first.
_LATENCY_TIERS: Final = (
    (frozenset({"deep"}), frozenset({"research"}), 150_000),
    (frozenset({"research", "researcher"}), frozenset[str](), 60_000),
    (
        frozenset({"reason", "reasoning", "crawl", "crawler", "transcribe", "render"}),
        frozenset[str](),
        20_000,
    ),
)

_FEEDBACK: Final[Mapping[LatencyTier, tuple[int, str]]] = {
    LatencyTier.FAST: (3000, "a fast tool: shown only when it takes longer than usual"),
    LatencyTier.MEDIUM: (1000, "a tool of medium speed"),
    LatencyTier.SLOW: (500, "a slow tool"),
    LatencyTier.VERY_SLOW: (0, "a very slow tool: shown at once"),
}
_SHORT_TIMEOUT: Final = Known(DEFAULT_TIMEOUT, Source.DEFAULT, "one minute, unless the tool is slow")
_LONG_TIMEOUT: Final = Known(RESEARCH_TIMEOUT, Source.INFERRED, "five minutes for a slow tool")
_DEFAULT_MAX_TOKENS: Final = Known(_MAX_TOKENS, Source.DEFAULT)
_STRUCTURED: Final = Known(value=True, source=Source.INFERRED, reason="it declares an output schema")
_UNSTRUCTURED: Final = Known(value=False, source=Source.INFERRED, reason="it declares no output schema")
_NOT_STREAMED: Final = Known(
    value=False, source=Source.DEFAULT, reason="an answer is given whole unless written so"
)
_NO_NAMES: Final[Known[tuple[str, ...]]] = Known((), Source.DEFAULT)
_DEFAULT_WEIGHT: Final = Known(1.0, Source.DEFAULT)
_NO_INTENT: Final[Known[str | None]] = Known(None, Source.DEFAULT)


def build_defaults(definition: JsonObject) -> Intelligence:
    """The defaults, for when inference is switched off. Parameters are read off, not inferred."""
    milliseconds, tokens, priority = _TYPICAL_VALUES[GENERAL]
    return Intelligence(
        category=Known(GENERAL, Source.DEFAULT),
        priority=Known(priority, Source.DEFAULT),
        hierarchy=_NO_NAMES,
        conflicts=_NO_NAMES,
        latency=build_latency(Known(milliseconds, Source.DEFAULT)),
        response=ResponseProfile(
            typical_tokens=Known(tokens, Source.DEFAULT),
            max_tokens=_DEFAULT_MAX_TOKENS,
            structured=Known("outputSchema" in definition, Source.DEFAULT),
            needs_summary=Known(value=False, source=Source.DEFAULT),
        ),
        signals=IntentSignals(keywords=_NO_NAMES, weight=_DEFAULT_WEIGHT, exclusive_intent=_NO_INTENT),
        parameters=build_parameter_hints(definition),
    )


def infer(server: str, name: str, description: str, definition: JsonObject, effect: Effect) -> Intelligence:
    """Everything a definition tells about its tool."""
    category, evidence = classify(server, name, description)
    known_category = (
        Known(category, Source.INFERRED, f"its words: {', '.join(evidence)}")
        if evidence
        else Known(category, Source.DEFAULT)
    )
    parameters = build_parameter_hints(definition)
    return Intelligence(
        category=known_category,
        priority=_infer_priority(category, description),
        hierarchy=_NO_NAMES,
        conflicts=_NO_NAMES,
        latency=build_latency(_infer_typical_latency(category, name, description)),
        response=_infer_response(category, definition, effect),
        signals=IntentSignals(
            keywords=_infer_keywords(name, description, parameters),
            weight=_DEFAULT_WEIGHT,
            exclusive_intent=_NO_INTENT,
        ),
        parameters=parameters,
    )


def build_latency(typical: Known[int]) -> LatencyProfile:
    """The profile that follows from how long the tool usually takes."""
    tier = LatencyTier.from_milliseconds(typical.value)
    slow = tier in (LatencyTier.SLOW, LatencyTier.VERY_SLOW)
    delay, reason = _FEEDBACK[tier]
    guessed = Source.DEFAULT if typical.source is Source.DEFAULT else Source.INFERRED
    return LatencyProfile(
        typical=typical,
        timeout=_LONG_TIMEOUT if slow else _SHORT_TIMEOUT,
        feedback_delay=Known(delay, guessed, reason),
    )


def _infer_typical_latency(category: str, name: str, description: str) -> Known[int]:
    spoken = {*split_words(name), *split_words(description.partition(".")[0])}
    for any_of, and_also, milliseconds in _LATENCY_TIERS:
        if (found := any_of & spoken) and and_also <= spoken:
            return Known(milliseconds, Source.INFERRED, f"it speaks of {min(found)}")
    return Known(_TYPICAL_VALUES[category][0], Source.INFERRED, f"usual for {category}")


def _infer_priority(category: str, description: str) -> Known[int]:
    if "deprecated" in split_words(description):
        return Known(_DEPRECATED_PRIORITY, Source.INFERRED, "its description calls it deprecated")
    return Known(_TYPICAL_VALUES[category][2], Source.INFERRED, f"usual for {category}")


def _infer_response(category: str, definition: JsonObject, effect: Effect) -> ResponseProfile:
    if effect is Effect.READ:
        tokens = Known(_TYPICAL_VALUES[category][1], Source.INFERRED, f"usual for {category}")
    else:
        tokens = Known(_WRITE_TOKENS, Source.INFERRED, "a tool that acts mostly just confirms")
    return ResponseProfile(
        typical_tokens=tokens,
        max_tokens=_DEFAULT_MAX_TOKENS,
        structured=_STRUCTURED if isinstance(definition.get("outputSchema"), Mapping) else _UNSTRUCTURED,
        needs_summary=_NOT_STREAMED,
    )


def _infer_keywords(name: str, description: str, parameters: ParameterHints) -> Known[tuple[str, ...]]:
    named = (*parameters.required, *parameters.optional)
    spoken = dict.fromkeys(chain(split_words(name), split_words(description), *map(split_words, named)))
    telling = [word for word in spoken if len(word) > 1 and word not in STOP_WORDS and not word.isdigit()]
    return Known(tuple(telling[:MAX_KEYWORDS]), Source.INFERRED, _WORDS_REASON)


def build_parameter_hints(definition: JsonObject) -> ParameterHints:
    """Which arguments the tool takes, with an example where the schema gives one."""
    schema = _as_mapping(definition.get("inputSchema"))
    properties = _as_mapping(schema.get("properties"))
    listed = schema.get("required")
    names = [item for item in listed if isinstance(item, str)] if isinstance(listed, list | tuple) else []
    required = take_distinct(names, MAX_PARAMETERS)
    must = set(names)
    optional = take_distinct((name for name in properties if name not in must), MAX_PARAMETERS)
    examples: dict[str, Json] = {}
    for name in (*required, *optional):
        found = _find_example(_as_mapping(properties.get(name)))
        if found is not None and len(examples) < MAX_EXAMPLES:
            examples[name] = found
    return ParameterHints(required=required, optional=optional, examples=examples)


def _find_example(schema: JsonObject) -> Json:
    """A value the schema itself names: an example, else the default, else a permitted one."""
    if _EXAMPLE_KEYWORDS.isdisjoint(schema):
        return None  # most of them
    candidates = [schema.get("default"), schema.get("const")]
    for part, place in (("examples", 0), ("enum", len(candidates) + 1)):
        values = schema.get(part)
        if isinstance(values, list | tuple) and values:
            candidates.insert(place, values[0])
    for value in candidates:
        if value is not None and _is_short(value):
            return value
    return None


def _is_short(value: Json) -> bool:
    if type(value) is str and value.isascii() and len(value) <= MAX_EXAMPLE_LENGTH // 8:
        return True  # at most six characters stand for one
    if isinstance(value, int) and value.bit_length() < 64:
        return True
    return len(json.dumps(value, default=dict)) <= MAX_EXAMPLE_LENGTH


def _as_mapping(value: Json) -> JsonObject:
    if type(value) is dict:  # most are, and asking whether something is a Mapping is slow
        return cast("JsonObject", value)
    return value if isinstance(value, Mapping) else _EMPTY_OBJECT
