"""What was learned of a tool's use goes into instructions where that is wanted, whatever else is off."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.records import UsageSample, utc_now
from fingerpost.testing import ScriptedModel
from tests.requirements import proves
from tests.router.test_agent import open_notes_router


@proves("B10")
@pytest.mark.parametrize("mode", ["simple", "react"])
@pytest.mark.parametrize("wanted", [True, False])
async def test_instructions_follow_recorded_use_without_calibration(tmp_path: Path, mode: str, wanted: bool):
    model = ScriptedModel(["Answer: there is nothing to do."])
    flags = {"dense_scores": False, "calibration": False, "adaptive_instructions": wanted}
    async with open_notes_router(tmp_path, model, flags=flags) as (router, _):
        failed = UsageSample(tool="notes/search_notes", milliseconds=5, tokens=5, success=False, at=utc_now())
        for _ in range(20):
            await router.store.usage.record(failed)
        await router.route("Search my notes for the budget", mode=mode)
    asked = model.asked[0]
    read = "\n".join([*(message.text for message in asked.messages), *map(str, asked.tools)])
    assert "notes__search_notes" in read
    assert ("fails more often than not here" in read) is wanted
