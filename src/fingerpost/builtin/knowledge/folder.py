"""The folder of notes, and nothing outside of it.

Files are opened one step of the path after the other, each relative to the step before and never through
a link: between looking and opening nothing can be exchanged. So links in the folder are passed over, and
there is no path that leads out.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.knowledge.records import Kind, Stamp
from fingerpost.frozen import frozen

KINDS: Final[dict[str, Kind]] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdown": "markdown",
    ".txt": "text",
    ".text": "text",
    ".rst": "text",
    ".org": "text",
    ".adoc": "text",
    ".pdf": "pdf",
}
MOST_FILES: Final = 20_000
MOST_DEPTH: Final = 32
LONGEST_PATH: Final = 1000
_READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_INTO: Final = _READING | os.O_DIRECTORY
_PASSED_OVER: Final = frozenset({"node_modules", "__pycache__"})


def kind_of(path: str) -> Kind | None:
    """What a file is by its name; None for those that are not notes."""
    stem, dot, ending = path.rpartition(".")
    return KINDS.get(f".{ending.lower()}") if dot and stem else None


@frozen(kw_only=False)
class Entry:
    """A file or folder, as a list shows it."""

    name: str
    is_folder: bool
    stamp: Stamp


class Folder:
    """All reading of the knowledge base goes through here; nothing is ever written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def is_there(self) -> bool:
        return self.root.is_dir()

    def parts(self, path: str) -> tuple[str, ...]:
        """A path a caller gave as its steps from the folder. Raises `ToolRefused` for one that leads out."""
        given = path.strip().replace("\\", "/")
        if "\0" in given or len(given) > LONGEST_PATH:
            message = "That is not a path."
            raise ToolRefused(message, hint="Give it as list_kb_directory shows it.")
        if given.startswith(("/", "~")):
            given = self._relative(given)
        parts = tuple(part for part in given.split("/") if part not in ("", "."))
        if ".." in parts:
            raise _outside(path)
        return parts

    def _relative(self, given: str) -> str:
        for root in (self.root, self.root.resolve()):
            with suppress(ValueError):
                return str(PurePosixPath(given).relative_to(root))
        raise _outside(given)

    @contextmanager
    def opened(self, parts: tuple[str, ...], *, folder: bool = False) -> Generator[int]:
        """A file or folder, open for reading. Raises `OSError`."""
        held = os.open(self.root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            for place, part in enumerate(parts):
                inner = folder or place < len(parts) - 1
                step = os.open(part, _INTO if inner else _READING, dir_fd=held)
                os.close(held)
                held = step
            mode = os.fstat(held).st_mode
            if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
                raise OSError(errno.EINVAL, "not a file" if not folder else "not a folder")
            yield held
        finally:
            os.close(held)

    def read(self, parts: tuple[str, ...], most: int) -> bytes:
        """The beginning of a file, one byte more than `most` where it is longer. Raises `OSError`."""
        with self.opened(parts) as handle, os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(most + 1)

    def entries(self, parts: tuple[str, ...]) -> list[Entry]:
        """What stands in a folder, folders first. Raises `OSError`."""
        with self.opened(parts, folder=True) as handle, os.scandir(handle) as found:
            made = [entry for each in found if (entry := _entry(each)) is not None]
        return sorted(made, key=lambda entry: (not entry.is_folder, entry.name.casefold(), entry.name))

    def scan(self) -> dict[str, Stamp]:
        """Every note there is, by path, with its stamp. What cannot be looked into is passed over."""
        found: dict[str, Stamp] = {}
        with suppress(OSError), self.opened((), folder=True) as handle:
            _scan(handle, "", MOST_DEPTH, found)
        return found


def _scan(handle: int, above: str, depth: int, found: dict[str, Stamp]) -> None:
    """The notes of an open folder and, folder by folder, of all below it."""
    folders: list[str] = []
    with os.scandir(handle) as entries:
        for each in entries:
            if (entry := _entry(each)) is None:
                continue
            if entry.is_folder:
                folders.append(entry.name)
            elif kind_of(entry.name) is not None and len(found) < MOST_FILES:
                found[above + entry.name] = entry.stamp
    for name in folders if depth else ():
        with suppress(OSError), _step(name, handle, _INTO) as inner:
            _scan(inner, f"{above}{name}/", depth - 1, found)


@contextmanager
def _step(name: str, handle: int, flags: int) -> Generator[int]:
    opened = os.open(name, flags, dir_fd=handle)
    try:
        yield opened
    finally:
        os.close(opened)


def _entry(found: os.DirEntry[str]) -> Entry | None:
    if found.name.startswith(".") or found.name in _PASSED_OVER or not _is_text(found.name):
        return None
    try:
        if found.is_symlink():
            return None
        known = found.stat(follow_symlinks=False)
    except OSError:
        return None
    if not (stat.S_ISDIR(known.st_mode) or stat.S_ISREG(known.st_mode)):
        return None
    stamp = Stamp(known.st_size, known.st_mtime_ns, known.st_ino)
    return Entry(found.name, stat.S_ISDIR(known.st_mode), stamp)


def _is_text(name: str) -> bool:
    """A name of bytes that are no text could not be shown, nor given back by a model."""
    return name.isascii() or all(not "\ud800" <= letter <= "\udfff" for letter in name)


def walk_up(path: str) -> Iterator[str]:
    """The folders a file stands in, the nearest first; the last is the knowledge base itself, ``."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def _outside(path: str) -> ToolRefused:
    message = f"{path[:200]} is outside of the knowledge base."
    return ToolRefused(message, hint="Give a path as list_kb_directory shows it.")
