"""The configurations of other clients are found on every system and merged into one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fingerpost.redaction import MASK
from fingerpost.settings.client_files import (
    FoundClientFile,
    discover_client_files,
    mask_secrets,
    merge_servers,
)
from tests.kit.settings_folders import SettingsFolders
from tests.requirements import proves

STANDARD = {"mcpServers": {"s": {"command": "x"}}}
CODEX = '[mcp_servers.s]\ncommand = "x"\n'

# client, system, where its file lies (below home, or "./" below the project), what stands in it
MACHINES: list[tuple[str, str, str, Any]] = [
    ("claude-desktop", "linux", ".config/Claude/claude_desktop_config.json", STANDARD),
    ("claude-desktop", "darwin", "Library/Application Support/Claude/claude_desktop_config.json", STANDARD),
    ("claude-desktop", "win32", "AppData/Roaming/Claude/claude_desktop_config.json", STANDARD),
    ("claude-code", "linux", ".claude.json", STANDARD),
    ("claude-code", "darwin", ".claude.json", {"numStartups": 3, "projects": {"/p": STANDARD, "/q": {}}}),
    ("claude-code", "linux", "./.mcp.json", STANDARD),
    ("cursor", "win32", ".cursor/mcp.json", STANDARD),
    ("cursor", "linux", "./.cursor/mcp.json", STANDARD),
    ("vscode", "linux", ".config/Code/User/mcp.json", {"servers": {"s": {"command": "x"}}}),
    (
        "vscode",
        "darwin",
        "Library/Application Support/Code/User/settings.json",
        {"mcp": {"servers": {"s": {"command": "x"}}}},
    ),
    (
        "vscode",
        "win32",
        "AppData/Roaming/Code - Insiders/User/mcp.json",
        {"servers": {"s": {"command": "x"}}},
    ),
    ("vscode", "linux", "./.vscode/mcp.json", {"servers": {"s": {"command": "x"}}}),
    ("windsurf", "linux", ".codeium/windsurf/mcp_config.json", STANDARD),
    (
        "cline",
        "linux",
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        STANDARD,
    ),
    ("gemini-cli", "linux", ".gemini/settings.json", {"theme": "x", **STANDARD}),
    ("zed", "linux", ".config/zed/settings.json", {"context_servers": {"s": {"command": "x"}}}),
    ("zed", "darwin", ".config/zed/settings.json", {"context_servers": {"s": {"command": "x"}}}),
    ("codex", "linux", ".codex/config.toml", CODEX),
]


def write_json(folders: SettingsFolders, where: str, content: Any) -> Path:
    path = folders.cwd / where[2:] if where.startswith("./") else folders.home / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def look(folders: SettingsFolders, platform: str = "linux") -> tuple[FoundClientFile, ...]:
    return discover_client_files(folders.home, folders.cwd, platform, folders.variables)


def entry_of(folders: SettingsFolders, name: str, entry: Any, where: str = ".cursor/mcp.json") -> Any:
    write_json(folders, where, {"mcpServers": {name: entry}})
    return merge_servers(look(folders)).servers[name]


@proves("H20")
@pytest.mark.parametrize(("client", "platform", "where", "content"), MACHINES)
def test_a_clients_configuration_is_found_on_its_system(
    folders: SettingsFolders, client: str, platform: str, where: str, content: Any
) -> None:
    path = write_json(folders, where, content)
    (found,) = look(folders, platform)
    assert (found.client, found.file, found.problems) == (client, path, ())
    assert merge_servers([found]).servers == {"s": {"command": "x"}}


def test_the_folders_the_environment_names_are_used(folders: SettingsFolders, tmp_path: Path) -> None:
    for variable, platform in (("XDG_CONFIG_HOME", "linux"), ("APPDATA", "win32")):
        folder = tmp_path / variable / "Claude"
        folder.mkdir(parents=True)
        (folder / "claude_desktop_config.json").write_text(json.dumps(STANDARD), encoding="utf-8")
        folders.variables = {variable: str(tmp_path / variable)}
        assert [found.client for found in look(folders, platform)] == ["claude-desktop"]


def test_files_without_servers_are_passed_over_and_broken_ones_are_reported(folders: SettingsFolders) -> None:
    write_json(folders, ".config/Code/User/settings.json", '{"editor.fontSize": 12, /* no servers */}')
    write_json(folders, ".gemini/settings.json", "{")
    write_json(folders, ".cursor/mcp.json", STANDARD)
    cursor, gemini = look(folders)
    assert (cursor.client, cursor.shown) == ("cursor", "~/.cursor/mcp.json")
    merged = merge_servers([cursor, gemini])
    assert list(merged.servers) == ["s"]
    (problem,) = merged.problems
    assert str(problem).startswith("~/.gemini/settings.json:1: is not valid JSON")


@proves("H20")
def test_the_same_server_in_several_clients_becomes_one(folders: SettingsFolders) -> None:
    write_json(
        folders,
        ".cursor/mcp.json",
        {"mcpServers": {"t": {"type": "stdio", "command": "uvx", "args": ["time"]}}},
    )
    write_json(
        folders,
        ".gemini/settings.json",
        {"mcpServers": {"t": {"command": "uvx", "args": ["time"], "trust": True}}},
    )
    write_json(
        folders, ".codex/config.toml", '[mcp_servers.t]\ncommand = "uvx"\nargs = ["time"]\nenabled = false\n'
    )
    merged = merge_servers(look(folders))
    assert merged.servers == {"t": {"command": "uvx", "args": ["time"]}}
    assert merged.clients["t"] == ("cursor", "gemini-cli", "codex")
    assert merged.origins["t"] == (
        "~/.cursor/mcp.json:1",
        "~/.gemini/settings.json:1",
        "~/.codex/config.toml:1",
    )
    assert merged.renamed == ()


@proves("H20")
def test_different_servers_of_one_name_are_told_apart_and_reported(folders: SettingsFolders) -> None:
    project = {"mcpServers": {"t": {"command": "c"}}}
    write_json(
        folders,
        ".claude.json",
        {
            "mcpServers": {"t": {"command": "a"}},
            "projects": {"/p": project, "/q": {"mcpServers": {"t": {"command": "d"}}}},
        },
    )
    write_json(folders, ".cursor/mcp.json", {"mcpServers": {"t": {"command": "b"}}})
    merged = merge_servers(look(folders))
    assert {name: entry["command"] for name, entry in merged.servers.items()} == {
        "t": "a",
        "t-claude-code": "c",
        "t-claude-code-2": "d",
        "t-cursor": "b",
    }
    assert [(one.name, one.new_name) for one in merged.renamed][-1] == ("t", "t-cursor")


@proves("H20")
def test_variables_stay_variables_and_what_depends_on_the_file_is_made_absolute(
    folders: SettingsFolders,
) -> None:
    folders.variables["TOKEN"] = "canary-not-to-be-copied"
    entry = {
        "command": "${workspaceFolder}/run",
        "args": ["${userHome}/x", "${TOKEN:-none}"],
        "env": {"TOKEN": "${TOKEN}"},
        "envFile": ".env",
        "cwd": "work",
    }
    assert entry_of(folders, "s", entry, "./.cursor/mcp.json") == {
        "command": f"{folders.cwd}/run",
        "args": ["${userHome}/x", "${TOKEN:-none}"],
        "env": {"TOKEN": "${TOKEN}"},
        "envFile": str(folders.cwd / ".env"),
        "cwd": str(folders.cwd / "work"),
    }


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"serverUrl": "https://a.example/sse"}, {"type": "sse", "url": "https://a.example/sse"}),
        (
            {"httpUrl": "https://a.example", "headers": {"A": 1}},
            {"type": "http", "url": "https://a.example", "headers": {"A": "1"}},
        ),
        ({"command": "x", "disabled": True, "autoApprove": ["a"]}, {"command": "x", "disabled": True}),
        (
            {"url": "https://a.example", "auth": {"CLIENT_ID": "me", "scopes": ["s"]}},
            {"type": "http", "url": "https://a.example", "oauth": {"clientId": "me", "scopes": ["s"]}},
        ),
    ],
)
def test_entries_are_written_in_the_standard_form(
    folders: SettingsFolders, entry: Any, expected: Any
) -> None:
    assert entry_of(folders, "s", entry) == expected


def test_what_was_merged_is_read_back_as_the_same_servers(folders: SettingsFolders) -> None:
    folders.variables["FINGERPOST_INPUT_KEY"] = "canary-input-key"
    write_json(
        folders,
        "./.vscode/mcp.json",
        {
            "inputs": [{"id": "key", "type": "promptString", "description": "K"}, {"id": "unused"}],
            "servers": {
                "a": {"url": "https://a.example/mcp", "headers": {"X-Key": "${input:key}"}},
                "b": {"command": "b", "args": ["${workspaceFolder}"], "cwd": "sub"},
            },
        },
    )
    before = folders.load(servers=folders.cwd / ".vscode/mcp.json").specs
    content = merge_servers(look(folders)).build_document()
    assert content["inputs"] == [{"id": "key", "type": "promptString", "description": "K"}]
    after = folders.load(servers=write_json(folders, "elsewhere/mcp.json", content)).specs
    for old, new in zip(before, after, strict=True):
        assert (old.name, old.transport, old.url, dict(old.headers)) == (
            new.name,
            new.transport,
            new.url,
            dict(new.headers),
        )
        assert (old.command, old.args, old.cwd) == (new.command, new.args, new.cwd)


@proves("F49", "H20")
def test_secrets_written_out_are_kept_pointed_out_and_masked_on_screen(folders: SettingsFolders) -> None:
    entries: Any = {
        "a": {"command": "x", "env": {"API_KEY": "canary-import-1", "REF": "${TOKEN}", "TOKEN": "${TOKEN}"}},
        "b": {"command": "npx", "args": ["mcp-remote", "--header", "Authorization: Bearer canary-import-2"]},
        "c": {"url": "https://c.example", "headers": {"X-Token": "c3"}},
    }
    write_json(folders, ".cursor/mcp.json", {"mcpServers": entries})
    merged = merge_servers(look(folders))
    assert merged.secrets == ("a.env.API_KEY", "b.args[2]", "c.headers.X-Token")
    assert "canary-import-1" in json.dumps(merged.build_document())
    screen = json.dumps(mask_secrets(merged.build_document(), merged.secrets))
    assert "canary" not in screen
    assert "c3" not in screen
    assert screen.count("${TOKEN}") == 2
    assert mask_secrets({"timeout": 30, "API_KEY": "c4"}, ()) == {"timeout": 30, "API_KEY": MASK}


@proves("G12")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "/usr/local/bin/fingerpost", "args": ["stdio"]},
        {"command": "python3", "args": ["-m", "fingerpost", "stdio"]},
        {"url": "http://127.0.0.1:8642/mcp"},
    ],
)
def test_our_own_gateway_is_no_server_of_itself(folders: SettingsFolders, entry: Any) -> None:
    write_json(folders, ".cursor/mcp.json", {"mcpServers": {"fingerpost": entry, "s": {"command": "x"}}})
    assert list(merge_servers(look(folders)).servers) == ["s"]
