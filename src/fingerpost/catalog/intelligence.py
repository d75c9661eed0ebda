"""Metadata of a tool from four layers, each overriding those before: inferred, shipped, learned, written."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any, Final, TypeVar, cast

from fingerpost.catalog.words import GENERAL, STOP_WORDS, classify, split_words, take_distinct
from fingerpost.data_files import read_data_table, read_sections
from fingerpost.frozen import frozen
from fingerpost.records import (
    DataLabel,
    Effect,
    Instructions,
    Intelligence,
    IntentSignals,
    Json,
    JsonObject,
    Known,
    LatencyProfile,
    LatencyTier,
    Listing,
    ParameterHints,
    ResponseProfile,
    Source,
    UsageProfile,
)
from fingerpost.schemas import get_properties, get_required
from fingerpost.settings.model import ToolOverride

MAX_KEYWORDS: Final = 24
MAX_PARAMETERS: Final = 64
MAX_EXAMPLES: Final = 16
MAX_EXAMPLE_LENGTH: Final = 200

DEFAULT_TIMEOUT_MS: Final = 60_000
RESEARCH_TIMEOUT_MS: Final = 300_000

_EMPTY_OBJECT: Final[JsonObject] = {}
_EXAMPLE_KEYWORDS: Final = frozenset({"default", "const", "examples", "enum"})

# Typical milliseconds, typical tokens and priority of each category, and the default.
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

# Words that announce a long duration, longest first.
_SLOW_WORDS: Final = (
    (frozenset({"deep"}), frozenset({"research"}), 150_000),
    (frozenset({"research", "researcher"}), frozenset[str](), 60_000),
    (
        frozenset({"reason", "reasoning", "crawl", "crawler", "transcribe", "render"}),
        frozenset[str](),
        20_000,
    ),
)

_FEEDBACK_DELAYS: Final[Mapping[LatencyTier, tuple[int, str]]] = {
    LatencyTier.FAST: (3000, "a fast tool: shown only when it takes longer than usual"),
    LatencyTier.MEDIUM: (1000, "a tool of medium speed"),
    LatencyTier.SLOW: (500, "a slow tool"),
    LatencyTier.VERY_SLOW: (0, "a very slow tool: shown at once"),
}
_SHORT_TIMEOUT: Final = Known(DEFAULT_TIMEOUT_MS, Source.DEFAULT, "one minute, unless the tool is slow")
_LONG_TIMEOUT: Final = Known(RESEARCH_TIMEOUT_MS, Source.INFERRED, "five minutes for a slow tool")
_DEFAULT_MAX_TOKENS: Final = Known(_MAX_TOKENS, Source.DEFAULT)
_STRUCTURED: Final = Known(value=True, source=Source.INFERRED, reason="it declares an output schema")
_UNSTRUCTURED: Final = Known(value=False, source=Source.INFERRED, reason="it declares no output schema")
_NO_SUMMARY: Final = Known(
    value=False, source=Source.DEFAULT, reason="results are not summarised unless configured"
)
_NO_NAMES: Final[Known[tuple[str, ...]]] = Known((), Source.DEFAULT)
_DEFAULT_WEIGHT: Final = Known(1.0, Source.DEFAULT)
_NO_INTENT: Final[Known[str | None]] = Known(None, Source.DEFAULT)


def build_defaults(definition: JsonObject) -> Intelligence:
    """Return the defaults, used when inference is disabled. Parameters come from the schema."""
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
    """Infer all metadata from a definition."""
    category, evidence = classify(server, name, description)
    known_category = Known(category, Source.DEFAULT)
    if evidence:
        known_category = Known(category, Source.INFERRED, f"its words: {', '.join(evidence)}")
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
    """Build the latency profile from the typical duration."""
    tier = LatencyTier.from_milliseconds(typical.value)
    slow = tier in (LatencyTier.SLOW, LatencyTier.VERY_SLOW)
    delay, reason = _FEEDBACK_DELAYS[tier]
    guessed = Source.DEFAULT if typical.source is Source.DEFAULT else Source.INFERRED
    return LatencyProfile(
        typical=typical,
        timeout=_LONG_TIMEOUT if slow else _SHORT_TIMEOUT,
        feedback_delay=Known(delay, guessed, reason),
    )


def _infer_typical_latency(category: str, name: str, description: str) -> Known[int]:
    words = {*split_words(name), *split_words(description.partition(".")[0])}
    for any_of, and_also, milliseconds in _SLOW_WORDS:
        if (found := any_of & words) and and_also <= words:
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
        needs_summary=_NO_SUMMARY,
    )


def _infer_keywords(name: str, description: str, parameters: ParameterHints) -> Known[tuple[str, ...]]:
    named = (*parameters.required, *parameters.optional)
    words = dict.fromkeys(chain(split_words(name), split_words(description), *map(split_words, named)))
    significant = [word for word in words if len(word) > 1 and word not in STOP_WORDS and not word.isdigit()]
    return Known(tuple(significant[:MAX_KEYWORDS]), Source.INFERRED, _WORDS_REASON)


def build_parameter_hints(definition: JsonObject) -> ParameterHints:
    """Return the arguments of the tool, with examples from the schema."""
    schema = definition.get("inputSchema")
    properties, names = get_properties(schema), get_required(schema)
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
    """Return a value from the schema: an example, else the default, else an enum value."""
    if _EXAMPLE_KEYWORDS.isdisjoint(schema):
        return None  # the usual case
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
        return True  # an escape has at most six characters for one
    if isinstance(value, int) and value.bit_length() < 64:
        return True
    return len(json.dumps(value, default=dict)) <= MAX_EXAMPLE_LENGTH


def _as_mapping(value: Json) -> JsonObject:
    if type(value) is dict:  # the usual case; `isinstance` with Mapping is slow
        return cast("JsonObject", value)
    return value if isinstance(value, Mapping) else _EMPTY_OBJECT


@cache
def _read_known_tools() -> Mapping[str, WrittenOverride]:
    tables = read_data_table("fingerpost.catalog", "known_tools.toml")
    return {name: WrittenOverride(ToolOverride(match="*", **table), {}) for name, table in tables.items()}


_PACKAGE_ALIASES: Final[Mapping[str, str]] = {
    "mcp-server-filesystem": "@modelcontextprotocol/server-filesystem",
    "mcp-server-memory": "@modelcontextprotocol/server-memory",
    "mcp-server-everything": "@modelcontextprotocol/server-everything",
}
# Tools that describe themselves as reading but have an effect: they start and store an investigation.
_KNOWN_TO_ACT: Final = frozenset({"find_error_pattern_logs", "find_slow_requests"})


def is_known_read(package: str | None, name: str, parameters: Iterable[str]) -> bool:
    """Return whether this specific tool is known to only read, regardless of its description."""
    if package is None:
        return False
    known = _read_known_reads().get(_PACKAGE_ALIASES.get(package, package), {}).get(name)
    return known is not None and known.issuperset(parameters)


def is_known_to_act(name: str) -> bool:
    """Return whether tools of this name are known to do more than they say. A mistake only asks."""
    return normalize_name(name) in _KNOWN_TO_ACT


@cache
def _read_known_reads() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """Return the parameters of the tools known to only read, by package and name."""
    sections = read_sections("fingerpost.catalog", "known_reads.txt")
    return {
        package: {line.split()[0]: frozenset(line.split()[1:]) for line in text.splitlines() if line}
        for package, text in sections.items()
    }


def normalize_name(name: str) -> str:
    """Return the form in which names are compared: lower case, with `_` for `-`."""
    return name.lower().replace("-", "_")


def get_shipped_override(name: str) -> WrittenOverride | None:
    """Return the shipped override for a tool of this name, or None."""
    return _read_known_tools().get(normalize_name(name))


T = TypeVar("T")


@frozen(kw_only=False)
class WrittenOverride:
    """All written fields of one tool, and the pattern each comes from; no patterns if they are shipped."""

    fields: ToolOverride
    patterns: dict[str, str]

    def get_reason(self, field: str) -> str:
        return f"written for {self.patterns[field]!r}" if self.patterns else "shipped knowledge of this tool"

    def override(self, known: Known[T], field: str) -> Known[T]:
        """Return the written value of this field, or else what is known."""
        value: T | None = getattr(self.fields, field)
        return known if value is None else Known(value, Source.WRITTEN, self.get_reason(field))

    @property
    def labels(self) -> dict[DataLabel, Known[bool]]:
        """The written data labels."""
        return {
            label: Known(value, Source.WRITTEN, self.get_reason("labels"))
            for label, value in (self.fields.labels or {}).items()
        }

    @property
    def instructions(self) -> Instructions:
        """The written instructions for when to use the tool."""
        own = self.fields
        return Instructions(
            purpose=own.purpose or "",
            when=own.when or (),
            when_not=own.when_not or (),
            examples=own.examples or (),
        )


_NOTHING_WRITTEN: Final = WrittenOverride(ToolOverride.model_construct(match="*"), {})


class Overrides:
    """The written overrides, matched by key."""

    def __init__(self, overrides: Sequence[ToolOverride]) -> None:
        self._rules: list[tuple[Callable[[str], object], ToolOverride]] = [
            (re.compile(fnmatch.translate(item.match)).match, item) for item in overrides
        ]

    def find(self, key: str) -> WrittenOverride:
        """Return what is written about this tool."""
        values: dict[str, Any] = {}
        patterns: dict[str, str] = {}
        for matches, item in self._rules:
            if not matches(key):
                continue
            for field in item.model_fields_set - {"match"}:
                value = getattr(item, field)
                if value is not None:
                    # Labels are written one by one: a later entry replaces only those that it names.
                    values[field] = {**values.get(field, {}), **value} if field == "labels" else value
                    patterns[field] = item.match
        if not values:
            return _NOTHING_WRITTEN
        return WrittenOverride(ToolOverride.model_construct(match=key, **values), patterns)

    def get_pattern(self, key: str, field: str) -> str:
        """Return the pattern of the entry that sets this field; the tool's key if none does."""
        return self.find(key).patterns.get(field, key)


def apply_override(base: Intelligence, written: WrittenOverride) -> Intelligence:
    """Return `base` with every written field replaced."""
    override = written.override
    latency, response, signals = base.latency, base.response, base.signals
    return Intelligence(
        category=override(base.category, "category"),
        priority=override(base.priority, "priority"),
        hierarchy=override(base.hierarchy, "hierarchy"),
        conflicts=override(base.conflicts, "conflicts"),
        latency=LatencyProfile(
            typical=override(latency.typical, "typical_ms"),
            timeout=override(latency.timeout, "timeout_ms"),
            feedback_delay=override(latency.feedback_delay, "feedback_delay_ms"),
        ),
        response=ResponseProfile(
            typical_tokens=override(response.typical_tokens, "typical_tokens"),
            max_tokens=override(response.max_tokens, "max_tokens"),
            structured=override(response.structured, "structured"),
            needs_summary=override(response.needs_summary, "needs_summary"),
        ),
        signals=IntentSignals(
            keywords=override(signals.keywords, "keywords"),
            weight=override(signals.weight, "weight"),
            exclusive_intent=override(signals.exclusive_intent, "exclusive_intent"),
        ),
        parameters=base.parameters,
    )


MIN_CALLS: Final = 5  # fewer calls are not enough to learn from


def gather_intelligence(
    server: str,
    name: str,
    description: str,
    definition: JsonObject,
    effect: Effect,
    *,
    inferring: bool = True,
    usage: UsageProfile | None = None,
    written: WrittenOverride = _NOTHING_WRITTEN,
) -> Intelligence:
    """Return the metadata of this tool from all layers."""
    first = known = (
        infer(server, name, description, definition, effect) if inferring else build_defaults(definition)
    )
    if inferring and (hints := get_shipped_override(name)) is not None:
        known = apply_override(known, hints)
    if usage is not None and usage.calls >= MIN_CALLS:
        known = _apply_usage(known, usage)
    if written.patterns:
        known = apply_override(known, written)
    return known if known is first else replace(known, latency=_make_consistent(known.latency))


def _apply_usage(base: Intelligence, usage: UsageProfile) -> Intelligence:
    """Apply usage data. Values are rounded, so that one more call does not make a new catalog version."""
    reason = f"median of {_round_down(usage.calls, 1)} or more calls"
    return replace(
        base,
        latency=replace(
            base.latency, typical=Known(_round_down(usage.typical_ms, 2), Source.LEARNED, reason)
        ),
        response=replace(
            base.response, typical_tokens=Known(_round_down(usage.typical_tokens, 2), Source.LEARNED, reason)
        ),
    )


def _round_down(value: float, digits: int) -> int:
    """Round down to this number of leading digits: 1284 → 1200."""
    whole = max(0, int(value))
    unit = 10 ** max(0, len(str(whole)) - digits)
    return whole // unit * unit


def _make_consistent(profile: LatencyProfile) -> LatencyProfile:
    """Derive timeout and feedback from the typical latency where they are not written."""
    known = {"timeout": profile.timeout, "feedback_delay": profile.feedback_delay}
    written = {name: value for name, value in known.items() if value.source is Source.WRITTEN}
    return replace(build_latency(profile.typical), **written)


@cache
def _read_stateful() -> Mapping[str, frozenset[str]]:
    sections = read_sections("fingerpost.catalog", "stateful.txt")
    lines = {name: frozenset(sections[name].strip().splitlines()) for name in ("packages", "tools")}
    return {**lines, **{name: frozenset(sections[name].split()) for name in ("openers", "things")}}


def keeps_state(listing: Listing) -> bool:
    """Return whether the server of these tools probably keeps state between calls (a browser, a shell)."""
    known = _read_stateful()
    if listing.package in known["packages"]:
        return True
    for definition in listing.definitions:
        words = split_words(str(definition["name"]))
        if " ".join(words) in known["tools"]:
            return True
        if len(words) > 1 and words[0] in known["openers"] and words[-1] in known["things"]:
            return True
    return False
