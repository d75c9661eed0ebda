"""Where a path led: a folder that is held open, and a name in it."""

from __future__ import annotations

import os
import stat
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.ground.failing import (
    NOT_A_FILE_TYPE,
    NOT_A_FOLDER_TYPE,
    NOT_FOUND_TYPE,
    translate_os_errors,
)
from fingerpost.builtin.workspace.ground.nearest import find_nearest_name
from fingerpost.frozen import frozen

SELF_NAME: Final = "."
_OPEN_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | _OPEN_FLAGS  # a pipe nobody writes to must not hold us up
_OPEN_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | _OPEN_FLAGS


@frozen
class PathEntry:
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
    def display_path(self) -> str:
        """As it is told to people."""
        return f"/{'/'.join(self.names)}" if self.outside else "/".join(self.names) or SELF_NAME

    @property
    def path(self) -> str:
        """As it is given to find the very same place again."""
        return self.display_path if self.outside else f"./{'/'.join(self.names)}"

    def get_stat(self) -> os.stat_result | None:
        """What is there now, a link not followed; None: nothing."""
        if self.missing:
            return None
        with translate_os_errors(self.display_path):
            try:
                return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def require_stat(self) -> os.stat_result:
        """What is there. Raises `ToolRefused` when nothing is."""
        found = self.get_stat()
        if found is None:
            raise self._build_not_found()
        return found

    def open_file(self) -> tuple[int, os.stat_result]:
        """The file, for reading: a descriptor to be closed, and its figures."""
        if self.missing:
            raise self._build_not_found()
        _check_is_file(self.require_stat(), self.display_path)  # a device is not even opened
        with translate_os_errors(self.display_path):
            descriptor = os.open(self.name, _FILE_FLAGS, dir_fd=self.folder)
        try:
            found = os.fstat(descriptor)
            _check_is_file(found, self.display_path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, found

    def open_folder(self) -> int:
        """The folder, for listing: a descriptor to be closed."""
        if self.missing:
            raise self._build_not_found()
        if not stat.S_ISDIR(self.require_stat().st_mode):
            message = f"{self.display_path} is not a folder."
            hint = "read_file reads a file."
            raise ToolRefused(message, hint=hint, error_type=NOT_A_FOLDER_TYPE, path=self.display_path)
        with translate_os_errors(self.display_path):
            return os.open(self.name, _OPEN_FOLDER_FLAGS, dir_fd=self.folder)

    def _build_not_found(self) -> ToolRefused:
        near = "" if self.missing else _suggest_name(self)
        message = f"There is no {self.display_path}{'' if self.outside else ' in the working directory'}."
        hint = near or "list_dir and find_files show what there is."
        return ToolRefused(message, hint=hint, error_type=NOT_FOUND_TYPE, path=self.display_path)


def _check_is_file(file_stat: os.stat_result, display_path: str) -> None:
    if stat.S_ISREG(file_stat.st_mode):
        return
    if stat.S_ISDIR(file_stat.st_mode):
        message = f"{display_path} is a folder."
        raise ToolRefused(
            message, hint="list_dir shows what is in it.", error_type=NOT_A_FILE_TYPE, path=display_path
        )
    message = f"{display_path} is {describe_kind(file_stat)}, and only ordinary files are read and written."
    raise ToolRefused(message, error_type=NOT_A_FILE_TYPE, path=display_path)


def describe_kind(file_stat: os.stat_result) -> str:
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
    return next((words for test, words in kinds if test(file_stat.st_mode)), "something unknown")


def _suggest_name(entry: PathEntry) -> str:
    """A name that is meant, perhaps: another case, another way to write the same letters, a slip."""
    found = find_nearest_name(entry.folder, entry.name)
    if found is None:
        return ""
    above = "/".join(entry.names[:-1])
    return f"There is {f'{above}/' if above else ''}{found}."
