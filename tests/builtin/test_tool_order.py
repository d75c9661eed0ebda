"""In which order our own tools are listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from fingerpost.builtin import open_router
from fingerpost.choose.offered_tools import order_cards, order_offered_keys
from fingerpost.settings import Settings
from tests.kit.gateways import serve_gateway
from tests.requirements import proves

FIRST = ["memory/think", "collaboration/user_collaboration", "workspace/file_operations"]
ENABLED = ("knowledge", "workspace", "memory", "specialists", "directives", "collaboration")


@pytest.mark.slow
@proves("C12", "C9")
async def test_own_tools_are_listed_in_a_fixed_order_whatever_order_they_are_enabled_in(
    settings: Settings, tmp_path: Path
) -> None:
    listed: list[list[str]] = []
    for enabled in (ENABLED, ENABLED[::-1]):
        wanted = settings.model_dump() | {"builtin": {"enabled": enabled}}
        async with open_router(settings=Settings.model_validate(wanted), folder=tmp_path) as router:
            await router.connect()
            keys = [card.key for card in order_cards(reversed(router.tools.cards))]
            assert keys[:3] == FIRST and keys[3:] == sorted(keys[3:])
            assert list(order_offered_keys((), reversed(keys), limit=len(keys))) == keys
            async with serve_gateway(router) as address, Client(f"{address}/mcp/all") as client:
                tools: Any = (await client.list_tools()).tools
                listed.append([tool.name for tool in tools])
    assert listed[0] == listed[1]
    assert listed[0][:3] == [key.replace("/", "__") for key in FIRST]
