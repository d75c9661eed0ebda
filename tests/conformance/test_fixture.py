"""The fixture itself passes: what fails behind the gateway is the gateway's fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.testing import served
from tests.conformance.fixture_server import application
from tests.conformance.run import judge, list_required, run_server_suite
from tests.requirements import proves

COUNTS = {"2025-11-25": 30, "2026-07-28": 37}


@pytest.mark.process
@pytest.mark.parametrize("revision", COUNTS)
@proves("G2")
async def test_the_fixture_passes_every_required_scenario(revision: str, tmp_path: Path) -> None:
    assert len(list_required("server", revision)) == COUNTS[revision]
    async with served(application()) as address:
        report = await run_server_suite(f"{address}/mcp", revision, tmp_path)
    judge(report, "direct", revision)
    assert len(report.passed) == COUNTS[revision]
