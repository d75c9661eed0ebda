"""Models that a program made and handed to the router."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack

from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel, Closable
from fingerpost.settings import ModelsSettings


@frozen
class ModelNames:
    """Who selects and who answers. Empty without any model."""

    lite: str = ""
    prime: str = ""


def resolve_model_names(
    models: tuple[ChatModel | None, ChatModel | None], configured: ModelsSettings
) -> ModelNames:
    """The models given, else those configured; each stands in for the other."""
    lite, prime = (
        model.name if model is not None else (settings.model if settings is not None else "")
        for model, settings in zip(models, (configured.lite, configured.prime), strict=True)
    )
    return ModelNames(lite=lite or prime, prime=prime or lite)


async def close_models(models: Iterable[ChatModel | None]) -> None:
    """Close each of them once: nobody else would. One that is asked again afterwards opens anew."""
    async with AsyncExitStack() as leaving:
        for model in {id(model): model for model in models}.values():
            if isinstance(model, Closable):
                leaving.push_async_callback(model.aclose)
