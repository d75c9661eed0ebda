"""The faults by name: what each does, and which row of the fault catalogue it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from fingerpost.frozen import frozen

T = TypeVar("T")


@frozen(kw_only=False)
class ServerFault(Generic[T]):
    """One way to misbehave."""

    name: str
    row: int
    summary: str
    act: T


class FaultRegistry(Generic[T]):
    """Faults, registered by decorating what acts them out."""

    def __init__(self) -> None:
        self.faults: dict[str, ServerFault[T]] = {}

    def register(self, name: str, row: int, summary: str) -> Callable[[T], T]:
        def register(act: T) -> T:
            self.faults[name] = ServerFault(name, row, summary, act)
            return act

        return register

    def __getitem__(self, name: str) -> ServerFault[T]:
        try:
            return self.faults[name]
        except KeyError:
            message = f"no fault is named {name!r}; there are: {', '.join(sorted(self.faults))}"
            raise LookupError(message) from None

    def format_list(self) -> str:
        """All faults as lines of text."""
        return "\n".join(f"{fault.name:20} {fault.row:3}  {fault.summary}" for fault in self.faults.values())
