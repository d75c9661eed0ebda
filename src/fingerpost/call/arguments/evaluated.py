"""Which entries of a value some part of a schema has looked at: `unevaluatedProperties` asks that.

The library has this too, but follows references in circles there, runs patterns as they
come and counts nothing. Where it is in doubt whether an entry was looked at, it was:
nothing is refused for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

from fingerpost.call.arguments.journey import validation_state
from fingerpost.call.arguments.patterns import compile_pattern

OwnEntries: TypeAlias = Callable[[Any, Any, Any], set[Any]]


def find_evaluated(
    validator: Any, instance: Any, schema: Any, own: OwnEntries, within: frozenset[int] = frozenset()
) -> set[Any]:
    """The keys or places that this schema, or one inside it that applies to the same value, looked at."""
    if not isinstance(schema, dict) or id(cast("object", schema)) in within:
        return set()
    validation_state.effort.spend(1 + len(instance) // 4)
    node = cast("dict[str, Any]", schema)
    found = own(validator, instance, node)
    deeper = within | {id(node)}
    for inner, checks in _find_applicable(validator, instance, node):
        found |= find_evaluated(checks, instance, inner, own, deeper)
    return found


def _find_applicable(validator: Any, instance: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The schemas inside that the same value has to do with, each with what checks it."""
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if (
            keyword in schema
            and (resolved := validation_state.follow(validator, schema[keyword])) is not None
        ):
            yield (
                resolved.contents,
                validator.evolve(schema=resolved.contents, _resolver=resolved.resolver),
            )
    for keyword in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(keyword, ()):
            if is_accepted(validator, instance, inner):
                yield inner, validator
    if "if" in schema:
        holds = is_accepted(validator, instance, schema["if"])
        yield from (
            (schema[name], validator) for name in (("if", "then") if holds else ("else",)) if name in schema
        )
    for key, inner in schema.get("dependentSchemas", {}).items():
        if key in instance:
            yield inner, validator


def is_accepted(validator: Any, instance: Any, schema: Any) -> bool:
    """Whether the value fits this part of the schema."""
    return next(iter(validator.descend(instance, schema)), None) is None


def get_own_keys(_: Any, instance: Any, schema: dict[str, Any]) -> set[Any]:
    """The keys of an object that this schema's own keywords look at."""
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(instance)
    found = set(schema.get("properties", ())) & set(instance)
    for source in schema.get("patternProperties", ()):
        validation_state.effort.spend(len(instance))
        pattern = compile_pattern(source)
        found.update(key for key in instance if pattern is None or not pattern.is_mismatch(key))
    return found


def get_own_indexes(validator: Any, instance: Any, schema: dict[str, Any]) -> set[Any]:
    """The places of a list that this schema's own keywords look at."""
    items = schema.get("items")
    if "additionalItems" in schema or "unevaluatedItems" in schema or isinstance(items, dict | bool):
        return set(range(len(instance)))
    first = schema.get("prefixItems", items)
    found = set(range(len(cast("list[Any]", first)))) if isinstance(first, list) else set[int]()
    if "contains" in schema:
        found.update(
            place for place, item in enumerate(instance) if is_accepted(validator, item, schema["contains"])
        )
    return found
