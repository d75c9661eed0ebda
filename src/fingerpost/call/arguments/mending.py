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

from fingerpost.call.arguments.choices import MOST_CHOICES, nearest
from fingerpost.call.arguments.conversion import convert
from fingerpost.call.arguments.dates import Doubt, is_iso, read_date, wants_iso
from fingerpost.call.arguments.effort import Effort, Spent, comparing, weight
from fingerpost.call.arguments.faults import MOST_FAULTS, bad_value, join, unknown_key
from fingerpost.call.arguments.keys import Asked, renames
from fingerpost.call.arguments.plan import Plan
from fingerpost.call.arguments.scalars import NOTHING, whole
from fingerpost.call.arguments.shapes import NO_OBJECT, Extras, Shape
from fingerpost.call.arguments.values import is_list, is_object, is_of, kept, same
from fingerpost.records import Json, JsonObject, ParameterError, Repair, RepairKind

T = TypeVar("T")

DEEPEST: Final = 64
_PLAIN: Final = frozenset({"type", "title", "description", "default", "examples"})


@dataclass(slots=True)
class Mending:
    """One walk and what it changed."""

    plan: Plan
    effort: Effort
    depth: int = 0
    repairs: list[Repair] = field(default_factory=list[Repair])
    doubts: list[ParameterError] = field(default_factory=list[ParameterError])

    def value(self, source: Json, value: Json, path: str) -> Json:
        """The value as this part of the schema wants it, or as it was. Raises `Spent`."""
        self.effort.spend(2)
        if self.depth > DEEPEST:
            return value
        self.depth += 1
        try:
            return self._value(self.plan.shapes.of(source), value, path)
        finally:
            self.depth -= 1

    def _value(self, shape: Shape, value: Json, path: str) -> Json:
        if shape.branches:
            value = self._branch(shape, value, path)
        if shape.choices:
            return self._choice(shape, value, path)
        if not is_of(value, shape.types):
            value = self._converted(shape, value, path)
        return self._inside(shape, value, path)

    def _inside(self, shape: Shape, value: Json, path: str) -> Json:
        if isinstance(value, str):
            return self._dated(shape, value, path)
        if isinstance(value, float) and "integer" in shape.types and "number" not in shape.types:
            reading = whole(value)
            return value if reading is None else self.record(path, RepairKind.COERCED, value, *reading.pair)
        if is_object(value) and (shape.properties or shape.extras is not Extras.WELCOME):
            return self.entries(shape, value, path)
        if is_list(value) and is_object(shape.items):
            return [self.value(shape.items, item, f"{path}[{place}]") for place, item in enumerate(value)]
        return value

    # Objects

    def entries(self, shape: Shape, given: JsonObject, path: str) -> dict[str, Json]:
        """An object with its keys, then its values, then what is missing put right."""
        entries = self.in_full(lambda: self._renamed(shape, given, path), given)
        result: dict[str, Json] = {}
        for key, value in entries.items():
            place = join(path, key)
            if key in shape.properties:
                taken = self.in_full(partial(self._taken, shape, key, value, place), (value,))
                result.update((key, each) for each in taken)
            elif not _is_idle(shape, value, root=not path):
                result[key] = value
            else:
                self.record(place, RepairKind.REMOVED, value, None, "an unknown parameter without a value")
        with suppress(Spent):
            self._fill(shape, path, result)
            self._doubt(shape, path, result)
        return result

    def in_full(self, change: Callable[[], T], otherwise: T) -> T:
        """A change as a whole, or none of it when the effort is spent on the way."""
        repairs, doubts = len(self.repairs), len(self.doubts)
        try:
            return change()
        except Spent:
            del self.repairs[repairs:]
            del self.doubts[doubts:]
            return otherwise

    def _taken(self, shape: Shape, key: str, value: Json, place: str) -> tuple[Json, ...]:
        """The value a parameter gets; nothing when it is better left out."""
        source = shape.properties[key]
        if value is None and not self._fits(source, value):
            if key not in shape.required:
                self.record(place, RepairKind.REMOVED, value, None, "null for an optional parameter")
                return ()
            if self.plan.shapes.of(source).default:
                return ()  # filled like any missing one
        mended = self.value(source, value, place)
        if key not in shape.required and _is_nothing(mended) and not self._fits(source, mended):
            self.record(place, RepairKind.REMOVED, value, None, "an empty value for an optional parameter")
            return ()
        return (mended,)

    def _fill(self, shape: Shape, path: str, result: dict[str, Json]) -> None:
        for name in shape.required:
            if name in result or name not in shape.properties:
                continue
            default = self.plan.shapes.of(shape.properties[name]).default
            if default and self._fits(shape.properties[name], default[0]):
                place = join(path, name)
                result[name] = self.record(
                    place, RepairKind.DEFAULT, None, default[0], "missing; the schema's default"
                )

    def _renamed(self, shape: Shape, given: JsonObject, path: str) -> JsonObject:
        unknown = [key for key in given if key not in shape.properties]
        if not unknown:
            return given
        empty = [key for key in unknown if given[key] is None]
        open_names = self._open(shape, given)
        keys = [key for key in unknown if key not in empty]
        asked = self.asked(shape, given, path)
        found = {rename.key: rename for rename in renames(asked, keys, open_names)}
        result: dict[str, Json] = {}
        for key, value in given.items():
            rename = found.get(key)
            if rename is None:
                result.setdefault(key, value)
                continue
            result[rename.parameter] = value
            before, after = {key: kept(key, value)}, {rename.parameter: kept(rename.parameter, value)}
            self.repairs.append(
                Repair(
                    path=join(path, rename.parameter),
                    kind=RepairKind.RENAMED,
                    before=before,
                    after=after,
                    reason=rename.reason,
                )
            )
        return result

    def _open(self, shape: Shape, given: JsonObject) -> list[str]:
        """Parameters that may still take a value; where extras are welcome, only required ones."""
        names = shape.required if shape.extras is Extras.WELCOME else shape.properties
        return [
            name
            for name in names
            if name in shape.properties
            and (name not in given or (given[name] is None and not self._fits(shape.properties[name], None)))
        ]

    def asked(self, shape: Shape, given: JsonObject, path: str) -> Asked:
        known: dict[tuple[str, str], bool] = {}

        def fits(key: str, name: str) -> bool:
            if (key, name) not in known:
                known[key, name] = self._would_fit(shape.properties[name], given[key], join(path, name))
            return known[key, name]

        return Asked(
            given=given,
            parameters=lambda name: self.plan.shapes.of(shape.properties[name]),
            required=frozenset(shape.required),
            topic=self.plan.topic,
            fits=fits,
            spend=self.effort.spend,
        )

    def _doubt(self, shape: Shape, path: str, result: dict[str, Json]) -> None:
        """An unknown parameter that may have been meant for an open one is not waved through.

        Within a parameter the schema often lists only some of the keys, as an example.
        """
        if path or shape.extras is not Extras.UNSAID:
            return
        unknown = [key for key in result if key not in shape.properties]
        open_names = [name for name in shape.properties if name not in result] if unknown else []
        for key in unknown:
            if len(self.doubts) >= MOST_FAULTS:
                return
            if any(
                self._would_fit(shape.properties[name], result[key], join(path, name)) for name in open_names
            ):
                self.doubts.append(unknown_key(shape, path, key))

    # Alternatives

    def _branch(self, shape: Shape, value: Json, path: str) -> Json:
        fitting = [branch for branch in shape.branches if self._fits(branch, value)]
        if fitting:
            return self._tidied(fitting[0], value, path) if len(fitting) == 1 else value
        tried = [self._attempt(branch, value, path) for branch in shape.branches]
        good = [(result, walk) for result, walk, ok in tried if ok]
        if not good or any(not same(good[0][0], result) for result, _ in good):
            return value
        result, walk = good[0]
        self._adopt(walk)
        return result

    def _tidied(self, branch: Json, value: Json, path: str) -> Json:
        result, walk, ok = self._attempt(branch, value, path)
        if not ok:
            return value
        self._adopt(walk)
        return result

    def _attempt(self, source: Json, value: Json, path: str) -> tuple[Json, Mending, bool]:
        self.effort.spend(1 + weight(value))
        walk = Mending(self.plan, self.effort, self.depth)
        result = walk.value(source, value, path)
        return result, walk, not walk.doubts and self._fits(source, result)

    def _would_fit(self, source: Json, value: Json, path: str) -> bool:
        return self._attempt(source, value, path)[2]

    def _adopt(self, walk: Mending) -> None:
        self.repairs.extend(walk.repairs)
        self.doubts.extend(walk.doubts)

    def _fits(self, source: Json, value: Json) -> bool:
        shape = self.plan.shapes.of(source)
        if shape.node.keys() <= _PLAIN:
            return is_of(value, shape.types)
        return self.plan.validation.fits(value, source, self.effort)

    # Values

    def _choice(self, shape: Shape, value: Json, path: str) -> Json:
        self.effort.spend(comparing(value, len(shape.choices)))
        if _is_among(value, shape.choices):
            return value
        if is_list(value) and len(value) == 1 and "array" not in shape.types:
            inner = self._choice(shape, value[0], path)
            if not _is_among(inner, shape.choices):
                return value
            return self.record(path, RepairKind.WRAPPED, value, inner, "a list of one value")
        self.effort.spend(2 * min(len(shape.choices), MOST_CHOICES))
        reading = nearest(value, shape.choices)
        return value if reading is None else self.record(path, RepairKind.NEAREST, value, *reading.pair)

    def _dated(self, shape: Shape, value: str, path: str) -> Json:
        if not wants_iso(shape.format, shape.description) or is_iso(value):
            return value
        reading = read_date(value)
        if isinstance(reading, str):
            return self.record(
                path, RepairKind.COERCED, value, reading, "a date that can be read in one way only"
            )
        if reading is Doubt.TWO_READINGS and shape.format:
            self.doubts.append(bad_value(path, "a date as YYYY-MM-DD (this one has two readings)", value))
        return value

    def _converted(self, shape: Shape, value: Json, path: str) -> Json:
        """The value as one of the types asked for, when there is one way only."""
        self.effort.spend(weight(value))
        items = shape.items if is_object(shape.items) else NO_OBJECT

        def fits_item(item: Json) -> bool:
            return self._would_fit(items, item, f"{path}[0]")

        shape_of_items = self.plan.shapes.of(items)
        ways = [convert(kind, shape, shape_of_items, value, fits_item) for kind in sorted(shape.types)]
        found = [steps for steps in ways if steps]
        if not found or any(not same(found[0][-1].after, steps[-1].after) for steps in found):
            return value
        for step in found[0]:
            self.record(path, step.kind, step.before, step.after, step.reason)
        return found[0][-1].after

    def record(self, path: str, kind: RepairKind, before: Json, after: Json, reason: str) -> Json:
        """Note a change and give back the new value. Raises `Spent`."""
        self.effort.spend(2 + weight(before))
        self.repairs.append(
            Repair(path=path, kind=kind, before=kept(path, before), after=kept(path, after), reason=reason)
        )
        return after


def _is_among(value: Json, choices: tuple[Json, ...]) -> bool:
    return any(same(value, choice) for choice in choices)


def _is_empty(value: Json) -> bool:
    return value is None or value == "" or (is_object(value) and not value) or (is_list(value) and not value)


def _is_idle(shape: Shape, value: Json, *, root: bool) -> bool:
    """Whether an unknown key says nothing: empty where extras are forbidden, or a null parameter."""
    if shape.extras is Extras.FORBIDDEN:
        return _is_empty(value)
    return root and value is None and shape.extras is Extras.UNSAID


def _is_nothing(value: Json) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in NOTHING)
