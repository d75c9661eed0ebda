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
from fingerpost.settings.client_files import ServerDraft, build_draft, find_entries, read_drafts
from fingerpost.settings.document import SettingsDocument, as_table, read_document
from fingerpost.settings.problems import Problem
from fingerpost.settings.secrets import remember_literals
from fingerpost.settings.sources import is_file


@frozen(kw_only=False)
class ClientFilePlace:
    """One file of a client. `base` is the folder the path starts in."""

    client: str
    base: Literal["home", "config", "dotconfig", "project"]
    path: str


_EDITORS = ("Code", "Code - Insiders", "VSCodium")
_CLINE = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
_ROO = "User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"

# `config` is where the system keeps applications' settings; `dotconfig` is ~/.config also on a Mac.
CLIENT_FILE_PLACES = (
    ClientFilePlace("claude-desktop", "config", "Claude/claude_desktop_config.json"),
    ClientFilePlace("claude-code", "home", ".claude.json"),
    ClientFilePlace("claude-code", "project", ".mcp.json"),
    ClientFilePlace("cursor", "home", ".cursor/mcp.json"),
    ClientFilePlace("cursor", "project", ".cursor/mcp.json"),
    *(
        ClientFilePlace("vscode", "config", f"{editor}/User/{file}")
        for editor in _EDITORS
        for file in ("mcp.json", "settings.json")
    ),
    ClientFilePlace("vscode", "project", ".vscode/mcp.json"),
    ClientFilePlace("vscode", "project", ".vscode/settings.json"),
    ClientFilePlace("windsurf", "home", ".codeium/windsurf/mcp_config.json"),
    *(ClientFilePlace("cline", "config", f"{editor}/{_CLINE}") for editor in _EDITORS),
    *(ClientFilePlace("roo-code", "config", f"{editor}/{_ROO}") for editor in _EDITORS),
    ClientFilePlace("roo-code", "project", ".roo/mcp.json"),
    ClientFilePlace("gemini-cli", "home", ".gemini/settings.json"),
    ClientFilePlace("gemini-cli", "project", ".gemini/settings.json"),
    ClientFilePlace("zed", "dotconfig", "zed/settings.json"),
    ClientFilePlace("zed", "project", ".zed/settings.json"),
    ClientFilePlace("codex", "home", ".codex/config.toml"),
    ClientFilePlace("codex", "project", ".codex/config.toml"),
)


@frozen
class FoundClientFile:
    """One client file with servers in it, or one that cannot be read."""

    client: str
    file: Path
    shown: str  # with ~ for the home folder
    drafts: tuple[ServerDraft, ...] = field(default=(), repr=False)
    problems: tuple[Problem, ...] = ()


def discover_client_files(
    home: Path, cwd: Path, platform: str, environ: Mapping[str, str]
) -> tuple[FoundClientFile, ...]:
    """Every known client file that exists and holds servers. `platform` is spelled as in `sys.platform`."""
    folders = get_base_folders(home, cwd, platform, environ)
    found: list[FoundClientFile] = []
    seen: set[Path] = set()
    for place in CLIENT_FILE_PLACES:
        path = folders[place.base] / place.path
        # In the home folder the project's files are the person's own: one file, told once.
        if path in seen or not is_file(path):
            continue
        seen.add(path)
        if (one := _read_client_file(place.client, path, shorten_path(path, home))) is not None:
            found.append(one)
    return tuple(found)


def get_base_folders(home: Path, cwd: Path, platform: str, environ: Mapping[str, str]) -> dict[str, Path]:
    """The folders that paths of `CLIENT_FILE_PLACES` start in."""
    xdg = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if platform == "darwin":
        config, dotconfig = home / "Library" / "Application Support", home / ".config"
    elif platform == "win32":
        config = dotconfig = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        config = dotconfig = xdg
    return {"home": home, "config": config, "dotconfig": dotconfig, "project": cwd}


def _read_client_file(client: str, path: Path, shown: str) -> FoundClientFile | None:
    document = read_document(path, shown)
    if isinstance(document, Problem):
        return FoundClientFile(client=client, file=path, shown=shown, problems=(document,))
    drafts, problems = read_drafts(document)
    drafts = (*drafts, *_read_project_drafts(document))
    if not drafts and not problems:
        return None
    for draft in drafts:
        remember_literals(draft.values)
    return FoundClientFile(client=client, file=path, shown=shown, drafts=drafts, problems=problems)


def _read_project_drafts(document: SettingsDocument) -> Iterator[ServerDraft]:
    """Claude Code keeps servers per project, in one file: `projects.<folder>.mcpServers`."""
    for folder, project in (as_table(document.values.get("projects")) or {}).items():
        inside = replace(document, values=as_table(project) or {}, repeated=())
        for entries in find_entries(inside):
            if entries.path != ("mcpServers",):
                continue
            for name, entry in entries.servers.items():
                if (values := as_table(entry)) is not None:
                    at_home = replace(document, folder=Path(folder))
                    yield build_draft(name, values, at_home, ("projects", folder, "mcpServers", name), {})


def shorten_path(path: Path, home: Path) -> str:
    """A path as a person writes it, with ~ for their home."""
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)
