"""Infers what a tool does with data: bring in untrusted content, read private data, send out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from fingerpost.catalog.effects import collect_parameters
from fingerpost.catalog.words import MAX_TEXT_LENGTH, split_words, to_singular
from fingerpost.data_files import read_word_sets
from fingerpost.frozen import frozen
from fingerpost.records import DataLabel, Effect, JsonObject, Known, Source
from fingerpost.schemas import get_types

_SETS: Final = read_word_sets("fingerpost.catalog", "data_labels.txt")
_MAX_SENTENCES: Final = 2
_MAX_WORDS: Final = 60
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|\n")


@frozen(kw_only=False)
class _ToolWords:
    """The words of a definition, in the singular, by where they stand."""

    name: tuple[str, ...]
    description: tuple[str, ...]
    server: tuple[str, ...]
    parameters: Mapping[str, tuple[str, ...]]  # the words of each parameter that takes free text

    def find(self, words: frozenset[str]) -> str:
        """Return where one of these words stands, for a reason; empty if none does."""
        return self.find_in_name(words) or self.find_in_description(words)

    def find_in_name(self, words: frozenset[str]) -> str:
        found = _find_first(self.name, words)
        return f"its name says {found!r}" if found else ""

    def find_in_description(self, words: frozenset[str]) -> str:
        found = _find_first(self.description, words)
        return f"its description says {found!r}" if found else ""

    def find_in_server(self, words: frozenset[str]) -> str:
        found = _find_first(self.server, words)
        return f"its server is called {found!r}" if found else ""

    def find_parameter(self, words: frozenset[str]) -> str:
        """Return the first parameter whose last word is one of these."""
        return next((name for name, parts in self.parameters.items() if parts and parts[-1] in words), "")


def infer_labels(server: str, definition: JsonObject, effect: Effect) -> dict[DataLabel, Known[bool]]:
    """Return the labels that apply to this tool, each with its reason."""
    words = _collect_words(server, definition)
    found = {
        DataLabel.UNTRUSTED: _find_untrusted(words, effect),
        DataLabel.PRIVATE: _find_private(words, effect),
        DataLabel.OUTBOUND: _find_outbound(words, effect),
    }
    labels = {label: Known(True, Source.INFERRED, reason) for label, reason in found.items() if reason}  # noqa: FBT003
    if DataLabel.UNTRUSTED not in labels and effect is Effect.READ and _is_open_world(definition):
        labels[DataLabel.UNTRUSTED] = Known(True, Source.ANNOTATION, "annotated as open world")  # noqa: FBT003
    return labels


def _find_untrusted(words: _ToolWords, effect: Effect) -> str:
    if reason := _find_program(words, effect) or _find_browser(words):
        return reason
    if effect is not Effect.READ and not words.find_in_name(_SETS["others_names"]):
        return ""
    if reason := words.find_in_name(_SETS["others_names"] | _SETS["others_content"]):
        return reason
    if words.find_in_name(_SETS["machine_facts"]):
        return ""
    return words.find_in_description(_SETS["others_content"]) or words.find_in_server(
        _SETS["others_services"]
    )


def _find_private(words: _ToolWords, effect: Effect) -> str:
    if reason := _find_program(words, effect):
        return reason
    if effect is not Effect.READ:
        return ""
    if reason := words.find_in_server(_SETS["private_services"]):
        return reason
    if words.find(_SETS["public_words"]):
        return ""
    return words.find(_SETS["private_things"])


def _find_outbound(words: _ToolWords, effect: Effect) -> str:
    if reason := _find_program(words, effect) or _find_browser(words):
        return reason
    if parameter := words.find_parameter(_SETS["address_parameters"]):
        return f"its parameter {parameter!r} takes an address"
    if effect is Effect.READ:
        return ""
    if reason := words.find_in_name(_SETS["sending_verbs"]):
        return reason
    if words.find_in_name(_SETS["writing_verbs"]) and (reason := words.find_in_name(_SETS["shared_objects"])):
        return f"{reason}, which others see"
    if parameter := words.find_parameter(_SETS["recipient_parameters"]):
        return f"its parameter {parameter!r} names a recipient"
    return words.find_in_description(_SETS["sending_verbs"])


def _find_program(words: _ToolWords, effect: Effect) -> str:
    if effect is Effect.READ:
        return ""
    parameter = words.find_parameter(_SETS["program_parameters"])
    return f"its parameter {parameter!r} takes a program, which can do anything" if parameter else ""


def _find_browser(words: _ToolWords) -> str:
    if not (words.find_in_name(_SETS["browser_words"]) or words.find_in_server(_SETS["browser_words"])):
        return ""
    return words.find_in_name(_SETS["browser_verbs"])


def _collect_words(server: str, definition: JsonObject) -> _ToolWords:
    described = definition.get("description")
    text = described[:MAX_TEXT_LENGTH] if isinstance(described, str) else ""
    opening = ". ".join(_SENTENCE_END.split(text.strip())[:_MAX_SENTENCES])
    parameters = {
        name: _to_singulars(split_words(name))
        for name, part in collect_parameters(definition.get("inputSchema")).named
        if name and _takes_text(part)
    }
    return _ToolWords(
        name=_to_singulars(split_words(str(definition.get("name", "")))),
        description=_to_singulars(split_words(opening)[:_MAX_WORDS]),
        server=_to_singulars(split_words(server)),
        parameters=parameters,
    )


def _to_singulars(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(to_singular, words))


def _find_first(words: tuple[str, ...], wanted: frozenset[str]) -> str:
    return next((word for word in words if word in wanted), "")


def _takes_text(part: JsonObject) -> bool:
    """Return whether a parameter takes free text: no number, boolean or enum."""
    if "enum" in part or "const" in part:
        return False
    kinds = set(get_types(part))
    return not kinds or not kinds <= {"boolean", "integer", "number", "null"}


def _is_open_world(definition: JsonObject) -> bool:
    annotations = definition.get("annotations")
    return isinstance(annotations, Mapping) and annotations.get("openWorldHint") is True
