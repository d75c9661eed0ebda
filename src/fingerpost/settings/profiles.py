"""Profiles as files: `profiles/NAME.toml` beside the settings, each like a `[profiles.NAME]` table.

They are read with the settings, and again whenever a file changes. Reading never raises: an invalid file is
reported as a `Problem` and does not affect the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.settings.document import SettingsDocument, read_document
from fingerpost.settings.model import ProfileSettings
from fingerpost.settings.problems import Problem, ValueOrigin, format_path
from fingerpost.settings.validation import ValidationContext, validate

FOLDER: Final = "profiles"
SUFFIX: Final = ".toml"
MAX_FILES: Final = 500

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

FolderFingerprint = tuple[tuple[str, int, int, int], ...]  # name, time, size and inode of each file


@frozen
class ProfileFolder:
    """The content of a folder: valid profiles, their files, and the problems of the others."""

    profiles: Mapping[str, ProfileSettings] = field(default_factory=dict[str, ProfileSettings])
    documents: Mapping[str, SettingsDocument] = field(default_factory=dict[str, SettingsDocument])
    problems: tuple[Problem, ...] = ()
    broken: frozenset[str] = frozenset()  # names of existing but invalid files


@frozen
class ProfileFiles:
    """A folder of profiles. It may not exist yet."""

    folder: Path
    shown: str  # the folder as the user would write it
    written: Mapping[str, ProfileSettings] = field(default_factory=dict[str, ProfileSettings])
    # Origins of the profiles in the settings file.
    origins: Mapping[str, ValueOrigin] = field(default_factory=dict[str, ValueOrigin])

    def get_fingerprint(self) -> FolderFingerprint:
        """Return a value that changes whenever a file changes."""
        return tuple(_iterate_file_stats(_list_files(self.folder)))

    def read(self) -> ProfileFolder:
        """Read all files of the folder, except profiles that are in the settings file."""
        found = _list_files(self.folder)
        profiles: dict[str, ProfileSettings] = {}
        documents: dict[str, SettingsDocument] = {}
        problems: list[Problem] = []
        broken: set[str] = set()
        if len(found) > MAX_FILES:
            message = f"contains more than {MAX_FILES} profiles; the others are ignored"
            origin = ValueOrigin(kind="file", file=self.shown)
            fix = "move some of them elsewhere"
            problems.append(Problem(message=message, fix=fix, path=FOLDER, origin=origin))
        for path in found[:MAX_FILES]:
            name = path.name.removesuffix(SUFFIX)
            profile, document, wrong = self._read_one(name, path)
            if wrong and not os.path.lexists(path):  # removed since the folder was listed
                continue
            if profile is not None and document is not None:
                profiles[name], documents[name] = profile, document
            else:
                broken.add(name)
            problems += wrong
        return ProfileFolder(
            profiles=profiles, documents=documents, problems=tuple(problems), broken=frozenset(broken)
        )

    def _read_one(
        self, name: str, path: Path
    ) -> tuple[ProfileSettings | None, SettingsDocument | None, tuple[Problem, ...]]:
        shown = f"{self.shown}/{path.name}"
        if (problem := self._find_name_problem(name, shown)) is not None:
            return None, None, (problem,)
        document = read_document(path, shown, toml=True)
        if isinstance(document, Problem):
            return None, None, (replace(document, path=format_path((FOLDER, name))),)
        context = ValidationContext(document.get_origin, prefix=(FOLDER, name))
        profile, problems = validate(ProfileSettings, document.values, context)
        return profile, document, problems

    def _find_name_problem(self, name: str, shown: str) -> Problem | None:
        origin, path = ValueOrigin(kind="file", file=shown), format_path((FOLDER, name))
        if not is_valid_name(name):
            message = "is not a valid name for a profile"
            fix = "name the file with letters, digits, dots, hyphens and underscores, 64 at most"
        elif name in self.written:
            message, fix = f"is written at {self.origins.get(name)}, too", "keep one of the two"
        else:
            return None
        return Problem(message=message, fix=fix, path=path, origin=origin)


def is_valid_name(name: str) -> bool:
    """Return whether a profile may have this name. It becomes part of a URL."""
    return _NAME.fullmatch(name) is not None


def _list_files(folder: Path) -> list[Path]:
    """Return the files by name. A folder that is missing or not readable has none."""
    try:
        return sorted(
            path
            for path in folder.iterdir()
            if path.suffix == SUFFIX and not path.name.startswith(".") and not path.is_dir()
        )
    except OSError:
        return []


def _iterate_file_stats(paths: Iterable[Path]) -> Iterator[tuple[str, int, int, int]]:
    for path in paths:
        try:
            seen = path.stat()
        except OSError:
            yield path.name, 0, 0, 0
        else:
            yield path.name, seen.st_mtime_ns, seen.st_size, seen.st_ino


def read_examples() -> dict[str, str]:
    """Return the shipped example profiles: file texts by name."""
    folder = files("fingerpost.settings").joinpath("profile_examples")
    found = (entry for entry in folder.iterdir() if entry.name.endswith(SUFFIX))
    texts = {entry.name.removesuffix(SUFFIX): entry.read_text(encoding="utf-8") for entry in found}
    return dict(sorted(texts.items()))
