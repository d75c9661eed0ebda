"""`fingerpost install`, as a person uses it: every client's own way of writing, a diff first, a backup."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import anyio
import click
import pytest
from click.testing import CliRunner, Result
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from fingerpost.errors import ConfigError
from fingerpost.settings.client_files import read_clients, read_drafts
from fingerpost.settings.document import SettingsDocument, read_document
from fingerpost.surfaces.cli.client_install import find_own_command
from fingerpost.surfaces.cli.commands import build_command
from tests.kit import warm
from tests.kit.programs import PATH
from tests.requirements import proves

PATIENCE_S = 60.0

FILES = {
    "claude-desktop": "config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "vscode": "config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": "config/zed/settings.json",
    "gemini-cli": ".gemini/settings.json",
    "codex": ".codex/config.toml",
    "cline": "config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    "roo-code": "config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
}


class ClientHome:
    """A home with the folders of some clients, and a project to stand in."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir()
        monkeypatch.chdir(self.project)
        monkeypatch.setattr("sys.platform", "linux")
        self._runner = CliRunner(env={"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")})

    def has(self, client: str, text: str | None = None) -> Path:
        file = self.home / FILES[client]
        file.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            file.write_text(text)
        return file

    def settles(self, text: str) -> Path:
        file = self.project / "fingerpost.toml"
        file.write_text(text)
        return file

    def runs(self, *arguments: str, answer: str | None = None) -> Result:
        command = build_command("install")
        return self._runner.invoke(command, [*arguments], input=answer, standalone_mode=False)


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHome:
    return ClientHome(tmp_path, monkeypatch)


def entry_of(file: Path, client: str) -> Any:
    text = file.read_text()
    values: Any = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    for key in read_clients()[client].servers_path:
        values = values[key]
    return values.get("fingerpost")


@proves("G12")
@pytest.mark.parametrize("client", FILES)
def test_every_client_gets_an_entry_it_can_start_and_loses_it_again(person: ClientHome, client: str) -> None:
    file = person.has(client)
    settings = person.settles('[servers.git]\ncommand = "git-mcp"\n')
    done = person.runs(client, "--mode", "all", "--yes")
    assert done.exception is None, done.output
    entry = entry_of(file, client)
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-5:] == ["stdio", "--mode", "all", "--config", str(settings)]
    document = read_document(file, str(file))
    assert isinstance(document, SettingsDocument)
    (draft,), problems = read_drafts(document)  # we read it as we would any other client's file
    assert (draft.name, draft.values["command"], problems) == ("fingerpost", entry["command"], ())
    assert "already" in person.runs(client, "--mode", "all", "--yes").output
    assert person.runs(client, "--undo", "--yes").exception is None
    assert not file.exists()


@proves("G12")
@pytest.mark.parametrize("client", [name for name in FILES if name != "claude-desktop"])
def test_a_client_that_connects_gets_the_address_and_a_reference_to_its_key(
    person: ClientHome, client: str
) -> None:
    file = person.has(client)
    person.settles("[gateway]\nport = 9001\nrequire_key = true\n[profiles.daily]\n")
    done = person.runs(client, "--http", "--profile", "daily", "--yes")
    assert done.exception is None, done.output
    entry = entry_of(file, client)
    assert "http://127.0.0.1:9001/mcp/p/daily" in entry.values()
    assert "fingerpost keys add" in done.output
    assert "fp_" not in file.read_text()
    document = read_document(file, str(file))
    assert isinstance(document, SettingsDocument)
    (draft,), _ = read_drafts(document)
    assert draft.values["url"] == "http://127.0.0.1:9001/mcp/p/daily"
    if read_clients()[client].variable is not None or client == "codex":
        assert "FINGERPOST_KEY" in file.read_text()


@proves("G12")
def test_the_change_is_shown_and_nothing_is_written_without_a_yes(person: ClientHome) -> None:
    text = '{\n  "mcpServers": {\n    "git": {"command": "git-mcp"}\n  }\n}\n'
    file = person.has("cursor", text)
    refused = person.runs("cursor", answer="n\n")
    assert isinstance(refused.exception, click.Abort)
    assert '+    "fingerpost": {' in refused.output
    assert "-    " in refused.output
    assert file.read_text() == text
    assert "not a terminal" in str(person.runs("cursor").exception)  # no person to ask
    shown = person.runs("cursor", "--dry-run")
    assert shown.exception is None
    assert "fingerpost" in shown.output
    assert file.read_text() == text
    assert list(file.parent.iterdir()) == [file]
    agreed = person.runs("cursor", answer="y\n")
    assert agreed.exception is None
    (backup,) = file.parent.glob("mcp.json.backup-*")
    assert backup.read_text() == text
    assert str(backup) in agreed.output
    undone = person.runs("cursor", "--undo", answer="y\n")
    assert '-    "fingerpost": {' in undone.output
    assert file.read_text() == text
    assert "no entry" in person.runs("cursor", "--undo").output


@proves("G12")
def test_a_changed_wish_replaces_the_entry_and_another_name_stands_beside_it(person: ClientHome) -> None:
    file = person.has("vscode", '{"servers": {}, "inputs": []}')
    person.runs("vscode", "--yes")
    first = entry_of(file, "vscode")
    person.runs("vscode", "--mode", "route", "--yes")
    assert entry_of(file, "vscode") != first
    person.runs("vscode", "--name", "second", "--yes")
    assert set(json.loads(file.read_text())["servers"]) == {"fingerpost", "second"}
    assert json.loads(file.read_text())["inputs"] == []


def test_the_clients_that_are_here_are_listed_with_how_they_stand(person: ClientHome) -> None:
    nothing = person.runs()
    assert nothing.return_value == 1
    assert "No MCP client was found" in nothing.output
    person.has("cursor", "{}")
    person.has("zed", "// mine\n{}\n")
    person.has("windsurf", "{ broken")
    person.runs("zed", "--yes")
    listed = person.runs().output
    rows = {line.split()[0]: line for line in listed.splitlines() if line.strip()}
    assert "not yet" in rows["cursor"]
    assert "installed" in rows["zed"]
    assert "cannot be read" in rows["windsurf"]
    assert "not valid JSON" in str(person.runs("windsurf").exception)
    assert "codex" not in rows


def test_a_projects_own_file(person: ClientHome) -> None:
    person.settles('[servers.git]\ncommand = "x"\n')
    assert person.runs("claude-code", "--project", "--yes").exception is None
    assert entry_of(person.project / ".mcp.json", "claude-code")["type"] == "stdio"
    no_file = person.runs("windsurf", "--project").exception
    assert isinstance(no_file, click.BadParameter)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("curser",), "did you mean cursor"),
        (("emacs-of-old",), "there are: claude-desktop"),
        (("cursor", "--mode", "all", "--profile", "x"), "--mode or --profile"),
        (("claude-desktop", "--http"), "has no place for an address"),
    ],
)
def test_mistakes_are_explained(person: ClientHome, arguments: tuple[str, ...], words: str) -> None:
    error = person.runs(*arguments).exception
    assert isinstance(error, click.ClickException | ConfigError)
    assert words in str(error)


@proves("G12")
@pytest.mark.parametrize(("more", "answer"), [(("--yes",), None), ((), "y\n")])
def test_a_client_that_was_not_found_is_written_for_when_it_is_named(
    person: ClientHome, more: tuple[str, ...], answer: str | None
) -> None:
    assert "`fingerpost install CLIENT` still writes its file" in person.runs().output
    file = person.home / FILES["cursor"]
    assert isinstance(person.runs("cursor", answer="n\n").exception, click.Abort)
    assert not file.parent.exists()
    done = person.runs("cursor", *more, answer=answer)
    assert done.exception is None, done.output
    assert f"Cursor was not found here; {file.parent} is created" in done.output
    assert entry_of(file, "cursor")["args"][0] == "stdio"


@proves("G12")
def test_variables_of_this_shell_that_a_client_must_have_too_are_named(
    person: ClientHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.has("cursor")
    monkeypatch.setenv("NOTES_TOKEN", "a1b2c3d4e5")
    monkeypatch.setenv("CRM_TOKEN", "f6g7h8i9j0")
    servers = {
        "notes": {"url": "https://notes.example.org/mcp", "headers": {"X-Key": "${NOTES_TOKEN}"}},
        "crm": {"command": "${HOME}/crm", "env": {"KEY": "${env:CRM_TOKEN:-none}", "MODE": "${UNSET:-x}"}},
    }
    (person.project / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    shown = person.runs("cursor", "--servers", "mcp.json", "--dry-run").output
    assert "the settings use CRM_TOKEN, NOTES_TOKEN, set in this shell: Cursor must have the same" in shown
    assert "a1b2c3d4e5" not in shown
    (person.project / "mcp.json").write_text('{"mcpServers": {"git": {"command": "git-mcp"}}}')
    assert "set in this shell" not in person.runs("cursor", "--servers", "mcp.json", "--dry-run").output


@proves("G12")
def test_an_entry_that_is_switched_off_in_the_client_is_pointed_out(person: ClientHome) -> None:
    file = person.has("cursor", '{"mcpServers": {"fingerpost": {"command": "old", "disabled": true}}}')
    codex = person.has("codex", '[mcp_servers.fingerpost]\ncommand = "old"\nenabled = false\n')
    words = "the entry is switched off in {}: switch it on there"
    for client, label in (("cursor", "Cursor"), ("codex", "Codex")):
        for _ in ("written", "there already"):
            assert words.format(label) in person.runs(client, "--yes").output
    assert entry_of(file, "cursor")["disabled"] is True
    assert entry_of(codex, "codex")["enabled"] is False


OTHERS = {
    "cursor": """{
  // what I use
  "mcpServers": {
    "time": {"command": "mcp-server-time", "autoApprove": ["get_current_time"]},
    "notes": {
      "url": "https://notes.example.org/mcp",
      "headers": {"X-Key": "${env:NOTES_KEY}"}
    },
  },
  "theme": "dark"
}
""",
    "codex": """model = "small"

[mcp_servers.time]
command = "mcp-server-time"

[mcp_servers.notes]
url = "https://notes.example.org/mcp"
startup_timeout_sec = 5

[tui]
theme = "dark"
""",
}


def servers_of(person: ClientHome) -> Any:
    return json.loads((person.home / "config/fingerpost/servers.json").read_text())["mcpServers"]


@proves("S11")
@pytest.mark.parametrize("client", OTHERS)
def test_the_other_servers_are_moved_on_request_and_back_exactly(person: ClientHome, client: str) -> None:
    file = person.has(client, OTHERS[client])
    plain = person.runs(client, "--yes").output
    assert "still has time, notes itself: their tools stay reachable without Fingerpost's approval" in plain
    assert f"Move them with `fingerpost install {client} --replace`" in plain
    assert person.runs(client, "--undo", "--yes").exception is None
    assert file.read_text() == OTHERS[client]
    assert "mcp-server-time" in person.runs(client, "--replace", "--dry-run").output
    assert file.read_text() == OTHERS[client]
    done = person.runs(client, "--replace", answer="y\n")
    assert done.exception is None, done.output
    assert f"Moved 2 servers from {read_clients()[client].label}" in done.output
    document = read_document(file, str(file))
    assert isinstance(document, SettingsDocument)
    assert [draft.name for draft in read_drafts(document)[0]] == ["fingerpost"]
    moved = servers_of(person)
    assert moved["time"] == {"command": "mcp-server-time"}
    assert moved["notes"]["url"] == "https://notes.example.org/mcp"
    assert "no servers are configured" not in done.output
    assert "already" in person.runs(client, "--replace", "--yes").output
    undone = person.runs(client, "--undo", answer="y\n")
    assert undone.exception is None, undone.output
    assert file.read_text() == OTHERS[client]
    assert not (person.home / "config/fingerpost/servers.json").exists()
    assert "no entry" in person.runs(client, "--undo").output


@proves("S11")
def test_files_that_were_changed_since_get_the_entries_back_where_that_is_safe(person: ClientHome) -> None:
    file = person.has(
        "cursor", '{"mcpServers": {"time": {"command": "mine"}, "git": {"command": "git-mcp"}}}'
    )
    ours = person.home / "config/fingerpost/servers.json"
    ours.parent.mkdir(parents=True)
    ours.write_text('{"mcpServers": {"time": {"command": "other"}}}')
    moved = person.runs("cursor", "--replace", "--yes")
    assert "time becomes time-cursor" in moved.output
    assert set(servers_of(person)) == {"time", "time-cursor", "git"}
    values = json.loads(file.read_text())
    values["mcpServers"]["time"] = {"command": "another"}
    values["mcpServers"]["late"] = {"command": "late-mcp"}
    file.write_text(json.dumps(values))
    again = person.runs("cursor", "--replace", "--yes")  # it moves what was added since
    assert again.exception is None and "late-mcp" in again.output
    values = json.loads(file.read_text())
    values["mcpServers"]["git"] = {"command": "not-the-same"}
    file.write_text(json.dumps(values))
    refused = person.runs("cursor", "--undo", "--yes").exception
    assert isinstance(refused, ConfigError)
    assert "has other entries for git" in str(refused)
    assert "the old file is" in (refused.hint or "")
    del values["mcpServers"]["git"]
    file.write_text(json.dumps(values))
    changed = servers_of(person)
    changed["git"]["env"] = {"A": "1"}
    ours.write_text(json.dumps({"mcpServers": changed}))
    undone = person.runs("cursor", "--undo", "--yes")
    assert undone.exception is None, undone.output
    assert "git was changed in" in undone.output
    assert {name: entry["command"] for name, entry in json.loads(file.read_text())["mcpServers"].items()} == {
        "time": "another",
        "git": "git-mcp",
        "late": "late-mcp",
    }
    assert set(servers_of(person)) == {"time", "git"}


@proves("S11")
def test_servers_that_stay_in_the_client_are_named(person: ClientHome) -> None:
    servers = {"here": {"command": "x", "args": ["${workspaceFolder}"]}, "git": {"command": "git-mcp"}}
    file = person.has("vscode", json.dumps({"servers": servers}))
    shown = person.runs("vscode", "--replace", "--yes").output
    assert "here stays in VS Code: only VS Code knows its ${workspaceFolder}" in shown
    assert set(json.loads(file.read_text())["servers"]) == {"here", "fingerpost"}
    person.has("claude-code", json.dumps({"projects": {"/work": {"mcpServers": {"db": {"command": "db"}}}}}))
    shown = person.runs("claude-code", "--replace", "--yes").output
    assert "Claude Code also has db (for single projects in ~/.claude.json)" in shown


@proves("S11")
def test_uvx_and_pipx_start_it_again_themselves(tmp_path: Path) -> None:
    environ = {"UV": "/opt/uv", "PATH": str(tmp_path)}
    assert find_own_command(tmp_path / "uv/archive-v0/x", environ)[:3] == ["/opt/uv", "tool", "run"]
    pipx = tmp_path / "pipx"
    pipx.write_text("#!/bin/sh\n")
    pipx.chmod(0o755)
    assert find_own_command(tmp_path / "share/pipx/.cache/1a2b", environ)[:2] == [str(pipx), "run"]
    assert find_own_command(tmp_path / "uv/tools/fingerpost", environ)[0].startswith("/")


@proves("S11")
@pytest.mark.process
def test_a_client_with_the_path_of_a_desktop_reaches_the_moved_servers(
    person: ClientHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([warm.folder(), PATH]))
    file = person.has("cursor", '{"mcpServers": {"time": {"command": "mcp-server-time"}}}')
    assert person.runs("cursor", "--replace", "--yes").exception is None
    entry = entry_of(file, "cursor")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(person.home))
    started = StdioServerParameters(command=entry["command"], args=entry["args"], env=entry["env"], cwd="/")

    async def wait_for_tool(name: str) -> None:
        async with Client(stdio_client(started)) as client:
            with anyio.fail_after(PATIENCE_S):  # the list holds what is connected by then
                while name not in {tool.name for tool in (await client.list_tools()).tools}:  # noqa: ASYNC110
                    await anyio.sleep(0.2)

    anyio.run(wait_for_tool, "time__get_current_time")


def test_what_is_missing_for_it_to_work_is_said(person: ClientHome) -> None:
    person.has("cursor")
    assert "no servers are configured yet" in person.runs("cursor", "--dry-run").output
    assert "there is no profile named x" in person.runs("cursor", "--dry-run", "--profile", "x").output
    assert "fingerpost serve" in person.runs("cursor", "--dry-run", "--http").output
    person.settles("[gateway]\nport = 0\n")
    assert "fixed port" in (getattr(person.runs("cursor", "--http").exception, "hint", None) or "")
