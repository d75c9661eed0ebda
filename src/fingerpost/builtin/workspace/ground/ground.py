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
from fingerpost.builtin.workspace.ground.failing import NOT_FOUND, told
from fingerpost.builtin.workspace.ground.names import (
    OUTSIDE,
    PROTECTED,
    SENSITIVE,
    check_new_name,
    is_absolute,
    link_names,
    names_of,
    outside,
    shown_name,
)
from fingerpost.builtin.workspace.ground.place import ITSELF, Place
from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen

MOST_LINKS: Final = 40  # as the system has it
TRIES: Final = 4  # when something changes under our hands
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHANGED: Final = (errno.ELOOP, errno.ENOTDIR, errno.ENOENT)


@frozen
class OutsideAccess:
    """A person may grant calls outside of the root, except for these sensitive names."""

    sensitive: tuple[str, ...] = ()


class Ground:
    """One root folder. Its methods block: not for an event loop."""

    def __init__(
        self, root: Path, *, protected: Iterable[str] = (), beyond: OutsideAccess | None = None
    ) -> None:
        """`beyond`: what lies outside may be used, where a person granted it (`reaching`)."""
        if os.open not in os.supports_dir_fd:
            message = "the workspace needs a system that opens files relative to a folder"
            raise ConfigError(message, hint="Use Linux or macOS, or leave it out of builtin.enabled.")
        self.root = root
        self._protected = tuple(protected)
        self._outside_access = beyond
        self._reaches = False

    def reaching(self) -> Ground:
        """The same for a call that a person granted: it may reach what lies outside."""
        made = Ground(self.root, protected=self._protected, beyond=self._outside_access)
        made._reaches = self._outside_access is not None
        return made

    def outside_path(self, given: str) -> str | None:
        """The whole path of what lies outside, where that may be granted and can be told by its letters."""
        if self._outside_access is None:
            return None
        names = names_of(given, ("/",))
        spellings = self._spellings()
        if is_absolute(given):
            lies_inside = link_names(given, spellings) is not None
            return None if lies_inside or ".." in names else "/" + "/".join(names)
        if names[:1] != ("..",):
            return None
        whole = os.path.normpath(f"{spellings[-1]}/{given}")
        return None if link_names(whole, spellings) is not None else whole

    def check_sensitive(self, path: str, *, look: bool = True) -> None:
        """Refuse a path outside that nobody may approve. `look`: also where our own folders really lie."""
        names = tuple(name for name in path.split("/") if name)
        patterns = () if self._outside_access is None else self._outside_access.sensitive
        if look:
            patterns += tuple(os.path.realpath(each) for each in patterns if each.count("/") > 1)
        if any(_is_protected(names, pattern) for pattern in patterns):
            message = (
                f"{shown_name(path[:200])} may hold secrets or belongs to the system: it cannot be used."
            )
            hint = "A person can look at it; builtin.workspace.sensitive lists what is kept out."
            raise ToolRefused(message, hint=hint, error_type=SENSITIVE, path=shown_name(path[:200]))

    def open_root(self) -> int:
        """A descriptor of the root. Its own path is the operator's, links and all."""
        try:
            return os.open(self.root, _FOLDER)
        except OSError as error:
            message = f"The working directory {self.root} cannot be opened ({error.strerror})."
            raise ToolRefused(message, hint="builtin.workspace.root says which folder it is.") from error

    @contextmanager
    def at(self, given: str, *, follow: bool = True) -> Generator[Place]:
        """The place a path means, its folder held open. `follow`: also its last name, if it is a link."""
        walk, place = self._arrive(given, follow=follow)
        try:
            yield place
        finally:
            walk.close()

    def check_path(self, given: str) -> None:
        """Refuse what cannot be a path here by its letters alone. Nothing is looked up."""
        names = names_of(given, ("/",))
        if is_absolute(given) and self._outside_access is not None:
            self.check_sensitive(given, look=False)
        if not is_absolute(given) and names[:1] == ("..",) and self._outside_access is None:
            raise outside(given)

    def _arrive(self, given: str, *, follow: bool) -> tuple[_Walk, Place]:
        beyond = self.outside_path(given) if self._reaches else None
        if beyond is not None:
            self.check_sensitive(beyond)
        names = names_of(given, self._spellings()) if beyond is None else names_of(beyond, ("/",))
        tries = TRIES
        while True:
            walk, tries = _Walk(self, given, beyond=beyond is not None), tries - 1
            try:
                return walk, walk.to(names, follow=follow)
            except OSError as error:
                walk.close()
                if not tries or error.errno not in _CHANGED:  # else it changed between two looks: look again
                    with told(shown_name(given)):
                        raise
            except BaseException:
                walk.close()
                raise

    def check_new(self, place: Place) -> None:
        """Whether something may be made here. Raises `ToolRefused`."""
        self.check_write(place)
        for name in (*place.missing, place.name):
            check_new_name(name)

    def check_write(self, place: Place) -> None:
        """Whether this place may be changed at all. Raises `ToolRefused`."""
        if place.name == ITSELF:
            message = "The working directory itself cannot be changed."
            raise ToolRefused(message, hint="Name something inside of it.")
        for pattern in self._protected:
            if place.outside and pattern.startswith("/"):
                continue  # seen from the root
            if _is_protected(place.names, pattern):
                message = f"{place.shown} is protected ({pattern}): it can be read, never written."
                hint = "A person can write it; builtin.workspace.protected lists what is protected."
                raise ToolRefused(message, hint=hint, error_type=PROTECTED, path=place.shown)

    @contextmanager
    def with_folders(self, place: Place) -> Generator[Place]:
        """The same place once all folders above it exist: those that are missing are made."""
        if not place.missing:
            yield place
            return
        folder, made = place.folder, list[int]()
        try:
            with told(place.shown):
                for name in place.missing:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                    folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                    made.append(folder)
            yield Place(folder=folder, name=place.name, names=place.names, outside=place.outside)
        finally:
            for descriptor in made:
                os.close(descriptor)

    def _spellings(self) -> tuple[str, ...]:
        """How an absolute path to the root may begin: as it was configured, and as the system has it."""
        return tuple(dict.fromkeys((str(self.root), os.path.realpath(self.root))))

    def link_target(self, target: str) -> tuple[str, ...] | None:
        return link_names(target, self._spellings())


class _Walk:
    """One way from the root: the folders gone through, each held open."""

    def __init__(self, ground: Ground, given: str, *, beyond: bool = False) -> None:
        self._ground = ground
        self._given = given
        self._is_outside = beyond  # it begins at the top of the disk, and follows no link
        self._stack: list[tuple[str, int]] = [("", os.open("/", _FOLDER) if beyond else ground.open_root())]
        self._links = 0

    def close(self) -> None:
        while self._stack:
            os.close(self._stack.pop()[1])

    def to(self, names: tuple[str, ...], *, follow: bool) -> Place:
        waiting = deque(names)
        while waiting:
            name = waiting.popleft()
            if name == "..":
                self._back()
                continue
            if not waiting and not follow:
                return self._place(name)
            kind = self._kind(name)
            if kind is None:
                return self._absent(name, tuple(waiting))
            if stat.S_ISLNK(kind):
                waiting.extendleft(reversed(self._follow(name)))
            elif not waiting:
                return self._place(name)
            else:
                self._enter(name)
        return self._place(ITSELF)

    @property
    def _folder(self) -> int:
        return self._stack[-1][1]

    def _kind(self, name: str) -> int | None:
        try:
            return os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None

    def _enter(self, name: str) -> None:
        self._stack.append((name, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self._folder)))

    def _back(self) -> None:
        if len(self._stack) == 1:
            raise outside(self._given)
        os.close(self._stack.pop()[1])

    def _follow(self, name: str) -> tuple[str, ...]:
        if self._is_outside:
            message = f"{shown_name(self._given[:200])} goes through the link {shown_name(name)}."
            hint = "Outside of the working directory links are not followed: give the path it leads to."
            raise ToolRefused(message, hint=hint, error_type=OUTSIDE, path=shown_name(self._given[:200]))
        self._links += 1
        if self._links > MOST_LINKS:
            message = f"{self._given[:200]} goes through more than {MOST_LINKS} links."
            raise ToolRefused(message, hint="They may lead in a circle.")
        target = os.readlink(name, dir_fd=self._folder)
        names = self._ground.link_target(target)
        if names is None:
            raise outside(self._given)
        if is_absolute(target):
            while len(self._stack) > 1:
                self._back()
        return names

    def _absent(self, name: str, rest: tuple[str, ...]) -> Place:
        if ".." in rest:
            message = f"{self._given[:200]} goes through {name}, which does not exist."
            hint = "list_dir and find_files show what there is."
            raise ToolRefused(message, hint=hint, error_type=NOT_FOUND, path=shown_name(self._given))
        missing = (name, *rest)
        return self._place(missing[-1], missing[:-1])

    def _place(self, name: str, missing: tuple[str, ...] = ()) -> Place:
        above = tuple(each for each, _ in self._stack[1:])
        names = above if name == ITSELF else (*above, *missing, name)
        return Place(folder=self._folder, name=name, missing=missing, names=names, outside=self._is_outside)


def _is_protected(names: tuple[str, ...], pattern: str) -> bool:
    """`.git` is protected wherever it is, with all in it; `/profiles/*.toml` only there."""
    folded = tuple(_fold(name) for name in names)
    wanted = tuple(_fold(part) for part in pattern.split("/") if part)
    if not pattern.startswith("/") and len(wanted) == 1:
        return any(fnmatchcase(name, wanted[0]) for name in folded)
    return len(folded) >= len(wanted) and all(
        fnmatchcase(name, part) for name, part in zip(folded, wanted, strict=False)
    )


def _fold(name: str) -> str:
    """As a file system that is generous about case, accents and trailing dots would compare it."""
    return normalize("NFKC", name).casefold().rstrip(". ") or name
