"""Where settings are looked for: what was asked for, and the surroundings it was asked in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from platformdirs import user_config_path

from fingerpost.frozen import frozen
from fingerpost.settings.environment import CONFIG_FILE, GivenValue
from fingerpost.settings.fields import OPEN_TABLES
from fingerpost.settings.problems import Problem, ValueOrigin

FILE_NAME = "fingerpost.toml"


@frozen
class Sources:
    """What was asked for, and the surroundings."""

    config: Path | None
    servers: Path | None
    overrides: Mapping[str, object] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    cwd: Path

    @property
    def home(self) -> Path:
        home = self.environ.get("HOME") or self.environ.get("USERPROFILE")
        return Path(home) if home else Path.home()

    def resolve(self, path: str | Path, base: Path | None = None) -> Path:
        text = str(path)
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return (base or self.cwd) / text

    def shorten(self, path: Path) -> str:
        """A path the way the person would write it: short when it is below the current folder."""
        return str(path.relative_to(self.cwd)) if path.is_relative_to(self.cwd) else str(path)


def find_config(sources: Sources) -> Path | None:
    """The TOML file: the one named, else the one here, else the person's own. None is fine."""
    if sources.config is not None:
        return sources.resolve(sources.config)
    if named := sources.environ.get(CONFIG_FILE):
        return sources.resolve(named)
    for folder in (sources.cwd, _get_user_folder(sources)):
        if is_file(folder / FILE_NAME):
            return folder / FILE_NAME
    return None


def is_file(path: Path) -> bool:
    """Whether there is such a file, as far as we may look."""
    try:
        return path.is_file()
    except OSError:
        return False


def _get_user_folder(sources: Sources) -> Path:
    base = sources.environ.get("XDG_CONFIG_HOME")
    return Path(base) / "fingerpost" if base else user_config_path("fingerpost", appauthor=False)


def read_arguments(sources: Sources) -> tuple[tuple[GivenValue, ...], tuple[Problem, ...]]:
    """Every value given as an argument. Tables of servers and tools are written in files only."""
    given: list[GivenValue] = []
    problems: list[Problem] = []
    for name, value in sources.overrides.items():
        path = tuple(name.split("."))
        origin = ValueOrigin(kind="argument", name=name)
        if path[0] in OPEN_TABLES:
            message = "cannot be given as an argument"
            problems.append(Problem(message=message, fix="write it in a file", path=name, origin=origin))
        elif value is not None:  # None: an option that was not used
            given.append(GivenValue(path=path, value=value, origin=origin))
    if sources.servers is not None:
        origin = ValueOrigin(kind="argument", name="--servers")
        given.append(GivenValue(path=("servers_file",), value=str(sources.servers), origin=origin))
    return tuple(given), tuple(problems)
