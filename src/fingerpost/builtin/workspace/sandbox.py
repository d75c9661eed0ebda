"""The sandbox for commands, if the system supports it (Linux with Landlock)."""

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

from fingerpost.builtin.workspace.confine import get_landlock_version
from fingerpost.frozen import frozen
from fingerpost.settings import WorkspaceSettings

SandboxKind = Literal["full", "files", "none"]

_CONFINE_PROGRAM: Final = Path(__file__).with_name("confine.py")
_COVERED_FOLDERS: Final = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108 - they are hidden
_HIDDEN_FOLDERS: Final = (*_COVERED_FOLDERS, "/dev", "/home", "/root", "/var/run")
# What commands need from hidden folders: name resolution and tool chains.
_NEEDED_PATHS: Final = (
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/current-system",
)  # fmt: skip
_NEEDED_HOME_PATHS: Final = (
    ".pyenv", ".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", ".local/share/pnpm",
    ".asdf", ".nvm", ".volta", ".bun/bin", ".deno/bin", ".rbenv", ".gem", ".sdkman", ".rustup", ".cargo/bin",
    ".cargo/registry", ".cargo/git", ".cargo/config.toml", "go/bin", "go/pkg", ".m2/repository",
    ".gradle/caches", ".gitconfig", ".config/git/config", ".config/git/ignore",
)  # fmt: skip
_PROBE_TIMEOUT_S: Final = 20.0


@frozen
class CommandSandbox:
    """The sandbox for the commands of one workspace."""

    root: Path
    network: bool = False
    reads: tuple[Path, ...] = ()  # in addition to the system and the folder
    writes: tuple[Path, ...] = ()  # in addition to the folder
    own_files: tuple[Path, ...] = ()  # Fingerpost's own files: hidden even inside the folder

    def wrap_command(
        self, words: Sequence[str], folder: Path, kind: SandboxKind, scratch: Path | None
    ) -> tuple[str, ...]:
        """Return the command inside the sandbox. `scratch` is its folder if /tmp cannot be private."""
        plan = json.dumps(self._build_plan(folder, kind, scratch))
        return (sys.executable, "-I", "-S", str(_CONFINE_PROGRAM), plan, *words)

    def _build_plan(self, folder: Path, kind: SandboxKind, scratch: Path | None) -> Mapping[str, object]:
        full = kind == "full"
        writes = [self.root, *self.writes]
        needed = [*self._list_needed_paths()]
        kept = [path for path in (*writes, *needed) if _is_below(path, _COVERED_FOLDERS)]
        if scratch is not None:
            writes.append(scratch)
        if full:
            writes += map(Path, _COVERED_FOLDERS)
        hidden = {Path(path) for path in (*_HIDDEN_FOLDERS, Path.home(), *self.own_files)}
        masked = [path for path in self.own_files if any(map(path.is_relative_to, writes))]
        return {
            "namespaces": full,
            "network": self.network,
            "folder": str(folder),
            "reads": [str(path) for path in (*_list_visible(Path("/"), hidden), *needed)],
            "writes": [str(path) for path in writes],
            "covered": [path for path in _COVERED_FOLDERS if Path(path) != self.root],
            "kept": [str(path) for path in kept],
            "masked": [str(path) for path in masked if path.exists()],
        }

    def _list_needed_paths(self) -> Iterator[Path]:
        """Yield paths that stay readable although their folder is hidden."""
        home = Path.home()
        yield from map(Path, _NEEDED_PATHS)
        yield from (home / name for name in _NEEDED_HOME_PATHS)
        yield from {Path(sys.prefix), Path(sys.base_prefix)}
        for directory in map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep))):
            if directory.is_absolute() and directory != home:
                yield directory.parent if (directory.parent / "pyvenv.cfg").exists() else directory
        yield from self.reads


def _list_visible(folder: Path, hidden: Iterable[Path]) -> Iterator[Path]:
    """Yield the folder, or its visible entries if something in it is hidden."""
    below = [path for path in hidden if path.is_relative_to(folder)]
    if not below:
        yield folder
    elif folder not in below:
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - only names are needed
        except OSError:
            return
        for name in names:
            path = folder / name
            if path.is_symlink() and path not in below:
                continue  # a link is accessed through its target
            yield from _list_visible(path, below)


def _is_below(path: Path, folders: Iterable[str]) -> bool:
    return any(path.is_relative_to(folder) and str(path) != folder for folder in folders)


def has_landlock() -> bool:
    """Return whether a sandbox is possible at all. This is quick."""
    return get_landlock_version() > 0


@cache
def find_sandbox_kind() -> SandboxKind:
    """Return what this system supports, tested once. Blocks briefly."""
    if not has_landlock() or (true := shutil.which("true")) is None:
        return "none"
    with tempfile.TemporaryDirectory() as folder:
        kinds: tuple[SandboxKind, ...] = ("full", "files")
        for kind in kinds:
            if _is_working(kind, true, Path(folder).resolve()):
                return kind
    return "none"


def _is_working(kind: SandboxKind, program: str, folder: Path) -> bool:
    command = CommandSandbox(root=folder).wrap_command([program], folder, kind, None)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def describe_sandbox(settings: WorkspaceSettings) -> str:
    """Return a sentence about how commands run, for models and for people who approve them."""
    if settings.sandbox == "off":
        return "Commands run without a sandbox (builtin.workspace.sandbox is off): they can do what you can."
    if not has_landlock():
        if settings.sandbox == "required":
            return "This system has no sandbox, and builtin.workspace.sandbox requires one: no command runs."
        return "This system has no sandbox for commands: they can do what you can."
    network = "with the network" if settings.sandbox_network else "without the network"
    return f"Commands run in a sandbox: they write in the working directory alone, {network}."


def explain_missing_sandbox(settings: WorkspaceSettings) -> str:
    """Return a note for the operator if the sandbox is incomplete, else an empty text. Blocks briefly."""
    if settings.sandbox == "off":
        return "commands run without a sandbox: builtin.workspace.sandbox is off"
    kind = find_sandbox_kind()
    if kind == "none":
        return "this system has no sandbox for commands (it needs Linux with Landlock)"
    if kind == "files":
        return (
            "the sandbox for commands covers files and TCP only: user namespaces are not allowed here, so "
            "UDP, named sockets and the list of processes stay reachable"
        )
    return ""
