"""Events of servers, tools, pins, gateway clients and API keys that belong to no request."""

from __future__ import annotations

from typing import Literal

from fingerpost.events.base import Event
from fingerpost.frozen import frozen
from fingerpost.records import ServerState


@frozen
class ServerStateChanged(Event):
    """The state of a server changed."""

    server: str
    previous: ServerState
    state: ServerState
    reason: str | None = None

    def summary(self) -> str:
        return f"{self.server}: {self.previous} → {self.state}" + (f" ({self.reason})" if self.reason else "")


@frozen
class ToolDropped(Event):
    """A listed tool was invalid and left out. Other tools are not affected."""

    server: str
    tool: str
    reason: str

    def summary(self) -> str:
        return f"{self.server}/{self.tool} dropped: {self.reason}"


@frozen
class CatalogChanged(Event):
    """The catalog has a new version. Tools are named by key."""

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
class ToolQuarantined(Event, audited=True):
    """A tool differs from its pin, is new or suspicious. It is hidden until a person accepts it."""

    tool: str
    pinned: str  # empty if the tool is new
    seen: str
    findings: tuple[str, ...] = ()  # what the scan of its definition found

    def summary(self) -> str:
        if self.findings:
            return f"{self.tool}: its definition {self.findings[0]}, {self.seen[:12]}"
        if not self.pinned:
            return f"{self.tool}: new on a known server, {self.seen[:12]}"
        return f"{self.tool}: definition changed, {self.pinned[:12]} → {self.seen[:12]}"


@frozen
class ToolTrusted(Event, audited=True):
    """A person marked a tool's definition as read-only, or removed the mark."""

    tool: str
    fingerprint: str
    only_reads: bool
    decided_by: str

    def summary(self) -> str:
        change = "only reads" if self.only_reads else "is no longer said to read only"
        return f"{self.tool}: {self.fingerprint[:12]} {change}, by {self.decided_by}"


@frozen
class PinAccepted(Event, audited=True):
    """A person accepted a tool's changed definition."""

    tool: str
    fingerprint: str
    accepted_by: str

    def summary(self) -> str:
        return f"{self.tool}: {self.fingerprint[:12]} accepted by {self.accepted_by}"


@frozen
class EntryTrusted(Event, audited=True):
    """The entry of a server changed, or is another project's. Its tools are trusted as they are now."""

    server: str
    tools: tuple[str, ...]

    def summary(self) -> str:
        return f"{self.server}: its entry is not the one seen before; {len(self.tools)} tools are trusted"


@frozen
class ToolSwitched(Event, audited=True):
    """A person disabled or enabled a tool, for all surfaces and processes."""

    tool: str
    on: bool
    by: str
    reason: str = ""

    def summary(self) -> str:
        return f"{self.tool} {_format_switch(self.on, self.by, self.reason)}"


@frozen
class ServerSwitched(Event, audited=True):
    """A person disabled a server (it is disconnected and its tools are removed) or enabled it."""

    server: str
    on: bool
    by: str
    reason: str = ""

    def summary(self) -> str:
        return f"{self.server} {_format_switch(self.on, self.by, self.reason)}"


def _format_switch(on: bool, by: str, reason: str) -> str:
    return f"switched {'on' if on else 'off'} by {by}" + (f": {reason}" if reason else "")


@frozen
class ProfilesChanged(Event, audited=True):
    """Profile files changed at run time. An invalid file leaves its profile unchanged."""

    profiles_version: int
    changed: tuple[str, ...] = ()  # added, removed or changed
    problems: tuple[str, ...] = ()

    def summary(self) -> str:
        named = ", ".join(self.changed) or "none"
        wrong = f"; wrong: {'; '.join(self.problems)}" if self.problems else ""
        return f"version {self.profiles_version}: {named} changed{wrong}"


@frozen
class ServerEntryChanged(Event, audited=True):
    """A person added, changed or removed the entry of a server in a file."""

    server: str
    change: Literal["added", "changed", "removed"]
    by: str
    file: str

    def summary(self) -> str:
        return f"{self.server} {self.change} in {self.file} by {self.by}"


@frozen
class SettingsChanged(Event, audited=True):
    """Settings files changed at run time. What is in `waiting` applies after a restart."""

    added: tuple[str, ...] = ()  # servers
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()  # settings that apply now, such as policy or models
    waiting: tuple[str, ...] = ()  # settings that apply after a restart
    problems: tuple[str, ...] = ()

    def summary(self) -> str:
        named = {
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "applied": self.sections,
            "after a restart": self.waiting,
            "wrong": self.problems,
        }
        return "; ".join(f"{what}: {', '.join(values)}" for what, values in named.items() if values)


@frozen
class EventsDropped(Event):
    """A marker for a slow reader: this many events are missing here."""

    count: int

    def summary(self) -> str:
        return f"{self.count} events lost: this reader was too slow"


@frozen
class PrunedChain:
    """How far one chain of the audit trail is pruned: the last row removed and its hash."""

    chain: int
    until: int
    fingerprint: str


@frozen
class StorePruned(Event, audited=True):
    """Old rows of the store are removed. `journal_until` and `chains` say how far in all, also before."""

    by: str
    reason: str
    journal_until: int
    chains: tuple[PrunedChain, ...] = ()

    def summary(self) -> str:
        rows = sum(cut.until for cut in self.chains)
        return f"journal up to {self.journal_until}, {rows} audit rows in all, by {self.by} ({self.reason})"


@frozen
class ClientConnected(Event):
    """An MCP client opened a session (2025-11-25 and earlier; later versions have no sessions)."""

    client: str  # name and version given by the client
    protocol: str
    endpoint: str
    principal: str

    def summary(self) -> str:
        return f"{self.client} ({self.protocol}) at {self.endpoint} as {self.principal}"


@frozen
class ClientLeft(Event):
    """A session ended, by the client or after a long idle time."""

    client: str
    endpoint: str
    principal: str
    reason: str

    def summary(self) -> str:
        return f"{self.client} left {self.endpoint}: {self.reason}"


@frozen
class MaterialRead(Event, audited=True):
    """A client requested a resource, a prompt or a completion, with the outcome."""

    server: str  # empty if it does not exist, or not for this caller
    method: str
    name: str  # the URI or the name, as the client wrote it
    caller: str
    success: bool
    detail: str = ""
    milliseconds: float = 0.0
    signs: tuple[str, ...] = ()  # of text in it that addresses the model or is hidden

    def summary(self) -> str:
        what = f"{self.method} {self.name} of {self.server or 'no server'} for {self.caller}: "
        what += self.detail or "succeeded" if self.success else f"failed {self.detail}".rstrip()
        return f"{what}; it {'; '.join(self.signs)}" if self.signs else what


@frozen
class AccessRefused(Event, audited=True):
    """A request was refused before it was processed."""

    endpoint: str
    reason: str
    principal: str | None = None

    def summary(self) -> str:
        return f"{self.endpoint}: {self.principal or 'an unknown caller'} was refused ({self.reason})"


@frozen
class KeyChanged(Event, audited=True):
    """An API key was created, changed or revoked. The event does not contain the key."""

    key_id: str
    name: str
    change: Literal["made", "changed", "revoked"]
    by: str | None = None  # None: at the command line

    def summary(self) -> str:
        return f"the key {self.name} ({self.key_id}) was {self.change}{_describe_author(self.by)}"


@frozen
class AccessChanged(Event, audited=True):
    """A user, a quota, or a user's sign-in to a server was changed, made or removed."""

    what: Literal["user", "quota", "sign-in"]
    name: str  # of a sign-in: `of USER to SERVER`
    change: Literal["made", "changed", "removed"]
    by: str | None = None  # None: at the command line

    def summary(self) -> str:
        return f"the {self.what} {self.name} was {self.change}{_describe_author(self.by)}"


def _describe_author(by: str | None) -> str:
    return "" if by is None else f" by {by}"
