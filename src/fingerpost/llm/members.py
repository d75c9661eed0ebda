"""A model of the pool, with what was configured about it."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, Protocol, runtime_checkable

from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel, Closable, ModelUsage
from fingerpost.llm.openai_chat import OpenAIChat
from fingerpost.settings import ModelSettings

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
