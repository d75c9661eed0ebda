"""The sandbox that commands run in, where the system has one (Linux with Landlock)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

from fingerpost.builtin.workspace.commands.confine import landlock_version
from fingerpost.frozen import frozen
from fingerpost.settings import WorkspaceSettings

Kind = Literal["full", "files", "none"]

_PROGRAM: Final = Path(__file__).with_name("confine.py")
_COVERED: Final = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108 - they are hidden
_HIDDEN: Final = (*_COVERED, "/dev", "/home", "/root", "/var/run")
# What commands need of folders that are hidden otherwise: name resolution, and where tool chains lie.
_NEEDED: Final = (
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/current-system",
)  # fmt: skip
_NEEDED_OF_HOME: Final = (
    ".pyenv", ".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", ".local/share/pnpm",
    ".asdf", ".nvm", ".volta", ".bun/bin", ".deno/bin", ".rbenv", ".gem", ".sdkman", ".rustup", ".cargo/bin",
    ".cargo/registry", ".cargo/git", ".cargo/config.toml", "go/bin", "go/pkg", ".m2/repository",
    ".gradle/caches", ".gitconfig", ".config/git/config", ".config/git/ignore",
)  # fmt: skip
_PROBE_SECONDS: Final = 20.0


@frozen
class Sandbox:
    """What one workplace's commands run in."""

    root: Path
    network: bool = False
    reads: tuple[Path, ...] = ()  # beside the system and the folder
    writes: tuple[Path, ...] = ()  # beside the folder
    own: tuple[Path, ...] = ()  # Fingerpost's own files: hidden also where they lie in the folder

    def wrap(self, words: Sequence[str], folder: Path, kind: Kind, scratch: Path | None) -> tuple[str, ...]:
        """The command as it is started inside. `scratch`: its private folder where /tmp cannot be one."""
        plan = json.dumps(self._plan(folder, kind, scratch))
        return (sys.executable, "-I", "-S", str(_PROGRAM), plan, *words)

    def _plan(self, folder: Path, kind: Kind, scratch: Path | None) -> Mapping[str, object]:
        full = kind == "full"
        writes = [self.root, *self.writes]
        needed = [*self._needed()]
        kept = [path for path in (*writes, *needed) if _is_below(path, _COVERED)]
        if scratch is not None:
            writes.append(scratch)
        if full:
            writes += map(Path, _COVERED)
        hidden = {Path(path) for path in (*_HIDDEN, Path.home(), *self.own)}
        masked = [path for path in self.own if any(path.is_relative_to(place) for place in writes)]
        return {
            "namespaces": full,
            "network": self.network,
            "folder": str(folder),
            "reads": [str(path) for path in (*_outside_of(Path("/"), hidden), *needed)],
            "writes": [str(path) for path in writes],
            "covered": [path for path in _COVERED if Path(path) != self.root],
            "kept": [str(path) for path in kept],
            "masked": [str(path) for path in masked if path.exists()],
        }

    def _needed(self) -> Iterator[Path]:
        """What is read although the folder around it is hidden."""
        home = Path.home()
        yield from map(Path, _NEEDED)
        yield from (home / name for name in _NEEDED_OF_HOME)
        yield from {Path(sys.prefix), Path(sys.base_prefix)}
        for place in map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep))):
            if place.is_absolute() and place != home:
                yield place.parent if (place.parent / "pyvenv.cfg").exists() else place
        yield from self.reads


def _outside_of(folder: Path, hidden: Iterable[Path]) -> Iterator[Path]:
    """The folder without what is hidden: whole, or what is in it, one by one."""
    below = [path for path in hidden if path.is_relative_to(folder)]
    if not below:
        yield folder
    elif folder not in below:
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
        except OSError:
            return
        for name in names:
            path = folder / name
            if path.is_symlink() and path not in below:
                continue  # it is used through what it leads to
            yield from _outside_of(path, below)


def _is_below(path: Path, places: Iterable[str]) -> bool:
    return any(path.is_relative_to(place) and str(path) != place for place in places)


def has_landlock() -> bool:
    """Whether a sandbox is possible at all. Takes no time."""
    return landlock_version() > 0


@cache
def find_kind() -> Kind:
    """What this system can do, tried once. Blocks for a moment."""
    if not has_landlock() or (true := shutil.which("true")) is None:
        return "none"
    with tempfile.TemporaryDirectory() as folder:
        kinds: tuple[Kind, ...] = ("full", "files")
        for kind in kinds:
            if _works(kind, true, Path(folder).resolve()):
                return kind
    return "none"


def _works(kind: Kind, program: str, folder: Path) -> bool:
    command = Sandbox(root=folder).wrap([program], folder, kind, None)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def describe(settings: WorkspaceSettings) -> str:
    """How commands run here, in a sentence for models and for people who approve them."""
    if settings.sandbox == "off":
        return "Commands run without a sandbox (builtin.workspace.sandbox is off): they can do what you can."
    if not has_landlock():
        if settings.sandbox == "required":
            return "This system has no sandbox, and builtin.workspace.sandbox requires one: no command runs."
        return "This system has no sandbox for commands: they can do what you can."
    network = "with the network" if settings.sandbox_network else "without the network"
    return f"Commands run in a sandbox: they write in the working directory alone, {network}."


def is_missing(settings: WorkspaceSettings) -> str:
    """What an operator should know of a sandbox that is not whole; empty: it is. Blocks for a moment."""
    if settings.sandbox == "off":
        return "commands run without a sandbox: builtin.workspace.sandbox is off"
    kind = find_kind()
    if kind == "none":
        return "this system has no sandbox for commands (it needs Linux with Landlock)"
    if kind == "files":
        return (
            "the sandbox for commands covers files and TCP only: user namespaces are not allowed here, so "
            "UDP, named sockets and the list of processes stay reachable"
        )
    return ""
