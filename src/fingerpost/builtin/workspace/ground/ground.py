"""From a path to the place it means, without ever leaving the root.

The system is never asked to follow anything: every name is opened relative to the folder before it
and refused if it is a link; links are read and followed here, name by name, within the root; `..`
goes back to the folder we came through. So there is no moment between a check and its use: a folder
that is swapped for a link meanwhile cannot be opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from unicodedata import normalize

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.ground.failing import NOT_FOUND_TYPE, translate_os_errors
from fingerpost.builtin.workspace.ground.names import (
    OUTSIDE_TYPE,
    PROTECTED_TYPE,
    SENSITIVE_NAMES,
    build_outside_error,
    check_new_name,
    format_name,
    is_absolute,
    parse_link,
    parse_path,
)
from fingerpost.builtin.workspace.ground.place import SELF_NAME, PathEntry
from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen

MAX_LINKS: Final = 40  # as the system has it
MAX_TRIES: Final = 4  # when something changes under our hands
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHANGED_MESSAGE: Final = (errno.ELOOP, errno.ENOTDIR, errno.ENOENT)


@frozen
class OutsideAccess:
    """A person may grant calls outside of the root, except for these sensitive names."""

    sensitive: tuple[str, ...] = ()


class RootFolder:
    """One root folder. Its methods block: not for an event loop."""

    def __init__(
        self, root: Path, *, protected: Iterable[str] = (), outside_access: OutsideAccess | None = None
    ) -> None:
        """`beyond`: what lies outside may be used, where a person granted it (`with_outside_access`)."""
        if os.open not in os.supports_dir_fd:
            message = "the workspace needs a system that opens files relative to a folder"
            raise ConfigError(message, hint="Use Linux or macOS, or leave it out of builtin.enabled.")
        self.root = root
        self._protected = tuple(protected)
        self._outside_access = outside_access
        self._reaches = False

    def with_outside_access(self) -> RootFolder:
        """The same for a call that a person granted: it may reach what lies outside."""
        made = RootFolder(self.root, protected=self._protected, outside_access=self._outside_access)
        made._reaches = self._outside_access is not None
        return made

    def get_outside_path(self, path: str) -> str | None:
        """The whole path of what lies outside, where that may be granted and can be told by its letters."""
        if self._outside_access is None:
            return None
        names = parse_path(path, ("/",))
        spellings = self._get_root_spellings()
        if is_absolute(path):
            lies_inside = parse_link(path, spellings) is not None
            return None if lies_inside or ".." in names else "/" + "/".join(names)
        if names[:1] != ("..",):
            return None
        whole = os.path.normpath(f"{spellings[-1]}/{path}")
        return None if parse_link(whole, spellings) is not None else whole

    def check_sensitive(self, path: str, *, resolve: bool = True) -> None:
        """Refuse a path outside that nobody may approve. `look`: also where our own folders really lie."""
        names = tuple(name for name in path.split("/") if name)
        patterns = () if self._outside_access is None else self._outside_access.sensitive
        if resolve:
            patterns += tuple(os.path.realpath(each) for each in patterns if each.count("/") > 1)
        if any(_is_protected(names, pattern) for pattern in patterns):
            message = (
                f"{format_name(path[:200])} may hold secrets or belongs to the system: it cannot be used."
            )
            hint = "A person can look at it; builtin.workspace.sensitive lists what is kept out."
            raise ToolRefused(message, hint=hint, error_type=SENSITIVE_NAMES, path=format_name(path[:200]))

    def open_root(self) -> int:
        """A descriptor of the root. Its own path is the operator's, links and all."""
        try:
            return os.open(self.root, _FOLDER_FLAGS)
        except OSError as error:
            message = f"The working directory {self.root} cannot be opened ({error.strerror})."
            raise ToolRefused(message, hint="builtin.workspace.root says which folder it is.") from error

    @contextmanager
    def open_entry(self, path: str, *, follow: bool = True) -> Generator[PathEntry]:
        """The place a path means, its folder held open. `follow`: also its last name, if it is a link."""
        walk, place = self._resolve(path, follow=follow)
        try:
            yield place
        finally:
            walk.close()

    def check_path(self, path: str) -> None:
        """Refuse what cannot be a path here by its letters alone. Nothing is looked up."""
        names = parse_path(path, ("/",))
        if is_absolute(path) and self._outside_access is not None:
            self.check_sensitive(path, resolve=False)
        if not is_absolute(path) and names[:1] == ("..",) and self._outside_access is None:
            raise build_outside_error(path)

    def _resolve(self, path: str, *, follow: bool) -> tuple[_PathResolver, PathEntry]:
        beyond = self.get_outside_path(path) if self._reaches else None
        if beyond is not None:
            self.check_sensitive(beyond)
        names = parse_path(path, self._get_root_spellings()) if beyond is None else parse_path(beyond, ("/",))
        tries = MAX_TRIES
        while True:
            walk, tries = _PathResolver(self, path, allow_outside=beyond is not None), tries - 1
            try:
                return walk, walk.resolve(names, follow=follow)
            except OSError as error:
                walk.close()
                if (
                    not tries or error.errno not in _CHANGED_MESSAGE
                ):  # else it changed between two looks: look again
                    with translate_os_errors(format_name(path)):
                        raise
            except BaseException:
                walk.close()
                raise

    def check_creatable(self, entry: PathEntry) -> None:
        """Whether something may be made here. Raises `ToolRefused`."""
        self.check_writable(entry)
        for name in (*entry.missing, entry.name):
            check_new_name(name)

    def check_writable(self, entry: PathEntry) -> None:
        """Whether this place may be changed at all. Raises `ToolRefused`."""
        if entry.name == SELF_NAME:
            message = "The working directory itself cannot be changed."
            raise ToolRefused(message, hint="Name something inside of it.")
        for pattern in self._protected:
            if entry.outside and pattern.startswith("/"):
                continue  # seen from the root
            if _is_protected(entry.names, pattern):
                message = f"{entry.display_path} is protected ({pattern}): it can be read, never written."
                hint = "A person can write it; builtin.workspace.protected lists what is protected."
                raise ToolRefused(message, hint=hint, error_type=PROTECTED_TYPE, path=entry.display_path)

    @contextmanager
    def create_parents(self, entry: PathEntry) -> Generator[PathEntry]:
        """The same place once all folders above it exist: those that are missing are made."""
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

    def _get_root_spellings(self) -> tuple[str, ...]:
        """How an absolute path to the root may begin: as it was configured, and as the system has it."""
        return tuple(dict.fromkeys((str(self.root), os.path.realpath(self.root))))

    def parse_link_target(self, target: str) -> tuple[str, ...] | None:
        return parse_link(target, self._get_root_spellings())


class _PathResolver:
    """One way from the root: the folders gone through, each held open."""

    def __init__(self, root_folder: RootFolder, path: str, *, allow_outside: bool = False) -> None:
        self._ground = root_folder
        self._given = path
        self._is_outside = allow_outside  # it begins at the top of the disk, and follows no link
        self._stack: list[tuple[str, int]] = [
            ("", os.open("/", _FOLDER_FLAGS) if allow_outside else root_folder.open_root())
        ]
        self._links = 0

    def close(self) -> None:
        while self._stack:
            os.close(self._stack.pop()[1])

    def resolve(self, names: tuple[str, ...], *, follow: bool) -> PathEntry:
        waiting = deque(names)
        while waiting:
            name = waiting.popleft()
            if name == "..":
                self._leave()
                continue
            if not waiting and not follow:
                return self._build_entry(name)
            kind = self._get_kind(name)
            if kind is None:
                return self._build_missing_entry(name, tuple(waiting))
            if stat.S_ISLNK(kind):
                waiting.extendleft(reversed(self._follow(name)))
            elif not waiting:
                return self._build_entry(name)
            else:
                self._enter(name)
        return self._build_entry(SELF_NAME)

    @property
    def _folder(self) -> int:
        return self._stack[-1][1]

    def _get_kind(self, name: str) -> int | None:
        try:
            return os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None

    def _enter(self, name: str) -> None:
        self._stack.append((name, os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=self._folder)))

    def _leave(self) -> None:
        if len(self._stack) == 1:
            raise build_outside_error(self._given)
        os.close(self._stack.pop()[1])

    def _follow(self, name: str) -> tuple[str, ...]:
        if self._is_outside:
            message = f"{format_name(self._given[:200])} goes through the link {format_name(name)}."
            hint = "Outside of the working directory links are not followed: give the path it leads to."
            raise ToolRefused(
                message, hint=hint, error_type=OUTSIDE_TYPE, path=format_name(self._given[:200])
            )
        self._links += 1
        if self._links > MAX_LINKS:
            message = f"{self._given[:200]} goes through more than {MAX_LINKS} links."
            raise ToolRefused(message, hint="They may lead in a circle.")
        target = os.readlink(name, dir_fd=self._folder)
        names = self._ground.parse_link_target(target)
        if names is None:
            raise build_outside_error(self._given)
        if is_absolute(target):
            while len(self._stack) > 1:
                self._leave()
        return names

    def _build_missing_entry(self, name: str, rest: tuple[str, ...]) -> PathEntry:
        if ".." in rest:
            message = f"{self._given[:200]} goes through {name}, which does not exist."
            hint = "list_dir and find_files show what there is."
            raise ToolRefused(message, hint=hint, error_type=NOT_FOUND_TYPE, path=format_name(self._given))
        missing = (name, *rest)
        return self._build_entry(missing[-1], missing[:-1])

    def _build_entry(self, name: str, missing: tuple[str, ...] = ()) -> PathEntry:
        above = tuple(each for each, _ in self._stack[1:])
        names = above if name == SELF_NAME else (*above, *missing, name)
        return PathEntry(
            folder=self._folder, name=name, missing=missing, names=names, outside=self._is_outside
        )


def _is_protected(names: tuple[str, ...], pattern: str) -> bool:
    """`.git` is protected wherever it is, with all in it; `/profiles/*.toml` only there."""
    folded = tuple(_fold_name(name) for name in names)
    wanted = tuple(_fold_name(part) for part in pattern.split("/") if part)
    if not pattern.startswith("/") and len(wanted) == 1:
        return any(fnmatchcase(name, wanted[0]) for name in folded)
    return len(folded) >= len(wanted) and all(
        fnmatchcase(name, part) for name, part in zip(folded, wanted, strict=False)
    )


def _fold_name(name: str) -> str:
    """As a file system that is generous about case, accents and trailing dots would compare it."""
    return normalize("NFKC", name).casefold().rstrip(". ") or name
