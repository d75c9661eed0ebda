"""What was learned is read again beside requests, not before them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost import Router
from fingerpost.records import Choice
from fingerpost.router import request_ranker
from fingerpost.testing import tool_server
from tests.kit.gateway_methods import reading_tool
from tests.kit.routers import build_settings
from tests.requirements import proves


@proves("L4")
async def test_no_request_waits_until_what_was_learned_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_ranker, "REFRESH_INTERVAL_S", 0.0)
    goes_on, read = anyio.Event(), 0
    async with Router(
        [tool_server("files", [reading_tool("look")]).spec()], settings=build_settings(tmp_path)
    ) as router:
        await router.narrow("look at it")  # the first reads what there is
        recent = router.store.choices.list_recent

        async def slow(*args: Any) -> list[Choice]:
            nonlocal read
            read += 1
            await goes_on.wait()
            if read == 1:
                raise OSError("the disk is away")
            return await recent(*args)

        monkeypatch.setattr(router.store.choices, "list_recent", slow)
        guide = router._narrower  # pyright: ignore[reportPrivateUsage] - nothing else says so without a call
        assert guide is not None
        for _ in range(3):
            guide.mark_stale()
            with anyio.fail_after(30):
                await router.narrow("look at it")
        assert read == 1
        goes_on.set()
        await anyio.wait_all_tasks_blocked()
        assert (await router.narrow("look at it")).shortlist.considered == 1  # a failed reading costs nothing
