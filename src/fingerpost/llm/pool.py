"""The models in use: a light one and a good one, each standing in for the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from typing import Final, Self

from fingerpost.errors import (
    ConfigError,
    FingerpostError,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
)
from fingerpost.llm.base import ChatModel, ModelReply, ModelRequest, ModelUsage, OnText
from fingerpost.llm.capabilities import Capabilities, probe
from fingerpost.llm.knowledge import CapabilityMemory, CapabilityRegistry
from fingerpost.llm.members import UNKNOWN_WINDOW, PoolMember
from fingerpost.llm.outlet import TextRelay
from fingerpost.llm.thoughts import ReasoningFilter, split_reasoning
from fingerpost.settings import ModelsSettings

# What another model may not suffer from. A reply that makes no sense is a matter of the asker.
_FALLBACK_ERRORS: Final = (ModelUnavailable, ModelTimeout, ModelRefused)


class Role(StrEnum):
    """What a model is there for."""

    LITE = "lite"  # selects
    PRIME = "prime"  # reviews and answers

    @property
    def other(self) -> Role:
        return Role.PRIME if self is Role.LITE else Role.LITE


class ModelPool:
    """Asks the model of a role, or the other one. Used from one event loop."""

    def __init__(
        self,
        *,
        lite: ChatModel | None = None,
        prime: ChatModel | None = None,
        memory: CapabilityMemory | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        given = {Role.LITE: lite, Role.PRIME: prime}
        self._members = {
            role: PoolMember.from_model(model) for role, model in given.items() if model is not None
        }
        self._knowledge = CapabilityRegistry(memory, clock=clock)

    @classmethod
    def of(
        cls,
        settings: ModelsSettings,
        *,
        lite: ChatModel | None = None,
        prime: ChatModel | None = None,
        memory: CapabilityMemory | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """The configured models. One that is given takes the place of the configured one.

        Two roles with the same settings share one model. Nothing is connected yet.
        """
        pool = cls(memory=memory, clock=clock)
        wanted = ((Role.LITE, settings.lite, lite), (Role.PRIME, settings.prime, prime))
        for role, configured, given in wanted:
            twin = pool._members.get(role.other)
            if given is not None:
                pool._members[role] = PoolMember.from_model(given, configured)
            elif configured is not None and twin is not None and twin.ours and twin.settings == configured:
                pool._members[role] = twin
            elif configured is not None:
                pool._members[role] = PoolMember.from_settings(configured)
        return pool

    @property
    def ready(self) -> bool:
        """Whether there is any model at all."""
        return bool(self._members)

    def name(self, role: Role) -> str:
        """The model that answers for the role; empty without any."""
        member = self._get_member(role)
        return "" if member is None else member.model.name

    def window(self, role: Role) -> int:
        """The tokens it can read at once."""
        member = self._get_member(role)
        return UNKNOWN_WINDOW if member is None else member.window

    def cost(self, role: Role, usage: ModelUsage | None, *, stood_in: bool = False) -> float | None:
        """What these tokens cost, in the currency of the prices; None where that is not known.

        `stood_in` as the reply has it: the other model has other prices.
        """
        member = self._get_member(role.other if stood_in else role)
        return None if member is None or usage is None else member.compute_cost(usage)

    async def ask(self, role: Role, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """The reply of the role's model, or of the other one where it is missing or fails.

        Text that was handed over cannot be taken back: then nobody stands in; nor for a model that a
        caller asked for by name.
        """
        member = self._get_member(role)
        other = None if request.model is not None else self._members.get(role.other)
        if member is None:
            message = "no model is configured"
            raise ConfigError(message, hint="Set models.lite or models.prime: docs/models.md shows how.")
        outlet = None if on_text is None else TextRelay(on_text)
        try:
            reply = await self._ask_member(member, request, outlet)
        except _FALLBACK_ERRORS as failure:
            told = outlet is not None and outlet.used
            if told or other is None or other.model is member.model:
                raise
            return await self._ask_other(other, request, outlet, failure)
        return reply if role in self._members else replace(reply, stood_in=True)

    async def capabilities(
        self, role: Role, *, find_out: bool = False, model: str | None = None
    ) -> Capabilities:
        """What is known of the server that answers for the role; `find_out` asks it about the rest.

        `model` as in the request: of another model at the same address nothing is known beforehand.
        """
        member = self._get_member(role)
        if member is None:
            return Capabilities()
        known = await self._knowledge.get_capabilities(member, model)
        if known.complete or not find_out or model is not None:
            return known
        found = (await probe(member.model)).or_else(known)
        await self._knowledge.set_capabilities(member, found)
        return found

    async def aclose(self) -> None:
        """Close what the pool made; models it was given stay open."""
        async with AsyncExitStack() as leaving:
            for member in self._members.values():
                leaving.push_async_callback(member.aclose)

    def _get_member(self, role: Role) -> PoolMember | None:
        return self._members.get(role) or self._members.get(role.other)

    async def _ask_other(
        self, member: PoolMember, request: ModelRequest, relay: TextRelay | None, failure: ModelError
    ) -> ModelReply:
        try:
            reply = await self._ask_member(member, request, relay)
        except FingerpostError as second:
            message = f"{failure}; {member.model.name}, standing in, failed too: {second}"
            raise type(failure)(
                message, model=failure.model, hint=failure.hint, status=failure.status
            ) from second
        return replace(reply, stood_in=True)

    async def _ask_member(
        self, member: PoolMember, request: ModelRequest, relay: TextRelay | None
    ) -> ModelReply:
        thinks = relay is not None and await self._knowledge.is_reasoning_aloud(member, request.model)
        held = ReasoningFilter(relay) if relay is not None and thinks else None
        try:
            reply = await member.model.complete(request, on_text=held or relay)
        except ModelRefused as refusal:
            await self._knowledge.note_refusal(member, request, refusal)
            raise
        if held is not None:
            held.end()
        await self._knowledge.note_reply(member, request, reply)
        # Text that was streamed cannot be taken back; from the next reply on it is held.
        return reply if relay is not None and held is None else split_reasoning(reply)
