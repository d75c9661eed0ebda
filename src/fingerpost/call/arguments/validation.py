"""Checking a value against a tool's schema, with the `jsonschema` library on a short leash.

The schema comes from a stranger. So no reference is ever fetched, a reference
that leads nowhere (or back to itself) counts as "anything", patterns run only
as far as `patterns` allows, and the number of references followed is bounded:
a few lines of `$ref` can ask for a million steps. A keyword that makes no sense
is not enforced; the server knows what it meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from threading import local
from typing import Any, Final, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from fingerpost.call.arguments.patterns import usable
from fingerpost.records import Json, JsonObject

MOST_REFERENCES: Final = 5_000  # in all checks of one call together
MOST_ERRORS: Final = 60
MOST_COMPARED: Final = 500  # items of a list checked for uniqueness the slow way

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]

_LEAVES: Final = (
    "type", "required", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
    "dependentRequired", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip


class _Journey(local):
    """References followed by the check under way in this thread."""

    followed: int = 0

    def __init__(self) -> None:
        self.active: set[tuple[int, int]] = set()


_journey = _Journey()


class Validation:
    """One schema, ready to check values and parts of values."""

    def __init__(self, schema: JsonObject) -> None:
        kind = _class_for(schema)
        self._root: Validator = kind(dict(schema), registry=Registry())
        self._parts: dict[int, Validator] = {}

    def begin(self) -> None:
        """A new call: what the last one spent on references is forgotten."""
        _journey.followed = 0

    def errors(self, value: Json) -> list[ValidationError]:
        """What is wrong with the whole value, at most `MOST_ERRORS` of it."""
        return _gather(self._root, value)

    def accepts(self, value: Json) -> bool:
        """Whether the whole value fits."""
        return not _gather(self._root, value, most=1)

    def fits(self, value: Json, part: Json) -> bool:
        """Whether the value surely fits this part of the schema. `part` must live as long as the schema."""
        if isinstance(part, bool) or _journey.followed > MOST_REFERENCES:
            return part is True
        known = self._parts.get(id(part))
        if known is None:
            known = self._parts[id(part)] = cast("Any", self._root).evolve(schema=part)
        return not _gather(known, value, most=1) and _journey.followed <= MOST_REFERENCES


def _gather(validator: Validator, value: Json, *, most: int = MOST_ERRORS) -> list[ValidationError]:
    found: list[ValidationError] = []
    _journey.active.clear()
    try:
        found.extend(islice(validator.iter_errors(cast("Any", value)), most))
    except Exception:  # noqa: BLE001 - a schema the library chokes on is the server's to enforce
        return found
    return found


def _class_for(schema: JsonObject) -> type[Validator]:
    named = schema.get("$schema")
    known = validators.validator_for({"$schema": named}, default=Draft202012Validator)
    return _leashed(known)


@lru_cache(maxsize=16)
def _leashed(kind: type[Validator]) -> type[Validator]:
    """The library's validator for one draft, with our bounds."""
    known = cast("dict[str, Keyword]", dict(kind.VALIDATORS))
    changed: dict[str, Keyword] = {name: _tolerant(known[name]) for name in _LEAVES if name in known}
    changed["$ref"] = changed["$dynamicRef"] = changed["$recursiveRef"] = _reference
    changed["pattern"] = _pattern
    changed["patternProperties"] = _pattern_properties
    changed["additionalProperties"] = _additional_properties(known["additionalProperties"])
    changed["uniqueItems"] = _unique_items(_tolerant(known["uniqueItems"]))
    return cast("type[Validator]", cast("Any", validators).extend(kind, validators=changed))


def _tolerant(keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        try:
            yield from keyword(validator, value, instance, schema) or ()
        except Exception:  # noqa: BLE001 - `"minLength": "three"`: the keyword says nothing we can check
            return

    return check


def _reference(validator: Any, reference: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    """Follow a reference within the schema; anything else is "anything"."""
    _journey.followed += 1
    if _journey.followed > MOST_REFERENCES:
        return
    try:
        resolved = validator._resolver.lookup(reference)
    except (Unresolvable, ValueError, TypeError, AttributeError):
        return
    here = (id(resolved.contents), id(instance))
    if here in _journey.active:
        return
    _journey.active.add(here)
    try:
        yield from validator.descend(instance, resolved.contents, resolver=resolved.resolver)
    finally:
        _journey.active.discard(here)


def _pattern(_: Any, source: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str) or not isinstance(source, str):
        return
    pattern = usable(source)
    if pattern is not None and pattern.refuses(instance):
        yield ValidationError("does not match the pattern")


def _pattern_properties(validator: Any, parts: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping) or not isinstance(parts, Mapping):
        return
    for source, part in cast("Mapping[str, Any]", parts).items():
        pattern = usable(source)
        for key, value in cast("Mapping[str, Any]", instance).items():
            if pattern is not None and len(key) <= pattern.longest and not pattern.refuses(key):
                yield from validator.descend(value, part, path=key, schema_path=source)


def _additional_properties(keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        parts = cast("Mapping[str, Any]", schema.get("patternProperties", {}))
        if not parts:
            yield from keyword(validator, value, instance, schema) or ()
            return
        patterns = [usable(source) for source in parts]
        if isinstance(instance, Mapping) and None not in patterns:
            # The library would join the patterns and run them unbounded; here it only sees what they leave.
            rest = {
                key: entry
                for key, entry in cast("Mapping[str, Any]", instance).items()
                if all(pattern is not None and pattern.refuses(key) for pattern in patterns)
            }
            yield from keyword(validator, value, rest, {"properties": schema.get("properties", {})}) or ()

    return check


def _unique_items(keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, list) and len(cast("list[Any]", instance)) <= MOST_COMPARED:
            yield from keyword(validator, value, instance, schema) or ()

    return check
