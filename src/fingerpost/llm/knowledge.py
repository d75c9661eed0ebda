"""What is known of each model's server: held while we run, kept where there is a memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from fingerpost.errors import FingerpostError, ModelRefused
from fingerpost.llm.base import ModelReply, ModelRequest
from fingerpost.llm.capabilities import Capabilities
from fingerpost.llm.findings import Findings
from fingerpost.llm.members import Member
from fingerpost.llm.remote import MOST_MODELS
from fingerpost.llm.thoughts import thinks_aloud

T = TypeVar("T")
_NOTHING: Final = Findings()


class CapabilityMemory(Protocol):
    """Where capabilities outlive us. One that fails costs nothing but a probe."""

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes) -> None: ...


class Knowledge:
    """Findings by model. `clock`: seconds since 1970, because they outlive us."""

    def __init__(
        self, memory: CapabilityMemory | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._known: dict[str, Findings] = {}
        self._others: OrderedDict[str, Findings] = OrderedDict()  # of models callers asked for by name

    async def of(self, member: Member, model: str | None = None) -> Capabilities:
        """What is known of this model, now or from an earlier run.

        `model` as in a request: another one at the same address, of which less is remembered.
        """
        return (await self._found(member, model)).capabilities

    async def thinks_aloud(self, member: Member, model: str | None = None) -> bool:
        """Whether what this model writes begins with its thoughts."""
        return (await self._found(member, model)).thinks_aloud

    async def learn(self, member: Member, known: Capabilities) -> None:
        """Hold what was found out on purpose."""
        await self._hold(member, None, Findings.of(known, self._clock()))

    async def saw(self, member: Member, request: ModelRequest, reply: ModelReply) -> None:
        """Take note of an ordinary exchange."""
        before = await self._found(member, request.model)
        tells = request.schema is not None or request.tools or before.thinks_aloud or thinks_aloud(reply)
        if tells:
            await self._hold(member, request.model, before.after(request, reply, self._clock()))

    async def refused(self, member: Member, request: ModelRequest, error: ModelRefused) -> None:
        """Take note of a refusal."""
        if request.tools:
            before = await self._found(member, request.model)
            await self._hold(member, request.model, before.after_refusal(request, error, self._clock()))

    async def _found(self, member: Member, model: str | None) -> Findings:
        if model is not None:
            return self._others.get(model, _NOTHING).at(self._clock())
        place = _place(member)
        if place not in self._known:
            kept = None
            if self._memory is not None and member.key is not None:
                kept = await _if_possible(self._memory.get(member.key))
            # Somebody may have learned something while we looked it up.
            self._known.setdefault(place, _NOTHING if kept is None else Findings.from_bytes(kept))
        return self._known[place].at(self._clock())

    async def _hold(self, member: Member, model: str | None, found: Findings) -> None:
        """Hold this, and keep it if it is new."""
        if model is not None:
            self._others[model] = found
            while len(self._others) > MOST_MODELS:
                self._others.popitem(last=False)
            return
        before = await self._found(member, None)
        known = (found.capabilities, found.thinks_aloud) == (before.capabilities, before.thinks_aloud)
        self._known[_place(member)] = found
        if not known and self._memory is not None and member.key is not None:
            await _if_possible(self._memory.put(member.key, found.to_bytes()))


def _place(member: Member) -> str:
    """Where nothing was configured the object itself counts: two scripted models may share a name."""
    return member.key or f"{member.model.name} {id(member.model)}"


async def _if_possible(work: Awaitable[T]) -> T | None:
    try:
        return await work
    except FingerpostError:
        return None
