"""What calling a tool does to the world, and how we know.

Two kinds of witness: the tool's own words (`evidence`) and its annotations. The
protocol calls annotations hints, not facts, so a harmless one is believed only
where no word contradicts it, and a dangerous one always. Where nothing is
known, a tool counts as writing: people are asked before it runs. Only a person
may say otherwise (an override in the settings, applied by the caller).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from fingerpost.catalog.evidence import (
    DANGER,
    Finding,
    against_reading,
    beside,
    in_choices,
    in_description,
    in_name,
    settle,
    takes_program,
    takes_query_language,
    warning,
)
from fingerpost.catalog.words import LONGEST_TEXT
from fingerpost.records import Effect, JsonObject, Known, Source

_UNKNOWN: Final = Known(Effect.WRITE, Source.DEFAULT, "nothing says what it does, so it counts as writing")


def judge(definition: JsonObject) -> Known[Effect]:
    """The effect of the tool so defined: the most dangerous thing any believable witness says."""
    found = _in_words(definition)
    claimed = _claim(definition.get("annotations"))
    if claimed is None:
        return _UNKNOWN if found is None else Known(found.effect, Source.INFERRED, found.reason)
    if found is None or found.doubtful or DANGER[claimed.effect] >= DANGER[found.effect]:
        return Known(claimed.effect, Source.ANNOTATION, claimed.reason)
    reason = f"{found.reason}; the server's claim ({claimed.reason}) is not believed"
    return Known(found.effect, Source.INFERRED, reason)


def _claim(annotations: object) -> Finding | None:
    """What the annotations say. A hint that is absent, or not a boolean, says nothing."""
    if not isinstance(annotations, Mapping):
        return None
    hints = cast("JsonObject", annotations)
    read_only, destructive = hints.get("readOnlyHint"), hints.get("destructiveHint")
    if destructive is True:
        return Finding(Effect.DESTROY, "annotated as destructive")
    if read_only is True:
        return Finding(Effect.READ, "annotated as read-only")
    if destructive is False:
        return Finding(Effect.WRITE, "annotated as not destructive")
    if read_only is False:
        return Finding(Effect.WRITE, "annotated as not read-only")
    return None


def _in_words(definition: JsonObject) -> Finding | None:
    """The most dangerous thing its own words say. On a tie the more telling witness is named."""
    name, description = definition.get("name"), definition.get("description")
    text = description[:LONGEST_TEXT] if isinstance(description, str) else ""
    named = in_name(name if isinstance(name, str) else "")
    if named is not None and named.doubtful and (settled := settle(named, text)) is not None:
        named = settled
    witnesses = [named, in_choices(definition), *_beyond_name(named, definition, text)]
    found = [finding for finding in witnesses if finding is not None]
    return max(found, key=Finding.weight, default=None)


def _beyond_name(named: Finding | None, definition: JsonObject, text: str) -> list[Finding | None]:
    """What else is worth asking, given what the name said."""
    if named is None:
        return [
            takes_query_language(definition, text),
            takes_program(definition),
            in_description(text),
        ]
    if named.effect is Effect.READ:
        asks_database = "query" in named.reason
        return [takes_query_language(definition, text) if asks_database else None, against_reading(text)]
    return [warning(text), beside(text) if named.doubtful else None]
