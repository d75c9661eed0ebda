"""Prepares arguments: repairs what has one meaning, validates the rest, translates for another tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from fingerpost.call.arguments.coercion import (
    NULL_WORDS,
    convert,
    copy_object,
    find_excess,
    is_iso_date,
    parse_object,
    read_whole_float,
    redact_value,
    requires_iso_date,
)
from fingerpost.call.arguments.errors import (
    MAX_ERRORS,
    PreparedArguments,
    build_unknown_key_error,
    build_value_error,
    explain_errors,
    join_path,
)
from fingerpost.call.arguments.matches import (
    MAX_CHOICES,
    SYNONYM_GROUPS,
    GivenObject,
    Rename,
    find_intended_choice,
    find_renames,
    normalize_name,
    split_name,
)
from fingerpost.call.arguments.tool_schema import MAX_NOTES, ToolSchema, format_signature, tool_schemas
from fingerpost.catalog.words import parse_word_set
from fingerpost.dates import DateDoubt, read_date
from fingerpost.records import Json, JsonObject, ParameterError, ParameterFault, Repair, RepairKind, ToolCard
from fingerpost.schemas import NO_OBJECT, ExtraKeys, SchemaNode, is_equal, is_list, is_object, is_of_type
from fingerpost.schemas.validator import (
    StepBudget,
    StepBudgetExceeded,
    estimate_comparison_steps,
    estimate_steps,
)

T = TypeVar("T")

MAX_REPAIR_DEPTH: Final = 64
_PLAIN_KEYWORDS: Final = frozenset({"type", "title", "description", "default", "examples"})


@dataclass(slots=True)
class ArgumentRepair:
    """One repair of the arguments, and the changes it made."""

    tool_schema: ToolSchema
    budget: StepBudget
    depth: int = 0
    repairs: list[Repair] = field(default_factory=list[Repair])
    doubts: list[ParameterError] = field(default_factory=list[ParameterError])

    def repair_value(self, source: Json, value: Json, path: str) -> Json:
        """Return the value repaired for this part of the schema. Raises `StepBudgetExceeded`."""
        self.budget.spend(2)
        if self.depth > MAX_REPAIR_DEPTH:
            return value
        self.depth += 1
        try:
            return self._repair_node(self.tool_schema.nodes.get_node(source), value, path)
        finally:
            self.depth -= 1

    def _repair_node(self, node: SchemaNode, value: Json, path: str) -> Json:
        if node.branches:
            value = self._repair_by_branch(node, value, path)
        if node.choices:
            return self._repair_choice(node, value, path)
        if not is_of_type(value, node.types):
            value = self._convert_type(node, value, path)
        return self._repair_inside(node, value, path)

    def _repair_inside(self, node: SchemaNode, value: Json, path: str) -> Json:
        if isinstance(value, str):
            return self._repair_date(node, value, path)
        if isinstance(value, float) and "integer" in node.types and "number" not in node.types:
            reading = read_whole_float(value)
            return (
                value
                if reading is None
                else self.record_repair(path, RepairKind.COERCED, value, *reading.pair)
            )
        if is_object(value) and (node.properties or node.extras is not ExtraKeys.ALLOWED):
            return self.repair_object(node, value, path)
        if is_list(value) and is_object(node.items):
            return [
                self.repair_value(node.items, item, f"{path}[{place}]") for place, item in enumerate(value)
            ]
        return value

    def repair_object(self, node: SchemaNode, given: JsonObject, path: str) -> dict[str, Json]:
        """Repair an object: first its keys, then its values, then missing values."""
        entries = self.apply_fully(lambda: self._rename_keys(node, given, path), given)
        result: dict[str, Json] = {}
        for key, value in entries.items():
            key_path = join_path(path, key)
            if key in node.properties:
                taken = self.apply_fully(partial(self._choose_value, node, key, value, key_path), (value,))
                result.update((key, each) for each in taken)
            elif not _is_meaningless(node, value, root=not path):
                result[key] = value
            else:
                self.record_repair(
                    key_path, RepairKind.REMOVED, value, None, "an unknown parameter without a value"
                )
        with suppress(StepBudgetExceeded):
            self._fill_missing(node, path, result)
            self._report_ambiguous(node, path, result)
        return result

    def apply_fully(self, change: Callable[[], T], fallback: T) -> T:
        """Apply a change completely, or return `fallback` if the step budget is exceeded meanwhile."""
        repairs, doubts = len(self.repairs), len(self.doubts)
        try:
            return change()
        except StepBudgetExceeded:
            del self.repairs[repairs:]
            del self.doubts[doubts:]
            return fallback

    def _choose_value(self, node: SchemaNode, key: str, value: Json, path: str) -> tuple[Json, ...]:
        """Return the value for a parameter, or nothing if it should be omitted."""
        source = node.properties[key]
        if value is None and not self._is_valid(source, value):
            if key not in node.required:
                self.record_repair(path, RepairKind.REMOVED, value, None, "null for an optional parameter")
                return ()
            if self.tool_schema.nodes.get_node(source).default:
                return ()  # filled like a missing value
        mended = self.repair_value(source, value, path)
        if key not in node.required and _is_null(mended) and not self._is_valid(source, mended):
            self.record_repair(
                path, RepairKind.REMOVED, value, None, "an empty value for an optional parameter"
            )
            return ()
        return (mended,)

    def _fill_missing(self, node: SchemaNode, path: str, result: dict[str, Json]) -> None:
        for name in node.required:
            if name in result or name not in node.properties:
                continue
            default = self.tool_schema.nodes.get_node(node.properties[name]).default
            if default and self._is_valid(node.properties[name], default[0]):
                key_path = join_path(path, name)
                result[name] = self.record_repair(
                    key_path, RepairKind.DEFAULT, None, default[0], "missing; the schema's default"
                )

    def _rename_keys(self, node: SchemaNode, given: JsonObject, path: str) -> JsonObject:
        unknown = [key for key in given if key not in node.properties]
        if not unknown:
            return given
        empty = [key for key in unknown if given[key] is None]
        open_names = self._find_open_parameters(node, given)
        keys = [key for key in unknown if key not in empty]
        given_object = self.build_given_object(node, given, path)
        found = {rename.key: rename for rename in find_renames(given_object, keys, open_names)}
        result: dict[str, Json] = {}
        for key, value in given.items():
            rename = found.get(key)
            if rename is None:
                result.setdefault(key, value)
                continue
            result[rename.parameter] = value
            before, after = (
                {key: redact_value(key, value)},
                {rename.parameter: redact_value(rename.parameter, value)},
            )
            self.repairs.append(
                Repair(
                    path=join_path(path, rename.parameter),
                    kind=RepairKind.RENAMED,
                    before=before,
                    after=after,
                    reason=rename.reason,
                )
            )
        return result

    def _find_open_parameters(self, node: SchemaNode, given: JsonObject) -> list[str]:
        """Return the parameters without a value: only required ones if additional keys are allowed."""
        names = node.required if node.extras is ExtraKeys.ALLOWED else node.properties
        return [
            name
            for name in names
            if name in node.properties
            and (
                name not in given or (given[name] is None and not self._is_valid(node.properties[name], None))
            )
        ]

    def build_given_object(self, node: SchemaNode, given: JsonObject, path: str) -> GivenObject:
        known: dict[tuple[str, str], bool] = {}

        def fits(key: str, name: str) -> bool:
            if (key, name) not in known:
                known[key, name] = self._can_fit(node.properties[name], given[key], join_path(path, name))
            return known[key, name]

        return GivenObject(
            given=given,
            parameters=lambda name: self.tool_schema.nodes.get_node(node.properties[name]),
            required=frozenset(node.required),
            topic=self.tool_schema.topic,
            fits=fits,
            spend=self.budget.spend,
        )

    def _report_ambiguous(self, node: SchemaNode, path: str, result: dict[str, Json]) -> None:
        """Report unknown parameters that may stand for an open one.

        Nested objects are not checked: their schemas often list only example keys.
        """
        if path or node.extras is not ExtraKeys.UNSPECIFIED:
            return
        unknown = [key for key in result if key not in node.properties]
        open_names = [name for name in node.properties if name not in result] if unknown else []
        for key in unknown:
            if len(self.doubts) >= MAX_ERRORS:
                return
            if any(
                self._can_fit(node.properties[name], result[key], join_path(path, name))
                for name in open_names
            ):
                self.doubts.append(build_unknown_key_error(node, path, key))

    def _repair_by_branch(self, node: SchemaNode, value: Json, path: str) -> Json:
        fitting = [branch for branch in node.branches if self._is_valid(branch, value)]
        if len(fitting) > 1:
            return value
        tried = [self._try_repair(branch, value, path) for branch in fitting or node.branches]
        good = [(result, repairer) for result, repairer, ok in tried if ok]
        if not good or any(not is_equal(good[0][0], result) for result, _ in good):
            return value
        result, repairer = good[0]
        self.repairs.extend(repairer.repairs)
        self.doubts.extend(repairer.doubts)
        return result

    def _try_repair(self, source: Json, value: Json, path: str) -> tuple[Json, ArgumentRepair, bool]:
        self.budget.spend(1 + estimate_steps(value))
        repairer = ArgumentRepair(self.tool_schema, self.budget, self.depth)
        result = repairer.repair_value(source, value, path)
        return result, repairer, not repairer.doubts and self._is_valid(source, result)

    def _can_fit(self, source: Json, value: Json, path: str) -> bool:
        return self._try_repair(source, value, path)[2]

    def _is_valid(self, source: Json, value: Json) -> bool:
        shape = self.tool_schema.nodes.get_node(source)
        if shape.keywords.keys() <= _PLAIN_KEYWORDS:
            return is_of_type(value, shape.types)
        return self.tool_schema.validator.is_valid_part(value, source, self.budget)

    def _repair_choice(self, node: SchemaNode, value: Json, path: str) -> Json:
        self.budget.spend(estimate_comparison_steps(value, len(node.choices)))
        if _is_among(value, node.choices):
            return value
        if is_list(value) and len(value) == 1 and "array" not in node.types:
            inner = self._repair_choice(node, value[0], path)
            if not _is_among(inner, node.choices):
                return value
            return self.record_repair(path, RepairKind.WRAPPED, value, inner, "a list of one value")
        self.budget.spend(2 * min(len(node.choices), MAX_CHOICES))
        reading = find_intended_choice(value, node.choices)
        return (
            value if reading is None else self.record_repair(path, RepairKind.NEAREST, value, *reading.pair)
        )

    def _repair_date(self, node: SchemaNode, value: str, path: str) -> Json:
        if not requires_iso_date(node.format, node.description) or is_iso_date(value):
            return value
        reading = read_date(value)
        if isinstance(reading, str):
            return self.record_repair(
                path, RepairKind.COERCED, value, reading, "a date that can be read in one way only"
            )
        if reading is DateDoubt.TWO_READINGS and node.format:
            self.doubts.append(
                build_value_error(path, "a date as YYYY-MM-DD (this one has two readings)", value)
            )
        return value

    def _convert_type(self, node: SchemaNode, value: Json, path: str) -> Json:
        """Convert the value to one of the expected types, if there is only one way."""
        self.budget.spend(estimate_steps(value))
        items = node.items if is_object(node.items) else NO_OBJECT

        def fits_item(item: Json) -> bool:
            return self._can_fit(items, item, f"{path}[0]")

        shape_of_items = self.tool_schema.nodes.get_node(items)
        ways = [convert(kind, node, shape_of_items, value, fits_item) for kind in sorted(node.types)]
        found = [steps for steps in ways if steps]
        if not found or any(not is_equal(found[0][-1].after, steps[-1].after) for steps in found):
            return value
        for step in found[0]:
            self.record_repair(path, step.kind, step.before, step.after, step.reason)
        return found[0][-1].after

    def record_repair(self, path: str, kind: RepairKind, before: Json, after: Json, reason: str) -> Json:
        """Record a change and return the new value. Raises `StepBudgetExceeded`."""
        self.budget.spend(2 + estimate_steps(before))
        self.repairs.append(_build_repair(path, kind, before, after, reason))
        return after


def _is_among(value: Json, choices: tuple[Json, ...]) -> bool:
    return any(is_equal(value, choice) for choice in choices)


def _is_empty(value: Json) -> bool:
    return value is None or value == "" or (is_object(value) and not value) or (is_list(value) and not value)


def _is_meaningless(node: SchemaNode, value: Json, *, root: bool) -> bool:
    """Return whether an unknown key can be dropped: empty where no more keys may be, or a null parameter."""
    if node.extras is ExtraKeys.FORBIDDEN:
        return _is_empty(value)
    return root and value is None and node.extras is ExtraKeys.UNSPECIFIED


def _is_null(value: Json) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in NULL_WORDS)


_WRAPPER_KEYS: Final = parse_word_set(
    """
    args argument arguments body data functionarguments input inputs json kwargs parameter parameters params
    payload properties request toolarguments toolinput
    """
)
_TOOL_NAME_KEYS: Final = frozenset({"name", "tool", "function", "toolname", "type"})


def find_wrapped(
    tool_schema: ToolSchema, arguments: JsonObject, budget: StepBudget
) -> tuple[str, dict[str, Json]] | None:
    """Return the key and the object inside it, if the arguments contain only the wrapped real arguments.

    Raises `StepBudgetExceeded`.
    """
    known = tool_schema.root.properties
    outer = [key for key in arguments if not _is_tool_name(tool_schema, key, arguments[key])]
    if len(outer) != 1 or (
        normalize_name(outer[0]) not in _WRAPPER_KEYS and outer[0] not in tool_schema.names
    ):
        return None
    key = outer[0]
    inner = arguments[key]
    found = inner if is_object(inner) else parse_object(inner)
    if found is None:
        return None
    if any(name in known for name in arguments):
        return (key, dict(found)) if _is_whole_call(tool_schema, arguments, found, budget) else None
    # Without any known key inside, the wrapper may be the argument itself under another name.
    familiar = {normalize_name(name) for name in known}
    takes_nothing = not found and not tool_schema.root.required
    return (
        (key, dict(found))
        if takes_nothing or any(normalize_name(name) in familiar for name in found)
        else None
    )


def _is_whole_call(
    tool_schema: ToolSchema, arguments: JsonObject, found: JsonObject, budget: StepBudget
) -> bool:
    """Return whether a parameter named like a wrapper (`params`) contains the whole call."""
    root = tool_schema.root
    complete = bool(root.required) and all(name in found for name in root.required)
    known = complete and found.keys() <= root.properties.keys()
    return known and not tool_schema.validator.is_valid(arguments, budget)


def _is_tool_name(tool_schema: ToolSchema, key: str, value: Json) -> bool:
    return (
        normalize_name(key) in _TOOL_NAME_KEYS
        and isinstance(value, str)
        and value in {*tool_schema.names, "function"}
    )


def find_enclosing_parameter(tool_schema: ToolSchema, arguments: JsonObject) -> str | None:
    """Return the only object parameter to which all these arguments belong."""
    root = tool_schema.root
    if not arguments or any(key in root.properties for key in arguments):
        return None
    holders = [name for name in root.required if name in root.properties]
    if len(holders) != 1 or len(root.required) != 1:
        return None
    inner = tool_schema.nodes.get_node(root.properties[holders[0]])
    if "object" not in inner.types or not inner.properties:
        return None
    return holders[0] if all(key in inner.properties for key in arguments) else None


MAX_WRAPPERS: Final = 2


def prepare_arguments(card: ToolCard, arguments: JsonObject, *, repair: bool = True) -> PreparedArguments:
    """Repair the arguments where the meaning is certain, then validate them. With `repair=False`, only
    validate.

    Valid arguments are returned unchanged. Two things are errors although JSON Schema allows them: a key that
    the schema does not list (unless it explicitly allows additional keys), because servers ignore or reject
    such keys, and `3.0` for an integer.
    """
    tool_schema = tool_schemas.get_schema(card)
    fitting = tool_schema.fast_check.copy_if_valid(arguments)
    if fitting is not None:
        return PreparedArguments(arguments=fitting, notes=tool_schema.notes)
    return prepare_thoroughly(card, tool_schema, arguments, repair=repair)


def prepare_thoroughly(
    card: ToolCard,
    tool_schema: ToolSchema,
    arguments: JsonObject,
    *,
    repair: bool,
    budget: StepBudget | None = None,
) -> PreparedArguments:
    """Prepare arguments that did not pass the fast check."""
    reason = find_excess(arguments)
    if reason is not None:
        return _refuse_arguments(card, tool_schema, reason)
    budget = StepBudget() if budget is None else budget
    given = copy_object(arguments)
    repairer = ArgumentRepair(tool_schema, budget)
    if repair:
        given = _repair_arguments(tool_schema, repairer, given)
    budget.begin_checking()
    found, complete = tool_schema.validator.find_errors(given, budget)
    errors = explain_errors(tool_schema, found)
    named = {error.parameter for error in errors}
    doubts = tuple(doubt for doubt in repairer.doubts if doubt.parameter not in named)
    return PreparedArguments(
        arguments=given,
        repairs=tuple(repairer.repairs),
        errors=errors + doubts,
        signature=format_signature(card),
        notes=(*tool_schema.notes, *_describe_unchecked_parts(budget, complete=complete)),
    )


def _describe_unchecked_parts(budget: StepBudget, *, complete: bool) -> Iterator[str]:
    """Yield descriptions of what was not checked."""
    refused = [source for source, pattern in budget.patterns.items() if pattern is None]
    for source in refused[:MAX_NOTES]:
        yield f"the pattern {source[:60]} is not matched here: the server will judge"
    if not complete:
        yield "not checked further, which would take too long: the server will check it itself"


def _repair_arguments(
    tool_schema: ToolSchema, repairer: ArgumentRepair, given: dict[str, Json]
) -> dict[str, Json]:
    """Return the arguments with all certain repairs that the step budget allows."""
    unwrapped = repairer.apply_fully(lambda: _unwrap_arguments(tool_schema, repairer, given), given)
    mended = repairer.apply_fully(lambda: repairer.repair_value(tool_schema.schema, unwrapped, ""), unwrapped)
    return dict(mended) if isinstance(mended, dict) else unwrapped


def _unwrap_arguments(
    tool_schema: ToolSchema, repairer: ArgumentRepair, given: dict[str, Json]
) -> dict[str, Json]:
    for _ in range(MAX_WRAPPERS):
        inner = find_wrapped(tool_schema, given, repairer.budget)
        if inner is None:
            break
        key, found = inner
        repairer.record_repair(
            key, RepairKind.WRAPPED, given, found, "the arguments stood one level too deep"
        )
        given = found
    holder = find_enclosing_parameter(tool_schema, given)
    if holder is not None:
        repairer.record_repair(
            holder, RepairKind.WRAPPED, given, {holder: given}, "the arguments stood one level too high"
        )
        given = {holder: given}
    return given


def _refuse_arguments(card: ToolCard, tool_schema: ToolSchema, reason: str) -> PreparedArguments:
    error = ParameterError(
        fault=ParameterFault.BAD_VALUE, parameter="", message=f"the arguments cannot be checked: it {reason}"
    )
    return PreparedArguments(
        arguments={}, errors=(error,), signature=format_signature(card), notes=tool_schema.notes
    )


# Amount and format. The request stays the same without them.
_SETTING_NAMES: Final = parse_word_set(
    """
    format language limit maximumtoken pretty reasoningeffort searchcontextsize stream stripthinking
    temperature timeout verbose
    """
)
_FIRST_PAGE_VALUES: Final = {"page": 1, "offset": 0}
_SERVER_SPECIFIC_WORDS: Final = frozenset({"id", "uuid", "cursor", "token", "handle", "sha", "guid"})


def translate_arguments(arguments: JsonObject, source: ToolCard, target: ToolCard) -> PreparedArguments:
    """Translate the arguments of one tool to the schema of another, or return errors."""
    known = prepare_arguments(source, arguments)
    given = known.arguments if known.ok else dict(arguments)
    source_schema, target_schema = tool_schemas.get_schema(source), tool_schemas.get_schema(target)
    given, asked = _unwrap_question(given, target_schema)
    moved, renamed = _map_arguments(given, source_schema, target_schema)
    repairs = [*asked, *renamed]
    errors: list[ParameterError] = []
    result = {moved[key]: value for key, value in given.items() if key in moved}
    for key, value in given.items():
        if key in moved:
            if source.server != target.server and not _SERVER_SPECIFIC_WORDS.isdisjoint(split_name(key)):
                errors.append(
                    build_value_error(
                        key, f"something {target.server} knows: identifiers do not travel", value
                    )
                )
        elif value is None or _is_setting(source_schema, key, value):
            repairs.append(
                _build_repair(key, RepairKind.REMOVED, value, None, f"{target.key} has no such setting")
            )
        elif not _wrap_as_message(target_schema, key, value, result, repairs):
            errors.append(build_value_error(key, f"a parameter that {target.key} also has", value))
    prepared = prepare_arguments(target, result)
    return replace(prepared, repairs=(*repairs, *prepared.repairs), errors=(*errors, *prepared.errors))


def _map_arguments(
    given: JsonObject, source_schema: ToolSchema, target_schema: ToolSchema
) -> tuple[dict[str, str], list[Repair]]:
    """Map each argument to a parameter of the other tool."""
    shape = target_schema.root
    moved = {key: key for key in given if key in shape.properties}
    found = _find_target_renames(given, moved, source_schema, target_schema)
    repairs = [
        _build_repair(
            each.parameter,
            RepairKind.RENAMED,
            {each.key: given[each.key]},
            {each.parameter: given[each.key]},
            each.reason,
        )
        for each in found
    ]
    return moved | {each.key: each.parameter for each in found}, repairs


def _find_target_renames(
    given: JsonObject, moved: Mapping[str, str], source_schema: ToolSchema, target_schema: ToolSchema
) -> tuple[Rename, ...]:
    shape = target_schema.root
    given_object = ArgumentRepair(target_schema, StepBudget()).build_given_object(shape, given, "")
    try:
        return find_renames(
            replace(given_object, topic=source_schema.topic | target_schema.topic),
            [key for key in given if key not in moved],
            [name for name in shape.properties if name not in moved],
            typos_too=False,
        )
    except StepBudgetExceeded:
        return ()


def _is_setting(source_schema: ToolSchema, key: str, value: Json) -> bool:
    """Return whether the argument can be omitted without changing what is requested."""
    default = source_schema.nodes.get_node(source_schema.root.properties.get(key)).default
    if default and is_equal(default[0], value):
        return True
    name = "".join(split_name(key))
    groups = SYNONYM_GROUPS.get(name, frozenset())
    for beginning, first in _FIRST_PAGE_VALUES.items():
        if name == beginning or groups & SYNONYM_GROUPS[beginning]:
            return is_equal(value, first)
    return name in _SETTING_NAMES or bool(groups & SYNONYM_GROUPS["limit"])


def _wrap_as_message(
    target_schema: ToolSchema, key: str, value: Json, result: dict[str, Json], repairs: list[Repair]
) -> bool:
    """Wrap a question as a conversation with one message, for a tool that takes a conversation."""
    if not isinstance(value, str) or not _is_question(key):
        return False
    if "messages" in result or "messages" not in target_schema.root.required:
        return False
    items = target_schema.nodes.get_node(target_schema.root.properties.get("messages")).items
    wanted = target_schema.nodes.get_node(items).properties if is_object(items) else NO_OBJECT
    if not {"role", "content"} <= wanted.keys():
        return False
    result["messages"] = [{"role": "user", "content": value}]
    repairs.append(
        _build_repair("messages", RepairKind.WRAPPED, value, result["messages"], "a conversation of one turn")
    )
    return True


def _unwrap_question(given: JsonObject, target_schema: ToolSchema) -> tuple[JsonObject, list[Repair]]:
    """Extract the question of a conversation with one message, for a tool that takes only a question.

    System messages are dropped. A conversation with more messages is not changed: its last question may
    depend on the others.
    """
    question = _find_only_question(given.get("messages"))
    properties = target_schema.root.properties
    free = [name for name in properties if name not in given and _is_question(name)]
    wanted = [name for name in free if name in target_schema.root.required] or free
    if question is None or "messages" in properties or len(wanted) != 1:
        return given, []
    rest = {key: value for key, value in given.items() if key != "messages"}
    why = "the one question of the conversation"
    repair = _build_repair(wanted[0], RepairKind.RENAMED, given["messages"], question, why)
    return {**rest, wanted[0]: question}, [repair]


def _find_only_question(messages: Json) -> str | None:
    """Return the only user message of a conversation, or None."""
    if not is_list(messages):
        return None
    texts: list[str] = []
    for message in messages:
        match message:
            case {"role": "user", "content": str(text)}:
                texts.append(text)
            case {"role": "system" | "developer"}:
                pass
            case _:
                return None
    return texts[0] if len(texts) == 1 and texts[0].strip() else None


def _is_question(name: str) -> bool:
    return bool(SYNONYM_GROUPS.get("".join(split_name(name)), frozenset()) & SYNONYM_GROUPS["question"])


def _build_repair(path: str, kind: RepairKind, before: Json, after: Json, reason: str) -> Repair:
    return Repair(
        path=path,
        kind=kind,
        before=redact_value(path, before),
        after=redact_value(path, after),
        reason=reason,
    )
