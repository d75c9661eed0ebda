"""Where a path led: a folder that is held open, and a name in it."""

from __future__ import annotations

import os
import stat
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.ground.failing import NOT_A_FILE, NOT_A_FOLDER, NOT_FOUND, told
from fingerpost.builtin.workspace.ground.nearest import nearest_name
from fingerpost.frozen import frozen

ITSELF: Final = "."
_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | _OPEN  # a pipe nobody writes to must not hold us up
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | _OPEN


@frozen
class Place:
    """An entry of an open folder, whether or not it is there. Valid as long as the folder is held open.

    Everything is done through the folder's descriptor: what happens to the path meanwhile, links
    included, cannot lead anywhere else.
    """

    folder: int
    name: str  # `.`: the open folder itself
    missing: tuple[str, ...] = ()  # folders between the open one and the name that do not exist
    names: tuple[str, ...] = ()  # all of it, seen from the root, with no link left in it
    outside: bool = False  # of the root: the names are seen from the top of the disk

    @property
    def shown(self) -> str:
        """As it is told to people."""
        return f"/{'/'.join(self.names)}" if self.outside else "/".join(self.names) or ITSELF

    @property
    def path(self) -> str:
        """As it is given to find the very same place again."""
        return self.shown if self.outside else f"./{'/'.join(self.names)}"

    def look(self) -> os.stat_result | None:
        """What is there now, a link not followed; None: nothing."""
        if self.missing:
            return None
        with told(self.shown):
            try:
                return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def there(self) -> os.stat_result:
        """What is there. Raises `ToolRefused` when nothing is."""
        found = self.look()
        if found is None:
            raise self._nothing()
        return found

    def open_file(self) -> tuple[int, os.stat_result]:
        """The file, for reading: a descriptor to be closed, and its figures."""
        if self.missing:
            raise self._nothing()
        _check_kind(self.there(), self.shown)  # a device is not even opened
        with told(self.shown):
            descriptor = os.open(self.name, _FILE, dir_fd=self.folder)
        try:
            found = os.fstat(descriptor)
            _check_kind(found, self.shown)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, found

    def open_folder(self) -> int:
        """The folder, for listing: a descriptor to be closed."""
        if self.missing:
            raise self._nothing()
        if not stat.S_ISDIR(self.there().st_mode):
            message = f"{self.shown} is not a folder."
            hint = "read_file reads a file."
            raise ToolRefused(message, hint=hint, error_type=NOT_A_FOLDER, path=self.shown)
        with told(self.shown):
            return os.open(self.name, _FOLDER, dir_fd=self.folder)

    def _nothing(self) -> ToolRefused:
        near = "" if self.missing else _near(self)
        message = f"There is no {self.shown}{'' if self.outside else ' in the working directory'}."
        hint = near or "list_dir and find_files show what there is."
        return ToolRefused(message, hint=hint, error_type=NOT_FOUND, path=self.shown)


def _check_kind(found: os.stat_result, shown: str) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        message = f"{shown} is a folder."
        raise ToolRefused(message, hint="list_dir shows what is in it.", error_type=NOT_A_FILE, path=shown)
    message = f"{shown} is {kind_of(found)}, and only ordinary files are read and written."
    raise ToolRefused(message, error_type=NOT_A_FILE, path=shown)


def kind_of(found: os.stat_result) -> str:
    """What it is, in words."""
    kinds = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((words for test, words in kinds if test(found.st_mode)), "something unknown")


def _near(place: Place) -> str:
    """A name that is meant, perhaps: another case, another way to write the same letters, a slip."""
    found = nearest_name(place.folder, place.name)
    if found is None:
        return ""
    above = "/".join(place.names[:-1])
    return f"There is {f'{above}/' if above else ''}{found}."
