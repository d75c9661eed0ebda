"""The fixture behind the gateway passes every scenario, in its own era and across eras."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fingerpost.records import Era, ServerSpec
from fingerpost.testing import served
from tests.conformance import messenger
from tests.conformance.fixture_server import application
from tests.conformance.playing import players
from tests.conformance.run import (
    judge,
    list_required,
    read_expected_failures,
    run_client_suite,
    run_server_suite,
)
from tests.kit.gateways import open_gateway
from tests.requirements import proves

REVISIONS: tuple[Era, ...] = ("2025-11-25", "2026-07-28")
ALLOWED = {"data_flow": "off"}  # otherwise calls that write would ask once the suite has read a resource
OTHER: dict[Era, Era] = {"2025-11-25": "2026-07-28", "2026-07-28": "2025-11-25"}


@pytest.mark.process
@pytest.mark.parametrize("revision", REVISIONS)
@proves("G1", "G2", "G8")
async def test_every_required_scenario_passes_through_the_gateway(revision: Era, tmp_path: Path) -> None:
    assert len(list_required("server", revision)) == {"2025-11-25": 30, "2026-07-28": 37}[revision]
    async with served(application()) as upstream:
        spec = ServerSpec(
            name="fixture",
            transport="http",
            url=f"{upstream}/mcp",
            era=revision,
            prefix=False,
            new_tools="allow",  # one scenario has the list changed
        )
        async with open_gateway(spec, folder=tmp_path / "gateway", call=ALLOWED) as address:
            report = await run_server_suite(f"{address}/mcp", revision, tmp_path / "results")
    judge(report, "gateway", revision)


@pytest.mark.process
@pytest.mark.parametrize("revision", REVISIONS)
@proves("G1", "G8")
async def test_eras_are_translated(revision: Era, tmp_path: Path) -> None:
    """A client of one era and a server of the other: no client has to wait for its servers."""
    async with served(application()) as upstream:
        spec = ServerSpec(
            name="fixture", transport="http", url=f"{upstream}/mcp", era=OTHER[revision], prefix=False
        )
        async with open_gateway(spec, folder=tmp_path / "gateway", call=ALLOWED) as address:
            report = await run_server_suite(f"{address}/mcp", revision, tmp_path / "results")
    judge(report, "across", revision)


@pytest.mark.process
@pytest.mark.parametrize("revision", REVISIONS)
@proves("G2", "M22")
async def test_the_gateway_is_a_conforming_client_of_its_servers(revision: Era, tmp_path: Path) -> None:
    async with players(revision, tmp_path / "gateways") as port:
        command = [sys.executable, "-I", "-S", messenger.__file__, port]
        report = await run_client_suite(command, revision, tmp_path / "results")
    assert len(report.required) == {"2025-11-25": 18, "2026-07-28": 32}[revision]
    judge(report, "client", revision)


def test_no_more_failures_are_expected_than_there_were() -> None:
    """The file of expected failures may only shrink: this is what was in it first."""
    allowed = {
        ("across", "2026-07-28"): {
            "server-stateless",
            "input-required-result-capability-check",
            "input-required-result-basic-elicitation",
            "input-required-result-multiple-input-requests",
            "input-required-result-ignore-extra-params",
        }
    }
    for run in ("gateway", "across", "client"):
        for revision in REVISIONS:
            assert set(read_expected_failures(run, revision)) <= allowed.get((run, revision), set())
