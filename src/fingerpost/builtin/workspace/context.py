"""What all workspace tools share: call arguments, dry runs, the root folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from threading import Lock
from typing import Final, cast

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.builtin.workspace.folder_walk import FolderWalk
from fingerpost.builtin.workspace.paths import RootFolder
from fingerpost.builtin.workspace.unreviewed_writes import UnreviewedWrites
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, ParameterFault
from fingerpost.settings import WorkspaceSettings


@frozen(kw_only=False)
class ToolArguments:
    """Arguments that fit the schema. Also checks that an operation has what it needs."""

    operation: str  # the operation, or the tool
    arguments: JsonObject

    def check(self, *, needs: Collection[str], takes: Collection[str]) -> None:
        """Raise `ToolRefused` for missing arguments, and for arguments that the operation would ignore."""
        there = {name for name, value in self.arguments.items() if value is not None and name != "operation"}
        missing = [name for name in needs if name not in there]
        if missing:
            message = f"{self.operation} needs `{missing[0]}`."
            hint = f"It takes {self._format_parameters(needs, takes)}."
            raise ToolRefused(message, hint=hint, parameter=missing[0], fault=ParameterFault.MISSING)
        strange = sorted(there - {*needs, *takes})
        if strange:
            message = f"{self.operation} has no `{strange[0]}`."
            hint = f"It takes {self._format_parameters(needs, takes)}; leave out the rest."
            raise ToolRefused(message, hint=hint, parameter=strange[0])

    def _format_parameters(self, needs: Collection[str], takes: Collection[str]) -> str:
        words = [f"`{name}`" for name in needs] + [f"`{name}` (optional)" for name in takes]
        return ", ".join(words)

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
    "lets Fingerpost do it."
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
        return _build_run_mode(self.write, "allow_write", dry_run=dry_run)

    def get_execute_mode(self, *, dry_run: bool) -> RunMode:
        return _build_run_mode(self.execute, "allow_execute", dry_run=dry_run)


def _build_run_mode(on: bool, name: str, *, dry_run: bool) -> RunMode:
    if not on:
        return RunMode(is_dry_run=True, reason=_ENABLE_HINT.format(name=name, upper=name.upper()))
    return RunMode(is_dry_run=True, reason="`dry_run` was requested.") if dry_run else RunMode()


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
        walking = FolderWalk(
            ignored=frozenset() if include_ignored else frozenset(self.settings.ignored),
            gitignore=not include_ignored,
        )
        if max_depth is not None:
            walking.max_depth = max_depth
        return walking
