"""Find the server configurations that other MCP clients keep on this machine.

Where each client keeps them is a table, and looking is a function of its
arguments alone, so that any machine can be described in a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

from fingerpost.frozen import frozen
from fingerpost.settings.client_files import Draft, draft_of, find_entries, read_drafts
from fingerpost.settings.document import Document, read_document, table
from fingerpost.settings.problems import Problem
from fingerpost.settings.secrets import remember_literals
from fingerpost.settings.sources import is_file


@frozen(kw_only=False)
class Place:
    """One file of a client. `base` is the folder the path starts in."""

    client: str
    base: Literal["home", "config", "dotconfig", "project"]
    path: str


_EDITORS = ("Code", "Code - Insiders", "VSCodium")
_CLINE = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
_ROO = "User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"

# `config` is where the system keeps applications' settings; `dotconfig` is ~/.config also on a Mac.
PLACES = (
    Place("claude-desktop", "config", "Claude/claude_desktop_config.json"),
    Place("claude-code", "home", ".claude.json"),
    Place("claude-code", "project", ".mcp.json"),
    Place("cursor", "home", ".cursor/mcp.json"),
    Place("cursor", "project", ".cursor/mcp.json"),
    *(
        Place("vscode", "config", f"{editor}/User/{file}")
        for editor in _EDITORS
        for file in ("mcp.json", "settings.json")
    ),
    Place("vscode", "project", ".vscode/mcp.json"),
    Place("vscode", "project", ".vscode/settings.json"),
    Place("windsurf", "home", ".codeium/windsurf/mcp_config.json"),
    *(Place("cline", "config", f"{editor}/{_CLINE}") for editor in _EDITORS),
    *(Place("roo-code", "config", f"{editor}/{_ROO}") for editor in _EDITORS),
    Place("roo-code", "project", ".roo/mcp.json"),
    Place("gemini-cli", "home", ".gemini/settings.json"),
    Place("gemini-cli", "project", ".gemini/settings.json"),
    Place("zed", "dotconfig", "zed/settings.json"),
    Place("zed", "project", ".zed/settings.json"),
    Place("codex", "home", ".codex/config.toml"),
    Place("codex", "project", ".codex/config.toml"),
)


@frozen
class Found:
    """One client file with servers in it, or one that cannot be read."""

    client: str
    file: Path
    shown: str  # with ~ for the home folder
    drafts: tuple[Draft, ...] = field(default=(), repr=False)
    problems: tuple[Problem, ...] = ()


def discover(home: Path, cwd: Path, platform: str, environ: Mapping[str, str]) -> tuple[Found, ...]:
    """Every known client file that exists and holds servers. `platform` is spelled as in `sys.platform`."""
    folders = bases(home, cwd, platform, environ)
    found: list[Found] = []
    seen: set[Path] = set()
    for place in PLACES:
        path = folders[place.base] / place.path
        # In the home folder the project's files are the person's own: one file, told once.
        if path in seen or not is_file(path):
            continue
        seen.add(path)
        if (one := _look(place.client, path, short(path, home))) is not None:
            found.append(one)
    return tuple(found)


def bases(home: Path, cwd: Path, platform: str, environ: Mapping[str, str]) -> dict[str, Path]:
    """The folders that paths of `PLACES` start in."""
    xdg = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if platform == "darwin":
        config, dotconfig = home / "Library" / "Application Support", home / ".config"
    elif platform == "win32":
        config = dotconfig = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        config = dotconfig = xdg
    return {"home": home, "config": config, "dotconfig": dotconfig, "project": cwd}


def _look(client: str, path: Path, shown: str) -> Found | None:
    document = read_document(path, shown)
    if isinstance(document, Problem):
        return Found(client=client, file=path, shown=shown, problems=(document,))
    drafts, problems = read_drafts(document)
    drafts = (*drafts, *_project_drafts(document))
    if not drafts and not problems:
        return None
    for draft in drafts:
        remember_literals(draft.values)
    return Found(client=client, file=path, shown=shown, drafts=drafts, problems=problems)


def _project_drafts(document: Document) -> Iterator[Draft]:
    """Claude Code keeps servers per project, in one file: `projects.<folder>.mcpServers`."""
    for folder, project in (table(document.values.get("projects")) or {}).items():
        inside = replace(document, values=table(project) or {}, repeated=())
        for entries in find_entries(inside):
            if entries.path != ("mcpServers",):
                continue
            for name, entry in entries.servers.items():
                if (values := table(entry)) is not None:
                    at_home = replace(document, folder=Path(folder))
                    yield draft_of(name, values, at_home, ("projects", folder, "mcpServers", name), {})


def short(path: Path, home: Path) -> str:
    """A path as a person writes it, with ~ for their home."""
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)
