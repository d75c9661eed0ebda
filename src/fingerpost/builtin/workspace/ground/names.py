"""From what somebody wrote as a path to the names it is made of. Nothing is looked up here."""

from __future__ import annotations

from typing import Final

from fingerpost.builtin.kit import ToolRefused

MAX_PATH_LENGTH: Final = 4096  # bytes, as the system has it
MAX_NAME_LENGTH: Final = 255
MAX_PATH_DEPTH: Final = 256

# Types of errors whose cause is the path that was given, not what is there.
OUTSIDE_TYPE: Final = "OutsideWorkingDirectory"
PROTECTED_TYPE: Final = "ProtectedPath"
SENSITIVE_NAMES: Final = "SensitivePath"


def parse_path(path: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a path seen from the root, `..` still among them. Raises `ToolRefused`.

    `roots` are the spellings of the root that an absolute path may begin with.
    """
    _check_text(path)
    names = _split_path(path)
    if path.startswith("/"):
        names = _strip_root(path, names, roots)
    elif path == "~" or (path.startswith("~") and "/" in path):
        message = f"{format_name(path)} is a home directory, and paths here begin at the working directory."
        raise ToolRefused(message, hint="Write the path as seen from there, such as notes/today.md.")
    if len(names) > MAX_PATH_DEPTH:
        message = f"The path has {len(names)} parts; {MAX_PATH_DEPTH} is the most."
        raise ToolRefused(message)
    for name in names:
        if len(name.encode()) > MAX_NAME_LENGTH:
            message = f"The name {format_name(name[:40])}… is longer than {MAX_NAME_LENGTH} bytes."
            raise ToolRefused(message, hint="Choose a shorter one.")
    return names


def parse_link(target: str, roots: tuple[str, ...]) -> tuple[str, ...] | None:
    """The names a link leads to; None when it leads out of the root by its very first letter."""
    names = _split_path(target)
    if not target.startswith("/"):
        return names
    for root in roots:
        above = _split_path(root)
        if names[: len(above)] == above:
            return names[len(above) :]
    return None


def is_absolute(target: str) -> bool:
    return target.startswith("/")


def format_name(name: str) -> str:
    """A name or path as it can be shown: what is not printable is spelled out."""
    return "".join(char if char.isprintable() else _escape_character(char) for char in name)


def check_new_name(name: str) -> None:
    """Whether a file may be called so: others have to be able to read and type the name."""
    if not name.isprintable():
        message = f"The name {format_name(name)} has characters in it that cannot be seen."
        raise ToolRefused(message, hint="Choose a name of letters, digits and ordinary signs.")


def _check_text(path: str) -> None:
    if not path.strip():
        message = "The path is empty."
        raise ToolRefused(message, hint="Name a file or folder, `.` for the working directory itself.")
    if "\0" in path:
        message = "The path has a zero byte in it."
        raise ToolRefused(message, hint="Leave it out.")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        message = "The path is not valid Unicode."
        raise ToolRefused(message, hint="Write it without half of a surrogate pair.") from None
    if size > MAX_PATH_LENGTH:
        message = f"The path is {size} bytes long; {MAX_PATH_LENGTH} is the most."
        raise ToolRefused(message)


def _split_path(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))


def _strip_root(path: str, names: tuple[str, ...], roots: tuple[str, ...]) -> tuple[str, ...]:
    for root in roots:
        above = _split_path(root)
        if names[: len(above)] == above:
            return names[len(above) :]
    raise build_outside_error(path)


def build_outside_error(path: str) -> ToolRefused:
    """Why the path is refused."""
    message = f"{format_name(path[:200])} leads out of the working directory: nothing there can be used."
    hint = "Use a path inside of it; builtin.workspace.root says which folder it is."
    return ToolRefused(message, hint=hint, error_type=OUTSIDE_TYPE, path=format_name(path[:200]))


def _escape_character(char: str) -> str:
    number = ord(char)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a name that is not UTF-8
        return f"\\x{number - 0xDC00:02x}"
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
