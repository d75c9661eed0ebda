"""What is known of each model's server: held while we run, kept where there is a memory."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from fingerpost.errors import FingerpostError
from fingerpost.llm.capabilities import Capabilities
from fingerpost.llm.members import Member

T = TypeVar("T")


class CapabilityMemory(Protocol):
    """Where capabilities outlive us. One that fails costs nothing but a probe."""

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes) -> None: ...


class Knowledge:
    """Capabilities by model."""

    def __init__(self, memory: CapabilityMemory | None = None) -> None:
        self._memory = memory
        self._known: dict[str, Capabilities] = {}

    async def of(self, member: Member) -> Capabilities:
        """What is known of this model, now or from an earlier run."""
        place = _place(member)
        if place not in self._known:
            kept = None
            if self._memory is not None and member.key is not None:
                kept = await _if_possible(self._memory.get(member.key))
            # Somebody may have learned something while we looked it up.
            self._known.setdefault(place, Capabilities() if kept is None else Capabilities.from_bytes(kept))
        return self._known[place]

    async def learn(self, member: Member, known: Capabilities) -> None:
        """Hold this, and keep it if it is new."""
        if known == await self.of(member):
            return
        self._known[_place(member)] = known
        if self._memory is not None and member.key is not None:
            await _if_possible(self._memory.put(member.key, known.to_bytes()))


def _place(member: Member) -> str:
    """Where nothing was configured the object itself counts: two scripted models may share a name."""
    return member.key or f"{member.model.name} {id(member.model)}"


async def _if_possible(work: Awaitable[T]) -> T | None:
    try:
        return await work
    except FingerpostError:
        return None
