"""What is given to users: the wheel and the source archive, and what newcomers do with them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.kit.programs import ROOT
from tests.requirements import proves

SITE = "fingerpost/surfaces/console/site/"  # there once `make docs` has built it


# `hatchling` with archives that are not compressed.
BUILD = """
import zlib
compress = zlib.compressobj
zlib.compressobj = lambda level, *others: compress(0, *others)
from hatchling.cli import hatchling
raise SystemExit(hatchling())
"""


def list_source_files() -> set[str]:
    """Every file of the package that git knows or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/fingerpost"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    return {name.removeprefix("src/") for name in done.stdout.splitlines() if (ROOT / name).exists()}


@pytest.mark.process
@proves("H33")
def test_the_wheel_and_the_source_archive_hold_the_whole_package_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", BUILD, "build", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    (archive,) = tmp_path.glob("*.tar.gz")
    with ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
        metadata = Parser().parsestr(opened.read(f"{wheel.name[:16]}.dist-info/METADATA").decode())
        entry_points = opened.read(f"{wheel.name[:16]}.dist-info/entry_points.txt").decode()
    assert {name for name in names if not name.startswith(SITE)} == list_source_files()
    assert "fingerpost = fingerpost.surfaces.cli.main:main" in entry_points
    assert metadata["Description-Content-Type"] == "text/markdown"
    plain = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not [line for line in plain if line.startswith(("openai", "tokenizers", "anthropic", "torch"))]
    with tarfile.open(archive) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
    assert {name.removeprefix("src/") for name in packed if name.startswith("src/")} == names
    assert {name for name in packed if not name.startswith("src/")} == {
        *("CHANGELOG.md", "LICENSE", "README.md"),
        *("PKG-INFO", "pyproject.toml", ".gitignore"),
    }


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.timeout(1200)
@proves("H33")
def test_newcomers_succeed_with_the_wheel_in_an_empty_environment() -> None:
    """`make dist-check`, which CI runs, too. Installing takes a minute where others use the machine."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FINGERPOST_")}
    done = subprocess.run(["make", "dist-check"], cwd=ROOT, env=environ, timeout=1200, check=False)
    assert done.returncode == 0
