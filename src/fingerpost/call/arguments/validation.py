"""Checking a value against a tool's schema, with the `jsonschema` library on a short leash.

The schema comes from a stranger. So no reference is ever fetched, a reference
that leads nowhere (or back to itself) counts as "anything", patterns run only
as far as `patterns` allows, and every check spends from the effort it is given:
a few lines of `$ref` or `anyOf` can ask for a million steps. A keyword that makes
no sense is not enforced; the server knows what it meant.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry

from fingerpost.call.arguments.effort import Effort, Spent
from fingerpost.call.arguments.journey import References, journey
from fingerpost.call.arguments.leash import descend, leashed
from fingerpost.records import Json, JsonObject

MOST_ERRORS: Final = 60


class Validation:
    """One schema, ready to check values and parts of values."""

    def __init__(self, schema: JsonObject) -> None:
        kind = _class_for(schema)
        self._root, self._references = _ready(kind(dict(schema), registry=Registry()))

    def errors(self, value: Json, effort: Effort) -> tuple[list[ValidationError], bool]:
        """What is wrong with the whole value, `MOST_ERRORS` at most, and whether all of it was checked."""
        found: list[ValidationError] = []
        try:
            self._gather(self._root.schema, value, effort, found, most=MOST_ERRORS)
        except Spent:
            return found, False
        return found, True

    def accepts(self, value: Json, effort: Effort) -> bool:
        """Whether the whole value fits. Raises `Spent`."""
        return not self._gather(self._root.schema, value, effort, [], most=1)

    def fits(self, value: Json, part: Json, effort: Effort) -> bool:
        """Whether the value fits this part, which must live as long as the schema. Raises `Spent`."""
        return not self._gather(part, value, effort, [], most=1)

    def _gather(
        self, part: Any, value: Json, effort: Effort, found: list[ValidationError], *, most: int
    ) -> list[ValidationError]:
        journey.begin(effort, self._references)
        try:
            for error in islice(descend(self._root, value, part), most):
                found.append(error)  # noqa: PERF402 - what was found before a fault stays found
        except Spent:
            raise
        except Exception:  # noqa: BLE001 - a schema the library chokes on is the server's to enforce
            return found
        return found


def _class_for(schema: JsonObject) -> type[Validator]:
    named = schema.get("$schema")
    known = validators.validator_for({"$schema": named}, default=Draft202012Validator)
    return leashed(known)


def _ready(validator: Any) -> tuple[Any, References]:
    """The validator with all ids and names of its schema known: it would look for them again each time."""
    base = cast("str", validator._resolver._base_uri)
    try:
        registry = validator._resolver._registry.crawl()
    except Exception:  # noqa: BLE001 - a schema that cannot be gone through: only plain places are found
        return validator, References(base, everywhere=False)
    return validator.evolve(_resolver=registry.resolver(base_uri=base)), References(base, everywhere=True)
