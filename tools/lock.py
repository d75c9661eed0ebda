"""`python tools/lock.py`: write `requirements.lock`, the versions of `constraints.txt` with hashes.

The hashes are those of every file the package index has of a version, so one lock serves all systems.
`make install-locked` installs nothing but what has one of them. Run it again whenever `constraints.txt`
changes; `--check` says whether it was.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
LOCK = ROOT / "requirements.lock"
_LINK = re.compile(r'href="[^"#]*/([^"/#]+)#sha256=([0-9a-f]{64})"')
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)")
_SUFFIX = re.compile(r"\.(?:tar\.gz|zip|tar\.bz2)$")


def read_pins() -> list[tuple[str, str]]:
    """Name and version of everything in `constraints.txt`."""
    lines = (line.strip() for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines())
    found = [_PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    if not all(found):
        message = "constraints.txt holds a line that is no NAME==VERSION"
        raise SystemExit(message)
    return [(pin[1], pin[2]) for pin in found if pin is not None]


def index_address() -> str:
    """The package index that pip uses here."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    if told.returncode == 0:
        return told.stdout.strip()
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


def read_hashes(index: str, name: str, version: str) -> list[str]:
    """The hashes of all files of this version."""
    folder = re.sub(r"[-_.]+", "-", name).lower()
    with urllib.request.urlopen(f"{index.rstrip('/')}/{folder}/", timeout=60) as answer:
        page = answer.read().decode()
    found = sorted({digest for file, digest in _LINK.findall(page) if version_of(file) == version})
    if not found:
        message = f"the index has no file of {name} {version}"
        raise SystemExit(message)
    return found


def version_of(file: str) -> str:
    """Of a wheel the second part of its name, of a source archive the last."""
    if file.endswith(".whl"):
        return file.split("-")[1]
    return _SUFFIX.sub("", file).rpartition("-")[2]


def write_lock() -> None:
    pins = read_pins()
    index = index_address()

    def read(pin: tuple[str, str]) -> list[str]:
        return read_hashes(index, *pin)

    with ThreadPoolExecutor(8) as pool:
        hashes = list(pool.map(read, pins))
    lines = ["# Made by tools/lock.py from constraints.txt. Install with: make install-locked"]
    for (name, version), digests in zip(pins, hashes, strict=True):
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in digests)]))
    LOCK.write_text("\n".join(lines) + "\n", encoding="utf-8")


def stale_pins() -> list[str]:
    """What of `constraints.txt` the lock does not hold, and the other way round."""
    locked = set(_PIN.findall("\n".join(re.findall(r"^[^#\s-]\S*", LOCK.read_text(encoding="utf-8"), re.M))))
    return sorted(f"{name}=={version}" for name, version in set(read_pins()) ^ locked)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--check", action="store_true", help="change nothing; fail where the lock is stale")
    if not reader.parse_args().check:
        write_lock()
    elif stale := stale_pins():
        message = f"requirements.lock is stale, run tools/lock.py: {', '.join(stale)}"
        raise SystemExit(message)


if __name__ == "__main__":
    main()
