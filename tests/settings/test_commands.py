"""`fingerpost config` and `fingerpost import`, run as a person runs them."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from fingerpost.errors import ConfigError
from fingerpost.settings.document import to_plain_json
from fingerpost.surfaces.cli.main import fingerpost
from tests.kit.settings_folders import SettingsFolders
from tests.requirements import proves


@dataclass
class SettingsCommand:
    """Runs the command in the test's own folder, home and environment."""

    here: SettingsFolders

    def run(self, *arguments: str, typed: str | None = None) -> tuple[int, str]:
        """The exit code, and what was printed on either stream."""
        done = CliRunner().invoke(
            fingerpost, arguments, input=typed, env=self.here.environ, standalone_mode=False
        )
        if isinstance(done.exception, ConfigError):
            return 2, str(done.exception)
        if done.exception is not None:
            raise done.exception
        code: object = done.return_value
        return code if isinstance(code, int) else done.exit_code, done.output


@pytest.fixture
def terminal(folders: SettingsFolders, monkeypatch: pytest.MonkeyPatch) -> SettingsCommand:
    monkeypatch.chdir(folders.cwd)
    return SettingsCommand(folders)


@proves("H2")
def test_check_says_that_nothing_is_wrong_and_what_it_saw(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    folders.write("fingerpost.toml", '[limits]\nlist_pages = 3\n[servers.a]\ncommand = "x"\n')
    assert terminal.run("config", "check") == (0, "1 server, 2 settings, no problems\n")


@proves("H2")
def test_check_prints_every_problem_with_place_and_fix_and_fails(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    folders.write("fingerpost.toml", "[limits]\nlist_pages = 0\n")
    folders.write("mcp.json", '{"mcpServers": {\n"a": {"command": "x"},\n"b": {}}}')
    folders.variables["FINGERPOST_XYZZY"] = "1"
    code, printed = terminal.run("config", "check", "--servers", "mcp.json")
    assert code == 1
    assert printed.splitlines() == [
        "warning: environment FINGERPOST_XYZZY: is not the name of a setting",
        "  fix: unset it; `fingerpost config show` lists the settings",
        "error: fingerpost.toml:2: limits.list_pages: must be a whole number of at least 1, not 0",
        "  fix: write list_pages = 200",
        "error: mcp.json:3: servers.b: has neither a command nor a url",
        "  fix: add a command for a program, or a url for an address",
        "2 problems, 1 warning",
    ]
    code, printed = terminal.run("config", "check", "--servers", "mcp.json", "--json")
    problems = json.loads(printed)
    assert (code, [(one["file"], one["line"]) for one in problems]) == (
        1,
        [(None, None), ("fingerpost.toml", 2), ("mcp.json", 3)],
    )


@proves("H1", "F49")
def test_show_prints_values_with_their_origin_and_masks_secrets(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    folders.write("fingerpost.toml", '[smart_routing]\nmode = "on"\n')
    folders.write("mcp.json", '{"mcpServers": {"a": {"command": "x", "env": {"A_TOKEN": "${SOME_TOKEN}"}}}}')
    folders.variables |= {"SOME_TOKEN": "canary-show-token", "SMART_ROUTING_MAX_TOOLS": "12"}
    code, printed = terminal.run("config", "show", "--servers", "mcp.json")
    assert code == 0
    assert "canary" not in printed
    rows = [" ".join(line.split()) for line in printed.splitlines()]
    assert 'smart_routing.mode "on" fingerpost.toml:2' in rows
    assert "smart_routing.max_tools 12 environment SMART_ROUTING_MAX_TOOLS" in rows
    assert "smart_routing.max_servers 4 default" in rows
    assert 'servers.a.env.A_TOKEN "[redacted]" mcp.json:1' in rows


def test_show_can_be_limited_to_a_section_and_to_what_was_changed(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    folders.variables["FINGERPOST_LIMITS__LIST_PAGES"] = "7"
    code, printed = terminal.run("config", "show", "limits", "--changed", "--json")
    assert code == 0
    assert json.loads(printed) == {
        "settings": [
            {
                "path": "limits.list_pages",
                "value": 7,
                "origin": "environment FINGERPOST_LIMITS__LIST_PAGES",
                "kind": "environment",
            }
        ],
        "files": [],
        "warnings": [],
    }


def test_show_of_a_section_that_does_not_exist_names_those_that_do(terminal: SettingsCommand) -> None:
    done = CliRunner().invoke(fingerpost, ["config", "show", "limit"])
    assert done.exit_code == 2
    assert "smart_routing" in done.output


def test_show_of_wrong_settings_explains_them(folders: SettingsFolders, terminal: SettingsCommand) -> None:
    folders.write("fingerpost.toml", "[limits]\nlist_pages = 0\n")
    code, printed = terminal.run("config", "show")
    assert code == 2
    assert "fingerpost.toml:2: limits.list_pages" in printed


def a_home_with_clients(folders: SettingsFolders) -> None:
    for name, entry in {
        ".cursor/mcp.json": {"a": {"command": "x", "env": {"API_KEY": "canary-import-cli"}}},
        ".gemini/settings.json": {"a": {"command": "y"}, "b": {"httpUrl": "https://b.example/mcp"}},
    }.items():
        path = folders.home / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"mcpServers": entry}), encoding="utf-8")


@proves("H20", "F49")
def test_import_shows_what_it_found_and_writes_nothing_unasked(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    a_home_with_clients(folders)
    code, printed = terminal.run("import")
    assert code == 0
    assert "canary" not in printed
    rows = [" ".join(line.split()) for line in printed.splitlines()]
    assert "a x cursor ~/.cursor/mcp.json:1" in rows
    assert "b https://b.example/mcp gemini-cli ~/.gemini/settings.json:1" in rows
    assert any(row.startswith("renamed: a in ~/.gemini/settings.json:1") for row in rows)
    assert any("a.env.API_KEY is a secret in plain text" in row for row in rows)
    assert list(folders.cwd.iterdir()) == []


@proves("H20", "S6")
def test_import_writes_to_the_servers_file_in_use(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    a_home_with_clients(folders)
    code, printed = terminal.run("import", "--yes")
    assert code == 0 and "wait for your review" in printed
    assert [spec.name for spec in folders.load().specs] == ["a", "a-gemini-cli", "b"]
    assert all(spec.review_new for spec in folders.load().specs)
    # A server of the settings file replaces that of the user's own file; a named file replaces all of it.
    folders.write("fingerpost.toml", '[servers.a]\ncommand = "z"\n')
    assert {spec.name: spec.command for spec in folders.load().specs}["a"] == "z"
    named = folders.write("mcp.json", '{"mcpServers": {"a": {"command": "named"}}}')
    assert [spec.command for spec in folders.load(servers=named).specs] == ["named"]


def test_import_without_any_client_says_so(terminal: SettingsCommand) -> None:
    assert terminal.run("import") == (1, "No servers of other MCP clients were found.\n")


@proves("H20")
def test_import_writes_a_private_file_that_can_be_used_at_once(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    a_home_with_clients(folders)
    code, printed = terminal.run("import", "--write", "mcp.json", typed="y\n")
    assert code == 0
    assert '+        "API_KEY": "[redacted]"' in printed
    assert "canary" not in printed
    file = folders.cwd / "mcp.json"
    assert file.stat().st_mode & 0o777 == 0o600
    loaded = folders.load(servers=file)
    assert [spec.name for spec in loaded.specs] == ["a", "a-gemini-cli", "b"]
    assert loaded.specs[0].env == {"API_KEY": "canary-import-cli"}
    assert [path.name for path in folders.cwd.iterdir()] == ["mcp.json"]


@proves("H20")
def test_import_adds_to_an_existing_file_keeps_what_is_there_and_a_backup(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    a_home_with_clients(folders)
    old = '{"mine": 1, // keep\n "mcpServers": {"a": {"command": "here", "autoApprove": []}}}'
    file = folders.write("mcp.json", old)
    code, printed = terminal.run("import", "--write", "mcp.json", "--yes")
    assert code == 0
    (backup,) = folders.cwd.glob("mcp.json.backup-*")
    assert backup.name in printed and backup.read_text(encoding="utf-8") == old
    assert "// keep" in file.read_text(encoding="utf-8")
    content = json.loads(to_plain_json(file.read_text(encoding="utf-8")))
    assert content["mine"] == 1
    assert content["mcpServers"]["b"]["review_new"] is True
    assert content["mcpServers"]["a"] == {"command": "here", "autoApprove": []}
    assert list(content["mcpServers"]) == ["a", "a-cursor", "a-gemini-cli", "b"]
    before = file.read_bytes()
    _, printed = terminal.run("import", "--write", "mcp.json", "--yes")
    assert "already has all of them" in printed
    assert file.read_bytes() == before


def test_import_into_a_vscode_file_uses_its_own_table(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    a_home_with_clients(folders)
    file = folders.write("mcp.json", '{"servers": {"z": {"command": "z"}}, "inputs": [{"id": "k"}]}')
    assert terminal.run("import", "--write", "mcp.json", "--yes")[0] == 0
    content = json.loads(file.read_text(encoding="utf-8"))
    assert list(content) == ["servers", "inputs"]
    assert list(content["servers"]) == ["z", "a", "a-gemini-cli", "b"]


def test_import_that_is_declined_changes_nothing(folders: SettingsFolders, terminal: SettingsCommand) -> None:
    a_home_with_clients(folders)
    done = CliRunner().invoke(fingerpost, ["import", "--write", "mcp.json"], input="n\n", env=folders.environ)
    assert done.exit_code == 1
    assert list(folders.cwd.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--write", "x.toml"], "servers are written as JSON"),
        (["--write", "no/such/folder/x.json"], "does not exist"),
        (["--write", "x.json", "--json"], "needs --yes"),
    ],
)
def test_import_refuses_what_it_cannot_write(
    folders: SettingsFolders, terminal: SettingsCommand, arguments: list[str], text: str
) -> None:
    done = CliRunner().invoke(fingerpost, ["import", *arguments], env=folders.environ)
    assert done.exit_code == 2
    assert text in done.output


def test_import_never_overwrites_a_file_it_cannot_read(
    folders: SettingsFolders, terminal: SettingsCommand
) -> None:
    a_home_with_clients(folders)
    file = folders.write("mcp.json", '{"mcpServers": {')
    code, printed = terminal.run("import", "--write", "mcp.json", "--yes")
    assert code == 2
    assert "mcp.json:1: is not valid JSON" in printed
    assert file.read_text(encoding="utf-8") == '{"mcpServers": {'


def test_import_prints_json_without_secrets(folders: SettingsFolders, terminal: SettingsCommand) -> None:
    a_home_with_clients(folders)
    code, printed = terminal.run("import", "--json")
    found = json.loads(printed)
    assert code == 0
    assert "canary" not in printed
    assert found["servers"]["a"]["env"] == {"API_KEY": "[redacted]"}
    assert found["secrets"] == ["a.env.API_KEY"]
    assert [one["client"] for one in found["found"]] == ["cursor", "gemini-cli"]


@pytest.mark.parametrize("command", [["config"], ["config", "check"], ["config", "show"], ["import"]])
def test_every_command_shows_an_example_in_its_help(terminal: SettingsCommand, command: list[str]) -> None:
    code, printed = terminal.run(*command, "--help")
    assert code == 0
    assert f"fingerpost {' '.join(command)}" in printed.partition("Examples:")[2]
