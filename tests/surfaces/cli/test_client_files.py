"""Changing one entry of a client's file: nothing else in it changes, and undoing it leaves no trace."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.errors import ConfigError
from fingerpost.settings.client_files import McpClient, read_clients
from fingerpost.settings.document import as_table, to_plain_json
from fingerpost.settings.servers_file import drop_json, drop_toml, put_json, put_toml
from fingerpost.surfaces.cli.client_import import apply_change, format_change
from fingerpost.surfaces.cli.client_install import (
    ServerEntry,
    plan_install,
    plan_removal,
)
from tests.requirements import proves

ENTRY: ServerEntry = {"command": "/opt/fingerpost", "args": ["stdio", "--mode", "all"]}
CURSOR, CODEX, VSCODE = read_clients()["cursor"], read_clients()["codex"], read_clients()["vscode"]
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)

_COMMENT = re.compile(r"/\*.*?\*/|//[^\r\n]*", re.DOTALL)

_words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
_scalars = st.none() | st.booleans() | st.integers(-1000, 1000) | _words
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=8,
)
_servers = st.dictionaries(_words | st.just("other"), _values, max_size=3)
_rest = st.dictionaries(_words, _values, max_size=2)
_gaps = st.sampled_from(["", "", " ", "\n", "\n  ", "\t", " /* a, } */ ", ' // b, { "\n', "\r\n    "])


@st.composite
def configurations(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A configuration, and a text that a person may have written for it: odd spacing, comments, commas."""
    values: dict[str, Any] = draw(_rest)
    if draw(st.booleans()):
        values |= {"mcpServers": draw(_servers | _scalars), **draw(_rest)}
    if draw(st.booleans()):
        return values, json.dumps(
            values, indent=draw(st.sampled_from([None, 2, 4, "\t"])), ensure_ascii=False
        )

    def gap() -> str:
        return draw(_gaps)

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            entries: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
            members = [f"{json.dumps(key)}{gap()}:{gap()}{text(entry)}" for key, entry in entries.items()]
            return "{" + join_parts(members) + "}"
        if isinstance(value, list):
            return "[" + join_parts([text(item) for item in value]) + "]"  # pyright: ignore[reportUnknownVariableType]
        return json.dumps(value)

    def join_parts(parts: list[str]) -> str:
        end = "," if parts and draw(st.booleans()) else ""
        return f"{gap()},".join(gap() + part for part in parts) + gap() + end + gap()

    return values, gap() + text(values) + gap()


def parse(text: str) -> Any:
    return json.loads(to_plain_json(text)) if to_plain_json(text).strip() else {}


@proves("G12")
@settings(deadline=None)  # a disk may be busy
@given(configurations())
def test_installing_adds_the_entry_alone_and_undoing_gives_the_same_bytes(
    config: tuple[dict[str, Any], str],
) -> None:
    values, text = config
    assert parse(text) == values
    with TemporaryDirectory() as folder:
        file = Path(folder) / "mcp.json"
        file.write_bytes(text.encode())
        servers = as_table(values.get("mcpServers", {}))
        if servers is None:
            with pytest.raises(ConfigError, match="was not changed"):
                plan_install(CURSOR, file, "fingerpost", ENTRY)
            return
        apply_change(plan_install(CURSOR, file, "fingerpost", ENTRY), NOON)
        expected = {**values, "mcpServers": {**servers, "fingerpost": ENTRY}}
        now = file.read_bytes().decode()
        assert parse(now) == expected
        assert not Counter(_COMMENT.findall(_outside(text))) - Counter(_COMMENT.findall(_outside(now)))
        assert not plan_install(CURSOR, file, "fingerpost", ENTRY).is_needed
        apply_change(plan_removal(CURSOR, file, "fingerpost"), NOON)
        assert file.read_bytes() == text.encode()
        assert not plan_removal(CURSOR, file, "fingerpost").is_needed


def _outside(text: str) -> str:
    """The text with everything but comments blanked: a comment's sign within a string is none."""
    plain = to_plain_json(text)
    return "".join(
        character if blank == " " or character in "\r\n" else " "
        for character, blank in zip(text, plain, strict=True)
    )


@proves("G12")
@given(configurations(), st.dictionaries(st.sampled_from(["command", "url", "args"]), _scalars))
def test_without_the_backup_the_entry_can_still_be_taken_out(
    config: tuple[dict[str, Any], str], other: dict[str, Any]
) -> None:
    values, text = config
    if not isinstance(values.get("mcpServers", {}), dict):
        return
    put = put_json(text, ("mcpServers",), "fingerpost", ENTRY)
    again = put_json(put, ("mcpServers",), "fingerpost", other)  # another entry in its place
    assert parse(again)["mcpServers"]["fingerpost"] == other
    left = parse(drop_json(again, ("mcpServers",), "fingerpost"))
    assert left == {"mcpServers": {}, **values}


_toml_tables = st.dictionaries(
    st.text("abc_-", min_size=1, max_size=5),
    st.dictionaries(st.text("xyz", min_size=1, max_size=3), st.integers() | st.text("a[]#= ", max_size=6)),
    max_size=3,
)


def toml_text(tables: Mapping[str, Mapping[str, int | str]], top: str) -> str:
    lines = ["# mine", f"model = {json.dumps(top)}  # [not.a.header]", ""]
    for name, entries in tables.items():
        lines += [f"# about {name}", f"[mcp_servers.{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
        lines += ["", f"[profiles.{name}]", 'note = """', "[mcp_servers.fake]", '"""', ""]
    return "\n".join(lines)


@proves("G12")
@settings(deadline=None)
@given(_toml_tables, st.text("ab[]", max_size=5), st.booleans())
def test_a_toml_file_gets_our_table_and_keeps_everything_else(
    tables: dict[str, dict[str, int | str]], top: str, crlf: bool
) -> None:
    text = toml_text(tables, top)
    text = text.replace("\n", "\r\n") if crlf else text
    before = tomllib.loads(text)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "config.toml"
        file.write_bytes(text.encode())
        apply_change(plan_install(CODEX, file, "fingerpost", ENTRY), NOON)
        now = file.read_bytes().decode()
        servers = before.get("mcp_servers", {})
        assert tomllib.loads(now) == {**before, "mcp_servers": {**servers, "fingerpost": ENTRY}}
        assert now.startswith(text)
        changed: ServerEntry = {"url": "http://127.0.0.1:8642/mcp", "bearer_token_env_var": "FINGERPOST_KEY"}
        replaced = put_toml(now + "\n# later\n[z]\na = 1\n", ("mcp_servers",), "fingerpost", changed)
        assert tomllib.loads(replaced)["mcp_servers"]["fingerpost"] == changed
        assert "# later" in replaced
        dropped = tomllib.loads(drop_toml(replaced, ("mcp_servers",), "fingerpost"))
        assert dropped == {**before, "z": {"a": 1}}
        apply_change(plan_removal(CODEX, file, "fingerpost"), NOON)
        assert file.read_bytes() == text.encode()


@proves("G12")
@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("codex", 'mcp_servers = { other = { command = "x" } }\n'),
        ("codex", '[mcp_servers]\nfingerpost.command = "x"\n'),
        ("cursor", '{"mcpServers": []}'),
        ("cursor", '{"mcpServers": null}'),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_left_with_the_entry_to_paste(
    tmp_path: Path, client: str, text: str
) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(ConfigError, match="was not changed") as caught:
        plan_install(read_clients()[client], file, "fingerpost", ENTRY)
    assert "/opt/fingerpost" in (caught.value.hint or "")
    assert file.read_text() == text


@pytest.mark.parametrize("text", ["{", "[]", '{"a": }', "\xff\xfe", '{"mcpServers": {"a": NaN}}'])
def test_a_file_that_is_no_json_is_not_touched(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError):
        plan_install(CURSOR, file, "fingerpost", ENTRY)


@proves("G12")
def test_a_hand_written_file_keeps_its_comments_its_commas_and_its_style(tmp_path: Path) -> None:
    text = """\
// my servers
{
    "inputs": [], // none
    "servers": {
        /* the one I use */
        "git": {"command": "git-mcp"}, // fast
    },
}
"""
    file = tmp_path / "mcp.json"
    file.write_text(text)
    change = plan_install(VSCODE, file, "fingerpost", {"command": "fp"})
    assert change.after is not None
    assert change.after.decode() == text.replace(
        "// fast\n", '// fast\n        "fingerpost": {\n            "command": "fp"\n        },\n'
    )


@proves("G12")
def test_secrets_of_other_servers_are_not_shown_in_the_diff(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    servers = {"git": {"command": "x", "env": {"GIT_TOKEN": "correct-horse-battery"}}}
    file.write_text(json.dumps({"mcpServers": servers}, indent=1))
    shown = "\n".join(format_change(plan_install(CURSOR, file, "fingerpost", ENTRY), "mcp.json"))
    assert '+  "fingerpost"' in shown
    assert "correct-horse" not in shown


@proves("G12")
def test_a_new_file_is_private_and_goes_away_again_and_a_link_stays_a_link(tmp_path: Path) -> None:
    file = tmp_path / "new.json"
    assert apply_change(plan_install(CURSOR, file, "fingerpost", ENTRY), NOON) is None
    assert file.stat().st_mode & 0o777 == 0o600
    apply_change(plan_removal(CURSOR, file, "fingerpost"), NOON)
    assert not file.exists()
    real = tmp_path / "real.json"
    real.write_text('{"a": 1}')
    real.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(real)
    backup = apply_change(plan_install(CURSOR, link, "fingerpost", ENTRY), NOON)
    assert link.is_symlink()
    assert "fingerpost" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640
    assert backup is not None
    assert (backup.read_text(), backup.stat().st_mode & 0o777) == ('{"a": 1}', 0o640)
    assert backup.name == "real.json.backup-20261115-120000"


@proves("G12")
def test_a_file_that_changes_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    change = plan_install(CURSOR, file, "fingerpost", ENTRY)
    file.write_text('{"theirs": 1}')
    with pytest.raises(ConfigError, match="meanwhile"):
        apply_change(change, NOON)
    assert file.read_text() == '{"theirs": 1}'
    assert list(tmp_path.iterdir()) == [file]


@proves("G12")
def test_what_others_wrote_after_us_stays_when_we_go(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {}}')
    apply_change(plan_install(CURSOR, file, "fingerpost", ENTRY), NOON)
    data = json.loads(file.read_text())
    data["mcpServers"]["later"] = {"command": "x"}
    file.write_text(json.dumps(data))
    apply_change(plan_removal(CURSOR, file, "fingerpost"), NOON)
    assert json.loads(file.read_text()) == {"mcpServers": {"later": {"command": "x"}}}


@proves("G12")
@pytest.mark.parametrize("client", [CURSOR, CODEX])
def test_what_a_person_added_to_our_entry_outlives_a_change_of_it(tmp_path: Path, client: McpClient) -> None:
    file = tmp_path / ("mcp.json" if client is CURSOR else "config.toml")
    apply_change(
        plan_install(client, file, "fingerpost", {**ENTRY, "disabled": False, "env": {"A": "ü😀"}}), NOON
    )
    apply_change(plan_install(client, file, "fingerpost", {"url": "http://127.0.0.1:8642/mcp"}), NOON)
    text = file.read_text()
    values: Any = json.loads(text) if client is CURSOR else tomllib.loads(text)
    assert values[client.servers_path[0]]["fingerpost"] == {
        "disabled": False,
        "env": {"A": "ü😀"},
        "url": "http://127.0.0.1:8642/mcp",
    }


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(b"\xef\xbb\xbf{}")
    apply_change(plan_install(CURSOR, file, "fingerpost", ENTRY), NOON)
    assert file.read_bytes().startswith(b"\xef\xbb\xbf{\n")
    apply_change(plan_removal(CURSOR, file, "fingerpost"), NOON)
    assert file.read_bytes() == b"\xef\xbb\xbf{}"
