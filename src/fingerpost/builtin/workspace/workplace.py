"""What all tools of the workspace share."""

from __future__ import annotations

from dataclasses import field, replace
from threading import Lock

from fingerpost.builtin.workspace.ground import Ground
from fingerpost.builtin.workspace.ground.walking import Walking
from fingerpost.builtin.workspace.switches import Switches
from fingerpost.builtin.workspace.writes import UnreviewedWrites
from fingerpost.frozen import frozen
from fingerpost.settings import WorkspaceSettings


@frozen
class Workplace:
    """The folder, the settings and the switches. Whoever changes a file holds `writing`."""

    ground: Ground
    settings: WorkspaceSettings
    switches: Switches
    unreviewed: UnreviewedWrites
    writing: Lock = field(default_factory=Lock)

    def reaching(self) -> Workplace:
        """The same for a call that a person granted: it may reach what lies outside of the folder."""
        return replace(self, ground=self.ground.reaching())

    def walking(self, *, everything: bool = False, deepest: int | None = None) -> Walking:
        """A walk that passes over what is ignored, unless everything is wanted."""
        walking = Walking(
            ignored=frozenset() if everything else frozenset(self.settings.ignored), gitignore=not everything
        )
        if deepest is not None:
            walking.deepest = deepest
        return walking
