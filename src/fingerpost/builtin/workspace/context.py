"""What all workspace tools share: call arguments, dry runs, unreviewed writes, the root folder."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final, cast

import anyio.to_thread

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.builtin.workspace.folder_walk import FolderWalk
from fingerpost.builtin.workspace.paths import RootFolder
from fingerpost.frozen import frozen
from fingerpost.policy.paths import (
    MAX_MENTIONS,
    MAX_PATH_LENGTH,
    PathLocation,
    PathMention,
    find_mentions,
    list_readings,
    locate_text,
    resolve_path,
)
from fingerpost.records import Call, CallContext, JsonObject, ParameterFault, ServerSpec
from fingerpost.settings import WorkspaceSettings
from fingerpost.settings.validation import get_host, is_loopback


@frozen(kw_only=False)
class ToolArguments:
    """Arguments that fit the schema. Also checks that an operation has what it needs."""

    operation: str  # the operation, or the tool
    arguments: JsonObject

    def check(self, *, needs: Collection[str], takes: Collection[str]) -> None:
        """Raise `ToolRefused` for missing arguments, and for arguments that the operation would ignore."""
        there = {name for name, value in self.arguments.items() if value is not None and name != "operation"}
        missing = [name for name in needs if name not in there]
        known = ", ".join((*(f"`{name}`" for name in needs), *(f"`{name}` (optional)" for name in takes)))
        if missing:
            message = f"{self.operation} needs `{missing[0]}`."
            hint = f"It takes {known}."
            raise ToolRefused(message, hint=hint, parameter=missing[0], fault=ParameterFault.MISSING)
        strange = sorted(there - {*needs, *takes})
        if strange:
            message = f"{self.operation} has no `{strange[0]}`."
            raise ToolRefused(message, hint=f"It takes {known}; leave out the rest.", parameter=strange[0])

    def has(self, name: str) -> bool:
        return self.arguments.get(name) is not None

    def get_text(self, name: str, default: str = "") -> str:
        value = self.arguments.get(name)
        return value if isinstance(value, str) else default

    def get_flag(self, name: str) -> bool:
        return self.arguments.get(name) is True

    def get_number(self, name: str, default: int) -> int:
        value = self.arguments.get(name)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

    def get_records(self, name: str) -> Sequence[Mapping[str, object]]:
        value = self.arguments.get(name)
        return cast("Sequence[Mapping[str, object]]", value) if isinstance(value, list | tuple) else ()


_ENABLE_HINT: Final = (
    "`[tool_routing] {name} = true` in fingerpost.toml, or FINGERPOST_TOOL_ROUTING__{upper}=true, "
    "lets Fingerpost do it"
)


@frozen(kw_only=False)
class RunMode:
    """Whether one call acts. With `is_dry_run` it only shows what it would do; `reason` says why."""

    is_dry_run: bool = False
    reason: str = ""

    @property
    def heading(self) -> str:
        """The heading of a dry run's output."""
        return f"Dry run, nothing was changed. {self.reason}".strip()


@frozen
class ActionSwitches:
    """The two switches of `tool_routing`."""

    write: bool
    execute: bool

    def get_write_mode(self, *, dry_run: bool) -> RunMode:
        more = ", and overwrite, without asking inside its folder."
        return _build_run_mode(self.write, "allow_write", more, dry_run=dry_run)

    def get_execute_mode(self, *, dry_run: bool) -> RunMode:
        return _build_run_mode(self.execute, "allow_execute", ".", dry_run=dry_run)


def _build_run_mode(on: bool, name: str, more: str, *, dry_run: bool) -> RunMode:
    if not on:
        hint = _ENABLE_HINT.format(name=name, upper=name.upper())
        return RunMode(is_dry_run=True, reason=f"{hint}{more}")
    return RunMode(is_dry_run=True, reason="`dry_run` was requested.") if dry_run else RunMode()


log = logging.getLogger("fingerpost.builtin")

_MAX_LIST_BYTES: Final = 64 * 1024  # further names are not needed
_MAX_NAMES_SHOWN: Final = 3

_ROOTED: Final = re.compile(r"\s*(?:[/\\~]|[A-Za-z]:[/\\]|file:)", re.IGNORECASE)
_REMOTE_URL: Final = re.compile(r"\s*(?!file:)[A-Za-z][A-Za-z0-9+.-]+://", re.IGNORECASE)
# Variables that say where programs and settings are, not what a server works on.
_GENERAL_VARIABLES: Final = re.compile(r"HOME|PATH|PWD|TMPDIR|XDG_.*|(?:PYTHON|NODE_)PATH")


class UnreviewedWrites:
    """A list in a file beside the store, which survives restarts and is shared between processes.

    Methods that are not `async` block briefly.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root
        self._unsaved: list[str] = []  # names that could not be written to the file
        self._lock = Lock()

    @cached_property
    def file(self) -> Path:
        digest = hashlib.sha256(os.fsencode(self._root.resolve())).hexdigest()[:24]
        return self._folder / f"workspace-{digest}.writes"

    def record_names(self, *names: str) -> None:
        """Record names before they are written."""
        lines = "".join(f"{name[:300]!r}\n" for name in names)
        with self._lock:
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with self.file.open("a", encoding="utf-8") as file:
                    if file.tell() < _MAX_LIST_BYTES:
                        file.write(lines)
            except OSError as error:
                log.warning("%s cannot be written: %s", self.file, error.strerror)
                self._unsaved.extend(names)

    async def note_foreign_write(self, call: Call, server: ServerSpec, context: CallContext) -> None:
        """Record a call of another server that may write in the folder. Called before it is sent."""
        await anyio.to_thread.run_sync(self._record_foreign_write, call, server, context.working_directory)

    def _record_foreign_write(self, call: Call, server: ServerSpec, working_directory: str | None) -> None:
        written = find_foreign_write(call.arguments, server, self._root, working_directory)
        if written is not None:
            self.record_names(f"({call.tool})" if not written else f"{written} ({call.tool})")

    def list_names(self) -> list[str]:
        """Return the written names without duplicates, oldest first."""
        try:
            lines = self.file.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            lines = []
        except OSError:
            lines = ["'…'"]  # unknown, so treated as written
        return list(dict.fromkeys([*(line.strip("'\"") for line in lines), *self._unsaved]))

    def describe(self) -> str:
        """Return a short list of the written names, empty if there are none."""
        names = self.list_names()
        more = len(names) - _MAX_NAMES_SHOWN
        return ", ".join(names[:_MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

    def mark_reviewed(self) -> list[str]:
        """Clear the list after a person's review. Return the names written until then."""
        names = self.list_names()
        self.file.unlink(missing_ok=True)
        self._unsaved.clear()
        return names


def find_foreign_write(
    arguments: JsonObject, server: ServerSpec, root: Path, working_directory: str | None = None
) -> str | None:
    """Return the path in `root` that a writing call of this server may change, or None. Empty if it may
    change any.

    If the call names no path, the folders in the server's entry decide. Relative paths are tried from each
    folder where the server may start. Reads links, so it blocks briefly.
    """
    folder = resolve_path(str(root.absolute()))
    mentions = list(islice(find_mentions(arguments), MAX_MENTIONS))
    if folder is None or len(mentions) == MAX_MENTIONS:
        return ""
    remote = server.url is not None and not is_loopback(get_host(server.url))
    declared = [] if remote else list(_list_declared_folders(server))
    starts = [] if remote else [server.cwd or str(Path.cwd()), *declared]
    if working_directory is not None and not remote:
        starts.append(working_directory)
    paths = [mention for mention in mentions if mention.is_path or mention.embeds or mention.program]
    for mention in paths:
        if mention.program and not remote:
            return ""  # a program can change any file
        if _may_be_inside(mention, folder, starts, remote=remote):
            return mention.text
    if any(_is_rooted_inside(mention.text, folder) for mention in mentions):
        return ""
    return "" if not paths and any(_do_overlap(place, folder) for place in declared) else None


def _may_be_inside(mention: PathMention, folder: str, starts: Sequence[str], *, remote: bool) -> bool:
    text = mention.text
    if len(text) > MAX_PATH_LENGTH:
        return not remote
    if mention.embeds and any(folder in reading for reading in list_readings(text)):
        return True
    if not mention.is_path or _REMOTE_URL.match(text):
        return False
    rooted = any(_ROOTED.match(reading) for reading in list_readings(text))
    for path in [text] if rooted else [f"{start}/{text}" for start in starts]:
        where = locate_text(path, folder)
        if where is PathLocation.INSIDE or (where is PathLocation.UNCLEAR and not remote):
            return True
        if any(_do_overlap(reading, folder) for reading in list_readings(path)):
            return True
    return False


def _is_rooted_inside(text: str, folder: str) -> bool:
    """Return whether a text that may be a path leads into the folder: a key of a mapping, for example."""
    if len(text) > MAX_PATH_LENGTH or not _ROOTED.match(text):
        return False
    return locate_text(text, folder) is PathLocation.INSIDE


def _do_overlap(place: str, folder: str) -> bool:
    """Return whether one folder contains the other, or they are the same."""
    found = resolve_path(place) if place.startswith("/") else None
    if found is None:
        return False
    one, other = f"{found.rstrip('/')}/", f"{folder.rstrip('/')}/"
    return one.startswith(other) or other.startswith(one)


def _list_declared_folders(server: ServerSpec) -> Iterator[str]:
    """Yield the folders in the entry of a local server: working directory, arguments, variables."""
    start = server.cwd or str(Path.cwd())
    if server.cwd is not None:
        yield server.cwd
    texts = [argument.rpartition("=")[2] for argument in server.args]
    for name, value in server.env.items():
        if not _GENERAL_VARIABLES.fullmatch(name):
            texts += re.split(r"[:;,]", value)
    for text in texts:
        if "/" in text or text.startswith((".", "~")):
            place = Path(start, os.path.expanduser(text))  # noqa: PTH111 - `Path` raises for unknown users
            if _is_folder(place):
                yield str(place)


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except (OSError, ValueError):
        return False


@frozen
class WorkspaceContext:
    """The folder, the settings and the switches. Hold `write_lock` to change a file."""

    root_folder: RootFolder
    settings: WorkspaceSettings
    switches: ActionSwitches
    unreviewed: UnreviewedWrites
    write_lock: Lock = field(default_factory=Lock)

    def with_outside_access(self) -> WorkspaceContext:
        """Return the context for a granted call, which may access paths outside the folder."""
        return replace(self, root_folder=self.root_folder.with_outside_access())

    def build_walk(self, *, include_ignored: bool = False, max_depth: int | None = None) -> FolderWalk:
        """Build a walk that skips ignored entries, unless `include_ignored`."""
        ignored = frozenset[str]() if include_ignored else frozenset(self.settings.ignored)
        walk = FolderWalk(ignored=ignored, gitignore=not include_ignored)
        if max_depth is not None:
            walk.max_depth = max_depth
        return walk
