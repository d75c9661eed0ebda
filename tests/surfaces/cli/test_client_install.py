"""`fingerpost install`, as a person uses it: every client's own way of writing, a diff first, a backup."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from fingerpost.errors import ConfigError
from fingerpost.settings.client_files import read_drafts
from fingerpost.settings.document import SettingsDocument, read_document
from fingerpost.surfaces.cli.client_install import CLIENTS
from fingerpost.surfaces.cli.commands import build_command
from tests.requirements import proves

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
    for key in CLIENTS[client].servers_path:
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
    if CLIENTS[client].variable is not None or client == "codex":
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
    assert isinstance(person.runs("cursor").exception, click.Abort)  # no person to ask
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
        (("claude-desktop", "--http"), "takes no addresses"),
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
    assert "`fingerpost install CLIENT` writes its file all the same" in person.runs().output
    file = person.home / FILES["cursor"]
    assert isinstance(person.runs("cursor", answer="n\n").exception, click.Abort)
    assert not file.parent.exists()
    done = person.runs("cursor", *more, answer=answer)
    assert done.exception is None, done.output
    assert f"Cursor does not seem to be here; {file.parent} is made" in done.output
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
    words = "the entry is switched off in {}, and stays so: switch it on there"
    for client, label in (("cursor", "Cursor"), ("codex", "Codex")):
        for _ in ("written", "there already"):
            assert words.format(label) in person.runs(client, "--yes").output
    assert entry_of(file, "cursor")["disabled"] is True
    assert entry_of(codex, "codex")["enabled"] is False


def test_what_is_missing_for_it_to_work_is_said(person: ClientHome) -> None:
    person.has("cursor")
    assert "no servers are configured yet" in person.runs("cursor", "--dry-run").output
    assert "no profile is named x" in person.runs("cursor", "--dry-run", "--profile", "x").output
    assert "fingerpost serve" in person.runs("cursor", "--dry-run", "--http").output
    person.settles("[gateway]\nport = 0\n")
    assert "fixed one" in (getattr(person.runs("cursor", "--http").exception, "hint", None) or "")
