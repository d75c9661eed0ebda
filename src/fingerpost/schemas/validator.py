"""JSON Schema validation with the `jsonschema` library, within a limited number of steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from itertools import islice
from threading import local
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio.to_thread

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject
from fingerpost.schemas import is_equal
from fingerpost.schemas.patterns import SchemaPattern, compile_pattern

# The library is imported inside functions: it takes a twentieth of a second to load, and most commands
# validate nothing.
if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    KeywordCheck: TypeAlias = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]

MAX_STEPS: Final = 60_000  # a quarter of a second on a slow machine
STEPS_FOR_CHECKING: Final = 20_000  # of these, reserved for validation
_CHARACTERS_PER_STEP: Final = 64  # characters of a text
_NODES_PER_STEP: Final = 8  # nested values


async def load_validator() -> None:
    """Load the library outside of the event loop. To be awaited before the first validation."""
    if not hasattr(sys.modules.get("jsonschema"), "validators"):  # not loaded completely
        await anyio.to_thread.run_sync(import_module, "jsonschema")


class StepBudgetExceeded(Exception):
    """The step budget is used up, so the check has no result."""


class StepBudget:
    """The steps left for one call. A part is reserved until `begin_checking`, out of reach of repairs."""

    __slots__ = ("_kept_back", "_left", "patterns")

    def __init__(self, limit: int = MAX_STEPS, reserved: int = STEPS_FOR_CHECKING) -> None:
        self._kept_back = min(limit, reserved)
        self._left = limit - self._kept_back
        self.patterns: dict[str, SchemaPattern | None] = {}  # patterns used so far; None: cannot be run

    @property
    def left(self) -> int:
        return self._left + self._kept_back

    def spend(self, steps: int) -> None:
        """Use this many steps. Raises `StepBudgetExceeded` if none are left, and on every later call."""
        self._left -= steps
        if self._left < 0:
            self._left = -1
            raise StepBudgetExceeded

    def begin_checking(self) -> None:
        """Release the reserved steps for validation."""
        self._left = max(self._left, 0) + self._kept_back
        self._kept_back = 0


def estimate_steps(value: Json) -> int:
    """Return the number of steps to traverse a whole value once."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_PER_STEP
    if not isinstance(value, dict | list):
        return 0
    nodes, letters = 0, 0
    todo: list[Json] = [cast("Json", value)]
    while todo:
        node = todo.pop()
        nodes += 1
        if isinstance(node, str):
            letters += len(node)
        elif isinstance(node, dict):
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)
    return nodes // _NODES_PER_STEP + letters // _CHARACTERS_PER_STEP


def estimate_comparison_steps(value: Json, others: int) -> int:
    """Return the number of steps to compare a value with this many others."""
    if isinstance(value, dict | list):
        return others * (1 + 4 * estimate_steps(cast("Json", value)))
    return others // 4


ENTRIES_PER_STEP: Final = 4  # entries of a value or a keyword
MAX_CACHED_PARTS: Final = 2_000  # cached parts of one schema
_LOOKUP_STEPS: Final = 4


@frozen(kw_only=False)
class SchemaPart:
    """A prepared part of a schema, and the minimum number of steps to check a value with it."""

    validator: Any
    steps: int
    shows_value: bool  # the library's error message contains the whole value


class SchemaReferences:
    """The parts and references of one schema, each resolved once.

    `anywhere`: references may also lead to anchors and to other ids than the schema's own.
    """

    def __init__(self, base: str, *, anywhere: bool) -> None:
        self._base = base
        self._anywhere = anywhere
        self._known: dict[tuple[str, str], Any] = {}
        self._parts: dict[tuple[int, str], SchemaPart] = {}

    def get_part(self, validator: Any, schema: dict[str, Any], resolver: Any) -> SchemaPart:
        """Return the prepared part. `schema` must live as long as the whole schema."""
        base = (validator._resolver if resolver is None else resolver)._base_uri
        known = self._parts.get((id(schema), base))
        if known is None:
            known = _build_part(validator, schema, resolver)
            if len(self._parts) < MAX_CACHED_PARTS:
                self._parts[id(schema), base] = known
        return known

    def follow(self, resolver: Any, reference: object) -> Any:
        """Resolve a reference within the schema. Return None for any other reference."""
        if not isinstance(reference, str):
            return None
        key: tuple[str, str] = (resolver._base_uri, reference)
        if key not in self._known:
            self._known[key] = self._look_up(resolver, *key)
        return self._known[key]

    def _look_up(self, resolver: Any, base: str, reference: str) -> Any:
        if not self._anywhere and (base != self._base or not (reference + "/").startswith("#/")):
            return None
        from referencing.exceptions import Unresolvable

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
    """Return the resolver for a part. References in a part with its own id are relative to that id."""
    if validator.ID_OF(part) is None:
        return validator._resolver
    from referencing.jsonschema import specification_with

    specification = specification_with(validator.ID_OF(validator.META_SCHEMA))
    return validator._resolver.in_subresource(specification.create_resource(part))


class UncheckablePart(Exception):
    """A part of the schema makes no sense, or leads nowhere, and the check is strict."""


class ValidationState(local):
    """The current check of this thread."""

    budget: StepBudget
    references: SchemaReferences
    strict: bool

    def __init__(self) -> None:
        self.active: set[tuple[int, int]] = set()

    def begin(self, budget: StepBudget, references: SchemaReferences, *, strict: bool) -> None:
        self.budget = budget
        self.references = references
        self.strict = strict
        self.active.clear()

    def follow(self, validator: Any, reference: object) -> Any:
        self.budget.spend(_LOOKUP_STEPS)
        return self.references.follow(validator._resolver, reference)

    def pass_over(self) -> None:
        """Leave out a part that cannot be checked. Raises `UncheckablePart` if the check is strict."""
        if self.strict:
            raise UncheckablePart


validation_state: Final = ValidationState()


OwnEntries: TypeAlias = Callable[[Any, Any, Any], set[Any]]


def find_evaluated(
    validator: Any, instance: Any, schema: Any, own: OwnEntries, within: frozenset[int] = frozenset()
) -> set[Any]:
    """Return the keys or indexes evaluated by this schema or by subschemas that apply to the same value."""
    if not isinstance(schema, dict) or id(cast("object", schema)) in within:
        return set()
    validation_state.budget.spend(1 + len(instance) // 4)
    node = cast("dict[str, Any]", schema)
    found = own(validator, instance, node)
    deeper = within | {id(node)}
    for inner, checks in _find_applicable(validator, instance, node):
        found |= find_evaluated(checks, instance, inner, own, deeper)
    return found


def _find_applicable(validator: Any, instance: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the subschemas that apply to the same value, each with its validator."""
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if (
            keyword in schema
            and (resolved := validation_state.follow(validator, schema[keyword])) is not None
        ):
            yield (resolved.contents, validator.evolve(schema=resolved.contents, _resolver=resolved.resolver))
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
    """Return whether the value fits this part of the schema."""
    return next(iter(validator.descend(instance, schema)), None) is None


def get_own_keys(_: Any, instance: Any, schema: dict[str, Any]) -> set[Any]:
    """Return the keys of an object that this schema's own keywords evaluate."""
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(instance)
    found = set(schema.get("properties", ())) & set(instance)
    for source in schema.get("patternProperties", ()):
        validation_state.budget.spend(len(instance))
        pattern = compile_pattern(source)
        found.update(key for key in instance if pattern is None or not pattern.is_mismatch(key))
    return found


def get_own_indexes(validator: Any, instance: Any, schema: dict[str, Any]) -> set[Any]:
    """Return the indexes of a list that this schema's own keywords evaluate."""
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


_TOLERANT_KEYWORDS: Final = frozenset(
    {
        "type", "required", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
        "dependentRequired", "uniqueItems", "pattern", "contains", "not", "unevaluatedItems",
        "unevaluatedProperties",
    }
)  # fmt: skip
_PATHLESS_KEYWORDS: Final = frozenset({"if", "$ref"})  # not part of an error's path
_CONTAINER_TYPES: Final = (list, dict)
_ERROR_STEPS: Final = 3  # steps to create or pass on an error
_MESSAGE_CHARACTERS_PER_STEP: Final = 64  # characters of an error message per step
_COMPILE_STEPS: Final = 100  # steps for a pattern that is new in this call
_MATCH_STEPS_PER_STEP: Final = 500  # steps of the pattern engine per budget step


@lru_cache(maxsize=16)
def build_bounded_validator(known: type[Validator], ignored: frozenset[str]) -> type[Validator]:
    """Return the library's validator for one draft without some keywords, extended with the step budget."""
    from jsonschema import Draft4Validator, validators

    # Draft 3 handles all keywords differently.
    base = Draft4Validator if "extends" in known.VALIDATORS else known
    keywords = cast("dict[str, KeywordCheck]", dict(base.VALIDATORS))
    keywords |= {
        name: ours for name, ours in _KEYWORD_CHECKS.items() if name in keywords or name.endswith("Ref")
    }
    keywords |= {name: _make_tolerant(keywords[name]) for name in _TOLERANT_KEYWORDS if name in keywords}
    keywords |= dict.fromkeys(ignored, _accept_anything)
    kind = cast("Any", validators).extend(base, validators=keywords)
    _pin_to_own_draft(kind)
    kind.descend = iterate_errors
    return cast("type[Validator]", kind)


def _pin_to_own_draft(kind: Any) -> None:
    """Make this validator class check every part of a schema itself.

    For a part with `$schema` the library would use the validator of that draft, without our limits and with
    Python's `re` for untrusted patterns.
    """
    fields = [(field.name, field.alias) for field in kind.__attrs_attrs__ if field.init]

    def evolve(self: Any, **changes: Any) -> Any:
        for name, alias in fields:
            if alias not in changes:
                changes[alias] = getattr(self, name)
        return kind(**changes)

    kind.evolve = evolve


def _accept_anything(*_: object) -> None:
    """Accept every value."""


def iterate_errors(
    validator: Any,
    instance: Any,
    schema: Any,
    path: Any = None,
    schema_path: Any = None,
    resolver: Any = None,
) -> Iterable[ValidationError]:
    """Return the errors of a value under this part of the schema. Steps are spent for it."""
    if schema is False:
        validation_state.budget.spend(1)
        return (_build_false_schema_error(instance, path, schema_path),)
    if not isinstance(schema, dict):
        return ()  # `true`, or an invalid schema
    part = validation_state.references.get_part(validator, cast("dict[str, Any]", schema), resolver)
    steps = part.steps
    if isinstance(instance, _CONTAINER_TYPES):
        steps += len(cast("list[Any]", instance)) // ENTRIES_PER_STEP
        if part.shows_value:
            steps += estimate_steps(cast("Json", instance))
    validation_state.budget.spend(steps)
    return _check_part(part.validator, instance, path, schema_path)


def _check_part(validator: Any, instance: Any, path: Any, schema_path: Any) -> Iterator[ValidationError]:
    schema = validator.schema
    for keyword, name, value in validator._validators:
        for error in keyword(validator, value, instance, schema) or ():
            validation_state.budget.spend(_ERROR_STEPS)
            error._set(
                validator=name,
                validator_value=value,
                instance=instance,
                schema=schema,
                type_checker=validator.TYPE_CHECKER,
            )
            if name not in _PATHLESS_KEYWORDS:
                error.schema_path.appendleft(name)
            yield _with_path(error, path, schema_path)


def _build_error(message: str, *, context: list[ValidationError] | None = None) -> ValidationError:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message, context=context or ())


def _build_false_schema_error(instance: Any, path: Any, schema_path: Any) -> ValidationError:
    error: Any = _build_error("no value is allowed here")
    error._set(validator=None, validator_value=None, instance=instance, schema=False)
    return _with_path(error, path, schema_path)


def _with_path(error: Any, path: Any, schema_path: Any) -> ValidationError:
    """Return the error with the last step of its path added."""
    if path is not None:
        error.path.appendleft(path)
    if schema_path is not None:
        error.schema_path.appendleft(schema_path)
    return error


def _make_tolerant(keyword: KeywordCheck) -> KeywordCheck:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
        try:
            found = list(keyword(validator, value, instance, schema) or ())
        except (StepBudgetExceeded, UncheckablePart):
            raise
        except Exception:  # noqa: BLE001 - `"minLength": "three"`: an invalid keyword is not checked
            validation_state.pass_over()
            return ()
        if found:
            validation_state.budget.spend(
                sum(len(error.message) for error in found) // _MESSAGE_CHARACTERS_PER_STEP
            )
        return found

    return check


def _check_reference(validator: Any, reference: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    """Follow a reference within the schema. Any other reference accepts every value."""
    resolved = validation_state.follow(validator, reference)
    here = (id(None if resolved is None else resolved.contents), id(instance))
    if resolved is None or here in validation_state.active:
        validation_state.pass_over()
        return
    validation_state.active.add(here)
    try:
        yield from validator.descend(instance, resolved.contents, resolver=resolved.resolver)
    finally:
        validation_state.active.discard(here)


def _compile_pattern(source: Any) -> SchemaPattern | None:
    """Return the compiled pattern, or None if it cannot be run."""
    if not isinstance(source, str):
        return None
    budget = validation_state.budget
    if source not in budget.patterns:
        budget.spend(_COMPILE_STEPS)
        budget.patterns[source] = compile_pattern(source)
    return budget.patterns[source]


def _is_mismatch(pattern: SchemaPattern, text: str) -> bool:
    validation_state.budget.spend(1 + pattern.estimate_cost(text) // _MATCH_STEPS_PER_STEP)
    return pattern.is_mismatch(text)


def _check_pattern(_: Any, source: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str):
        return
    pattern = _compile_pattern(source)
    if pattern is not None and _is_mismatch(pattern, instance):
        yield _build_error("does not match the pattern")


def _check_pattern_properties(validator: Any, parts: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping) or not isinstance(parts, Mapping):
        return
    for source, part in cast("Mapping[str, Any]", parts).items():
        pattern = _compile_pattern(source)
        if pattern is None:
            continue
        for key, value in cast("Mapping[str, Any]", instance).items():
            validation_state.budget.spend(1 + pattern.estimate_cost(key) // _MATCH_STEPS_PER_STEP)
            if pattern.is_match(key):
                yield from validator.descend(value, part, path=key, schema_path=source)


def _check_additional_properties(
    validator: Any, wanted: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping):
        return
    given = cast("Mapping[str, Any]", instance)
    if "patternProperties" in schema and validator.VALIDATORS["patternProperties"] is _accept_anything:
        return
    listed = schema.get("properties", {})
    patterns = [_compile_pattern(source) for source in schema.get("patternProperties", ())]
    if None in patterns:
        return  # keys that such a pattern may match are not additional
    extras = [
        key
        for key in given
        if key not in listed and all(_is_mismatch(cast("SchemaPattern", each), key) for each in patterns)
    ]
    if isinstance(wanted, dict):
        for key in extras:
            yield from validator.descend(given[key], wanted, path=key)
    elif not wanted and extras:
        yield _build_error("has more entries than the schema lists")


def _check_any_of(validator: Any, branches: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    found: list[ValidationError] = []
    for place, branch in enumerate(branches):
        errors = list(validator.descend(instance, branch, schema_path=place))
        if not errors:
            return
        found.extend(errors)
    yield _build_error("fits none of the alternatives", context=found)


def _check_one_of(validator: Any, branches: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    found: list[ValidationError] = []
    fitting = 0
    for place, branch in enumerate(branches):
        if fitting:
            fitting += is_accepted(validator, instance, branch)
            continue
        errors = list(validator.descend(instance, branch, schema_path=place))
        fitting += not errors
        found.extend(errors)
    if not fitting:
        yield _build_error("fits none of the alternatives", context=found)
    elif fitting > 1:
        yield _build_error("fits more than one of the alternatives")


def _check_not(validator: Any, unwanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if is_accepted(validator, instance, unwanted):
        yield _build_error("fits what it should not")


def _check_if(validator: Any, condition: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    way = "then" if is_accepted(validator, instance, condition) else "else"
    if way in schema:
        yield from validator.descend(instance, schema[way], schema_path=way)


def _check_contains(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, list):
        return
    fitting = sum(is_accepted(validator, item, wanted) for item in cast("list[Any]", instance))
    if not schema.get("minContains", 1) <= fitting <= schema.get("maxContains", fitting):
        yield _build_error("holds too few or too many of these")


def _check_enum(_: Any, choices: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if not isinstance(choices, list):
        return
    listed = cast("list[Json]", choices)
    validation_state.budget.spend(estimate_comparison_steps(instance, len(listed)))
    if not any(is_equal(instance, choice) for choice in listed):
        yield _build_error("is none of the permitted values")


def _check_const(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    validation_state.budget.spend(estimate_comparison_steps(instance, 1))
    if not is_equal(instance, wanted):
        yield _build_error("is not the one permitted value")


def _check_unique_items(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if wanted is not True or not isinstance(instance, list):
        return
    items = cast("list[Json]", instance)
    validation_state.budget.spend(4 * estimate_steps(items))
    if len({_build_identity(item) for item in items}) < len(items):
        yield _build_error("has equal items")


def _build_identity(value: Any) -> object:
    """Return a hashable key that is equal only for equal JSON: `true` is not 1, but 1.0 is."""
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, dict):
        return frozenset(
            (key, _build_identity(entry)) for key, entry in cast("dict[str, Any]", value).items()
        )
    if isinstance(value, list):
        return ("list", *map(_build_identity, cast("list[Any]", value)))
    return value


def _make_unevaluated_check(keyword: str, kind: type, own: OwnEntries, message: str) -> KeywordCheck:
    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, kind):
            return
        given: Any = instance
        outer = {key: part for key, part in schema.items() if key != keyword}
        seen = find_evaluated(validator, given, outer, own)
        entries = given.items() if kind is dict else enumerate(given)
        if not all(place in seen or is_accepted(validator, entry, wanted) for place, entry in entries):
            yield _build_error(message)

    return check


_KEYWORD_CHECKS: Final[dict[str, KeywordCheck]] = {
    "$ref": _check_reference,
    "$dynamicRef": _check_reference,
    "$recursiveRef": _check_reference,
    "pattern": _check_pattern,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_properties,
    "anyOf": _check_any_of,
    "oneOf": _check_one_of,
    "not": _check_not,
    "if": _check_if,
    "contains": _check_contains,
    "enum": _check_enum,
    "const": _check_const,
    "uniqueItems": _check_unique_items,
    "unevaluatedProperties": _make_unevaluated_check(
        "unevaluatedProperties", dict, get_own_keys, "has entries that nothing describes"
    ),
    "unevaluatedItems": _make_unevaluated_check(
        "unevaluatedItems", list, get_own_indexes, "has items that nothing describes"
    ),
}


MAX_VALIDATION_ERRORS: Final = 60


class SchemaValidator:
    """A schema that is ready to check values and parts of values.

    A part of the schema that cannot be checked accepts every value, or none if `strict`. Keywords in
    `ignored` are not checked.
    """

    def __init__(
        self, schema: JsonObject, *, strict: bool = False, ignored: frozenset[str] = frozenset()
    ) -> None:
        from jsonschema import Draft202012Validator, validators
        from referencing import Registry

        named = schema.get("$schema")
        known = validators.validator_for({"$schema": named}, default=Draft202012Validator)
        kind = build_bounded_validator(known, ignored)
        self._strict = strict
        self._root, self._references = _prepare_validator(kind(dict(schema), registry=Registry()))

    def find_errors(self, value: Json, budget: StepBudget) -> tuple[list[ValidationError], bool]:
        """Return the first errors of the whole value, and whether the check was complete."""
        found: list[ValidationError] = []
        try:
            self._collect_errors(self._root.schema, value, budget, found, limit=MAX_VALIDATION_ERRORS)
        except (StepBudgetExceeded, UncheckablePart):
            return found, False
        return found, True

    def is_valid(self, value: Json, budget: StepBudget) -> bool:
        """Return whether the whole value is valid. Raises `StepBudgetExceeded`."""
        return self.is_valid_part(value, self._root.schema, budget)

    def is_valid_part(self, value: Json, part: Json, budget: StepBudget) -> bool:
        """Return whether the value fits this part of the schema object. Raises `StepBudgetExceeded`."""
        try:
            return not self._collect_errors(part, value, budget, [], limit=1)
        except UncheckablePart:
            return False

    def _collect_errors(
        self, part: Any, value: Json, budget: StepBudget, found: list[ValidationError], *, limit: int
    ) -> list[ValidationError]:
        validation_state.begin(budget, self._references, strict=self._strict)
        try:
            for error in islice(iterate_errors(self._root, value, part), limit):
                found.append(error)  # noqa: PERF402 - keeps what was found before an error
        except (StepBudgetExceeded, UncheckablePart):
            raise
        except Exception:  # noqa: BLE001 - the server enforces a schema that the library cannot handle
            validation_state.pass_over()
        return found


def _prepare_validator(validator: Any) -> tuple[Any, SchemaReferences]:
    """Return the validator with all ids and anchors resolved, so that they are not searched each time."""
    base = cast("str", validator._resolver._base_uri)
    try:
        registry = validator._resolver._registry.crawl()
    except Exception:  # noqa: BLE001 - without a traversable schema only plain references are found
        return validator, SchemaReferences(base, anywhere=False)
    return validator.evolve(_resolver=registry.resolver(base_uri=base)), SchemaReferences(base, anywhere=True)
