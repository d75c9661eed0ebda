"""Scorers, rules and servers of an installed package, as a person meets them at the terminal."""

from __future__ import annotations

import json
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.kit.code_blocks import blocks, matches, steps
from tests.kit.command_line import CommandLine
from tests.kit.installed_package import install
from tests.requirements import proves

pytestmark = pytest.mark.process

REQUEST = "Show the tide table of the harbour"


class Sailor(CommandLine):
    """A person who has installed the package, and enabled some of it."""

    def enables(self, **extensions: list[str]) -> None:
        lines = [f"{kind} = {json.dumps(names)}" for kind, names in extensions.items()]
        text = "\n".join(["[flags]", "dense_scores = false", "[extensions]", *lines])
        self.writes("fingerpost.toml", text)

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "PYTHONPATH": str(self.home / "packages"), "COLUMNS": "200"}

    def runs_as_installed(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command with its start-up: the interpreter itself finds the package."""
        return subprocess.run(
            self.cold_command(*arguments),
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )


@pytest.fixture
def sailor(tmp_path: Path) -> Sailor:
    install(tmp_path / "packages")
    return Sailor(tmp_path)


@proves("H26")
def test_what_a_package_adds_is_in_the_explanation_the_trace_and_the_call(sailor: Sailor) -> None:
    sailor.enables(
        scorers=["acme-harbour:tides"], rules=["Acme_Harbour:closed"], servers=["acme-harbour:harbour"]
    )
    shown = sailor.runs("route", "--explain", REQUEST)
    assert shown.returncode == 0, shown.stderr
    assert "harbour/tide_table" in shown.stdout
    assert "tides +0.25 (the tide is high)" in " ".join(shown.stdout.split())
    assert "Rules closed harbour: in code, for every call" in " ".join(shown.stdout.split())
    trace = sailor.runs("trace", shown.stdout.rpartition("trace ")[2].split()[0])
    assert "tides +0.25" in trace.stdout
    assert sailor.runs_as_installed("call", "harbour/tide_table", "day=today").returncode == 0
    denied = json.loads(sailor.runs("call", "harbour/tide_table", "day=storm", "--json").stdout)
    assert (denied["error"], denied["success"]) == ("denied", False)
    traced = sailor.runs("trace", denied["call_id"]).stdout
    assert "policy deny: there is a storm (closed harbour)" in traced


@proves("H26", "H21")
def test_nothing_of_a_package_is_loaded_until_it_is_named_and_the_doctor_lists_it(sailor: Sailor) -> None:
    (sailor.home / "packages" / "acme_harbour.py").write_text("raise SystemExit('loaded')", encoding="utf-8")
    sailor.enables()
    found = {one["subject"]: one for one in json.loads(sailor.runs("doctor", "--json").stdout)}
    mine = {subject: one for subject, one in found.items() if "acme-harbour" in subject}
    assert mine.keys() == {
        "scorer acme-harbour:tides",
        "scorer acme-harbour:broken",
        "scorer acme-harbour:unused",
        "rule acme-harbour:closed",
        "rule acme-harbour:broken",
        "server acme-harbour:harbour",
    }
    assert {one["severity"] for one in mine.values()} == {"advice"}
    assert mine["rule acme-harbour:closed"]["what"] == "not enabled, version 1.2"
    assert mine["rule acme-harbour:closed"]["fix"] == 'add "acme-harbour:closed" to extensions.rules'


@proves("H26", "H21")
def test_what_cannot_be_loaded_is_left_out_and_the_doctor_says_why(sailor: Sailor) -> None:
    scorers = ["acme-harbour:tides", "acme-harbour:broken", "acme-harbour:unused", "no-package:at-all"]
    sailor.enables(scorers=scorers, servers=["acme-harbour:harbour"])
    shown = sailor.runs("route", "--explain", REQUEST)
    assert shown.returncode == 0, shown.stderr
    assert "tides +0.25" in shown.stdout
    found = _read_findings(sailor)
    assert found["scorer acme-harbour:tides"]["what"] == "enabled, version 1.2"
    errors = {
        "scorer acme-harbour:broken": "RuntimeError: the tide tables are missing",
        "scorer acme-harbour:unused": "ModuleNotFoundError: No module named 'acme_nowhere'",
        "scorer no-package:at-all": "no installed package has this entry point in fingerpost.scorers",
    }
    for subject, error in errors.items():
        assert found[subject]["severity"] == "limited"
        assert found[subject]["what"] == f"cannot be used: {error}"


@proves("H26")
@pytest.mark.parametrize("name", ["acme-harbour:broken", "acme-harbour:gone"])
def test_a_rule_that_cannot_be_loaded_stops_the_start(sailor: Sailor, name: str) -> None:
    sailor.enables(rules=[name], servers=["acme-harbour:harbour"])
    stopped = sailor.runs("call", "harbour/tide_table", "day=today")
    assert stopped.returncode != 0
    assert f"the extension {name} of extensions.rules cannot be used" in stopped.stderr
    assert "extensions.rules" in stopped.stderr
    found = _read_findings(sailor)
    assert found[f"rule {name}"]["severity"] == "broken"
    assert "server harbour" not in found  # the rest was examined, and is well


def test_a_name_without_a_package_is_a_mistake_in_the_settings(sailor: Sailor) -> None:
    sailor.enables(scorers=["tides"])
    checked = sailor.runs("config", "check")
    assert checked.returncode != 0
    assert "extensions.scorers" in checked.stdout + checked.stderr


def _read_findings(sailor: Sailor) -> dict[str, dict[str, Any]]:
    return {one["subject"]: one for one in json.loads(sailor.runs("doctor", "--json").stdout)}


@proves("H26", "H24")
def test_the_package_of_the_documentation_does_what_the_page_shows(tmp_path: Path) -> None:
    page = [block for block in blocks("python", "text", "toml") if block.page == "docs/how-to/extending.md"]
    source = next(block.body for block in page if block.body.startswith("# harbour.py"))
    project = tomllib.loads(next(block.body for block in page if "[project]" in block.body))["project"]
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())])
        for group, entries in project["entry-points"].items()
    ]
    sailor = Sailor(tmp_path)
    install(
        tmp_path / "packages",
        name=project["name"],
        version=project["version"],
        module="harbour",
        source=source,
        entry_points="\n".join(groups),
    )
    settings = next(block.body for block in page if block.language == "toml")
    sailor.writes("fingerpost.toml", f"{settings}\n[flags]\ndense_scores = false\n")
    (shown,) = [block for block in page if block.body.startswith("$ ")]
    for step in steps(shown):
        done = sailor.runs(*shlex.split(step.command)[1:])
        assert matches(step.expected, done.stdout), done.stdout + done.stderr
    denied = sailor.runs("call", "harbour/tide_table", "day=storm")
    assert "no sailing in a storm" in denied.stdout + denied.stderr
