"""Runs npm @modelcontextprotocol/conformance, one Node process for a whole revision, and reads what it found.

Stricter than the suite itself: a scenario passes only when no check of it
failed and none warned.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from tests.kit.programs import ROOT, newer_node

SUITE: Final = ROOT / "node_modules" / "@modelcontextprotocol" / "conformance"
EXPECTED: Final = Path(__file__).with_name("expected_failures.toml")
NAMES: Final = re.compile(r"^  - (?P<name>\S+)$", re.MULTILINE)
FOLDER: Final = re.compile(r"(?P<name>.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z")

# Node compiles the suite once, not for each run.
COMPILED: Final = {"NODE_COMPILE_CACHE": str(ROOT / "node_modules" / ".cache" / "compiled")}

PATIENCE_S = 150.0
SCENARIO_MS = "10000"


@dataclass(frozen=True)
class Fault:
    """A check that did not succeed."""

    check: str
    message: str


@dataclass(frozen=True)
class Report:
    """What a run found: the faults of every scenario, none where it passed."""

    required: tuple[str, ...]
    faults: Mapping[str, tuple[Fault, ...]]
    output: str

    @property
    def passed(self) -> tuple[str, ...]:
        """Required scenarios without any fault."""
        return tuple(name for name in self.required if self.faults.get(name) == ())

    @property
    def failed(self) -> tuple[str, ...]:
        """Required scenarios with a fault, or that never ran."""
        return tuple(name for name in self.required if name not in self.passed)

    def explain(self) -> str:
        """The faults, one to a line."""
        return "\n".join(
            f"{name}: {fault.check}: {fault.message}"
            for name in self.failed
            for fault in self.faults.get(name) or (Fault("did not run", self.output[-2000:]),)
        )


async def _suite(*arguments: str) -> str:
    command = [newer_node(), str(SUITE / "dist" / "index.js"), *arguments]
    with anyio.fail_after(PATIENCE_S):
        done = await anyio.run_process(command, cwd=ROOT, env={**os.environ, **COMPILED}, check=False)
    return (done.stdout + done.stderr).decode()


def list_required(side: str, revision: str) -> tuple[str, ...]:
    """The scenarios a revision requires of a `server` or a `client`, in the suite's own words."""
    names: list[str] = []
    inside = False
    for line in (SUITE / "requirements" / f"{revision}.yaml").read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            inside = line.strip() == f"{side}:"
        elif inside and (match := NAMES.match(line)) is not None:
            names.append(match["name"])
    assert names, f"no scenarios for a {side} in the suite's {revision}.yaml"
    return tuple(names)


def _read(folder: Path, prefix: str) -> dict[str, tuple[Fault, ...]]:
    faults: dict[str, tuple[Fault, ...]] = {}
    for found in sorted(folder.rglob("checks.json")):
        match = FOLDER.fullmatch(found.parent.relative_to(folder).as_posix())
        assert match is not None, f"unknown result folder {found.parent}"
        faults[match["name"].removeprefix(prefix)] = tuple(
            Fault(check["id"], check.get("errorMessage") or check["description"])
            for check in json.loads(found.read_text())
            if check["status"] in {"FAILURE", "WARNING"}
        )
    return faults


async def run_server_suite(url: str, revision: str, folder: Path) -> Report:
    """Everything a revision requires of a server, against the one at `url`."""
    what = ("--url", url, "--requirements", revision, "--output-dir", str(folder))
    output = await _suite("server", *what, "--timeout", SCENARIO_MS)
    return Report(list_required("server", revision), _read(folder, "server-"), output)


async def run_client_suite(command: Sequence[str], revision: str, folder: Path) -> Report:
    """Everything a revision requires of a client."""
    line = " ".join(f'"{word}"' for word in command)
    output = await _suite(
        "client", "--command", line, "--requirements", revision, "--output-dir", str(folder)
    )
    return Report(list_required("client", revision), _read(folder, ""), output)


def read_expected_failures(run: str, revision: str) -> tuple[str, ...]:
    """What is known to fail in this run. The file may only shrink."""
    known = tomllib.loads(EXPECTED.read_text())
    return tuple(known[run][revision])


def judge(report: Report, run: str, revision: str) -> None:
    """Exactly the known failures fail: no new one, and none that passes by now."""
    known = set(read_expected_failures(run, revision))
    new = sorted(set(report.failed) - known)
    healed = sorted(known - set(report.failed))
    assert not new, f"{run} {revision} fails {new}:\n{report.explain()}"
    assert not healed, f"{run} {revision}: {healed} pass; take them out of {EXPECTED.name}"
