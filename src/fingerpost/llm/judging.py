"""Whether a value fits the schema a model was asked to keep to.

The schema may hold parts of a tool server's. So nothing it refers to is fetched, and what
costs more than a glance is left out: patterns (a stranger's regular expression can run for
ever) and uniqueness (which compares everything with everything). What is left can still
double with every level, so its steps are counted. The call path checks arguments
properly, with its own bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from contextvars import ContextVar
from typing import Any, Final, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry

from fingerpost.drafts import pin_to_own_draft
from fingerpost.records import JsonObject, check_json

MAX_NODES: Final = 20_000  # looked at for one reply; checking takes some ten microseconds for each
MAX_STEPS: Final = 10_000  # parts of the schema tried on parts of one reply
_LONG: Final = 64  # characters or entries of a value that count as one step more
_LENGTHY: Final = (str, list, dict)
_COSTLY: Final = ("pattern", "patternProperties", "uniqueItems", "unevaluatedProperties")


class SchemaMatcher:
    """One schema (None: any object or array will do), for the values in one reply."""

    def __init__(self, schema: JsonObject | None) -> None:
        self._validator = None if schema is None else _CHECKS(dict(schema), registry=Registry())
        self._left = MAX_NODES
        self._steps = [MAX_STEPS]

    def accepts(self, value: object) -> bool:
        """Whether the value fits. After too many nodes nothing does."""
        if check_json(value) is not None:
            return False
        self._left -= _count_nodes(value, self._left)
        if self._left <= 0:
            return False
        if self._validator is None:
            return isinstance(value, dict | list)
        return self._is_valid(value)

    def _is_valid(self, value: object) -> bool:
        told = _steps_left.set(self._steps)
        try:
            return next(iter(cast("Any", self._validator).iter_errors(value)), None) is None
        except Exception:  # noqa: BLE001 - a schema the library chokes on fits nothing, and stops nothing
            return False
        finally:
            _steps_left.reset(told)


class _TooManySteps(Exception):
    """The schema asks for more than it is worth."""


def _count_nodes(value: object, limit: int) -> int:
    """How many values are in this one, counted no further than `most`."""
    count, todo = 0, [value]
    while todo and count < limit:
        node = todo.pop()
        count += 1
        if isinstance(node, dict):
            todo.extend(cast("dict[str, object]", node).values())
        elif isinstance(node, list):
            todo.extend(cast("list[object]", node))
    return count


def _accept_anything(*_: object) -> None:
    """Says nothing about any value."""


def _check_additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """As the library's, except where it would have to match patterns."""
    if "patternProperties" not in schema:
        yield from _ADDITIONAL(validator, allowed, instance, schema) or ()


_ADDITIONAL: Final = cast("Any", Draft202012Validator).VALIDATORS["additionalProperties"]
_CHECKS: Final = cast(
    "type[Validator]",
    cast("Any", validators).extend(
        Draft202012Validator,
        validators={**dict.fromkeys(_COSTLY, _accept_anything), "additionalProperties": _check_additional},
    ),
)
pin_to_own_draft(_CHECKS)


def _count_steps(visit: Any) -> Any:
    """A way of the library to try a part of the schema on a value, which costs a step."""

    def counted(validator: Any, instance: Any, *rest: Any, **more: Any) -> Iterator[ValidationError]:
        steps = _steps_left.get()
        steps[0] -= 1 + (len(cast("Sized", instance)) // _LONG if isinstance(instance, _LENGTHY) else 0)
        if steps[0] < 0:
            raise _TooManySteps
        yield from visit(validator, instance, *rest, **more)

    return counted


_steps_left: ContextVar[list[int]] = ContextVar("steps_left")
cast("Any", _CHECKS).descend = _count_steps(cast("Any", _CHECKS).descend)
cast("Any", _CHECKS).iter_errors = _count_steps(cast("Any", _CHECKS).iter_errors)
