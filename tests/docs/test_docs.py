"""Every code block in the documentation runs, and shows what it really prints."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from fingerpost.settings import load
from tests.kit import warm
from tests.kit.code_blocks import PAGES, Block, blocks, matches, steps
from tests.kit.programs import PATH, ROOT
from tests.requirements import proves

CONSOLE = blocks("console")
FIRST = CONSOLE[0]
RUNNABLE = {"python", "console", "sh", "toml", "json", "text"}


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """The environment of a reader: the project's programs, and a store of its own."""
    return {
        **os.environ,
        "PATH": os.pathsep.join([warm.folder(), PATH]),
        "FINGERPOST_STORE__URL": f"sqlite:///{tmp_path}/docs.db",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "COLUMNS": "160",
        "TMPDIR": str(tmp_path),
    }


@proves("H24")
def test_every_block_is_of_a_kind_that_is_checked() -> None:
    for page in PAGES:
        for fence in re.findall(r"^ *```(\w*)", page.read_text(encoding="utf-8"), re.MULTILINE)[::2]:
            assert fence in RUNNABLE, f"{page.name}: a block of kind {fence!r} is checked by nothing"


@pytest.mark.process
@proves("H24")
@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_blocks_run(block: Block, tmp_path: Path, surroundings: dict[str, str]) -> None:
    done = subprocess.run(
        [*warm.python(), "-W", "error", "-c", block.body],
        cwd=tmp_path,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"# ?> ?(.*)", block.body)
    if shown:
        assert matches(tuple(shown), done.stdout), done.stdout


@pytest.mark.process
@proves("H24")
@pytest.mark.parametrize("block", CONSOLE, ids=str)
def test_console_blocks_print_what_they_show(block: Block, surroundings: dict[str, str]) -> None:
    if block is FIRST:  # what a reader tries first starts as it does for them
        surroundings["PATH"] = PATH
    for step in steps(block):
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=ROOT,
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=150,
            check=False,
        )
        assert matches(step.expected, done.stdout), f"$ {step.command}\n{done.stdout}"


@pytest.mark.process
@proves("H24")
@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_shell_blocks_name_targets_that_exist(block: Block) -> None:
    for line in block.body.splitlines():
        command = line.partition("#")[0].split()
        if command:
            assert command[0] == "make", f"only make targets may stand in an sh block: {line!r}"
            subprocess.run(
                ["make", "-n", *command[1:]], cwd=ROOT, capture_output=True, check=True, timeout=30
            )


@proves("H24")
@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_toml_blocks_are_valid_settings(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "fingerpost.toml"
    file.write_text(block.body, encoding="utf-8")
    assert load(config=file, environ={"HOME": str(tmp_path)}).warnings == ()


@proves("H24")
@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_blocks_are_valid_server_files(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(block.body, encoding="utf-8")
    environ = dict.fromkeys(re.findall(r"\$\{(?:env:)?(\w+)", block.body), "x")
    loaded = load(servers=file, environ=environ, cwd=tmp_path)
    assert loaded.specs
    assert loaded.warnings == ()


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_the_glossary_has_at_most_40_words() -> None:
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| \*\*(.+?)\*\*", glossary, re.MULTILINE)
    assert 0 < len(words) <= 40
    assert words == sorted(words, key=str.lower)
