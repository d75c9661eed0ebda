"""Paths inside the root folder. Nothing here leaves it without a person's grant. Links are resolved name by
name, with every folder held open.
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Final
from unicodedata import normalize

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.data_files import read_data_table
from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen

# Error types in the metadata of outcomes.
NOT_FOUND_TYPE: Final = "FileNotFound"
EXISTS_TYPE: Final = "FileExists"
NOT_A_FILE_TYPE: Final = "NotAFile"
NOT_A_FOLDER_TYPE: Final = "NotAFolder"
NOT_EMPTY_TYPE: Final = "FolderNotEmpty"
_ERRORS: Final[dict[int | None, list[str]]] = {
    getattr(errno, name): text for name, text in read_data_table(__package__ or "", "errors.toml").items()
}
_ERRORS[errno.EPERM] = _ERRORS[errno.EACCES]


@contextmanager
def translate_os_errors(display_path: str) -> Generator[None]:
    """Convert `OSError` raised inside to `ToolRefused` about this path."""
    try:
        yield
    except OSError as error:
        unknown = f"cannot be used ({error.strerror or 'no reason given'})"
        kind, words, hint = _ERRORS.get(error.errno, ("", unknown, ""))
        message = f"{display_path} {words}."
        raise ToolRefused(message, hint=hint, error_type=kind, path=display_path) from error


MAX_PATH_LENGTH: Final = 4096  # bytes; the system's limit
MAX_NAME_LENGTH: Final = 255
MAX_PATH_DEPTH: Final = 256

# Error types caused by the given path and not by the file system.
OUTSIDE_TYPE: Final = "OutsideWorkingDirectory"
PROTECTED_TYPE: Final = "ProtectedPath"
SENSITIVE_TYPE: Final = "SensitivePath"


def parse_path(path: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a path relative to the root, with `..` unresolved. Raises `ToolRefused`.

    `roots` are the spellings of the root with which an absolute path may start.
    """
    _check_text(path)
    names = _split_path(path)
    if path.startswith("/"):
        inside = parse_link(path, roots)
        if inside is None:
            raise build_outside_error(path)
        names = inside
    elif path == "~" or (path.startswith("~") and "/" in path):
        message = f"{format_name(path)} is a home directory, and paths here begin at the working directory."
        raise ToolRefused(message, hint="Write the path as seen from there, such as notes/today.md.")
    if len(names) > MAX_PATH_DEPTH:
        raise ToolRefused(f"The path has {len(names)} parts; {MAX_PATH_DEPTH} is the most.")
    for name in names:
        if len(name.encode()) > MAX_NAME_LENGTH:
            message = f"The name {format_name(name[:40])}… is longer than {MAX_NAME_LENGTH} bytes."
            raise ToolRefused(message, hint="Choose a shorter one.")
    return names


def parse_link(target: str, roots: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names that a link leads to, or None if it is absolute and outside the root."""
    names = _split_path(target)
    if not target.startswith("/"):
        return names
    for root in roots:
        above = _split_path(root)
        if names[: len(above)] == above:
            return names[len(above) :]
    return None


def format_name(name: str) -> str:
    """Return a name or path for display, with unprintable characters escaped."""
    return "".join(char if char.isprintable() else _escape_character(char) for char in name)


def _check_text(path: str) -> None:
    if not path.strip():
        hint = "Name a file or folder, `.` for the working directory itself."
        raise ToolRefused("The path is empty.", hint=hint)
    if "\0" in path:
        raise ToolRefused("The path has a zero byte in it.", hint="Leave it out.")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        message = "The path is not valid Unicode."
        raise ToolRefused(message, hint="Write it without half of a surrogate pair.") from None
    if size > MAX_PATH_LENGTH:
        raise ToolRefused(f"The path is {size} bytes long; {MAX_PATH_LENGTH} is the most.")


def _split_path(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))


def build_outside_error(path: str) -> ToolRefused:
    """Build the error for a path outside the root."""
    message = f"{format_name(path[:200])} leads out of the working directory: nothing there can be used."
    hint = "Use a path inside of it; builtin.workspace.root says which folder it is."
    return ToolRefused(message, hint=hint, error_type=OUTSIDE_TYPE, path=format_name(path[:200]))


def _escape_character(char: str) -> str:
    number = ord(char)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a name that is not UTF-8
        return f"\\x{number - 0xDC00:02x}"
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


_MAX_ENTRIES_COMPARED: Final = 2000  # entries compared


def find_nearest_name(folder: int, name: str) -> str | None:
    """Return the name in the folder that is most alike (case, Unicode form, typo), or None."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, _MAX_ENTRIES_COMPARED))
    except OSError:
        return None
    wanted = normalize("NFKC", name).casefold()
    same = [each for each in names if normalize("NFKC", each).casefold() == wanted]
    near = same or difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return format_name(near[0]) if near else None


SELF_NAME: Final = "."
_OPEN_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | _OPEN_FLAGS  # a pipe without a writer must not block
_OPEN_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | _OPEN_FLAGS


@frozen
class PathEntry:
    """An entry of an open folder, which may not exist. Valid while the folder is open.

    All access uses the folder's descriptor, so later changes of the path or its links have no effect.
    """

    folder: int
    name: str  # `.`: the open folder itself
    missing: tuple[str, ...] = ()  # missing folders between the open one and the name
    names: tuple[str, ...] = ()  # the whole path relative to the root, with links resolved
    outside: bool = False  # outside the root: the names are relative to `/`

    @property
    def display_path(self) -> str:
        """The path for display."""
        return f"/{'/'.join(self.names)}" if self.outside else "/".join(self.names) or SELF_NAME

    @property
    def path(self) -> str:
        """The path that leads to the same entry again."""
        return self.display_path if self.outside else f"./{'/'.join(self.names)}"

    def get_stat(self) -> os.stat_result | None:
        """Return the current stat without following a link, or None if nothing exists."""
        if self.missing:
            return None
        with translate_os_errors(self.display_path):
            try:
                return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def require_stat(self) -> os.stat_result:
        """Return the current stat. Raises `ToolRefused` if nothing exists."""
        found = self.get_stat()
        if found is None:
            raise self._build_not_found_error()
        return found

    def open_file(self) -> tuple[int, os.stat_result]:
        """Open the file for reading. Return a descriptor, which the caller closes, and its stat."""
        if self.missing:
            raise self._build_not_found_error()
        _check_is_file(self.require_stat(), self.display_path)  # a device must not even be opened
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
        """Open the folder for listing. Return a descriptor, which the caller closes."""
        if self.missing:
            raise self._build_not_found_error()
        if not stat.S_ISDIR(self.require_stat().st_mode):
            message = f"{self.display_path} is not a folder."
            hint = "read_file reads a file."
            raise ToolRefused(message, hint=hint, error_type=NOT_A_FOLDER_TYPE, path=self.display_path)
        with translate_os_errors(self.display_path):
            return os.open(self.name, _OPEN_FOLDER_FLAGS, dir_fd=self.folder)

    def _build_not_found_error(self) -> ToolRefused:
        near = None if self.missing else find_nearest_name(self.folder, self.name)
        above = "/".join((*self.names[:-1], ""))
        message = f"There is no {self.display_path}{'' if self.outside else ' in the working directory'}."
        hint = f"There is {above}{near}." if near else "list_dir and find_files show what there is."
        return ToolRefused(message, hint=hint, error_type=NOT_FOUND_TYPE, path=self.display_path)


def _check_is_file(file_stat: os.stat_result, display_path: str) -> None:
    if stat.S_ISREG(file_stat.st_mode):
        return
    if stat.S_ISDIR(file_stat.st_mode):
        message, hint = f"{display_path} is a folder.", "list_dir shows what is in it."
        raise ToolRefused(message, hint=hint, error_type=NOT_A_FILE_TYPE, path=display_path)
    message = f"{display_path} is {describe_kind(file_stat)}, and only ordinary files are read and written."
    raise ToolRefused(message, error_type=NOT_A_FILE_TYPE, path=display_path)


def describe_kind(file_stat: os.stat_result) -> str:
    """Return the kind of entry as text."""
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


MAX_LINKS: Final = 40  # the system's limit
MAX_TRIES: Final = 4  # if something changes meanwhile
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHANGED_ERRNOS: Final = (errno.ELOOP, errno.ENOTDIR, errno.ENOENT)


@frozen
class OutsideAccess:
    """Paths outside the root may be used in granted calls, except those that match a sensitive pattern."""

    sensitive: tuple[str, ...] = ()


class RootFolder:
    """A root folder. Its methods block: do not use them in an event loop."""

    def __init__(
        self, root: Path, *, protected: Iterable[str] = (), outside_access: OutsideAccess | None = None
    ) -> None:
        """`outside_access`: paths outside may be used if a person granted it (`with_outside_access`)."""
        if os.open not in os.supports_dir_fd:
            message = "the workspace needs a system that opens files relative to a folder"
            raise ConfigError(message, hint="Use Linux or macOS, or leave it out of builtin.enabled.")
        self.root = root
        self._protected = tuple(protected)
        self._outside_access = outside_access
        self._may_leave_root = False

    def with_outside_access(self) -> RootFolder:
        """Return the folder for a granted call, which may access paths outside."""
        made = RootFolder(self.root, protected=self._protected, outside_access=self._outside_access)
        made._may_leave_root = self._outside_access is not None
        return made

    def get_outside_path(self, path: str) -> str | None:
        """Return the absolute path if it is outside, may be granted, and is known without file access."""
        if self._outside_access is None:
            return None
        names = parse_path(path, ("/",))
        spellings = self.get_root_spellings()
        if path.startswith("/"):
            lies_inside = parse_link(path, spellings) is not None
            return None if lies_inside or ".." in names else "/" + "/".join(names)
        if names[:1] != ("..",):
            return None
        whole = os.path.normpath(f"{spellings[-1]}/{path}")
        return None if parse_link(whole, spellings) is not None else whole

    def check_sensitive(self, path: str, *, resolve: bool = True) -> None:
        """Raise `ToolRefused` for a path that cannot be granted. `resolve`: also links of our own folders."""
        names = tuple(name for name in path.split("/") if name)
        patterns = () if self._outside_access is None else self._outside_access.sensitive
        if resolve:
            patterns += tuple(os.path.realpath(each) for each in patterns if each.count("/") > 1)
        if any(_is_protected(names, pattern) for pattern in patterns):
            shown = format_name(path[:200])
            message = f"{shown} may hold secrets or belongs to the system: it cannot be used."
            hint = "A person can look at it; builtin.workspace.sensitive lists what is kept out."
            raise ToolRefused(message, hint=hint, error_type=SENSITIVE_TYPE, path=shown)

    def open_root(self) -> int:
        """Return a descriptor of the root. Links in the operator's path are followed."""
        try:
            return os.open(self.root, _FOLDER_FLAGS)
        except OSError as error:
            message = f"The working directory {self.root} cannot be opened ({error.strerror})."
            raise ToolRefused(message, hint="builtin.workspace.root says which folder it is.") from error

    @contextmanager
    def open_entry(self, path: str, *, follow: bool = True) -> Generator[PathEntry]:
        """Yield the entry of a path, with its folder open. `follow`: also follow a link in its last name."""
        resolver, entry = self._resolve(path, follow=follow)
        try:
            yield entry
        finally:
            resolver.close()

    def check_path(self, path: str) -> None:
        """Raise `ToolRefused` if the path is invalid by its spelling. No file access."""
        names = parse_path(path, ("/",))
        if path.startswith("/") and self._outside_access is not None:
            self.check_sensitive(path, resolve=False)
        if not path.startswith("/") and names[:1] == ("..",) and self._outside_access is None:
            raise build_outside_error(path)

    def _resolve(self, path: str, *, follow: bool) -> tuple[_PathResolver, PathEntry]:
        beyond = self.get_outside_path(path) if self._may_leave_root else None
        if beyond is not None:
            self.check_sensitive(beyond)
        names = parse_path(path, self.get_root_spellings()) if beyond is None else parse_path(beyond, ("/",))
        tries = MAX_TRIES
        while True:
            resolver, tries = _PathResolver(self, path, allow_outside=beyond is not None), tries - 1
            try:
                return resolver, resolver.resolve(names, follow=follow)
            except OSError as error:
                resolver.close()
                # Other errors are final. These mean that the path changed meanwhile: try again.
                if not tries or error.errno not in _CHANGED_ERRNOS:
                    with translate_os_errors(format_name(path)):
                        raise
            except BaseException:
                resolver.close()
                raise

    def check_creatable(self, entry: PathEntry) -> None:
        """Raise `ToolRefused` if nothing may be created here."""
        self.check_writable(entry)
        for name in (*entry.missing, entry.name):
            if not name.isprintable():
                message = f"The name {format_name(name)} has characters in it that cannot be seen."
                raise ToolRefused(message, hint="Choose a name of letters, digits and ordinary signs.")

    def check_writable(self, entry: PathEntry) -> None:
        """Raise `ToolRefused` if this entry may not be changed."""
        if entry.name == SELF_NAME:
            message = "The working directory itself cannot be changed."
            raise ToolRefused(message, hint="Name something inside of it.")
        for pattern in self._protected:
            if entry.outside and pattern.startswith("/"):
                continue  # the pattern is relative to the root
            if _is_protected(entry.names, pattern):
                message = f"{entry.display_path} is protected ({pattern}): it can be read, never written."
                hint = "A person can write it; builtin.workspace.protected lists what is protected."
                raise ToolRefused(message, hint=hint, error_type=PROTECTED_TYPE, path=entry.display_path)

    @contextmanager
    def create_parents(self, entry: PathEntry) -> Generator[PathEntry]:
        """Create missing parent folders and yield the entry in its existing folder."""
        if not entry.missing:
            yield entry
            return
        folder, made = entry.folder, list[int]()
        try:
            with translate_os_errors(entry.display_path):
                for name in entry.missing:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                    folder = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
                    made.append(folder)
            yield PathEntry(folder=folder, name=entry.name, names=entry.names, outside=entry.outside)
        finally:
            for descriptor in made:
                os.close(descriptor)

    def get_root_spellings(self) -> tuple[str, ...]:
        """Return the possible prefixes of an absolute path to the root: as configured, and resolved."""
        return tuple(dict.fromkeys((str(self.root), os.path.realpath(self.root))))


class _PathResolver:
    """Resolves one path from the root, with each folder held open."""

    def __init__(self, root_folder: RootFolder, path: str, *, allow_outside: bool = False) -> None:
        self._root_folder = root_folder
        self._path = path
        self._is_outside = allow_outside  # starts at `/` and follows no links
        start = os.open("/", _FOLDER_FLAGS) if allow_outside else root_folder.open_root()
        self._stack: list[tuple[str, int]] = [("", start)]
        self._links = 0

    def close(self) -> None:
        while self._stack:
            os.close(self._stack.pop()[1])

    def resolve(self, names: tuple[str, ...], *, follow: bool) -> PathEntry:
        waiting = deque(names)
        while waiting:
            name = waiting.popleft()
            if name == "..":
                self._go_to_parent()
                continue
            if not waiting and not follow:
                return self._build_entry(name)
            mode = self._get_mode(name)
            if mode is None:
                return self._build_missing_entry(name, tuple(waiting))
            if stat.S_ISLNK(mode):
                waiting.extendleft(reversed(self._follow(name)))
            elif not waiting:
                return self._build_entry(name)
            else:
                self._stack.append((name, os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=self._folder)))
        return self._build_entry(SELF_NAME)

    @property
    def _folder(self) -> int:
        return self._stack[-1][1]

    def _get_mode(self, name: str) -> int | None:
        try:
            return os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None

    def _go_to_parent(self) -> None:
        if len(self._stack) == 1:
            raise build_outside_error(self._path)
        os.close(self._stack.pop()[1])

    def _follow(self, name: str) -> tuple[str, ...]:
        if self._is_outside:
            message = f"{format_name(self._path[:200])} goes through the link {format_name(name)}."
            hint = "Outside of the working directory links are not followed: give the path it leads to."
            raise ToolRefused(message, hint=hint, error_type=OUTSIDE_TYPE, path=format_name(self._path[:200]))
        self._links += 1
        if self._links > MAX_LINKS:
            message = f"{self._path[:200]} goes through more than {MAX_LINKS} links."
            raise ToolRefused(message, hint="They may lead in a circle.")
        target = os.readlink(name, dir_fd=self._folder)
        names = parse_link(target, self._root_folder.get_root_spellings())
        if names is None:
            raise build_outside_error(self._path)
        if target.startswith("/"):
            while len(self._stack) > 1:
                self._go_to_parent()
        return names

    def _build_missing_entry(self, name: str, rest: tuple[str, ...]) -> PathEntry:
        if ".." in rest:
            message = f"{self._path[:200]} goes through {name}, which does not exist."
            hint = "list_dir and find_files show what there is."
            raise ToolRefused(message, hint=hint, error_type=NOT_FOUND_TYPE, path=format_name(self._path))
        missing = (name, *rest)
        return self._build_entry(missing[-1], missing[:-1])

    def _build_entry(self, name: str, missing: tuple[str, ...] = ()) -> PathEntry:
        above = tuple(each for each, _ in self._stack[1:])
        names = above if name == SELF_NAME else (*above, *missing, name)
        folder, outside = self._folder, self._is_outside
        return PathEntry(folder=folder, name=name, missing=missing, names=names, outside=outside)


def _is_protected(names: tuple[str, ...], pattern: str) -> bool:
    """Return whether the pattern protects the path: `.git` anywhere, `/profiles/*.toml` only there."""
    folded = tuple(_fold_name(name) for name in names)
    wanted = tuple(_fold_name(part) for part in pattern.split("/") if part)
    if not pattern.startswith("/") and len(wanted) == 1:
        return any(fnmatchcase(name, wanted[0]) for name in folded)
    return len(folded) >= len(wanted) and all(map(fnmatchcase, folded, wanted))


def _fold_name(name: str) -> str:
    """Fold the name like a file system that ignores case, accents and trailing dots."""
    return normalize("NFKC", name).casefold().rstrip(". ") or name


__all__ = ["OutsideAccess", "PathEntry", "RootFolder", "format_name"]
