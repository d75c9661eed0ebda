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
from fingerpost.builtin.knowledge.records import FileStamp, NoteKind
from fingerpost.frozen import frozen

KINDS_BY_SUFFIX: Final[dict[str, NoteKind]] = {
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
MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 32
MAX_PATH_LENGTH: Final = 1000
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER_FLAGS: Final = _READ_FLAGS | os.O_DIRECTORY
_SKIPPED_NAMES: Final = frozenset({"node_modules", "__pycache__"})


def get_kind(path: str) -> NoteKind | None:
    """What a file is by its name; None for those that are not notes."""
    stem, dot, ending = path.rpartition(".")
    return KINDS_BY_SUFFIX.get(f".{ending.lower()}") if dot and stem else None


@frozen(kw_only=False)
class FolderEntry:
    """A file or folder, as a list shows it."""

    name: str
    is_folder: bool
    stamp: FileStamp


class NoteFolder:
    """All reading of the knowledge base goes through here; nothing is ever written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def exists(self) -> bool:
        return self.root.is_dir()

    def split_path(self, path: str) -> tuple[str, ...]:
        """A path a caller gave as its steps from the folder. Raises `ToolRefused` for one that leads out."""
        given = path.strip().replace("\\", "/")
        if "\0" in given or len(given) > MAX_PATH_LENGTH:
            message = "That is not a path."
            raise ToolRefused(message, hint="Give it as list_kb_directory shows it.")
        if given.startswith(("/", "~")):
            given = self._make_relative(given)
        parts = tuple(part for part in given.split("/") if part not in ("", "."))
        if ".." in parts:
            raise _build_outside_error(path)
        return parts

    def _make_relative(self, given: str) -> str:
        for root in (self.root, self.root.resolve()):
            with suppress(ValueError):
                return str(PurePosixPath(given).relative_to(root))
        raise _build_outside_error(given)

    @contextmanager
    def open_path(self, parts: tuple[str, ...], *, folder: bool = False) -> Generator[int]:
        """A file or folder, open for reading. Raises `OSError`."""
        held = os.open(self.root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            for place, part in enumerate(parts):
                inner = folder or place < len(parts) - 1
                step = os.open(part, _FOLDER_FLAGS if inner else _READ_FLAGS, dir_fd=held)
                os.close(held)
                held = step
            mode = os.fstat(held).st_mode
            if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
                raise OSError(errno.EINVAL, "not a file" if not folder else "not a folder")
            yield held
        finally:
            os.close(held)

    def read_bytes(self, parts: tuple[str, ...], limit: int) -> bytes:
        """The beginning of a file, one byte more than `most` where it is longer. Raises `OSError`."""
        with self.open_path(parts) as handle, os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(limit + 1)

    def list_entries(self, parts: tuple[str, ...]) -> list[FolderEntry]:
        """What stands in a folder, folders first. Raises `OSError`."""
        with self.open_path(parts, folder=True) as handle, os.scandir(handle) as found:
            made = [entry for each in found if (entry := _build_entry(each)) is not None]
        return sorted(made, key=lambda entry: (not entry.is_folder, entry.name.casefold(), entry.name))

    def scan_notes(self) -> dict[str, FileStamp]:
        """Every note there is, by path, with its stamp. What cannot be looked into is passed over."""
        found: dict[str, FileStamp] = {}
        with suppress(OSError), self.open_path((), folder=True) as handle:
            _scan_folder(handle, "", MAX_DEPTH, found)
        return found


def _scan_folder(handle: int, above: str, depth: int, found: dict[str, FileStamp]) -> None:
    """The notes of an open folder and, folder by folder, of all below it."""
    folders: list[str] = []
    with os.scandir(handle) as entries:
        for each in entries:
            if (entry := _build_entry(each)) is None:
                continue
            if entry.is_folder:
                folders.append(entry.name)
            elif get_kind(entry.name) is not None and len(found) < MAX_FILES:
                found[above + entry.name] = entry.stamp
    for name in folders if depth else ():
        with suppress(OSError), _open_step(name, handle, _FOLDER_FLAGS) as inner:
            _scan_folder(inner, f"{above}{name}/", depth - 1, found)


@contextmanager
def _open_step(name: str, handle: int, flags: int) -> Generator[int]:
    opened = os.open(name, flags, dir_fd=handle)
    try:
        yield opened
    finally:
        os.close(opened)


def _build_entry(found: os.DirEntry[str]) -> FolderEntry | None:
    if found.name.startswith(".") or found.name in _SKIPPED_NAMES or not _is_text(found.name):
        return None
    try:
        if found.is_symlink():
            return None
        known = found.stat(follow_symlinks=False)
    except OSError:
        return None
    if not (stat.S_ISDIR(known.st_mode) or stat.S_ISREG(known.st_mode)):
        return None
    stamp = FileStamp(known.st_size, known.st_mtime_ns, known.st_ino)
    return FolderEntry(found.name, stat.S_ISDIR(known.st_mode), stamp)


def _is_text(name: str) -> bool:
    """A name of bytes that are no text could not be shown, nor given back by a model."""
    return name.isascii() or all(not "\ud800" <= letter <= "\udfff" for letter in name)


def iterate_parents(path: str) -> Iterator[str]:
    """The folders a file stands in, the nearest first; the last is the knowledge base itself, ``."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def _build_outside_error(path: str) -> ToolRefused:
    message = f"{path[:200]} is outside of the knowledge base."
    return ToolRefused(message, hint="Give a path as list_kb_directory shows it.")
