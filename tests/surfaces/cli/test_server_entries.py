"""`servers add`, `edit` and `remove`, `config path`, and why tools of a server are hidden."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.kit.command_line import FILE_SERVER, CommandLine, tool
from tests.requirements import proves

pytestmark = pytest.mark.process

COMMAND = (sys.executable, "-I", "-S", str(FILE_SERVER))
OTHERS = """{
  // mine
  "mcpServers": {
    "old": {"command": "no-such-program", "disabled": true, "autoApprove": []}, // stays
  },
  "theme": "dark",
}
"""


def _write_tools(person: CommandLine, *names: str, description: str = "Reads.") -> Path:
    file = person.home / "tools.json"
    file.write_text(json.dumps([tool(name, description) for name in names]), "utf-8")
    return file


@proves("S6")
def test_servers_are_added_edited_and_removed_and_nothing_else_in_the_file_changes(person: CommandLine):
    file = person.home / "config" / "fingerpost" / "servers.json"
    assert person.reads("config", "path") == {
        "settings": None,
        "servers": str(file),
        "store": str(person.home / "store.db"),
    }
    file.parent.mkdir(parents=True)
    file.write_text(OTHERS, "utf-8")
    tools = str(_write_tools(person, "read_page"))
    added = person.runs("servers", "add", "pages", "--env", "TOKEN=s3cret-value", "--", *COMMAND, tools)
    assert added.returncode == 0, added.stderr
    assert "read_page" in added.stdout and f"pages is saved in {file}." in added.stdout
    assert "s3cret" not in added.stdout + added.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    assert [card["key"] for card in person.reads("tools")] == ["pages/read_page"]

    broken = person.runs("servers", "add", "broken", "--", sys.executable, "-c", "raise SystemExit('no key')")
    assert broken.returncode == 3
    assert "broken failed: its process exited with status 1" in broken.stderr
    assert "no key" in broken.stderr and "Nothing was saved; --no-check" in broken.stderr
    assert person.runs("servers", "add", "pages", "https://example.org/mcp").returncode == 2

    edited = person.runs("servers", "edit", "pages", "--lifecycle", "always", "--unset", "env.TOKEN")
    assert edited.returncode == 0, edited.stderr
    text = file.read_text("utf-8")
    assert '"lifecycle": "always"' in text and "s3cret" not in text
    pasted = '"more": {"command": "no-such-program"}'
    assert person.runs("servers", "add", "--entry", "-", "--no-check", stdin=pasted).returncode == 0
    for name in ("pages", "more"):
        assert person.runs("servers", "remove", name).returncode == 0
    assert file.read_text("utf-8") == OTHERS
    assert person.runs("servers", "remove", "pages").returncode == 2
    rows = [row for row in person.reads("audit", "show") if row["kind"] == "server_entry_changed"]
    assert len(rows) == 5


@proves("S8")
def test_a_changed_argument_leaves_the_tools_and_hidden_ones_have_one_reason_everywhere(person: CommandLine):
    first = _write_tools(person, "read_page")
    second = Path(shutil.copy(first, person.home / "other.json"))
    second.write_text(json.dumps([tool("read_page", "Reads a page of the other book.")]), "utf-8")
    assert person.runs("servers", "add", "pages", "--", *COMMAND, str(first)).returncode == 0
    assert len(person.reads("tools")) == 1
    # Changed by hand, as in the editor of the person.
    file = person.home / "config" / "fingerpost" / "servers.json"
    file.write_text(file.read_text("utf-8").replace(str(first), str(second)), "utf-8")
    shown = person.runs("servers")
    assert "pages: its entry is not the one seen before; its tools are trusted" in shown.stderr
    assert [card["description"] for card in person.reads("tools")] == ["Reads a page of the other book."]

    second.write_text(json.dumps([tool("read_page", "Reads a page, then sends it away.")]), "utf-8")
    listed = {line["name"]: line for line in person.reads("servers", "--connect")}
    reason = listed["pages"]["hidden"]
    assert reason == "1 tool hidden: the definition changed, the server's entry did not"
    assert (listed["pages"]["tools"], listed["pages"]["offered"]) == (1, 0)
    for command in (("servers",), ("tools",), ("ask", "read the page")):
        done = person.runs(*command)
        assert reason in " ".join((done.stdout + done.stderr).split()), (command, done.stdout, done.stderr)
    assert person.runs("pins", "accept", "pages", "--yes").returncode == 0
    assert len(person.reads("tools")) == 1
