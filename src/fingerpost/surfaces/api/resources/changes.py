"""What changed in the definition of a tool or the words of a server, to be read before it is accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import unified_diff
from typing import Final

from fingerpost.catalog import find_differences
from fingerpost.catalog.fingerprint import extract_fingerprinted
from fingerpost.catalog.names import escape_invisible_except, escape_invisible_json
from fingerpost.frozen import frozen
from fingerpost.records import ChangedInstructions, JsonObject, Quarantined

_MAX_DIFF_LINES: Final = 2_000  # comparing longer texts line by line takes too long


@frozen
class DefinitionChange:
    """Both definitions, as far as models and people decide by them, and the difference between them.

    Lines of `diff` begin with `-`, `+`, a space, or `@@`. Characters one cannot see are written as JSON
    escapes. Nothing is left out.
    """

    before: JsonObject
    after: JsonObject
    diff: tuple[str, ...]
    pinned: str  # the fingerprint that is trusted
    seen: str  # the fingerprint to accept


@frozen
class InstructionsChange:
    """What a server said of itself and says now; the lines of `diff` are as those of definitions."""

    before: str
    after: str
    diff: tuple[str, ...]
    seen: str  # the fingerprint to accept


def instructions_change(changed: ChangedInstructions) -> InstructionsChange:
    return InstructionsChange(
        before=changed.before,
        after=changed.after,
        diff=text_difference(changed.before, changed.after),
        seen=changed.fingerprint,
    )


def build_change(entry: Quarantined) -> DefinitionChange:
    """Takes a moment for long definitions: not for an event loop."""
    before, after = entry.pin.definition, entry.card.definition
    return DefinitionChange(
        before=extract_fingerprinted(before),
        after=extract_fingerprinted(after),
        diff=diff_definitions(before, after),
        pinned=entry.pin.fingerprint,
        seen=entry.card.fingerprint,
    )


def diff_definitions(before: JsonObject, after: JsonObject) -> tuple[str, ...]:
    """The difference, line by line; by path where the definitions are very long."""
    old, new = _format_lines(before), _format_lines(after)
    if len(old) + len(new) > _MAX_DIFF_LINES:
        return tuple(_diff_by_path(before, after))
    return tuple(unified_diff(old, new, "pinned", "now", n=3, lineterm=""))[2:]


def text_difference(before: str, after: str) -> tuple[str, ...]:
    """The difference of two texts, line by line; the one and then the other where they are very long."""
    old, new = (
        [escape_invisible_except(line, keep="\t") for line in text.split("\n")] for text in (before, after)
    )
    if len(old) + len(new) > _MAX_DIFF_LINES:
        return () if old == new else (*(f"-{line}" for line in old), *(f"+{line}" for line in new))
    return tuple(unified_diff(old, new, "pinned", "now", n=3, lineterm=""))[2:]


def _format_lines(definition: JsonObject) -> list[str]:
    text = json.dumps(
        extract_fingerprinted(definition), ensure_ascii=False, indent=2, sort_keys=True, default=dict
    )
    return [escape_invisible_json(line) for line in text.split("\n")]


def _diff_by_path(before: JsonObject, after: JsonObject) -> Iterator[str]:
    for change in find_differences(before, after):
        yield f"@@ {change.path} @@"
        if change.before is not None:
            yield f"-{change.before}"
        if change.after is not None:
            yield f"+{change.after}"
