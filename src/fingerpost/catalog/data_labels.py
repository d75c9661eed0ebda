"""Infers what a tool does with data: bring in untrusted content, read private data, send out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from fingerpost.catalog.effects import (
    DESTROY_VERBS,
    READ_VERBS,
    WRITE_VERBS,
    collect_parameters,
    has_reading_choice,
)
from fingerpost.catalog.words import MAX_TEXT_LENGTH, split_words, to_singular
from fingerpost.data_files import read_word_sets
from fingerpost.frozen import frozen
from fingerpost.records import DataLabel, Effect, JsonObject, Known, Source
from fingerpost.schemas import get_types

_SETS: Final = read_word_sets("fingerpost.catalog", "data_labels.txt")
_NO_OBJECTS: Final = (
    _SETS["fillers"]
    | (READ_VERBS | WRITE_VERBS | DESTROY_VERBS) - _SETS["others_content"] - _SETS["shared_objects"]
)
_MAX_WORDS: Final = 60
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|\n")


@frozen(kw_only=False)
class _ToolWords:
    """The words of a definition, in the singular, by where they stand."""

    name: tuple[str, ...]
    opening: tuple[str, ...]  # of the description: its first sentence
    server: tuple[str, ...]
    parameters: Mapping[str, tuple[str, ...]]  # the words of each parameter that takes free text
    effect: Effect

    @property
    def object(self) -> str:
        """The last word of the name that is neither a verb nor a filler: what the tool is about. What follows
        `by` only says how it is found: `get_file_by_id`.
        """
        end = self.name.index("by") if "by" in self.name[1:] else len(self.name)
        return next((word for word in reversed(self.name[:end]) if word not in _NO_OBJECTS), "")

    @property
    def is_read(self) -> bool:
        return self.effect is Effect.READ

    @property
    def reads(self) -> bool:
        """Whether the tool reads, possibly beside a change: a query in SQL, a download."""
        return self.is_read or bool(self.find_in_name("reading_acts"))

    def find_in_name(self, title: str) -> str:
        """Return where a word of this set stands, for a reason; empty if none does."""
        found = _find_first(self.name, _SETS[title])
        return f"its name says {found!r}" if found else ""

    def find_in_opening(self, title: str) -> str:
        found = _find_first(self.opening, _SETS[title])
        return f"its description says {found!r}" if found else ""

    def find_in_server(self, title: str) -> str:
        found = _find_first(self.server, _SETS[title])
        return f"its server is called {found!r}" if found else ""

    def find_parameter(self, title: str) -> str:
        """Return the first parameter whose last word is of this set and that does not repeat the object."""
        return next(
            (
                name
                for name, parts in self.parameters.items()
                if parts and parts[-1] in _SETS[title] and (len(parts) == 1 or parts[0] not in self.name)
            ),
            "",
        )


def infer_labels(server: str, definition: JsonObject, effect: Effect) -> dict[DataLabel, Known[bool]]:
    """Return the labels that apply to this tool, each with its reason."""
    words = _collect_words(server, definition, effect)
    anything = _find_program(words)
    found = {
        DataLabel.UNTRUSTED: anything or _find_untrusted(words),
        DataLabel.PRIVATE: anything or _find_private(words),
        DataLabel.OUTBOUND: anything or _find_outbound(words),
    }
    labels = {label: Known(True, Source.INFERRED, reason) for label, reason in found.items() if reason}  # noqa: FBT003
    if DataLabel.UNTRUSTED not in labels and words.is_read and _is_open_world(definition):
        labels[DataLabel.UNTRUSTED] = Known(True, Source.ANNOTATION, "annotated as open world")  # noqa: FBT003
    return labels


def infer_reading_labels(
    server: str, definition: JsonObject, operations: Mapping[str, Effect]
) -> dict[DataLabel, Known[bool]]:
    """Return the labels of what the reading operations of a tool that also writes bring in."""
    if Effect.READ not in operations.values() and not has_reading_choice(definition):
        return {}
    found = infer_labels(server, definition, Effect.READ)
    return {label: known for label, known in found.items() if label is not DataLabel.OUTBOUND}


def _find_program(words: _ToolWords) -> str:
    """A tool that takes a program can do anything."""
    if words.is_read:
        return ""
    parameter = words.find_parameter("program_parameters")
    return f"its parameter {parameter!r} takes a program, which can do anything" if parameter else ""


def _find_untrusted(words: _ToolWords) -> str:
    if _is_browser(words):
        return "" if words.find_in_name("browser_settings") else "it shows what stands on a web page"
    if not words.reads:
        return ""
    if reason := words.find_in_name("web_names") or words.find_in_server("web_names"):
        return reason
    if words.find_in_name("figures") or words.name[-1:] in (("day",), ("date",), ("time",)):
        return ""
    if words.name[-1:] == ("query",):
        return "its name says 'query': others may have entered what it returns"
    if words.object in _SETS["others_content"]:
        return f"its name says {words.object!r}, which others may have written"
    return "" if words.object in _SETS["machine_facts"] else _find_others_text(words)


def _find_others_text(words: _ToolWords) -> str:
    """Return why a tool whose object is not known brings in what others wrote."""
    if reason := words.find_in_name("others_content"):
        return f"{reason}, which others may have written"
    if reason := words.find_in_name("rows") or words.find_in_opening("rows"):
        return f"{reason}: others may have entered what it returns"
    first = _find_first(words.opening, _SETS["others_content"] | _SETS["machine_facts"])
    if first in _SETS["others_content"]:
        return f"its description says {first!r}"
    if first or words.find_in_name("machine_facts"):
        return ""
    unknown = "nothing says that only figures or settings come back" if words.is_read else ""
    return words.find_in_server("others_services") or unknown


def _find_private(words: _ToolWords) -> str:
    if not words.reads or words.find_in_name("public_words"):
        return ""
    if reason := words.find_in_server("private_services"):
        return reason
    if reason := words.find_in_name("private_things"):
        return reason
    return "" if words.find_in_opening("public_words") else words.find_in_opening("private_things")


def _find_outbound(words: _ToolWords) -> str:
    if _is_browser(words) and (reason := words.find_in_name("browser_acts")):
        return f"{reason}: it acts on a web page"
    if parameter := words.find_parameter("address_parameters"):
        return f"its parameter {parameter!r} takes an address"
    if words.is_read:
        return ""
    if "run" in words.name and words.object in _SETS["program_runs"]:
        return f"its name says 'run' and {words.object!r}: what runs can send anything"
    return words.find_in_name("sending_verbs") or _find_shared_object(words) or _find_recipient(words)


def _find_shared_object(words: _ToolWords) -> str:
    """Return why others see what this tool writes."""
    openings = _SETS["sending_openings"] | _SETS["sending_verbs"]
    for part, where in ((words.name, "name"), (words.opening, "description")):
        if part and part[0] in openings:
            return f"its {where} says {part[0]!r}"
    if words.object not in _SETS["shared_objects"] or not words.find_in_name("writing_verbs"):
        return ""
    in_team = words.find_in_server("team_services") or words.find_in_name("team_services")
    if words.object in _SETS["team_objects"] and not in_team:
        return ""
    return f"its name says {words.object!r}, which others see"


def _find_recipient(words: _ToolWords) -> str:
    parameter = words.find_parameter("recipient_parameters")
    if not parameter or (parameter == "to" and "from" in words.parameters):
        return ""
    return f"its parameter {parameter!r} names a recipient"


def _is_browser(words: _ToolWords) -> bool:
    return bool(words.find_in_server("browser_words") or _find_first(words.name[:1], _SETS["browser_words"]))


def _collect_words(server: str, definition: JsonObject, effect: Effect) -> _ToolWords:
    described = definition.get("description")
    text = described[:MAX_TEXT_LENGTH] if isinstance(described, str) else ""
    opening = _SENTENCE_END.split(text.strip(), maxsplit=1)[0]
    parameters = {
        name: _to_singulars(split_words(name))
        for name, part in collect_parameters(definition.get("inputSchema")).named
        if name and _takes_text(part)
    }
    return _ToolWords(
        name=_to_singulars(split_words(str(definition.get("name", "")))),
        opening=_to_singulars(split_words(opening)[:_MAX_WORDS]),
        server=_to_singulars(split_words(server)),
        parameters=parameters,
        effect=effect,
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
