"""What the system says when something does not work, as words with a way out."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from fingerpost.builtin.kit import ToolRefused

# The types of errors that metadata name.
NOT_FOUND_TYPE: Final = "FileNotFound"
EXISTS_TYPE: Final = "FileExists"
NOT_A_FILE_TYPE: Final = "NotAFile"
NOT_A_FOLDER_TYPE: Final = "NotAFolder"
NOT_EMPTY_TYPE: Final = "FolderNotEmpty"
_TYPE_BY_ERRNO: Final[dict[int | None, str]] = {
    errno.ENOENT: NOT_FOUND_TYPE,
    errno.EEXIST: EXISTS_TYPE,
    errno.EACCES: "PermissionDenied",
    errno.EPERM: "PermissionDenied",
    errno.ENOTDIR: NOT_A_FOLDER_TYPE,
    errno.EISDIR: NOT_A_FILE_TYPE,
    errno.ENOTEMPTY: NOT_EMPTY_TYPE,
    errno.ENOSPC: "DiskFull",
    errno.EROFS: "ReadOnlyDisk",
}
_MESSAGE_BY_ERRNO: Final[dict[int | None, tuple[str, str]]] = {
    errno.ENOENT: ("is not there (any more)", "list_dir and find_files show what there is."),
    errno.EEXIST: ("exists already", "Choose another name, or delete it first."),
    errno.EACCES: ("may not be used: the system refuses it", "Change its permissions, or choose another."),
    errno.EPERM: ("may not be used: the system refuses it", "Change its permissions, or choose another."),
    errno.ENOTDIR: ("is not a folder, or changed while it was used", "Try again, or look with list_dir."),
    errno.EISDIR: ("is a folder", "list_dir shows what is in it."),
    errno.ELOOP: ("became a link while it was used", "Try again."),
    errno.ENOTEMPTY: ("is a folder that is not empty", "Say `recursive: true` to delete all that is in it."),
    errno.ENOSPC: ("could not be written: the disk is full", "Make room and try again; nothing was changed."),
    errno.EROFS: ("could not be written: the disk can only be read", "Choose another working directory."),
    errno.ENAMETOOLONG: ("has too long a name", "Choose a shorter one."),
    errno.EINVAL: ("cannot be moved into itself", "Choose another target."),
    errno.EXDEV: ("lies on another disk than the target", "Copy it, then delete the original."),
}


@contextmanager
def translate_os_errors(display_path: str) -> Generator[None]:
    """Whatever the system refuses inside is told as `ToolRefused`, about the path that was meant."""
    try:
        yield
    except OSError as error:
        words, hint = _MESSAGE_BY_ERRNO.get(
            error.errno, (f"cannot be used ({error.strerror or 'no reason given'})", "")
        )
        message = f"{display_path} {words}."
        kind = _TYPE_BY_ERRNO.get(error.errno, "")
        raise ToolRefused(message, hint=hint, error_type=kind, path=display_path) from error
