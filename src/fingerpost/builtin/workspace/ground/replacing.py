"""Files written whole or not at all: a new one beside the old, then one rename."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.ground.failing import told
from fingerpost.builtin.workspace.ground.place import Place

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV)


def put(place: Place, data: bytes, before: os.stat_result | None) -> None:
    """Have `data` be the file. `before` is what was there when it was decided; None: nothing was.

    The old file is never opened for writing: other names it may have outside of the root keep
    what they had. Its permissions are kept.
    """
    if before is not None and not before.st_mode & 0o222:
        message = f"{place.shown} is read-only."
        raise ToolRefused(message, hint="Change its permissions first, if it is meant to change.")
    with told(place.shown):
        temporary = _beside(place, data, None if before is None else stat.S_IMODE(before.st_mode))
        try:
            if before is None:
                _appear(place, temporary)
            else:
                _replace(place, temporary, before)
            os.fsync(place.folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=place.folder)


def move(source: Place, target: Place) -> None:
    """Give it another name. What has that name already is never replaced."""
    with told(source.shown):
        if stat.S_ISDIR(source.there().st_mode):
            # A folder cannot replace a file, nor one that has something in it: the system refuses both.
            if target.look() is not None:
                raise FileExistsError(errno.EEXIST, "exists")
            _rename(source, target)
            return
        try:
            os.link(
                source.name, target.name, src_dir_fd=source.folder, dst_dir_fd=target.folder,
                follow_symlinks=False,
            )  # fmt: skip
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _rename(source, target)
        else:
            os.unlink(source.name, dir_fd=source.folder)


def _rename(source: Place, target: Place) -> None:
    if target.look() is not None:
        raise FileExistsError(errno.EEXIST, "exists")
    os.rename(source.name, target.name, src_dir_fd=source.folder, dst_dir_fd=target.folder)


def _beside(place: Place, data: bytes, mode: int | None) -> str:
    name = f".{secrets.token_hex(8)}.fingerpost-tmp"
    descriptor = os.open(name, _NEW, 0o666, dir_fd=place.folder)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=place.folder)
        raise
    finally:
        os.close(descriptor)
    return name


def _appear(place: Place, temporary: str) -> None:
    """Under a name that must be free: a rename would replace what came there meanwhile."""
    try:
        os.link(
            temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder, follow_symlinks=False
        )
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(place.name, _NEW, 0o666, dir_fd=place.folder))  # a disk without links: hold the name
        os.replace(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def _replace(place: Place, temporary: str, before: os.stat_result) -> None:
    now = place.there()
    if _mark(now) != _mark(before):
        message = f"{place.shown} was changed by somebody else in this very moment; it was left as it is."
        raise ToolRefused(message, hint="Read it again, then decide anew.")
    os.replace(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def _mark(found: os.stat_result) -> tuple[int, int, int, int]:
    return (found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns)
