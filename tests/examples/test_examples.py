"""Every example runs as it stands, offline, against real servers, and prints what its docstring shows."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.kit import warm
from tests.kit.code_blocks import Block, Step, matches, steps
from tests.kit.programs import PATH, ROOT
from tests.kit.tables import table
from tests.requirements import proves

FOLDER = ROOT / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def story(example: Path) -> list[Step]:
    """The commands in the docstring of an example, each with what it prints."""
    text = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    shown = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    return steps(Block(example.name, 1, "console", textwrap.dedent(shown)))


def run(command: str, home: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """The command as a reader would give it, in a folder and with a home that hold nothing yet."""
    python, script, *arguments = shlex.split(command)
    assert python == "python"
    # The process that outlives us to end orphans is still running when the interpreter looks: by design.
    strict = ("-W", "error", "-W", "ignore::ResourceWarning")
    return subprocess.run(
        [*warm.python(), *strict, str(ROOT / script), *arguments],
        cwd=home,
        env={
            "PATH": os.pathsep.join([warm.folder(), PATH]),
            "HOME": str(home),
            "XDG_CACHE_HOME": str(cache),  # shared: encoding the tools takes longer than most examples
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.mark.process
@proves("H24")
@pytest.mark.timeout(150)  # some stories take two programs, and all start servers of their own
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_shows(
    example: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    output = story(example)
    assert output, f"{example.name} shows nothing in its docstring"
    for step in output:
        assert step.expected, f"{example.name}: nothing is shown under {step.command}"
        done = run(step.command, tmp_path, tmp_path_factory.getbasetemp() / "cache")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert matches(step.expected, done.stdout), f"$ {step.command}\n{done.stdout}"


def test_the_list_of_examples_names_each_of_them_and_nothing_else() -> None:
    listed = re.findall(r"\]\((\w+\.py)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(set(listed), key=listed.index)
    assert set(listed) == {example.name for example in EXAMPLES}


@table("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_uses_nothing_but_what_is_public(example: Path) -> None:
    public = {
        "fingerpost",
        "fingerpost.embed",
        "fingerpost.events",
        "fingerpost.llm",
        "fingerpost.records",
        "fingerpost.settings",
        "fingerpost.testing",
    }
    for node in ast.walk(ast.parse(example.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fingerpost"):
            assert node.module in public
            assert not [name.name for name in node.names if name.name.startswith("_")]
