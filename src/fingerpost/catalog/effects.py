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
    EffectFinding,
    find_against_reading,
    find_in_choices,
    find_in_description,
    find_in_name,
    find_program_parameter,
    find_query_language,
    find_second_effect,
    find_warning,
    settle_doubt,
)
from fingerpost.catalog.words import MAX_TEXT_LENGTH
from fingerpost.records import Effect, JsonObject, Known, Source

_UNKNOWN: Final = Known(Effect.WRITE, Source.DEFAULT, "nothing says what it does, so it counts as writing")


def judge_effect(definition: JsonObject) -> Known[Effect]:
    """The effect of the tool so defined: the most dangerous thing any believable witness says."""
    found = _find_in_words(definition)
    claimed = _read_annotations(definition.get("annotations"))
    if claimed is None:
        return _UNKNOWN if found is None else Known(found.effect, Source.INFERRED, found.reason)
    if found is None or found.doubtful or DANGER[claimed.effect] >= DANGER[found.effect]:
        return Known(claimed.effect, Source.ANNOTATION, claimed.reason)
    reason = f"{found.reason}; the server's claim ({claimed.reason}) is not believed"
    return Known(found.effect, Source.INFERRED, reason)


def _read_annotations(annotations: object) -> EffectFinding | None:
    """What the annotations say. A hint that is absent, or not a boolean, says nothing."""
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
    """The most dangerous thing its own words say. On a tie the more telling witness is named."""
    name, description = definition.get("name"), definition.get("description")
    text = description[:MAX_TEXT_LENGTH] if isinstance(description, str) else ""
    named = find_in_name(name if isinstance(name, str) else "")
    if named is not None and named.doubtful and (settled := settle_doubt(named, text)) is not None:
        named = settled
    witnesses = [named, find_in_choices(definition), *_find_beyond_name(named, definition, text)]
    found = [finding for finding in witnesses if finding is not None]
    return max(found, key=EffectFinding.get_weight, default=None)


def _find_beyond_name(
    named: EffectFinding | None, definition: JsonObject, text: str
) -> list[EffectFinding | None]:
    """What else is worth asking, given what the name said."""
    if named is None:
        return [
            find_query_language(definition, text),
            find_program_parameter(definition),
            find_in_description(text),
        ]
    if named.effect is Effect.READ:
        asks_database = "query" in named.reason
        return [find_query_language(definition, text) if asks_database else None, find_against_reading(text)]
    return [find_warning(text), find_second_effect(text) if named.doubtful else None]
