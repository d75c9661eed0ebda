"""Where a path leads, with every link on the way followed.

Not `os.path.realpath`: that takes a folder it may not look into for one without
links, goes round a loop without a word, and follows `/proc/self` to our own
process when the server's is meant. Here each of these is "nobody can say".

Everything in this module reads the disk. Call it from a thread.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from fingerpost.call.spellings import list_readings, normalize_windows_path

_MAX_LINKS: Final = 40  # the kernel's own limit
_MAX_NAME_LENGTH: Final = 255  # bytes; nothing on disk has a longer one
_NO_LINK: Final = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR})
# What these mean depends on the process that looks.
_RELATIVE_TO_PROCESS: Final = frozenset({"/proc", "/dev/fd"})

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_VARIABLE: Final = re.compile(r"(?:^|[/\\])(?:\$[A-Za-z_{(]|%[A-Za-z_]\w*%)")
_FILE: Final = re.compile(r"\s*file:", re.IGNORECASE)
_ITEM_SEPARATORS: Final = re.compile(r"[\n\r,;|]+")
_CURRENT_FOLDER: Final = frozenset({"", "localhost"})


class PathLocation(StrEnum):
    """Where something lies, as seen from the working directory."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    UNCLEAR = "unclear"


def locate_text(text: str, folder: str) -> PathLocation:
    """Where `text` leads, seen from `folder` (resolved), in every reading a tool might take.

    Readings that disagree are unclear: which one the tool takes is not ours to know.
    """
    found = {_locate_path(reading, folder) for reading in dict.fromkeys(_list_candidates(text))}
    return found.pop() if len(found) == 1 else PathLocation.UNCLEAR


def resolve_path(path: str) -> str | None:
    """The absolute path with all links followed, as far as it exists; None when that cannot be told."""
    ahead = path.split("/")[::-1]
    here, links = "", 0
    while ahead:
        step = ahead.pop()
        if step in ("", "."):
            continue
        if step == "..":
            here = here.rpartition("/")[0]
            continue
        there = f"{here}/{step}"
        try:
            target = _read_link(there, step)
        except (OSError, ValueError):  # closed to us, too long, or no name a disk could hold
            return None
        if target is None:
            here = there
            continue
        links += 1
        if links > _MAX_LINKS:
            return None
        here = "" if target.startswith("/") else here
        ahead.extend(reversed(target.split("/")))
    return here or "/"


def _read_link(path: str, name: str) -> str | None:
    """Where the link at `path` points; None when there is none."""
    if path in _RELATIVE_TO_PROCESS:
        message = "depends on who looks"
        raise ValueError(message)
    if len(os.fsencode(name)) > _MAX_NAME_LENGTH:
        return None
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path would normalise what we look at
    except OSError as error:
        if error.errno in _NO_LINK:
            return None
        raise


def _list_candidates(text: str) -> Iterator[str]:
    """Decoded or not, with either separator, and with `..` worked out before links are followed or after."""
    for reading in _list_items(text):
        for bare in _strip_file_scheme(reading):
            for path in (bare, bare.replace("\\", "/"), normalize_windows_path(bare)):
                yield path
                yield posixpath.normpath(path)


def _list_items(text: str) -> Iterator[str]:
    """The readings, and those of each item when the text is a list in disguise: `a.txt,b.txt`."""
    yield from list_readings(text)
    items = _ITEM_SEPARATORS.split(text)
    if len(items) > 1:
        for item in items:
            yield from list_readings(item)


def _strip_file_scheme(text: str) -> Iterator[str]:
    """A `file:` address as the path it stands for, with and without what follows `?` and `#`."""
    scheme = _FILE.match(text)
    if scheme is None:
        yield text
        return
    rest = text[scheme.end() :]
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        rest = f"/{path}" if host.lower() in _CURRENT_FOLDER else f"//{host}/{path}"
    yield rest
    yield re.split(r"[?#]", rest, maxsplit=1)[0]


def _locate_path(path: str, folder: str) -> PathLocation:
    if _VARIABLE.search(path):
        return PathLocation.UNCLEAR
    if _DRIVE.match(path):
        return PathLocation.OUTSIDE
    if path.startswith("~"):
        path = os.path.expanduser(path)  # noqa: PTH111 - a Path would drop what we look for
        if path.startswith("~"):
            return PathLocation.UNCLEAR
    target = resolve_path(path if path.startswith("/") else f"{folder}/{path}")
    if target is None:
        return PathLocation.UNCLEAR
    within = folder == "/" or target == folder or target.startswith(f"{folder}/")
    return PathLocation.INSIDE if within else PathLocation.OUTSIDE
