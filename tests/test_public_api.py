"""What a stranger can import, and what that costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fingerpost
from tests.requirements import proves

HEAVY = {
    "aiohttp",
    "httpx2",
    "mcp",
    "mcp_types",
    "numpy",
    "onnxruntime",
    "openai",
    "pydantic",
    "rich",
    "sqlalchemy",
    "starlette",
    "uvicorn",
}


def loaded_by(program: str) -> set[str]:
    """The top-level packages that running `program` loads, in a fresh interpreter."""
    report = "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    source = f"import json, sys\n{program}\n{report}"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@proves("P9")
def test_importing_fingerpost_loads_nothing_heavy() -> None:
    assert loaded_by("import fingerpost") & (HEAVY | {"click", "asyncio", "anyio"}) == set()


@proves("P9")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["tools", "--help"], ["servers", "--help"]])
def test_help_and_version_load_click_and_nothing_heavy(arguments: list[str]) -> None:
    program = (
        f"sys.argv = ['fingerpost', *{arguments!r}]\n"
        "from fingerpost.surfaces.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as leave:\n    assert not leave.code, leave.code\n"
    )
    loaded = loaded_by(program)
    assert "click" in loaded
    assert loaded & HEAVY == set()


def test_every_public_name_can_be_had_and_nothing_else_is_promised() -> None:
    assert sorted(fingerpost.__all__) == fingerpost.__all__
    for name in fingerpost.__all__:
        assert getattr(fingerpost, name).__name__ == name


def test_a_name_that_does_not_exist_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Rooter'"):
        fingerpost.Rooter  # noqa: B018
