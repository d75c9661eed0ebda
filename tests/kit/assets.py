"""A router with the specialists, and the assets they make."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.builtin.assets import Asset, fetch_asset
from fingerpost.records import Outcome
from fingerpost.settings import BuiltinSettings, Settings, SpecialistsSettings

TOOL = "specialists/use_asset_service"


@asynccontextmanager
async def maker(settings: Settings, **specialists: Any) -> AsyncGenerator[Router]:
    own = BuiltinSettings(
        enabled=("specialists",), specialists=SpecialistsSettings.model_validate(specialists)
    )
    folder = Path(str(settings.store.url).removeprefix("sqlite:///")).parent
    async with open_router(settings=settings.model_copy(update={"builtin": own}), folder=folder) as router:
        await router.connect()
        yield router


async def place_order(router: Router, **order: Any) -> Outcome:
    """Dana orders something."""
    return await router.call(TOOL, order, caller="dana")


def handle_of(outcome: Outcome) -> str:
    assert outcome.success, outcome.content
    found = re.search(r"kept as (res_[a-z]+)", outcome.content)
    assert found is not None, outcome.content
    return found[1]


async def order_asset(router: Router, **order: Any) -> Asset:
    """What comes of an order, as it can be fetched."""
    outcome = await place_order(router, **order)
    asset = await fetch_asset(router.calls.results, handle_of(outcome), caller="dana")
    assert asset is not None
    return asset
