"""The name that is meant, perhaps, where there is none of that spelling."""

from __future__ import annotations

import difflib
import os
import unicodedata
from itertools import islice
from typing import Final

from fingerpost.builtin.workspace.ground.names import format_name

_MAX_ENTRIES_COMPARED: Final = 2000  # entries looked at


def find_nearest_name(folder: int, name: str) -> str | None:
    """An entry of the open folder whose name is nearly that one."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, _MAX_ENTRIES_COMPARED))
    except OSError:
        return None
    same = [each for each in names if _normalize_name(each) == _normalize_name(name)]
    near = same or difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return format_name(near[0]) if near else None


def _normalize_name(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
