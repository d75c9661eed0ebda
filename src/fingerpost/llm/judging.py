"""Whether a value fits the schema a model was asked to keep to.

The schema may hold parts of a tool server's. So nothing it refers to is fetched, and what
costs more than a glance is left out: patterns (a stranger's regular expression can run for
ever) and uniqueness (which compares everything with everything). The call path
checks arguments properly, with its own bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry

from fingerpost.drafts import keep_to_one_draft
from fingerpost.records import JsonObject, check_json

MOST_NODES: Final = 20_000  # looked at for one reply; checking takes some ten microseconds for each
_COSTLY: Final = ("pattern", "patternProperties", "uniqueItems", "unevaluatedProperties")


class Judge:
    """One schema (None: any object or array will do), for the values in one reply."""

    def __init__(self, schema: JsonObject | None) -> None:
        self._validator = None if schema is None else _CHECKS(dict(schema), registry=Registry())
        self._left = MOST_NODES

    def accepts(self, value: object) -> bool:
        """Whether the value fits. After too many nodes nothing does."""
        if check_json(value) is not None:
            return False
        self._left -= _nodes(value, self._left)
        if self._left <= 0:
            return False
        if self._validator is None:
            return isinstance(value, dict | list)
        return self._fits(value)

    def _fits(self, value: object) -> bool:
        try:
            return next(iter(cast("Any", self._validator).iter_errors(value)), None) is None
        except Exception:  # noqa: BLE001 - a schema the library chokes on fits nothing, and stops nothing
            return False


def _nodes(value: object, most: int) -> int:
    """How many values are in this one, counted no further than `most`."""
    count, todo = 0, [value]
    while todo and count < most:
        node = todo.pop()
        count += 1
        if isinstance(node, dict):
            todo.extend(cast("dict[str, object]", node).values())
        elif isinstance(node, list):
            todo.extend(cast("list[object]", node))
    return count


def _unchecked(*_: object) -> None:
    """Says nothing about any value."""


def _additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """As the library's, except where it would have to match patterns."""
    if "patternProperties" not in schema:
        yield from _ADDITIONAL(validator, allowed, instance, schema) or ()


_ADDITIONAL: Final = cast("Any", Draft202012Validator).VALIDATORS["additionalProperties"]
_CHECKS: Final = cast(
    "type[Validator]",
    cast("Any", validators).extend(
        Draft202012Validator,
        validators={**dict.fromkeys(_COSTLY, _unchecked), "additionalProperties": _additional},
    ),
)
keep_to_one_draft(_CHECKS)
