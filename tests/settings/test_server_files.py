"""The files of other clients are read as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fingerpost.records import OAuthSpec, ServerSpec
from fingerpost.settings.client_files import FIELD_NAMES
from fingerpost.settings.model import ServerSettings
from tests.kit.settings_folders import SettingsFolders
from tests.requirements import proves

CLAUDE_DESKTOP = """{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": {"command": "npx", "args": ["-y", "server-filesystem", "/tmp"]},
    "github": {"command": "docker", "args": ["run", "-i", "gh"], "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}}
  }
}"""

CURSOR = """{
  // my servers
  "mcpServers": {
    "local": {
      "type": "stdio",
      "command": "${workspaceFolder}/run.sh",
      "args": ["--home", "${userHome}", "--name", "${workspaceFolderBasename}"],
      "envFile": "${workspaceFolder}/.env",
    },
    "remote": {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${env:GITHUB_TOKEN}"}},
    /* "old": {"command": "x"}, */
  },
}"""

VSCODE = """{
  "inputs": [{"type": "promptString", "id": "api-key", "description": "The key", "password": true}],
  "servers": {
    "keyed": {"type": "http", "url": "https://k.example.org", "headers": {"X-Key": "${input:api-key}"}},
    "plain": {"type": "stdio", "command": "uvx", "args": ["time"], "env": {"NONE": null, "PORT": 80}}
  }
}"""

SHAPES: list[tuple[dict[str, object], dict[str, object]]] = [
    ({"command": "x"}, {"transport": "stdio", "command": "x"}),
    ({"url": "https://a.example/mcp"}, {"transport": "http", "url": "https://a.example/mcp"}),
    ({"url": "https://a.example/sse"}, {"transport": "sse"}),
    ({"type": "http", "url": "https://a.example/sse"}, {"transport": "http"}),
    ({"type": "streamable-http", "url": "https://a.example"}, {"transport": "http"}),
    ({"type": "streamableHttp", "url": "https://a.example"}, {"transport": "http"}),
    ({"transport": "streamable_http", "url": "https://a.example"}, {"transport": "http"}),
    ({"type": "sse", "url": "https://a.example"}, {"transport": "sse"}),
    ({"serverUrl": "https://w.example"}, {"transport": "http", "url": "https://w.example"}),
    (
        {"httpUrl": "https://g.example/sse", "timeout": 5},
        {"transport": "http", "url": "https://g.example/sse"},
    ),
    ({"command": "x", "disabled": True, "autoApprove": ["a"]}, {"enabled": False}),
    ({"command": "x", "disabled": False}, {"enabled": True}),
    ({"command": ["x", "a", "b"], "args": ["c"]}, {"command": "x", "args": ("a", "b", "c")}),
    (
        {"command": {"path": "z", "args": ["a"], "env": {"B": "c"}}, "settings": {}},
        {"command": "z", "args": ("a",)},
    ),
    ({"command": "x", "args": ["--port", 80, True]}, {"args": ("--port", "80", "true")}),
    ({"command": "x", "startup_timeout_sec": 7}, {"connect_timeout": 7.0}),
    (
        {"url": "https://a", "isolate": True, "prefix": False, "forward_authorization": True},
        {"isolate": True, "prefix": False, "forward_authorization": True},
    ),
    ({"command": "x", "type": None, "url": None, "env": None}, {"transport": "stdio", "env": {}}),
    (
        {"url": "https://a.example", "oauth": {"clientId": "me", "scopes": ["a"], "callbackPort": 9}},
        {"oauth": OAuthSpec(client_id="me", scopes=("a",), redirect_port=9)},
    ),
    ({"url": "https://a.example", "auth": {"CLIENT_ID": "me"}}, {"oauth": OAuthSpec(client_id="me")}),
    ({"url": "https://a.example", "auth": "per_user"}, {"auth": "per_user", "oauth": None}),
    (
        {"url": "https://a.example", "oauth": {"clientId": "me"}, "auth": "per_user"},
        {"auth": "per_user", "oauth": OAuthSpec(client_id="me")},
    ),
    (
        {
            "url": "https://a.example",
            "auth": "exchange",
            "oauth": {"clientId": "me", "tokenEndpoint": "https://b.example/token", "audience": "a"},
        },
        {
            "auth": "exchange",
            "oauth": OAuthSpec(client_id="me", token_endpoint="https://b.example/token", audience="a"),
        },
    ),
]


def one(folders: SettingsFolders, entry: object) -> ServerSpec:
    file = folders.write("mcp.json", json.dumps({"mcpServers": {"x": entry}}))
    loaded = folders.load(servers=file)
    assert loaded.warnings == ()
    (spec,) = loaded.specs
    return spec


@proves("H3")
def test_a_file_of_claude_desktop_is_read_as_it_is(folders: SettingsFolders) -> None:
    folders.variables["GITHUB_TOKEN"] = "canary-desktop-token"
    loaded = folders.load(servers=folders.write("claude_desktop_config.json", CLAUDE_DESKTOP))
    filesystem, github = loaded.specs
    assert (filesystem.command, filesystem.args) == ("npx", ("-y", "server-filesystem", "/tmp"))
    assert github.env == {"GITHUB_TOKEN": "canary-desktop-token"}
    assert (filesystem.origin, github.origin) == (
        "claude_desktop_config.json:4",
        "claude_desktop_config.json:5",
    )
    assert loaded.warnings == ()


@proves("H3")
def test_a_file_of_cursor_is_read_as_it_is(folders: SettingsFolders) -> None:
    folders.variables["GITHUB_TOKEN"] = "canary-cursor-token"
    folders.write(".env", "# secrets\nexport DB='a b'\nQUOTED=\"x\\ny\" # note\nPLAIN=a#b # note\n")
    loaded = folders.load(servers=folders.write(".cursor/mcp.json", CURSOR))
    local, remote = loaded.specs
    assert local.command == f"{folders.cwd}/run.sh"
    assert local.args == ("--home", str(folders.home), "--name", "project")
    assert local.env == {"DB": "a b", "QUOTED": "x\ny", "PLAIN": "a#b"}
    assert remote.headers == {"Authorization": "Bearer canary-cursor-token"}
    assert loaded.warnings == ()


@proves("H3")
def test_a_file_of_vscode_is_read_as_it_is(folders: SettingsFolders) -> None:
    folders.variables["FINGERPOST_INPUT_API_KEY"] = "canary-vscode-key"
    for text in (VSCODE, f'{{"editor.fontSize": 12, "mcp": {VSCODE}}}'):
        keyed, plain = folders.load(servers=folders.write(".vscode/settings.json", text)).specs
        assert (keyed.transport, keyed.headers) == ("http", {"X-Key": "canary-vscode-key"})
        assert (plain.transport, plain.env) == ("stdio", {"PORT": "80"})


@proves("H3")
def test_an_unanswered_input_costs_only_its_own_server(folders: SettingsFolders) -> None:
    loaded = folders.load(servers=folders.write("mcp.json", VSCODE))
    assert [spec.name for spec in loaded.specs] == ["plain"]
    (warning,) = loaded.warnings
    assert "the input 'api-key' (The key)" in warning.message
    assert "FINGERPOST_INPUT_API_KEY" in warning.fix


@proves("H3")
@pytest.mark.parametrize(("entry", "expected"), SHAPES)
def test_every_clients_way_of_writing_an_entry_means_the_same(
    folders: SettingsFolders, entry: object, expected: dict[str, object]
) -> None:
    spec = one(folders, entry)
    assert {name: getattr(spec, name) for name in expected} == expected


def test_a_codex_file_is_read_with_the_variables_it_names(folders: SettingsFolders) -> None:
    file = folders.write(
        "config.toml",
        """
        model = "o"
        [mcp_servers.docs]
        command = "npx"
        args = ["docs"]
        env_vars = ["DOCS_REGION"]
        [mcp_servers.web]
        url = "https://web.example/mcp"
        bearer_token_env_var = "WEB_TOKEN"
        http_headers = { "X-A" = "b" }
        env_http_headers = { "X-C" = "WEB_C" }
        """,
    )
    folders.variables |= {"DOCS_REGION": "eu", "WEB_TOKEN": "canary-codex", "WEB_C": "canary-header"}
    docs, web = folders.load(servers=file).specs
    assert docs.env == {"DOCS_REGION": "eu"}
    assert web.headers == {"X-A": "b", "X-C": "canary-header", "Authorization": "Bearer canary-codex"}


def test_zed_settings_are_read_and_its_extensions_servers_passed_over(folders: SettingsFolders) -> None:
    entries = {
        "mine": {"source": "custom", "command": "x"},
        "ext": {"source": "extension", "settings": {"a": 1}},
    }
    file = folders.write("settings.json", json.dumps({"theme": "One", "context_servers": entries}))
    loaded = folders.load(servers=file)
    assert [spec.name for spec in loaded.specs] == ["mine"]
    assert loaded.warnings == ()


def test_entries_without_a_table_around_them_are_understood(folders: SettingsFolders) -> None:
    loaded = folders.load(
        servers=folders.write("mcp.json", '{"a": {"command": "x"}, "b": {"url": "https://b.example"}}')
    )
    assert [spec.name for spec in loaded.specs] == ["a", "b"]


def test_a_file_with_an_empty_table_of_servers_is_fine(folders: SettingsFolders) -> None:
    loaded = folders.load(servers=folders.write("mcp.json", '{"mcpServers": {}}'))
    assert (loaded.specs, loaded.warnings) == ((), ())


def test_a_disabled_server_may_lack_its_variables(folders: SettingsFolders) -> None:
    spec = one(folders, {"command": "x", "disabled": True, "env": {"A": "${NOT_THERE}"}, "envFile": "gone"})
    assert (spec.enabled, spec.env) == (False, {"A": "${NOT_THERE}"})


def test_relative_folders_start_at_the_file_and_a_tilde_is_home(folders: SettingsFolders) -> None:
    folders.write(
        "conf/fingerpost.toml",
        '[servers.a]\ncommand = "~/bin/a"\ncwd = "work"\n[servers.b]\ncommand = "b"\ncwd = "~"\n',
    )
    a, b = folders.load(config=Path("conf/fingerpost.toml")).specs
    assert (a.command, a.cwd) == (str(folders.home / "bin/a"), str(folders.cwd / "conf/work"))
    assert b.cwd == str(folders.home)


def test_our_own_file_takes_every_server_setting(folders: SettingsFolders) -> None:
    folders.variables["OAUTH_SECRET"] = "canary-oauth-secret"
    folders.write(
        "fingerpost.toml",
        """
        [limits]
        connect_timeout = 9
        [servers."my server"]
        transport = "sse"
        url = "https://a.example/x"
        headers = { A = "1" }
        era = "2025-11-25"
        enabled = false
        connect_timeout = 2.5
        prefix = false
        isolate = true
        forward_authorization = true
        oauth = { client_id = "me", client_secret = "${OAUTH_SECRET}", scopes = ["s"], redirect_port = 80 }
        [servers.b]
        command = "b"
        env = { PORT = 80 }
        """,
    )
    mine, other = folders.load().specs
    assert mine == ServerSpec(
        name="my server",
        transport="sse",
        url="https://a.example/x",
        headers={"A": "1"},
        era="2025-11-25",
        enabled=False,
        connect_timeout=2.5,
        prefix=False,
        isolate=True,
        forward_authorization=True,
        oauth=OAuthSpec(client_id="me", client_secret="canary-oauth-secret", scopes=("s",), redirect_port=80),
        origin="fingerpost.toml:4",
    )
    assert (other.connect_timeout, other.env) == (9.0, {"PORT": "80"})


def test_a_bad_line_in_an_env_file_is_named_without_showing_it(folders: SettingsFolders) -> None:
    folders.write(".env", "A=1\ncanary line without equals\n")
    file = folders.write("mcp.json", '{"mcpServers": {"x": {"command": "x", "envFile": ".env"}}}')
    (problem,) = folders.check(servers=file)
    assert "line 2 is not NAME=value" in problem.message
    assert "canary" not in problem.message


def test_whatever_our_own_entries_may_say_a_clients_file_may_say() -> None:
    # `auth` of other clients is our `oauth`, unless it is one of our words.
    assert set(ServerSettings.model_fields) == {*FIELD_NAMES.values(), "auth"}
