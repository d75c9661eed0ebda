"""Things of one kind joined by "and", "or" or a comma: what is said of the first is said of all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from fingerpost.choose.certain.values import RequestValue, ValueKind

_CONJUNCTION = re.compile(
    r"[\"'`”’»]?\s?(?:,|and|or|&|, ?and|, ?or|plus|\+|ו-?|או)(?:\s[\w'-]{1,12})?\s?(?:[א-ת]-?)?[\"'`“‘«]?"
)


def group_joined_values(values: Iterable[RequestValue], text: str) -> list[list[RequestValue]]:
    """The values that stand joined, group by group; what the request leaves out does not count."""
    found: list[list[RequestValue]] = []
    last: dict[ValueKind, RequestValue] = {}
    for value in values:
        if value.denied:
            continue
        before = last.get(value.kind)
        if before is not None and _CONJUNCTION.fullmatch(text[before.end : value.start][:30]):
            home = next((group for group in found if group[-1] is before), None)
            if home is None:
                found.append([before, value])
            else:
                home.append(value)
        last[value.kind] = value
    return found


def share_roles(values: list[RequestValue], text: str) -> tuple[RequestValue, ...]:
    """ "Into French and German": German has the role of French."""
    shared = {
        id(value): group[0].role
        for group in group_joined_values(values, text)
        for value in group[1:]
        if value.role is None
    }
    return tuple(replace(value, role=shared.get(id(value), value.role)) for value in values)
