"""The short version of `python -m benchmarks gateway-soak`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.gateway.soak import Soak, Soaked

from tests.kit import echo_server
from tests.requirements import proves


@pytest.mark.process
@proves("G13")
async def test_every_call_is_answered_while_servers_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_enough(found: Soaked) -> bool:
        return found.kills >= 3 and found.results > 50 and sum(found.errors.values()) > 0

    for model in ("DENSE_SCORES", "SCAN_DEFINITIONS"):  # loading takes longer than the test
        monkeypatch.setenv(f"FINGERPOST_FLAGS__{model}", "false")
    quick = (sys.executable, "-I", "-S", echo_server.__file__)
    soak = Soak(tmp_path, workers=4, upstream=quick)
    found = await soak.run(seconds=2, kill_every=0.75, is_enough=is_enough)

    assert found.lost == []
    assert found.faults == [], found.log
    assert is_enough(found), found
    assert found.growth < 20, f"memory grew by {found.growth:.0f} MiB in a few seconds"
