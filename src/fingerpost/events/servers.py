"""What happens to servers, tools and pins, outside any one request."""

from __future__ import annotations

from typing import ClassVar

from fingerpost.events.base import Event
from fingerpost.frozen import frozen
from fingerpost.records import ServerState


@frozen
class ServerStateChanged(Event):
    """A server came up, went down, or changed in between."""

    server: str
    previous: ServerState
    state: ServerState
    reason: str | None = None

    def summary(self) -> str:
        return f"{self.server}: {self.previous} → {self.state}" + (f" ({self.reason})" if self.reason else "")


@frozen
class ToolDropped(Event):
    """A listed tool could not be taken. Its neighbours are unaffected."""

    server: str
    tool: str
    reason: str

    def summary(self) -> str:
        return f"{self.server}/{self.tool} dropped: {self.reason}"


@frozen
class CatalogChanged(Event):
    """The catalog moved to a new version. Tools are named by key."""

    catalog_version: int
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def summary(self) -> str:
        return (
            f"version {self.catalog_version}: "
            f"{len(self.added)} added, {len(self.removed)} removed, {len(self.changed)} changed"
        )


@frozen
class ToolQuarantined(Event):
    """A tool changed since it was pinned, or is new on a known server: hidden until a person accepts it."""

    audited: ClassVar[bool] = True

    tool: str
    pinned: str  # empty: it is new
    seen: str

    def summary(self) -> str:
        if not self.pinned:
            return f"{self.tool}: new on a known server, {self.seen[:12]}"
        return f"{self.tool}: definition changed, {self.pinned[:12]} → {self.seen[:12]}"


@frozen
class ToolTrusted(Event):
    """A person said of a tool's definition that it only reads, or took that back."""

    audited: ClassVar[bool] = True

    tool: str
    fingerprint: str
    only_reads: bool
    decided_by: str

    def summary(self) -> str:
        said = "only reads" if self.only_reads else "is no longer said to read only"
        return f"{self.tool}: {self.fingerprint[:12]} {said}, by {self.decided_by}"


@frozen
class PinAccepted(Event):
    """A person accepted a tool's changed definition."""

    audited: ClassVar[bool] = True

    tool: str
    fingerprint: str
    accepted_by: str

    def summary(self) -> str:
        return f"{self.tool}: {self.fingerprint[:12]} accepted by {self.accepted_by}"


@frozen
class ToolSwitched(Event):
    """A person switched a tool off or on again, for every surface and every process."""

    audited: ClassVar[bool] = True

    tool: str
    on: bool
    by: str
    reason: str = ""

    def summary(self) -> str:
        return f"{self.tool} {_format_switch(self.on, self.by, self.reason)}"


@frozen
class ServerSwitched(Event):
    """A person switched a server off (it is disconnected, its tools are gone) or on again."""

    audited: ClassVar[bool] = True

    server: str
    on: bool
    by: str
    reason: str = ""

    def summary(self) -> str:
        return f"{self.server} {_format_switch(self.on, self.by, self.reason)}"


def _format_switch(on: bool, by: str, reason: str) -> str:
    return f"switched {'on' if on else 'off'} by {by}" + (f": {reason}" if reason else "")


@frozen
class ProfilesChanged(Event):
    """Files of profiles changed while we run. One that is wrong leaves its profile as it was."""

    audited: ClassVar[bool] = True

    profiles_version: int
    changed: tuple[str, ...] = ()  # new, gone or different
    problems: tuple[str, ...] = ()

    def summary(self) -> str:
        named = ", ".join(self.changed) or "none"
        wrong = f"; wrong: {'; '.join(self.problems)}" if self.problems else ""
        return f"version {self.profiles_version}: {named} changed{wrong}"


@frozen
class EventsDropped(Event):
    """A marker for a reader that was too slow: this many events are missing here."""

    count: int

    def summary(self) -> str:
        return f"{self.count} events lost: this reader was too slow"
