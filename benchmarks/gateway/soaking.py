"""`python -m benchmarks gateway-soak [--seconds 600]`: the long run, with what it found."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
import uvloop

from benchmarks.gateway.goals import console
from benchmarks.gateway.soak import WORKERS, Soak, Soaked

KILL_EVERY_S = 20.0


def run(*, seconds: float = 600.0) -> None:
    async def work() -> Soaked:
        with tempfile.TemporaryDirectory(prefix="bench-soak-") as folder:
            return await Soak(Path(folder)).run(seconds=seconds, kill_every=KILL_EVERY_S)

    show(anyio.run(work, backend_options={"loop_factory": uvloop.new_event_loop}), seconds)


def show(found: Soaked, seconds: float) -> None:
    failed = sum(found.errors.values())
    if not found.results:
        console.print("NOT VALID: not one call succeeded, so nothing was shown.")
    console.print(
        f"{seconds:g} s at {WORKERS} at once, {found.kills} servers killed: {found.results} results, "
        f"{failed} typed errors, {len(found.faults)} faults of our own, {len(found.lost)} lost, "
        f"{found.breaker_openings} breaker openings"
    )
    for words, count in found.errors.most_common(12):
        console.print(f"  {count:6} × {words}", markup=False)
    for words in found.lost[:12]:
        console.print(f"  LOST {words}", markup=False)
    for words in [*found.faults[:3], *([found.log] if found.log else [])]:
        console.print(f"  FAULT {words}", markup=False)
    steps = [*found.memory[:: max(1, len(found.memory) // 12)], found.memory[-1]]
    console.print("memory, MiB: " + " ".join(f"{at:.0f}s:{size:.0f}" for at, size in steps))
    console.print(
        f"slope over the later two thirds: {found.slope:+.1f} MiB an hour ({found.growth:+.1f} MiB)"
    )
