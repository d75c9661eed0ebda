"""What has been decided so far about one tool's arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fingerpost.choose.certain.slots import ParameterSlot
from fingerpost.choose.certain.values import RequestValue
from fingerpost.frozen import frozen
from fingerpost.records import Json


@frozen
class AssignedArgument:
    """One argument, the stretches of the request it was made of, and why it is certain."""

    argument: Json
    reason: str
    spans: tuple[tuple[int, int], ...] = ()
    is_named: bool = False  # the request says the parameter's name with it


@dataclass(slots=True)
class FillState:
    """The request, the tool's parameters, and the arguments found so far. Lives for one `fill`."""

    text: str
    slots: tuple[ParameterSlot, ...]
    values: tuple[RequestValue, ...]
    assigned: dict[str, AssignedArgument] = field(default_factory=dict[str, AssignedArgument])
    reserved_spans: list[tuple[int, int]] = field(
        default_factory=list[tuple[int, int]]
    )  # secrets: never used

    def assign(self, slot: ParameterSlot, assignment: AssignedArgument) -> None:
        """Decide an argument; one that its own schema would refuse is not taken."""
        if slot.parameter.accepts(assignment.argument):
            self.assigned[slot.name] = assignment

    def get_open_slots(self) -> list[ParameterSlot]:
        return [slot for slot in self.slots if slot.name not in self.assigned and not slot.is_secret]

    def is_free(self, start: int, end: int) -> bool:
        return all(end <= first or last <= start for first, last in self.iterate_used_spans())

    def get_free_values(self) -> list[RequestValue]:
        return [value for value in self.values if self.is_free(value.start, value.end)]

    def iterate_used_spans(self) -> Iterable[tuple[int, int]]:
        yield from self.reserved_spans
        for taken in self.assigned.values():
            yield from taken.spans
