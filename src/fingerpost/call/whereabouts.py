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

from fingerpost.call.spellings import readings, without_windows_ways

_MOST_LINKS: Final = 40  # the kernel's own limit
_LONGEST_NAME: Final = 255  # bytes; nothing on disk has a longer one
_NO_LINK: Final = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR})
# What these mean depends on the process that looks.
_RELATIVE_TO_PROCESS: Final = frozenset({"/proc", "/dev/fd"})

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_VARIABLE: Final = re.compile(r"(?:^|[/\\])(?:\$[A-Za-z_{(]|%[A-Za-z_]\w*%)")
_FILE: Final = re.compile(r"\s*file:", re.IGNORECASE)
_BETWEEN: Final = re.compile(r"[\n\r,;|]+")
_HERE: Final = frozenset({"", "localhost"})


class Lies(StrEnum):
    """Where something lies, as seen from the working directory."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    UNCLEAR = "unclear"


def lies(text: str, folder: str) -> Lies:
    """Where `text` leads, seen from `folder` (resolved), in every reading a tool might take.

    Readings that disagree are unclear: which one the tool takes is not ours to know.
    """
    found = {_lies(reading, folder) for reading in dict.fromkeys(_candidates(text))}
    return found.pop() if len(found) == 1 else Lies.UNCLEAR


def resolve(path: str) -> str | None:
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
            target = _link(there, step)
        except (OSError, ValueError):  # closed to us, too long, or no name a disk could hold
            return None
        if target is None:
            here = there
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        here = "" if target.startswith("/") else here
        ahead.extend(reversed(target.split("/")))
    return here or "/"


def _link(path: str, name: str) -> str | None:
    """Where the link at `path` points; None when there is none."""
    if path in _RELATIVE_TO_PROCESS:
        message = "depends on who looks"
        raise ValueError(message)
    if len(os.fsencode(name)) > _LONGEST_NAME:
        return None
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path would normalise what we look at
    except OSError as error:
        if error.errno in _NO_LINK:
            return None
        raise


def _candidates(text: str) -> Iterator[str]:
    """Decoded or not, with either separator, and with `..` worked out before links are followed or after."""
    for reading in _with_items(text):
        for bare in _without_scheme(reading):
            for path in (bare, bare.replace("\\", "/"), without_windows_ways(bare)):
                yield path
                yield posixpath.normpath(path)


def _with_items(text: str) -> Iterator[str]:
    """The readings, and those of each item when the text is a list in disguise: `a.txt,b.txt`."""
    yield from readings(text)
    items = _BETWEEN.split(text)
    if len(items) > 1:
        for item in items:
            yield from readings(item)


def _without_scheme(text: str) -> Iterator[str]:
    """A `file:` address as the path it stands for, with and without what follows `?` and `#`."""
    scheme = _FILE.match(text)
    if scheme is None:
        yield text
        return
    rest = text[scheme.end() :]
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        rest = f"/{path}" if host.lower() in _HERE else f"//{host}/{path}"
    yield rest
    yield re.split(r"[?#]", rest, maxsplit=1)[0]


def _lies(path: str, folder: str) -> Lies:
    if _VARIABLE.search(path):
        return Lies.UNCLEAR
    if _DRIVE.match(path):
        return Lies.OUTSIDE
    if path.startswith("~"):
        path = os.path.expanduser(path)  # noqa: PTH111 - a Path would drop what we look for
        if path.startswith("~"):
            return Lies.UNCLEAR
    target = resolve(path if path.startswith("/") else f"{folder}/{path}")
    if target is None:
        return Lies.UNCLEAR
    within = folder == "/" or target == folder or target.startswith(f"{folder}/")
    return Lies.INSIDE if within else Lies.OUTSIDE
