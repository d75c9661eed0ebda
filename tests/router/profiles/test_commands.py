"""`fingerpost profiles` and `--profile`, as a person uses them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fingerpost.surfaces.cli.commands import build_command
from tests.kit import warm
from tests.kit.programs import PATH
from tests.requirements import proves

Done = subprocess.CompletedProcess[str]

Run = Callable[..., Done]
CALL = ("call", "directives/set_environment", "light:=0.2")


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with settings and notes, where the commands run."""
    monkeypatch.chdir(tmp_path)
    Path("fingerpost.toml").write_text('[builtin]\nenabled = ["directives", "knowledge"]\n')
    Path("notes").mkdir()
    return {
        "FINGERPOST_STORE__URL": f"sqlite:///{tmp_path}/store.db",
        "FINGERPOST_FLAGS__DENSE_SCORES": "false",
        "HOME": str(tmp_path),
    }


@pytest.fixture
def profiles(variables: dict[str, str]) -> Callable[..., Result]:
    """`fingerpost profiles`, as far as it opens nothing."""
    runner = CliRunner(env=variables)
    return lambda *arguments: runner.invoke(build_command("profiles"), [*arguments], standalone_mode=False)


@pytest.fixture
def run(variables: dict[str, str]) -> Run:
    """Any command, as a process."""
    environ = {**os.environ, **variables, "PATH": os.pathsep.join([warm.folder(), PATH]), "COLUMNS": "160"}
    return lambda *arguments: subprocess.run(
        ["fingerpost", *arguments], env=environ, capture_output=True, text=True, timeout=150, check=False
    )


def parse_output(result: Done | Result) -> Any:
    return json.loads(result.stdout)


@proves("U14", "B7")
def test_ready_profiles_are_added_and_listed(profiles: Callable[..., Result]):
    assert "no profiles" in profiles().stdout
    assert "researcher" in profiles("add").stdout
    added = profiles("add", "kb", "v0.3")
    assert "wrote profiles/kb.toml" in added.stdout
    assert 'builtin.enabled = ["knowledge"]' in added.stdout
    assert "exists already" in str(profiles("add", "kb").exception)
    assert [(one["name"], one["written"]) for one in parse_output(profiles("--json"))] == [
        ("kb", "profiles/kb.toml:3"),
        ("v0.3", "profiles/v0.3.toml:3"),
    ]
    assert "API v0.3" in profiles().stdout


@pytest.mark.process
@proves("U14")
def test_what_is_wrong_with_a_file_is_found_by_check_and_doctor(profiles: Callable[..., Result], run: Run):
    profiles("add", "kb")
    assert "No problems in" in profiles("check").stdout
    Path("profiles/kb.toml").write_text("default = 'yes'\n")
    wrong = profiles("check")
    assert wrong.return_value == 1
    assert "profiles/kb.toml:1: profiles.kb.default: must be true or false" in wrong.stdout
    assert "write default = true" in wrong.stdout
    assert "profiles/kb.toml:1" in run("doctor").stdout


@pytest.mark.process
@proves("U14")
def test_commands_ask_and_call_under_a_profile(profiles: Callable[..., Result], run: Run):
    profiles("add", "kb", "v0.3")
    shown = run("profiles", "show", "v0.3", "--prompt").stdout
    assert "tools  14 tools of 14" in shown
    assert shown.index("# TOOLS") < shown.index("# DIRECTIVES\n## VR/AR\n")
    denied, done = run(*CALL), run(*CALL, "--profile", "v0.3")
    assert (denied.returncode, "this caller may not use it" in denied.stderr) == (1, True)
    assert (done.returncode, '"directive":"set_environment"' in done.stdout) == (0, True)
    routed = parse_output(run("route", "--json", "--profile", "v0.3", "set the scene environment"))
    assert "directives/set_environment" in routed["offered"]
    asked = parse_output(
        run("ask", "--json", "--profile", "v0.3", "set the light of the scene environment to 0.2")
    )
    assert asked["profile"] == "v0.3"


@pytest.mark.process
@pytest.mark.parametrize("command", ["ask x", "chat", "serve --port 0"])
def test_an_unknown_profile_is_told_of_with_those_there_are(run: Run, command: str):
    unknown = run(*command.split(), "--profile", "nobody")
    assert unknown.returncode == 2
    assert "there is no profile 'nobody'" in unknown.stderr
    assert "There are: none." in unknown.stderr
