"""What has been decided so far about one tool's arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fingerpost.choose.certain.slots import Slot
from fingerpost.choose.certain.values import Value
from fingerpost.frozen import frozen
from fingerpost.records import Json


@frozen
class Taken:
    """One argument, the stretches of the request it was made of, and why it is certain."""

    argument: Json
    reason: str
    stretches: tuple[tuple[int, int], ...] = ()
    named: bool = False  # the request says the parameter's name with it


@dataclass(slots=True)
class Taking:
    """The request, the tool's parameters, and the arguments found so far. Lives for one `fill`."""

    text: str
    slots: tuple[Slot, ...]
    values: tuple[Value, ...]
    taken: dict[str, Taken] = field(default_factory=dict[str, Taken])
    reserved: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # secrets: never used

    def take(self, slot: Slot, taken: Taken) -> None:
        """Decide an argument; one that its own schema would refuse is not taken."""
        if slot.parameter.admits(taken.argument):
            self.taken[slot.name] = taken

    def open_slots(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.name not in self.taken and not slot.secret]

    def is_free(self, start: int, end: int) -> bool:
        return all(end <= first or last <= start for first, last in self.used())

    def free_values(self) -> list[Value]:
        return [value for value in self.values if self.is_free(value.start, value.end)]

    def used(self) -> Iterable[tuple[int, int]]:
        yield from self.reserved
        for taken in self.taken.values():
            yield from taken.stretches
