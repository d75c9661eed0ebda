"""Reads word lists: files of a package with named lists."""

from __future__ import annotations

import pkgutil


def read_lines(package: str, path: str) -> tuple[str, ...]:
    """Return the lines of a file in a package, without empty lines and comments."""
    # Read by the loader, so that it works from a zip too and counts as an import, not as file access.
    data = pkgutil.get_data(package, path) or b""
    lines = (line.strip() for line in data.decode().splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def read_word_lists(package: str, path: str) -> dict[str, list[str]]:
    """Return the lines of each list in a file, by the list's name. A line in square brackets names a list."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in read_lines(package, path):
        if line.startswith("["):
            lines = found.setdefault(line.strip("[]"), [])
        else:
            lines.append(line)
    return found


def read_word_sets(package: str, path: str) -> dict[str, frozenset[str]]:
    """Return the words of each list in a file, by the list's name."""
    return {
        name: frozenset(" ".join(lines).split()) for name, lines in read_word_lists(package, path).items()
    }
