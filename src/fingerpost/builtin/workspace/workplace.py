"""What all tools of the workspace share."""

from __future__ import annotations

from dataclasses import field, replace
from threading import Lock

from fingerpost.builtin.workspace.ground import RootFolder
from fingerpost.builtin.workspace.ground.walking import FolderWalk
from fingerpost.builtin.workspace.switches import ActionSwitches
from fingerpost.builtin.workspace.writes import UnreviewedWrites
from fingerpost.frozen import frozen
from fingerpost.settings import WorkspaceSettings


@frozen
class WorkspaceContext:
    """The folder, the settings and the switches. Whoever changes a file holds `write_lock`."""

    root_folder: RootFolder
    settings: WorkspaceSettings
    switches: ActionSwitches
    unreviewed: UnreviewedWrites
    write_lock: Lock = field(default_factory=Lock)

    def with_outside_access(self) -> WorkspaceContext:
        """The same for a call that a person granted: it may reach what lies outside of the folder."""
        return replace(self, ground=self.root_folder.with_outside_access())

    def build_walk(self, *, include_ignored: bool = False, max_depth: int | None = None) -> FolderWalk:
        """A walk that passes over what is ignored, unless everything is wanted."""
        walking = FolderWalk(
            ignored=frozenset() if include_ignored else frozenset(self.settings.ignored),
            gitignore=not include_ignored,
        )
        if max_depth is not None:
            walking.max_depth = max_depth
        return walking
