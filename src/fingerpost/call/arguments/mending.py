"""The walk through arguments and schema side by side that puts right what is certainly meant.

A value that fits is never touched. One that does not is read in the way its
schema asks for, if there is exactly one such way; alternatives (`anyOf`) are
tried each on its own, and only a single success counts. Every change is
recorded. The walk spends from the call's effort, so that no schema can make it long.
Once that is spent every question raises, so nothing is concluded from half an
answer: the parameter under way stays as it was given, and so do those after it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from fingerpost.call.arguments.choices import MAX_CHOICES, find_meant_choice
from fingerpost.call.arguments.conversion import convert
from fingerpost.call.arguments.dates import DateDoubt, is_iso_date, read_date, requires_iso_date
from fingerpost.call.arguments.effort import (
    StepBudget,
    StepBudgetExceeded,
    estimate_comparison_steps,
    estimate_steps,
)
from fingerpost.call.arguments.faults import MAX_ERRORS, build_unknown_key_error, build_value_error, join_path
from fingerpost.call.arguments.keys import GivenObject, find_renames
from fingerpost.call.arguments.plan import ToolSchema
from fingerpost.call.arguments.scalars import NULL_WORDS, read_whole_float
from fingerpost.call.arguments.shapes import NO_OBJECT, ExtraKeys, SchemaNode
from fingerpost.call.arguments.values import is_equal, is_list, is_object, is_of_type, redact_value
from fingerpost.records import Json, JsonObject, ParameterError, Repair, RepairKind

T = TypeVar("T")

MAX_DEPTH_REPAIRED: Final = 64
_PLAIN: Final = frozenset({"type", "title", "description", "default", "examples"})


@dataclass(slots=True)
class ArgumentRepair:
    """One walk and what it changed."""

    tool_schema: ToolSchema
    budget: StepBudget
    depth: int = 0
    repairs: list[Repair] = field(default_factory=list[Repair])
    doubts: list[ParameterError] = field(default_factory=list[ParameterError])

    def repair_value(self, source: Json, value: Json, path: str) -> Json:
        """The value as this part of the schema wants it, or as it was. Raises `Spent`."""
        self.budget.spend(2)
        if self.depth > MAX_DEPTH_REPAIRED:
            return value
        self.depth += 1
        try:
            return self._repair_node(self.tool_schema.shapes.get_node(source), value, path)
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
        if is_object(value) and (node.properties or node.extras is not ExtraKeys.WELCOME):
            return self.repair_object(node, value, path)
        if is_list(value) and is_object(node.items):
            return [
                self.repair_value(node.items, item, f"{path}[{place}]") for place, item in enumerate(value)
            ]
        return value

    # Objects

    def repair_object(self, node: SchemaNode, given: JsonObject, path: str) -> dict[str, Json]:
        """An object with its keys, then its values, then what is missing put right."""
        entries = self.apply_fully(lambda: self._rename_keys(node, given, path), given)
        result: dict[str, Json] = {}
        for key, value in entries.items():
            place = join_path(path, key)
            if key in node.properties:
                taken = self.apply_fully(partial(self._choose_value, node, key, value, place), (value,))
                result.update((key, each) for each in taken)
            elif not _is_meaningless(node, value, root=not path):
                result[key] = value
            else:
                self.record_repair(
                    place, RepairKind.REMOVED, value, None, "an unknown parameter without a value"
                )
        with suppress(StepBudgetExceeded):
            self._fill_missing(node, path, result)
            self._report_ambiguous(node, path, result)
        return result

    def apply_fully(self, change: Callable[[], T], fallback: T) -> T:
        """A change as a whole, or none of it when the effort is spent on the way."""
        repairs, doubts = len(self.repairs), len(self.doubts)
        try:
            return change()
        except StepBudgetExceeded:
            del self.repairs[repairs:]
            del self.doubts[doubts:]
            return fallback

    def _choose_value(self, node: SchemaNode, key: str, value: Json, place: str) -> tuple[Json, ...]:
        """The value a parameter gets; nothing when it is better left out."""
        source = node.properties[key]
        if value is None and not self._is_valid(source, value):
            if key not in node.required:
                self.record_repair(place, RepairKind.REMOVED, value, None, "null for an optional parameter")
                return ()
            if self.tool_schema.shapes.get_node(source).default:
                return ()  # filled like any missing one
        mended = self.repair_value(source, value, place)
        if key not in node.required and _is_null(mended) and not self._is_valid(source, mended):
            self.record_repair(
                place, RepairKind.REMOVED, value, None, "an empty value for an optional parameter"
            )
            return ()
        return (mended,)

    def _fill_missing(self, node: SchemaNode, path: str, result: dict[str, Json]) -> None:
        for name in node.required:
            if name in result or name not in node.properties:
                continue
            default = self.tool_schema.shapes.get_node(node.properties[name]).default
            if default and self._is_valid(node.properties[name], default[0]):
                place = join_path(path, name)
                result[name] = self.record_repair(
                    place, RepairKind.DEFAULT, None, default[0], "missing; the schema's default"
                )

    def _rename_keys(self, node: SchemaNode, given: JsonObject, path: str) -> JsonObject:
        unknown = [key for key in given if key not in node.properties]
        if not unknown:
            return given
        empty = [key for key in unknown if given[key] is None]
        open_names = self._find_open_parameters(node, given)
        keys = [key for key in unknown if key not in empty]
        asked = self.describe_object(node, given, path)
        found = {rename.key: rename for rename in find_renames(asked, keys, open_names)}
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
        """Parameters that may still take a value; where extras are welcome, only required ones."""
        names = node.required if node.extras is ExtraKeys.WELCOME else node.properties
        return [
            name
            for name in names
            if name in node.properties
            and (
                name not in given or (given[name] is None and not self._is_valid(node.properties[name], None))
            )
        ]

    def describe_object(self, node: SchemaNode, given: JsonObject, path: str) -> GivenObject:
        known: dict[tuple[str, str], bool] = {}

        def fits(key: str, name: str) -> bool:
            if (key, name) not in known:
                known[key, name] = self._can_fit(node.properties[name], given[key], join_path(path, name))
            return known[key, name]

        return GivenObject(
            given=given,
            parameters=lambda name: self.tool_schema.shapes.get_node(node.properties[name]),
            required=frozenset(node.required),
            topic=self.tool_schema.topic,
            fits=fits,
            spend=self.budget.spend,
        )

    def _report_ambiguous(self, node: SchemaNode, path: str, result: dict[str, Json]) -> None:
        """An unknown parameter that may have been meant for an open one is not waved through.

        Within a parameter the schema often lists only some of the keys, as an example.
        """
        if path or node.extras is not ExtraKeys.UNSAID:
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

    # Alternatives

    def _repair_by_branch(self, node: SchemaNode, value: Json, path: str) -> Json:
        fitting = [branch for branch in node.branches if self._is_valid(branch, value)]
        if fitting:
            return self._drop_empty(fitting[0], value, path) if len(fitting) == 1 else value
        tried = [self._try_repair(branch, value, path) for branch in node.branches]
        good = [(result, walk) for result, walk, ok in tried if ok]
        if not good or any(not is_equal(good[0][0], result) for result, _ in good):
            return value
        result, walk = good[0]
        self._adopt_repairs(walk)
        return result

    def _drop_empty(self, branch: Json, value: Json, path: str) -> Json:
        result, walk, ok = self._try_repair(branch, value, path)
        if not ok:
            return value
        self._adopt_repairs(walk)
        return result

    def _try_repair(self, source: Json, value: Json, path: str) -> tuple[Json, ArgumentRepair, bool]:
        self.budget.spend(1 + estimate_steps(value))
        walk = ArgumentRepair(self.tool_schema, self.budget, self.depth)
        result = walk.repair_value(source, value, path)
        return result, walk, not walk.doubts and self._is_valid(source, result)

    def _can_fit(self, source: Json, value: Json, path: str) -> bool:
        return self._try_repair(source, value, path)[2]

    def _adopt_repairs(self, walk: ArgumentRepair) -> None:
        self.repairs.extend(walk.repairs)
        self.doubts.extend(walk.doubts)

    def _is_valid(self, source: Json, value: Json) -> bool:
        shape = self.tool_schema.shapes.get_node(source)
        if shape.keywords.keys() <= _PLAIN:
            return is_of_type(value, shape.types)
        return self.tool_schema.validation.is_valid_part(value, source, self.budget)

    # Values

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
        reading = find_meant_choice(value, node.choices)
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
        """The value as one of the types asked for, when there is one way only."""
        self.budget.spend(estimate_steps(value))
        items = node.items if is_object(node.items) else NO_OBJECT

        def fits_item(item: Json) -> bool:
            return self._can_fit(items, item, f"{path}[0]")

        shape_of_items = self.tool_schema.shapes.get_node(items)
        ways = [convert(kind, node, shape_of_items, value, fits_item) for kind in sorted(node.types)]
        found = [steps for steps in ways if steps]
        if not found or any(not is_equal(found[0][-1].after, steps[-1].after) for steps in found):
            return value
        for step in found[0]:
            self.record_repair(path, step.kind, step.before, step.after, step.reason)
        return found[0][-1].after

    def record_repair(self, path: str, kind: RepairKind, before: Json, after: Json, reason: str) -> Json:
        """Note a change and give back the new value. Raises `Spent`."""
        self.budget.spend(2 + estimate_steps(before))
        self.repairs.append(
            Repair(
                path=path,
                kind=kind,
                before=redact_value(path, before),
                after=redact_value(path, after),
                reason=reason,
            )
        )
        return after


def _is_among(value: Json, choices: tuple[Json, ...]) -> bool:
    return any(is_equal(value, choice) for choice in choices)


def _is_empty(value: Json) -> bool:
    return value is None or value == "" or (is_object(value) and not value) or (is_list(value) and not value)


def _is_meaningless(node: SchemaNode, value: Json, *, root: bool) -> bool:
    """Whether an unknown key says nothing: empty where extras are forbidden, or a null parameter."""
    if node.extras is ExtraKeys.FORBIDDEN:
        return _is_empty(value)
    return root and value is None and node.extras is ExtraKeys.UNSAID


def _is_null(value: Json) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in NULL_WORDS)
