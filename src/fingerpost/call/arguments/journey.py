"""What one check carries with it through the library, which passes nothing of ours along."""

from __future__ import annotations

from threading import local
from typing import Any, Final, cast

from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from fingerpost.call.arguments.effort import StepBudget
from fingerpost.frozen import frozen

ENTRIES_PER_STEP: Final = 4  # entries of a value or a keyword, for one step
MAX_KEPT_PARTS: Final = 2_000  # parts of one schema that stay ready
_LOOKUP_STEPS: Final = 4  # steps


@frozen(kw_only=False)
class SchemaPart:
    """A part of a schema made ready, and the steps that looking at a value with it takes at least."""

    validator: Any
    steps: int
    shows: bool  # the library shows a whole list that it refuses


class SchemaReferences:
    """The parts of one schema and what it refers to, each looked up once.

    `everywhere`: references may also lead to names and to other ids than that of the schema itself.
    """

    def __init__(self, base: str, *, anywhere: bool) -> None:
        self._base = base
        self._everywhere = anywhere
        self._known: dict[tuple[str, str], Any] = {}
        self._visits: dict[tuple[int, str], SchemaPart] = {}

    def get_part(self, validator: Any, schema: dict[str, Any], resolver: Any) -> SchemaPart:
        """What looks at values with this part, which must live as long as the whole schema."""
        base = (validator._resolver if resolver is None else resolver)._base_uri
        known = self._visits.get((id(schema), base))
        if known is None:
            known = _build_part(validator, schema, resolver)
            if len(self._visits) < MAX_KEPT_PARTS:
                self._visits[id(schema), base] = known
        return known

    def follow(self, resolver: Any, reference: object) -> Any:
        """What it refers to within the schema; None for anything else."""
        if not isinstance(reference, str):
            return None
        place: tuple[str, str] = (resolver._base_uri, reference)
        if place not in self._known:
            self._known[place] = self._look_up(resolver, *place)
        return self._known[place]

    def _look_up(self, resolver: Any, base: str, reference: str) -> Any:
        if not self._everywhere and (base != self._base or not (reference + "/").startswith("#/")):
            return None
        try:
            return resolver.lookup(reference)
        except (Unresolvable, ValueError, TypeError, AttributeError, LookupError):
            return None


def _build_part(validator: Any, part: dict[str, Any], resolver: Any) -> SchemaPart:
    made = validator.evolve(schema=part, _resolver=resolver or _find_resolver(validator, part))
    steps = sum(1 + _count_entries(value) // ENTRIES_PER_STEP for _, _, value in made._validators)
    return SchemaPart(made, 1 + steps, part.get("items") is False or part.get("additionalItems") is False)


def _count_entries(value: Any) -> int:
    return len(cast("list[Any]", value)) if isinstance(value, list | dict) else 0


def _find_resolver(validator: Any, part: dict[str, Any]) -> Any:
    """References within a part that has its own id are seen from there."""
    if validator.ID_OF(part) is None:
        return validator._resolver
    specification = specification_with(validator.ID_OF(validator.META_SCHEMA))
    return validator._resolver.in_subresource(specification.create_resource(part))


class ValidationState(local):
    """The check under way in this thread."""

    effort: StepBudget
    references: SchemaReferences

    def __init__(self) -> None:
        self.active: set[tuple[int, int]] = set()

    def begin(self, budget: StepBudget, references: SchemaReferences) -> None:
        self.effort = budget
        self.references = references
        self.active.clear()

    def follow(self, validator: Any, reference: object) -> Any:
        self.effort.spend(_LOOKUP_STEPS)
        return self.references.follow(validator._resolver, reference)


validation_state: Final = ValidationState()
