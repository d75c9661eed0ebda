"""Models that a program made and handed to the router."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack

from fingerpost.llm.base import ChatModel, Closable


async def close_given(models: Iterable[ChatModel | None]) -> None:
    """Close each of them once: nobody else would. One that is asked again afterwards opens anew."""
    async with AsyncExitStack() as leaving:
        for model in {id(model): model for model in models}.values():
            if isinstance(model, Closable):
                leaving.push_async_callback(model.aclose)
