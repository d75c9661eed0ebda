"""The short version of `python -m benchmarks gateway-soak`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.gateway.soak import Soak

from tests.kit import echo_server
from tests.requirements import proves


@pytest.mark.process
@proves("G13")
async def test_every_call_is_answered_while_servers_are_killed(tmp_path: Path) -> None:
    quick = (sys.executable, "-I", "-S", echo_server.__file__)
    found = await Soak(tmp_path, workers=4, upstream=quick).run(seconds=3, kill_every=0.75)

    assert found.lost == []
    assert found.faults == [], found.log
    assert found.kills >= 3
    assert found.results > 5  # a busy machine makes few calls in this time
    assert sum(found.errors.values()) > 0, "nobody noticed that servers were killed"
    assert found.growth < 20, f"memory grew by {found.growth:.0f} MiB in a few seconds"
