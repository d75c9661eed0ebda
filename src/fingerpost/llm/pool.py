"""The pool of two models, a light one and a prime one, with their capabilities."""

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
from fingerpost.schemas.validator import load_validator
from fingerpost.settings import ModelSettings, ModelsSettings

DEFAULT_WINDOW: Final = 32_768  # tokens, for a model that was not configured; the default of the settings
MILLION: Final = 1_000_000


@runtime_checkable
class _ConfiguredModel(Protocol):
    @property
    def settings(self) -> ModelSettings: ...


@frozen
class PoolMember:
    """One model of the pool. `is_owned` is true if the pool created it and must close it."""

    model: ChatModel
    settings: ModelSettings | None = None
    is_owned: bool = False

    @classmethod
    def from_model(cls, model: ChatModel, configured: ModelSettings | None = None) -> PoolMember:
        """Build a member from an existing model. Its settings are its own, else the configured ones."""
        known = model.settings if isinstance(model, _ConfiguredModel) else None
        return cls(model=model, settings=known or configured)

    @classmethod
    def from_settings(cls, settings: ModelSettings) -> PoolMember:
        """Build a member from settings. It is not connected yet."""
        if settings.provider == "openai":
            return cls(model=OpenAIChat(settings), settings=settings, is_owned=True)
        from fingerpost.llm.native import NativeChat

        return cls(model=NativeChat(settings), settings=settings, is_owned=True)

    @property
    def key(self) -> str | None:
        """The key of stored capabilities; None for a model that was not configured.

        It is a hash, because a URL may contain a password.
        """
        if self.settings is None:
            return None
        identity = f"{self.settings.provider} {self.settings.base_url or ''} {self.settings.model}"
        return sha256(identity.encode()).hexdigest()

    @property
    def window(self) -> int:
        return DEFAULT_WINDOW if self.settings is None else self.settings.context

    def compute_cost(self, usage: ModelUsage) -> float | None:
        """Return the cost in the currency of the prices, or None without prices."""
        prices = (None, None) if self.settings is None else (self.settings.price_in, self.settings.price_out)
        price_in, price_out = prices
        if price_in is None or price_out is None:
            return None
        return (usage.prompt_tokens * price_in + usage.completion_tokens * price_out) / MILLION

    async def aclose(self) -> None:
        if self.is_owned and isinstance(self.model, Closable):
            await self.model.aclose()


T = TypeVar("T")
_NO_FINDINGS: Final = CapabilityFindings()


class CapabilityMemory(Protocol):
    """Persistent storage of capabilities. If it fails, they are only probed again."""

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes) -> None: ...


class CapabilityRegistry:
    """Findings by model. `clock` returns seconds since 1970, because findings are stored."""

    def __init__(
        self, memory: CapabilityMemory | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._known: dict[str, CapabilityFindings] = {}
        # Findings about models that callers requested by name. They are kept in memory only.
        self._others: OrderedDict[str, CapabilityFindings] = OrderedDict()

    async def set_capabilities(self, member: PoolMember, known: Capabilities) -> None:
        """Store the result of a probe."""
        await self._store_findings(member, None, CapabilityFindings.from_capabilities(known, self._clock()))

    async def note_reply(self, member: PoolMember, request: ModelRequest, reply: ModelReply) -> None:
        """Update the findings after a normal reply."""
        before = await self.load_findings(member, request.model)
        asks = request.schema is not None or request.tools
        if asks or before.thinks_aloud or has_leading_reasoning(reply):
            await self._store_findings(member, request.model, before.update(request, reply, self._clock()))

    async def note_refusal(self, member: PoolMember, request: ModelRequest, error: ModelRefused) -> None:
        """Update the findings after a refusal."""
        if request.tools:
            before = await self.load_findings(member, request.model)
            found = before.update_after_refusal(request, error, self._clock())
            await self._store_findings(member, request.model, found)

    async def load_findings(self, member: PoolMember, model: str | None) -> CapabilityFindings:
        """Return what is known about this model, also from earlier runs.

        `model` names another model at the same address. Findings about it are kept in memory only.
        """
        if model is not None:
            return self._others.get(model, _NO_FINDINGS).forget_expired(self._clock())
        key = _get_key(member)
        if key not in self._known:
            kept = None
            if self._memory is not None and member.key is not None:
                kept = await _suppress_errors(self._memory.get(member.key))
            # Another task may have stored findings during the read.
            self._known.setdefault(key, _NO_FINDINGS if kept is None else CapabilityFindings.from_bytes(kept))
        return self._known[key].forget_expired(self._clock())

    async def _store_findings(
        self, member: PoolMember, model: str | None, findings: CapabilityFindings
    ) -> None:
        """Keep the findings, and write them to the storage if they changed."""
        if model is not None:
            self._others[model] = findings
            while len(self._others) > MAX_REMEMBERED_MODELS:
                self._others.popitem(last=False)
            return
        before = await self.load_findings(member, None)
        known = (findings.capabilities, findings.thinks_aloud) == (before.capabilities, before.thinks_aloud)
        self._known[_get_key(member)] = findings
        if not known and self._memory is not None and member.key is not None:
            await _suppress_errors(self._memory.put(member.key, findings.to_bytes()))


def _get_key(member: PoolMember) -> str:
    """Return the key of a member. Names of models that were not configured may repeat."""
    return member.key or f"{member.model.name} {id(member.model)}"


async def _suppress_errors(work: Awaitable[T]) -> T | None:
    try:
        return await work
    except FingerpostError:
        return None


# Errors that another model may not have. An invalid reply is handled by the caller.
_FALLBACK_ERRORS: Final = (ModelUnavailable, ModelTimeout, ModelRefused)


class Role(StrEnum):
    """The role of a model."""

    LITE = "lite"  # selects
    PRIME = "prime"  # reviews and answers

    @property
    def other(self) -> Role:
        return Role.PRIME if self is Role.LITE else Role.LITE


class ModelPool:
    """Asks the model of a role, with the other one as a fallback. Used from one event loop."""

    def __init__(
        self,
        *,
        lite: ChatModel | None = None,
        prime: ChatModel | None = None,
        memory: CapabilityMemory | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        given = {Role.LITE: lite, Role.PRIME: prime}
        self._members: dict[Role, PoolMember] = {
            role: PoolMember.from_model(model) for role, model in given.items() if model is not None
        }
        self._replaced: list[PoolMember] = []
        self._capability_registry = CapabilityRegistry(memory, clock=clock)

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
        """Build the pool of configured models. A given model replaces the configured one.

        Two roles with the same settings share one model. Nothing is connected yet.
        """
        pool = cls(memory=memory, clock=clock)
        pool.replace_models(settings, lite=lite, prime=prime)
        return pool

    def replace_models(
        self, settings: ModelsSettings, *, lite: ChatModel | None = None, prime: ChatModel | None = None
    ) -> None:
        """Use these models from the next question on. The others stay open: a reply may still come."""
        self._replaced += self._members.values()
        self._members = {}
        wanted = ((Role.LITE, settings.lite, lite), (Role.PRIME, settings.prime, prime))
        for role, configured, given in wanted:
            twin = self._members.get(role.other)
            if given is not None:
                self._members[role] = PoolMember.from_model(given, configured)
            elif (
                configured is not None and twin is not None and twin.is_owned and twin.settings == configured
            ):
                self._members[role] = twin
            elif configured is not None:
                self._members[role] = PoolMember.from_settings(configured)

    @property
    def ready(self) -> bool:
        """Whether there is any model."""
        return bool(self._members)

    def name(self, role: Role) -> str:
        """Return the name of the model for the role, or an empty string."""
        member = self._get_member(role)
        return "" if member is None else member.model.name

    def window(self, role: Role) -> int:
        """Return its context window in tokens."""
        member = self._get_member(role)
        return DEFAULT_WINDOW if member is None else member.window

    def cost(self, role: Role, usage: ModelUsage | None, *, stood_in: bool = False) -> float | None:
        """Return the cost of these tokens in the currency of the prices, or None if unknown.

        `stood_in` is that of the reply: the fallback model has other prices.
        """
        member = self._get_member(role.other if stood_in else role)
        return None if member is None or usage is None else member.compute_cost(usage)

    async def ask(self, role: Role, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Return the reply of the role's model, or of the other one if it is missing or fails.

        There is no fallback after text was streamed, or for a model that a caller requested by name.
        """
        member = self._get_member(role)
        other = None if request.model is not None else self._members.get(role.other)
        if member is None:
            hint = "Set models.lite or models.prime: see docs/how-to/models.md."
            raise ConfigError("no model is configured", hint=hint)
        await load_validator()
        relay = None if on_text is None else TextRelay(on_text)
        try:
            reply = await self._ask_member(member, request, relay)
        except _FALLBACK_ERRORS as failure:
            has_streamed = relay is not None and relay.used
            if has_streamed or other is None or other.model is member.model:
                raise
            try:
                reply = await self._ask_member(other, request, relay)
            except FingerpostError as second:
                message = f"{failure}; {other.model.name}, the fallback model, failed too: {second}"
                raise type(failure)(
                    message, model=failure.model, hint=failure.hint, status=failure.status
                ) from second
            return replace(reply, stood_in=True)
        return reply if role in self._members else replace(reply, stood_in=True)

    async def capabilities(
        self, role: Role, *, find_out: bool = False, model: str | None = None
    ) -> Capabilities:
        """Return what is known about the server of the role. With `find_out` the rest is probed.

        `model` names another model at the same address, as in a request. It is never probed.
        """
        member = self._get_member(role)
        if member is None:
            return Capabilities()
        known = (await self._capability_registry.load_findings(member, model)).capabilities
        if known.complete or not find_out or model is not None:
            return known
        found = (await probe(member.model)).or_else(known)
        await self._capability_registry.set_capabilities(member, found)
        return found

    async def takes_definitions(self, role: Role, *, model: str | None = None) -> bool:
        """Return whether the role's model gets tools as definitions. Otherwise they are described in text."""
        member = self._get_member(role)
        if member is not None and member.settings is not None and member.settings.tool_format == "text":
            return False
        return (await self.capabilities(role, model=model)).tools is not False

    async def aclose(self) -> None:
        """Close the models that the pool created. Given models stay open."""
        async with AsyncExitStack() as stack:
            for member in (*self._replaced, *self._members.values()):
                stack.push_async_callback(member.aclose)

    def _get_member(self, role: Role) -> PoolMember | None:
        return self._members.get(role) or self._members.get(role.other)

    async def _ask_member(
        self, member: PoolMember, request: ModelRequest, relay: TextRelay | None
    ) -> ModelReply:
        held = None
        if relay is not None:
            known = await self._capability_registry.load_findings(member, request.model)
            held = ReasoningFilter(relay) if known.thinks_aloud else None
        try:
            reply = await member.model.complete(request, on_text=held or relay)
        except ModelRefused as refusal:
            await self._capability_registry.note_refusal(member, request, refusal)
            raise
        if held is not None:
            held.end()
        await self._capability_registry.note_reply(member, request, reply)
        # Streamed text cannot be withdrawn. From the next reply on, the filter is used.
        return reply if relay is not None and held is None else split_reasoning(reply)
