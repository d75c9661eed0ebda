"""The MCP clients we can write ourselves into: where each keeps its servers, and how it spells one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final, Literal

from fingerpost.frozen import frozen
from fingerpost.settings.discover import PLACES, bases

Entry = dict[str, object]


@frozen
class Client:
    """One client. `place` is where in its file the servers stand."""

    name: str
    label: str
    place: tuple[str, ...] = ("mcpServers",)
    files: tuple[str, ...] = ()  # of those `discover` knows, the names to write; empty: any
    extra: Mapping[str, object] = field(default_factory=dict[str, object])  # in a stdio entry
    url: str | None = "url"  # what it calls an address; None: it takes none in this file
    http_extra: Mapping[str, object] = field(default_factory=dict[str, object])
    variable: str | None = None  # how its file refers to an environment variable; None: it cannot

    @property
    def is_toml(self) -> bool:
        return self.name == "codex"


CLIENTS: Final = {
    client.name: client
    for client in (
        Client(name="claude-desktop", label="Claude Desktop", url=None),
        Client(
            name="claude-code",
            label="Claude Code",
            extra={"type": "stdio"},
            http_extra={"type": "http"},
            variable="${%s}",
        ),
        Client(name="cursor", label="Cursor", variable="${env:%s}"),
        Client(
            name="vscode",
            label="VS Code",
            place=("servers",),
            files=("mcp.json",),
            extra={"type": "stdio"},
            http_extra={"type": "http"},
            variable="${env:%s}",
        ),
        Client(name="windsurf", label="Windsurf", url="serverUrl", variable="${env:%s}"),
        Client(name="zed", label="Zed", place=("context_servers",), extra={"source": "custom"}),
        Client(name="gemini-cli", label="Gemini CLI", url="httpUrl", variable="${%s}"),
        Client(name="codex", label="Codex", place=("mcp_servers",)),
        Client(name="cline", label="Cline", http_extra={"type": "streamableHttp"}),
        Client(
            name="roo-code", label="Roo Code", http_extra={"type": "streamable-http"}, variable="${env:%s}"
        ),
    )
}


# What says how we are reached: an older entry keeps none of it.
OURS: Final = frozenset(
    {"type", "source", "command", "args", "url", "serverUrl", "httpUrl", "headers", "bearer_token_env_var"}
)


@frozen(kw_only=False)
class Place:
    """A file of a client, and whether the client seems to be there."""

    client: Client
    file: Path
    scope: Literal["user", "project"]
    present: bool


def places(
    home: Path, cwd: Path, platform: str, environ: Mapping[str, str], *, project: bool = False
) -> tuple[Place, ...]:
    """Where each client's servers are written: the file it has, else the one it would look for."""
    folders = bases(home, cwd, platform, environ)
    found: list[Place] = []
    for client in CLIENTS.values():
        candidates = [
            folders[place.base] / place.path
            for place in PLACES
            if place.client == client.name
            and (place.base == "project") == project
            and (not client.files or Path(place.path).name in client.files)
        ]
        if candidates:
            there = [file for file in candidates if _seems_there(file, home, cwd)]
            scope: Literal["user", "project"] = "project" if project else "user"
            found.append(Place(client, (there or candidates)[0], scope, present=bool(there)))
    return tuple(found)


def _seems_there(file: Path, home: Path, cwd: Path) -> bool:
    """A client has a file, or at least the folder for it; home and project are there without any client."""
    try:
        if file.is_file():
            return True
        return file.parent.is_dir() and file.parent not in (home, cwd)
    except OSError:
        return False


def started(client: Client, command: str, arguments: list[str]) -> Entry:
    """The entry for a client that starts us."""
    return {**client.extra, "command": command, "args": arguments}


def connected(client: Client, url: str, *, key_variable: str | None) -> Entry:
    """The entry for a client that connects to us; the key is referred to, never written out."""
    assert client.url is not None
    entry: Entry = {**client.http_extra, client.url: url}
    if key_variable is None:
        return entry
    if client.is_toml:
        entry["bearer_token_env_var"] = key_variable
    elif client.variable is not None:
        entry["headers"] = {"Authorization": f"Bearer {client.variable % key_variable}"}
    return entry
