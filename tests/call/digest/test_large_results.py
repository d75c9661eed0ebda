"""A large result is cut beside the event loop, wherever in it the text stands."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from fingerpost.call.digest import build_fitted_digest
from fingerpost.records import CallContext
from fingerpost.settings import Settings
from tests.kit.cards import snapshot
from tests.kit.tables import table
from tests.requirements import proves

MUCH = "lorem ipsum dolor sit amet\n" * 4_000
[CARD] = snapshot(web=[{"name": "fetch"}]).cards


async def turns_meanwhile(content: Any) -> int:
    """How often other tasks ran while this was made to fit."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        await anyio.lowlevel.checkpoint()  # so that they are at work
        before = turns
        await build_fitted_digest({"content": content}, CARD, CallContext(call_id="cal_1"), Settings())
        turns -= before
        tasks.cancel_scope.cancel()
    return turns


@pytest.mark.slow
@proves("D6", "F6")
@table(
    "block",
    [
        {"type": "text", "text": MUCH},
        {"type": "resource", "resource": {"uri": "file:///a", "text": MUCH}},
        {"type": "resource", "resource": {"uri": "file:///a", "pages": [MUCH]}},
        {"type": "hologram", "data": MUCH},
        {"type": "text", "text": {"inner": [MUCH]}},
        {"type": "image", "data": [MUCH]},
        {"kind": [[MUCH]]},
        [MUCH],
        MUCH,
    ],
)
async def test_others_have_their_turn_while_much_is_cut(block: Any) -> None:
    assert await turns_meanwhile([block]) > 0


@proves("D6")
@table(
    "block",
    [
        {"type": "text", "text": "a line\nand another\nand one more\n" * 5},
        {"type": "image", "data": MUCH, "mimeType": "image/png"},  # bytes are named, not read
        {"type": "resource", "resource": {"uri": "file:///a", "blob": MUCH}},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "description": MUCH},
    ],
)
async def test_what_is_cut_at_once_costs_no_thread(block: Any) -> None:
    assert await turns_meanwhile([block]) == 0
