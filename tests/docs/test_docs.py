"""Every code block in the documentation runs, and shows what it really prints."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.gateway.programs import free_port

from fingerpost.settings import load
from tests.kit import warm
from tests.kit.code_blocks import PAGES, Block, Step, blocks, matches, steps
from tests.kit.programs import PATH, ROOT
from tests.requirements import proves

FIRST, *OTHERS = blocks("console")
# The README is one session: its later commands use what the earlier ones set up.
SESSION = "".join(block.body for block in [FIRST, *OTHERS] if block.page == FIRST.page)
CONSOLE = [replace(FIRST, body=SESSION), *(block for block in OTHERS if block.page != FIRST.page)]
RUNNABLE = {"python", "console", "sh", "toml", "json", "text"}


@pytest.fixture
def surroundings(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a reader: the project's programs, and a home of its own.

    They share the cache: encoding the tools of the examples takes two seconds.
    """
    (tmp_path / ".cursor").mkdir()  # they have an MCP client
    given = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return {
        **given,
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join([warm.folder(), PATH]),
        "XDG_CACHE_HOME": str(tmp_path_factory.getbasetemp() / "cache"),
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
    (folder := tmp_path / "project").mkdir()
    done = subprocess.run(
        [*warm.python(), "-W", "error", "-c", block.body],
        cwd=folder,
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
    port = str(free_port())
    with ExitStack() as running:
        for step in steps(replace(block, body=block.body.replace("8642", port))):
            if step.command.endswith(" &"):
                running.enter_context(start_program(f"exec {step.command[:-2]}", step, surroundings, port))
                continue
            first = step.command == steps(FIRST)[0].command  # starts as it does for a reader: cold
            done = subprocess.run(
                ["bash", "-c", step.command],
                cwd=ROOT,
                env={**surroundings, "PATH": PATH} if first else surroundings,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=150,
                check=False,
            )
            assert matches(step.expected, done.stdout), f"$ {step.command}\n{done.stdout}"


@contextmanager
def start_program(command: str, step: Step, environ: dict[str, str], port: str) -> Generator[None]:
    """A program in the background that prints what the step shows, and runs until the block ends."""
    printed = Path(environ["TMPDIR"]) / "printed"
    environ = {**environ, "FINGERPOST_GATEWAY__PORT": port}
    with (
        printed.open("w") as out,
        subprocess.Popen(["bash", "-c", command], cwd=ROOT, env=environ, stdout=out, stderr=out) as program,
    ):
        try:
            ends = time.monotonic() + 60
            while not matches(step.expected, printed.read_text("utf-8")):
                assert time.monotonic() < ends, f"$ {command}\n{printed.read_text('utf-8')}"
                time.sleep(0.1)
            yield
        finally:
            program.terminate()


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


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_the_glossary_has_at_most_40_words() -> None:
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| \*\*(.+?)\*\*", glossary, re.MULTILINE)
    assert 0 < len(words) <= 40
    assert words == sorted(words, key=str.lower)
