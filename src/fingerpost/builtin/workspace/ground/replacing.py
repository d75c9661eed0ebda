"""Files written whole or not at all: a new one beside the old, then one rename."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.ground.failing import translate_os_errors
from fingerpost.builtin.workspace.ground.place import PathEntry

_NEW_FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV)


def write_atomically(entry: PathEntry, data: bytes, before: os.stat_result | None) -> None:
    """Have `data` be the file. `before` is what was there when it was decided; None: nothing was.

    The old file is never opened for writing: other names it may have outside of the root keep
    what they had. Its permissions are kept.
    """
    if before is not None and not before.st_mode & 0o222:
        message = f"{entry.display_path} is read-only."
        raise ToolRefused(message, hint="Change its permissions first, if it is meant to change.")
    with translate_os_errors(entry.display_path):
        temporary = _write_temporary(entry, data, None if before is None else stat.S_IMODE(before.st_mode))
        try:
            if before is None:
                _link_into_place(entry, temporary)
            else:
                _replace_file(entry, temporary, before)
            os.fsync(entry.folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=entry.folder)


def move_entry(source: PathEntry, target: PathEntry) -> None:
    """Give it another name. What has that name already is never replaced."""
    with translate_os_errors(source.display_path):
        if stat.S_ISDIR(source.require_stat().st_mode):
            # A folder cannot replace a file, nor one that has something in it: the system refuses both.
            if target.get_stat() is not None:
                raise FileExistsError(errno.EEXIST, "exists")
            _rename_entry(source, target)
            return
        try:
            os.link(
                source.name, target.name, src_dir_fd=source.folder, dst_dir_fd=target.folder,
                follow_symlinks=False,
            )  # fmt: skip
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _rename_entry(source, target)
        else:
            os.unlink(source.name, dir_fd=source.folder)


def _rename_entry(source: PathEntry, target: PathEntry) -> None:
    if target.get_stat() is not None:
        raise FileExistsError(errno.EEXIST, "exists")
    os.rename(source.name, target.name, src_dir_fd=source.folder, dst_dir_fd=target.folder)


def _write_temporary(entry: PathEntry, data: bytes, mode: int | None) -> str:
    name = f".{secrets.token_hex(8)}.fingerpost-tmp"
    descriptor = os.open(name, _NEW_FILE_FLAGS, 0o666, dir_fd=entry.folder)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=entry.folder)
        raise
    finally:
        os.close(descriptor)
    return name


def _link_into_place(entry: PathEntry, temporary: str) -> None:
    """Under a name that must be free: a rename would replace what came there meanwhile."""
    try:
        os.link(
            temporary, entry.name, src_dir_fd=entry.folder, dst_dir_fd=entry.folder, follow_symlinks=False
        )
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(
            os.open(entry.name, _NEW_FILE_FLAGS, 0o666, dir_fd=entry.folder)
        )  # a disk without links: hold the name
        os.replace(temporary, entry.name, src_dir_fd=entry.folder, dst_dir_fd=entry.folder)


def _replace_file(entry: PathEntry, temporary: str, before: os.stat_result) -> None:
    now = entry.require_stat()
    if _build_version_mark(now) != _build_version_mark(before):
        message = (
            f"{entry.display_path} was changed by somebody else in this very moment; it was left as it is."
        )
        raise ToolRefused(message, hint="Read it again, then decide anew.")
    os.replace(temporary, entry.name, src_dir_fd=entry.folder, dst_dir_fd=entry.folder)


def _build_version_mark(file_stat: os.stat_result) -> tuple[int, int, int, int]:
    return (file_stat.st_ino, file_stat.st_dev, file_stat.st_size, file_stat.st_mtime_ns)
