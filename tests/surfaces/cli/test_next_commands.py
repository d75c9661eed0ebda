"""The commands that messages suggest work as printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.kit.command_line import CommandLine, tool
from tests.requirements import proves

pytestmark = pytest.mark.process

LOOK = tool("look", "Look at a note.", annotations={"readOnlyHint": True})
WRITE = tool("write", "Write a note.", annotations={"readOnlyHint": False, "destructiveHint": False})


def find_commands(text: str) -> list[list[str]]:
    """Every command in a text, as a shell would read it, without the program."""
    return [shlex.split(command)[1:] for command in re.findall(r"`(fingerpost [^`]*)`", text)]


@pytest.fixture
def clerk(tmp_path: Path) -> CommandLine:
    """A person whose folder has a space in its name."""
    home = tmp_path / "my desk"
    home.mkdir()
    person = CommandLine(home)
    person.has("notes", [LOOK, WRITE])
    return person


def has_files(person: CommandLine) -> str:
    """A server with folders, and a request it can be made to serve without any model."""
    folder = person.home / "drafts"
    person.has_files()
    return f'Use files/create_directory to create the directory "{folder}"'


@proves("W9", "W2")
def test_a_request_that_waits_is_gone_on_with_by_the_commands_it_prints(clerk: CommandLine) -> None:
    clerk.writes("my.toml", "")
    asked = clerk.runs("ask", has_files(clerk), "--server", "files", "--config", "my.toml")
    assert asked.returncode == 4, asked.stderr
    approve, resume = find_commands(asked.stderr)
    files = ["--config", "my.toml", "--servers", str(clerk.home / "mcp.json")]
    assert approve[-4:] == resume[-4:] == files
    assert clerk.runs(*approve).returncode == 0
    gone_on = clerk.runs(*resume)
    assert gone_on.returncode == 0, gone_on.stderr
    assert (clerk.home / "drafts").is_dir()


@proves("C6")
def test_a_call_that_waits_says_what_to_do_when_it_is_approved(clerk: CommandLine) -> None:
    has_files(clerk)
    call = ("call", "files/create_directory", f"path={clerk.home}/drafts")
    waiting = clerk.runs(*call)
    assert waiting.returncode == 4
    approve, resume = find_commands(waiting.stderr)
    approved = clerk.runs(*approve)
    assert approved.returncode == 0
    assert find_commands(approved.stdout) == [resume]
    assert clerk.runs(*resume).returncode == 0
    assert (clerk.home / "drafts").is_dir()


@proves("F24", "H21", "D11")
def test_a_changed_tool_is_led_to_its_review_from_wherever_one_meets_it(clerk: CommandLine) -> None:
    clerk.runs("tools")
    clerk.has("notes", [tool("look", "Look, and tell everybody.", annotations={"readOnlyHint": True})])
    for command in (("call", "notes/look"), ("tool", "look"), ("why", "look", "a note"), ("doctor",)):
        done = clerk.runs(*command)
        shown = " ".join((done.stdout + done.stderr).split())
        assert "its definition changed since it was first seen" in shown, command
        assert "Add a server" not in shown
        diff, accept = (each[:3] for each in find_commands(shown))
        assert (diff, accept) == (["pins", "diff", "notes/look"], ["pins", "accept", "notes/look"])
    assert clerk.runs(*find_commands(clerk.runs("doctor").stdout)[0]).returncode == 1  # it shows what changed


@proves("H21", "C3")
def test_a_tool_that_is_switched_off_says_by_what_and_the_doctor_mentions_it(clerk: CommandLine) -> None:
    clerk.writes("fingerpost.toml", '[[tools]]\nmatch = "notes/look"\nenabled = false\n')
    by = "[[tools]] with match = 'notes/look' says enabled = false"
    for command in (("call", "notes/look"), ("tool", "notes/look")):
        done = clerk.runs(*command)
        assert done.returncode == 1
        assert by in done.stderr
        assert "enabled = true" in done.stderr
    doctor = clerk.runs("doctor")
    assert doctor.returncode == 0
    assert "No problems found." in doctor.stdout
    assert by in doctor.stdout
    clerk.writes("fingerpost.toml", '[[tools]]\nmatch = "notes/*"\nenabled = false\n')
    (finding,) = clerk.reads("doctor")
    assert (finding["severity"], finding["subject"]) == ("advice", "2 tools")
    assert finding["detail"] == ["notes/look", "notes/write"]


@proves("H21", "F42")
def test_a_tool_of_a_server_that_is_down_or_disabled_says_so(clerk: CommandLine) -> None:
    clerk.has("gone", command="no-such-program")
    clerk.has("off", command="anything", disabled=True)
    down = clerk.runs("call", "gone/look")
    assert "its server gone is down" in down.stderr
    assert find_commands(down.stderr)[0][0] == "doctor"
    for command in (("call", "off/look"), ("tool", "off/look")):
        assert "its server off is disabled in the configuration" in clerk.runs(*command).stderr
    (mentioned,) = (one for one in clerk.reads("doctor") if one["subject"] == "server off")
    assert mentioned["severity"] == "advice"


@proves("U14", "D11")
def test_a_call_outside_of_a_profile_names_the_profile_and_no_rule(clerk: CommandLine) -> None:
    clerk.writes("fingerpost.toml", '[profiles.ro]\neffects = ["read"]\n')
    denied = clerk.runs("call", "notes/write", "--profile", "ro")
    assert denied.returncode == 1
    assert "[[policy]]" not in denied.stderr
    assert "of the profile ro" in denied.stderr
    (show,) = find_commands(denied.stderr)
    assert clerk.runs(*show).returncode == 0


@proves("H21", "F42")
def test_what_an_error_says_to_run_works_as_it_is_printed(clerk: CommandLine) -> None:
    clerk.has("gone", command="no-such-program")
    failed = clerk.runs("ask", "look at my note", "--server", "gone")
    assert failed.returncode == 3
    (doctor,) = find_commands(failed.stderr)
    assert doctor == ["doctor", "--servers", str(clerk.home / "mcp.json")]
    assert "gone" in clerk.runs(*doctor).stdout


def test_a_pin_is_forgotten_without_any_server(clerk: CommandLine) -> None:
    clerk.runs("tools")
    clerk.servers.clear()  # no --servers from here on
    forgotten = clerk.runs("pins", "forget", "notes/look")
    assert forgotten.returncode == 0, forgotten.stderr


@proves("W9", "C6")
def test_a_slip_in_an_edited_name_is_said_in_a_conversation_too(clerk: CommandLine) -> None:
    request, meant = has_files(clerk), clerk.home / "letters"
    lines = (request, f"/approve edit paht='{meant}'", f"/approve edit path='{meant}'")
    done = clerk.runs("chat", "--server", "files", stdin="\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert "files/create_directory takes no 'paht'; it takes: path" in done.stderr
    assert meant.is_dir()
    assert not (clerk.home / "drafts").exists()


def test_our_options_stand_before_the_command_of_a_server(tmp_path: Path) -> None:
    person = CommandLine(tmp_path)
    settings = person.writes("mine.toml", "")
    commands = find_commands(person.runs("status", "--config", str(settings)).stdout)
    assert ["servers", "add", "NAME", "--config", str(settings), "--", "COMMAND"] in commands
