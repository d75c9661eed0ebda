"""Data files of the package: tables in TOML, and lists of words under titles."""

from __future__ import annotations

import re
import tomllib
from pkgutil import get_data
from typing import Any


def read_data_text(package: str, file: str) -> str:
    """Return the text of a data file. The import system reads it, so it may be in a zip file."""
    return (get_data(package, file) or b"").decode()


def read_data_table(package: str, file: str) -> dict[str, Any]:
    """Return the content of a TOML file."""
    return tomllib.loads(read_data_text(package, file))


def read_sections(package: str, file: str) -> dict[str, str]:
    """Return the texts of a data file by their `[titles]`. Lines that start with `#` are comments."""
    text = re.sub(r"^#.*\n", "", read_data_text(package, file), flags=re.MULTILINE)
    _, *parts = re.split(r"^\[(.+)\]\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def read_patterns(package: str, file: str) -> dict[str, str]:
    """Return the regular expressions of a data file by their `[titles]`: a line for each alternative.

    An indented line continues the one before. `§name§` stands for the pattern `[§name§]` before it.
    """
    found: dict[str, str] = {}
    for title, text in read_sections(package, file).items():
        joined = re.sub(r"\n +", "", text).strip("\n").replace("\n", "|")
        found[title] = re.sub("§[^§]+§", lambda name: found[name[0]], joined)
    return found


def read_word_sets(package: str, file: str) -> dict[str, frozenset[str]]:
    """Return the word lists of a data file by their `[titles]`."""
    return {title: frozenset(text.split()) for title, text in read_sections(package, file).items()}
