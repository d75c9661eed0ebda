"""What is listed keeps to the protocol, member by member.

Clients check a list as a whole, so one member of one entry that is not what the
protocol says would hide everything of every server. Such a member is left out;
whatever keeps to the protocol goes through as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from pydantic import BaseModel, ValidationError

from fingerpost.records import Json, JsonObject

_NOTHING: Final[JsonObject] = {}


def conform_entry(
    entry: JsonObject, model: type[BaseModel], *, replacements: JsonObject = _NOTHING
) -> JsonObject | None:
    """The entry without what is wrong in it; None where nothing usable is left.

    `instead` has values for members that must not be missing.
    """
    made = _drop_nulls(entry)
    wrong = _find_invalid_members(made, model)
    if not wrong:
        return made
    right: dict[str, Json] = {key: value for key, value in made.items() if key not in wrong}
    right.update({key: value for key, value in replacements.items() if key in wrong})
    return None if _find_invalid_members(right, model) else right


def _find_invalid_members(entry: JsonObject, model: type[BaseModel]) -> frozenset[str]:
    try:
        model.model_validate(entry, strict=True, by_name=False)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        return frozenset(str(fault["loc"][0]) for fault in faults if fault["loc"])
    return frozenset()


def _drop_nulls(entry: JsonObject) -> JsonObject:
    """The protocol leaves out what is not there; many clients take no null for it."""
    annotations = entry.get("annotations")
    if isinstance(annotations, Mapping) and None in annotations.values():
        said = {key: value for key, value in cast("JsonObject", annotations).items() if value is not None}
        entry = {**entry, "annotations": said}
    if None in entry.values():
        return {key: value for key, value in entry.items() if value is not None}
    return entry
