"""What is known of each model's server: held while we run, kept where there is a memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from fingerpost.errors import FingerpostError, ModelRefused
from fingerpost.llm.base import ModelReply, ModelRequest
from fingerpost.llm.capabilities import Capabilities
from fingerpost.llm.findings import CapabilityFindings
from fingerpost.llm.members import PoolMember
from fingerpost.llm.remote import MAX_REMEMBERED_MODELS
from fingerpost.llm.thoughts import has_leading_reasoning

T = TypeVar("T")
_NO_FINDINGS: Final = CapabilityFindings()


class CapabilityMemory(Protocol):
    """Where capabilities outlive us. One that fails costs nothing but a probe."""

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes) -> None: ...


class CapabilityRegistry:
    """Findings by model. `clock`: seconds since 1970, because they outlive us."""

    def __init__(
        self, memory: CapabilityMemory | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._known: dict[str, CapabilityFindings] = {}
        self._others: OrderedDict[str, CapabilityFindings] = (
            OrderedDict()
        )  # of models callers asked for by name

    async def get_capabilities(self, member: PoolMember, model: str | None = None) -> Capabilities:
        """What is known of this model, now or from an earlier run.

        `model` as in a request: another one at the same address, of which less is remembered.
        """
        return (await self._load_findings(member, model)).capabilities

    async def is_reasoning_aloud(self, member: PoolMember, model: str | None = None) -> bool:
        """Whether what this model writes begins with its thoughts."""
        return (await self._load_findings(member, model)).thinks_aloud

    async def set_capabilities(self, member: PoolMember, known: Capabilities) -> None:
        """Hold what was found out on purpose."""
        await self._store_findings(member, None, CapabilityFindings.from_capabilities(known, self._clock()))

    async def note_reply(self, member: PoolMember, request: ModelRequest, reply: ModelReply) -> None:
        """Take note of an ordinary exchange."""
        before = await self._load_findings(member, request.model)
        tells = (
            request.schema is not None or request.tools or before.thinks_aloud or has_leading_reasoning(reply)
        )
        if tells:
            await self._store_findings(member, request.model, before.update(request, reply, self._clock()))

    async def note_refusal(self, member: PoolMember, request: ModelRequest, error: ModelRefused) -> None:
        """Take note of a refusal."""
        if request.tools:
            before = await self._load_findings(member, request.model)
            await self._store_findings(
                member, request.model, before.update_after_refusal(request, error, self._clock())
            )

    async def _load_findings(self, member: PoolMember, model: str | None) -> CapabilityFindings:
        if model is not None:
            return self._others.get(model, _NO_FINDINGS).forget_expired(self._clock())
        place = _get_key(member)
        if place not in self._known:
            kept = None
            if self._memory is not None and member.key is not None:
                kept = await _suppress_errors(self._memory.get(member.key))
            # Somebody may have learned something while we looked it up.
            self._known.setdefault(
                place, _NO_FINDINGS if kept is None else CapabilityFindings.from_bytes(kept)
            )
        return self._known[place].forget_expired(self._clock())

    async def _store_findings(
        self, member: PoolMember, model: str | None, findings: CapabilityFindings
    ) -> None:
        """Hold this, and keep it if it is new."""
        if model is not None:
            self._others[model] = findings
            while len(self._others) > MAX_REMEMBERED_MODELS:
                self._others.popitem(last=False)
            return
        before = await self._load_findings(member, None)
        known = (findings.capabilities, findings.thinks_aloud) == (before.capabilities, before.thinks_aloud)
        self._known[_get_key(member)] = findings
        if not known and self._memory is not None and member.key is not None:
            await _suppress_errors(self._memory.put(member.key, findings.to_bytes()))


def _get_key(member: PoolMember) -> str:
    """Where nothing was configured the object itself counts: two scripted models may share a name."""
    return member.key or f"{member.model.name} {id(member.model)}"


async def _suppress_errors(work: Awaitable[T]) -> T | None:
    try:
        return await work
    except FingerpostError:
        return None
