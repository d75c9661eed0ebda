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

from fingerpost.call.arguments.effort import StepBudget, StepBudgetExceeded
from fingerpost.call.arguments.journey import SchemaReferences, validation_state
from fingerpost.call.arguments.leash import build_bounded_validator, iterate_errors
from fingerpost.records import Json, JsonObject

MAX_VALIDATION_ERRORS: Final = 60


class SchemaValidator:
    """One schema, ready to check values and parts of values."""

    def __init__(self, schema: JsonObject) -> None:
        kind = _choose_validator_class(schema)
        self._root, self._references = _prepare_validator(kind(dict(schema), registry=Registry()))

    def find_errors(self, value: Json, budget: StepBudget) -> tuple[list[ValidationError], bool]:
        """What is wrong with the whole value, `MAX_VALIDATION_ERRORS` at most, and whether all of it was
        checked.
        """
        found: list[ValidationError] = []
        try:
            self._collect_errors(self._root.schema, value, budget, found, limit=MAX_VALIDATION_ERRORS)
        except StepBudgetExceeded:
            return found, False
        return found, True

    def is_valid(self, value: Json, budget: StepBudget) -> bool:
        """Whether the whole value fits. Raises `Spent`."""
        return not self._collect_errors(self._root.schema, value, budget, [], limit=1)

    def is_valid_part(self, value: Json, part: Json, budget: StepBudget) -> bool:
        """Whether the value fits this part, which must live as long as the schema. Raises `Spent`."""
        return not self._collect_errors(part, value, budget, [], limit=1)

    def _collect_errors(
        self, part: Any, value: Json, budget: StepBudget, found: list[ValidationError], *, limit: int
    ) -> list[ValidationError]:
        validation_state.begin(budget, self._references)
        try:
            for error in islice(iterate_errors(self._root, value, part), limit):
                found.append(error)  # noqa: PERF402 - what was found before a fault stays found
        except StepBudgetExceeded:
            raise
        except Exception:  # noqa: BLE001 - a schema the library chokes on is the server's to enforce
            return found
        return found


def _choose_validator_class(schema: JsonObject) -> type[Validator]:
    named = schema.get("$schema")
    known = validators.validator_for({"$schema": named}, default=Draft202012Validator)
    return build_bounded_validator(known)


def _prepare_validator(validator: Any) -> tuple[Any, SchemaReferences]:
    """The validator with all ids and names of its schema known: it would look for them again each time."""
    base = cast("str", validator._resolver._base_uri)
    try:
        registry = validator._resolver._registry.crawl()
    except Exception:  # noqa: BLE001 - a schema that cannot be gone through: only plain places are found
        return validator, SchemaReferences(base, anywhere=False)
    return validator.evolve(_resolver=registry.resolver(base_uri=base)), SchemaReferences(base, anywhere=True)
