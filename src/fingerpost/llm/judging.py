"""Whether a value fits the schema a model was asked to keep to, and if not, why.

The schema may hold parts of a tool server's. So nothing it refers to is fetched, and what
costs more than a glance is left out: patterns (a stranger's regular expression can run for
ever) and uniqueness (which compares everything with everything). The call path
checks arguments properly, with its own bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, cast

from jsonschema import Draft202012Validator, exceptions, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry

from fingerpost.records import JsonObject, check_json

MOST_NODES: Final = 20_000  # looked at for one reply; checking takes some ten microseconds for each
_MOST_ERRORS: Final = 50
_SHOWN: Final = 300
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
        return not self._errors(value, 1)

    def complaint(self, value: object) -> str:
        """What is wrong with a value that does not fit."""
        if (reason := check_json(value)) is not None:
            return f"it {reason}"
        if _nodes(value, MOST_NODES) >= MOST_NODES:
            return "it is far too large"
        errors = self._errors(value, _MOST_ERRORS)
        worst = cast("ValidationError | None", cast("Any", exceptions).best_match(errors))
        return "it does not fit" if worst is None else f"at {worst.json_path}: {worst.message[:_SHOWN]}"

    def _errors(self, value: object, most: int) -> list[ValidationError]:
        try:
            found = cast("Any", self._validator).iter_errors(value)
            return list(islice(cast("Iterator[ValidationError]", found), most))
        except Exception:  # noqa: BLE001 - a schema the library chokes on fits nothing, and stops nothing
            return [ValidationError("the schema makes no sense")]


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
