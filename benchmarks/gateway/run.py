"""`python -m benchmarks gateway [--quick]`: the gateway beside direct, the limit and its peers."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import anyio
import uvloop

from benchmarks.gateway import contextforge, scale
from benchmarks.gateway.calls import (
    CONTEXTFORGE,
    FASTMCP,
    FORWARDER,
    HELD,
    OURS,
    POSTGRESQL,
    UNSAFE,
    Plan,
    measure,
    start_field,
)
from benchmarks.gateway.fronts import GatewayBench
from benchmarks.gateway.goals import Finding, show_findings
from benchmarks.retention import open_database

QUICK = Plan(seconds=0.7, rounds=3, peers=(OURS, UNSAFE, FORWARDER, FASTMCP))
FULL = Plan(seconds=1.0, rounds=4, peers=(OURS, POSTGRESQL, UNSAFE, FORWARDER, FASTMCP, HELD))


def run(*, quick: bool = False) -> None:
    anyio.run(_run, quick, backend_options={"loop_factory": uvloop.new_event_loop})


async def _run(quick: bool) -> None:
    findings: list[Finding] = []
    plan = QUICK if quick else FULL
    if not quick and contextforge.is_installed():
        plan = replace(plan, peers=(*plan.peers, CONTEXTFORGE))
    with (
        tempfile.TemporaryDirectory(prefix="bench-gateway-") as folder,
        open_database("postgresql") as database,
    ):
        bench = GatewayBench(Path(folder), database)
        field = await start_field(bench, plan.peers)
        try:
            findings += await measure(field, plan)
            findings += await scale.many_sessions(field, seconds=plan.seconds)
        finally:
            field.stop()
        if not quick:
            findings += await scale.measure_start(bench, times=5)
            findings += await scale.long_lists(bench, seconds=plan.seconds)
            findings += await scale.many_servers(bench, seconds=plan.seconds, counts=(5, 20, 50), starts=5)
    show_findings(findings)


if __name__ == "__main__":
    run(quick="--quick" in sys.argv)
