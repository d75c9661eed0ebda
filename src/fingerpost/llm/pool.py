"""The models in use, a light one and a good one, with what is known of each."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from hashlib import sha256
from typing import Final, Protocol, Self, TypeVar, runtime_checkable

from fingerpost.errors import (
    ConfigError,
    FingerpostError,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
)
from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel, Closable, ModelReply, ModelRequest, ModelUsage, OnText, TextRelay
from fingerpost.llm.capabilities import (
    Capabilities,
    CapabilityFindings,
    ReasoningFilter,
    has_leading_reasoning,
    probe,
    split_reasoning,
)
from fingerpost.llm.openai_chat import OpenAIChat
from fingerpost.llm.remote import MAX_REMEMBERED_MODELS
from fingerpost.settings import ModelSettings, ModelsSettings

UNKNOWN_WINDOW: Final = 32_768  # tokens, of a model nobody configured: the default of the settings
MILLION: Final = 1_000_000


@runtime_checkable
class _ConfiguredModel(Protocol):
    @property
    def settings(self) -> ModelSettings: ...


@frozen
class PoolMember:
    """One model. `ours`: made here, to be closed here."""

    model: ChatModel
    settings: ModelSettings | None = None
    ours: bool = False

    @classmethod
    def from_model(cls, model: ChatModel, configured: ModelSettings | None = None) -> PoolMember:
        """A model somebody made: it may know its settings, else they are what is configured for its place."""
        known = model.settings if isinstance(model, _ConfiguredModel) else None
        return cls(model=model, settings=known or configured)

    @classmethod
    def from_settings(cls, settings: ModelSettings) -> PoolMember:
        """A model for these settings, not connected yet."""
        return cls(model=_create_model(settings), settings=settings, ours=True)

    @property
    def key(self) -> str | None:
        """By which it is known again after a restart; None for one nobody configured.

        A hash, because an address may hold a password.
        """
        if self.settings is None:
            return None
        place = f"{self.settings.provider} {self.settings.base_url or ''} {self.settings.model}"
        return sha256(place.encode()).hexdigest()

    @property
    def window(self) -> int:
        return UNKNOWN_WINDOW if self.settings is None else self.settings.context

    def compute_cost(self, usage: ModelUsage) -> float | None:
        """In the currency of the prices; None without them."""
        prices = (None, None) if self.settings is None else (self.settings.price_in, self.settings.price_out)
        price_in, price_out = prices
        if price_in is None or price_out is None:
            return None
        return (usage.prompt_tokens * price_in + usage.completion_tokens * price_out) / MILLION

    async def aclose(self) -> None:
        if self.ours and isinstance(self.model, Closable):
            await self.model.aclose()


def _create_model(settings: ModelSettings) -> ChatModel:
    if settings.provider == "openai":
        return OpenAIChat(settings)
    from fingerpost.llm.native import NativeChat

    return NativeChat(settings)


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
