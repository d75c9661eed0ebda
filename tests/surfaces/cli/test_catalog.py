"""Servers and tools as a person sees them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.kit.command_line import CommandLine, tool
from tests.requirements import proves

pytestmark = pytest.mark.process


@proves("H19", "H8")
def test_every_server_is_shown_with_its_state_and_the_reason(person: CommandLine) -> None:
    person.has("time", command="mcp-server-time")
    person.has("gone", command="no-such-program")
    person.has_fault("crashing", "crash_loop")
    person.has("off", command="never", disabled=True)
    states = {entry["name"]: entry for entry in person.reads("servers")}
    assert list(states) == ["time", "gone", "crashing", "off"]
    assert (states["time"]["state"], states["time"]["tools"]) == ("ready", 2)
    assert states["time"]["protocol"] == "2026-07-28"
    assert states["time"]["connect_ms"] > 0
    assert states["gone"]["state"] == "down"
    assert "no-such-program was not found" in states["gone"]["reason"]
    assert "install it" in states["gone"]["hint"]
    assert states["crashing"]["state"] in ("down", "connecting")  # seen while it tries once more
    assert "exited" in states["crashing"]["reason"]
    assert states["off"]["state"] == "disabled"


@proves("H19", "F42")
def test_a_table_is_printed_and_the_exit_code_says_whether_anything_is_up(person: CommandLine) -> None:
    person.has("gone", command="no-such-program")
    done = person.runs("servers")
    assert done.returncode == 1
    assert "0 of 1 server up" in done.stdout
    person.has("files", [tool("read_file", "Read a file.")])
    done = person.runs("servers")
    assert done.returncode == 0
    assert "1 of 2 servers up, 1 tool" in done.stdout
    person.has("files", [tool("read_file", "Read a file.")], lifecycle="always")  # known, and started at once
    assert "1 of 2 servers up" in person.runs("servers").stdout
    assert [entry["state"] for entry in person.reads("servers")] == ["down", "ready"]
    assert "the tools of files" not in person.runs("tools").stdout


@proves("H19")
def test_tools_are_listed_searched_and_narrowed_to_one_server(person: CommandLine) -> None:
    person.has("files", [tool("read_file", "Read a file from disk."), tool("delete_file", "Delete a file.")])
    person.has("weather", [tool("forecast", "The weather of tomorrow.")])
    assert [card["key"] for card in person.reads("tools")] == [
        "files/delete_file",
        "files/read_file",
        "weather/forecast",
    ]
    assert [card["key"] for card in person.reads("tools", "weather")] == ["weather/forecast"]
    assert [card["key"] for card in person.reads("tools", "--server", "files")] == [
        "files/delete_file",
        "files/read_file",
    ]
    nothing = person.runs("tools", "submarine")
    assert nothing.returncode == 1
    shown = person.runs("tools").stdout
    assert "3 tools of 2 servers" in shown
    assert "files/delete_file" in shown
    assert "destroy" in shown


def test_an_unknown_server_is_answered_with_the_near_one(person: CommandLine) -> None:
    person.has("weather", [tool("forecast")])
    done = person.runs("tools", "--server", "wether")
    assert done.returncode == 3
    assert "Did you mean weather" in done.stderr


@proves("H19", "D1", "D14")
def test_one_tool_is_explained_with_the_source_of_every_value(person: CommandLine) -> None:
    person.has("files", [tool("read_file", "Read a file.", annotations={"readOnlyHint": True})])
    written = '[[tools]]\nmatch = "files/*"\npriority = 93\nretries = 7\nretry_on = ["timeout"]\n'
    person.writes("fingerpost.toml", written)
    for name in ("files/read_file", "read_file", "files__read_file"):
        card = person.reads("tool", name)
        assert card["key"] == "files/read_file"
    assert card["effect"]["value"] == "read"
    assert card["intelligence"]["priority"]["value"] == 93
    assert card["intelligence"]["priority"]["source"] == "written"
    assert card["definition"] == tool("read_file", "Read a file.", annotations={"readOnlyHint": True})
    shown = person.runs("tool", "read_file").stdout
    assert "written" in shown
    assert "fingerprint" in shown
    retried = [line.split() for line in shown.splitlines() if "retr" in line]
    assert [("7" in words, "timeout" in words) for words in retried] == [(True, False), (False, True)]
    assert card["retry"]["retries"] == {"value": 7, "source": "written", "reason": "written for 'files/*'"}


def test_an_unknown_tool_is_answered_with_near_names(person: CommandLine) -> None:
    person.has("files", [tool("read_file")])
    done = person.runs("tool", "raed_file")
    assert done.returncode == 1
    assert "No tool is called 'raed_file'" in done.stderr
    assert "files/read_file" in done.stderr


@proves("F19", "F22")
def test_what_is_missing_from_the_list_is_said(person: CommandLine) -> None:
    person.has("mixed", [tool("good"), {"name": "bad", "inputSchema": "not a schema"}])
    person.has("gone", command="no-such-program")
    shown = person.runs("tools").stdout
    assert "mixed/good" in shown
    assert "not listed: the tools of gone" in shown
    assert "not listed: 1 that cannot be used" in shown


@proves("F22", "F49")
def test_a_description_cannot_reach_the_terminal_with_escapes_or_secrets(person: CommandLine) -> None:
    nasty = "\x1b[2J\x1b]0;owned\x07 [bold]markup[/bold] \u202etxt.exe sk-proj-abcdefghijklmnop1234567890"
    person.has("odd", [tool("t", nasty)])
    for arguments in (("tools",), ("tool", "t"), ("doctor",)):
        done = person.runs(*arguments)
        for dangerous in ("\x1b]0", "\x1b[2J", "\x07", "\u202e", "sk-proj-abcdefghijklmnop"):
            assert dangerous not in done.stdout + done.stderr
    person.runs("pins", "accept", "odd/t", "--yes")
    assert "[bold]markup[/bold]" in person.runs("tool", "t").stdout


@proves("F49")
def test_a_secret_from_the_environment_appears_nowhere(person: CommandLine) -> None:
    canary = "canary-4f2c9a71d0"
    person.has("broken", command=sys.executable, args=["-c", "import os; raise SystemExit(os.environ['K'])"])
    person.servers["broken"]["env"] = {"K": "${CANARY}"}
    person.has("web", url="http://127.0.0.1:9/mcp", headers={"X-Api-Key": canary})
    for arguments in (
        ("servers",),
        ("servers", "--json"),
        ("doctor",),
        ("config", "show"),
        ("config", "check"),
    ):
        done = person.runs(*arguments, extra={"CANARY": canary})
        assert canary not in done.stdout + done.stderr, arguments
    store = (person.home / "store.db").read_bytes()
    assert canary.encode() not in store


def test_a_reader_that_leaves_early_is_no_error(person: CommandLine) -> None:
    # More than a pipe holds: the command is still writing when its reader is gone.
    person.has("many", [tool(f"tool_{number:04}", "word") for number in range(500)])
    command = " ".join(f"'{part}'" for part in person.cold_command("tools"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -3"],
        cwd=person.home,
        env=person.environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""


@proves("H8")
def test_a_hanging_server_does_not_keep_the_others_from_being_shown(person: CommandLine) -> None:
    person.has_fault("stuck", "silent")
    person.has("files", [tool("read_file")])
    done = person.runs("tools", "--wait", "5")
    assert "files/read_file" in done.stdout
    assert "not listed: the tools of stuck (connecting; give it longer with --wait)" in done.stdout


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    give_up = time.monotonic() + 40
    for line in process.stdout:
        yield line
        if time.monotonic() > give_up:
            return


@proves("F26", "H9")
def test_a_killed_server_is_seen_and_healed_while_watched(person: CommandLine) -> None:
    file = person.has("files", [tool("read_file")])
    with subprocess.Popen(
        person.command("servers", "--watch"),
        cwd=person.home,
        env={**person.environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        seen: list[str] = []
        killed = False
        for line in lines_of(process):
            seen.append(line.split(" ", 1)[1].strip())
            if "connecting → ready" in line:
                if killed:
                    break
                for running in psutil.process_iter(["cmdline"]):
                    if str(file) in (running.info["cmdline"] or ()):
                        running.kill()
                        killed = True
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    story = "\n".join(seen)
    assert "files: ready → down" in story, story
    assert seen[-1].startswith("server_state_changed files: connecting → ready")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_printed(person: CommandLine, shell: str) -> None:
    done = person.runs("completion", shell)
    assert done.returncode == 0
    assert "_FINGERPOST_COMPLETE" in done.stdout


def test_a_shell_asks_and_gets_the_commands(person: CommandLine) -> None:
    asked = {"_FINGERPOST_COMPLETE": "bash_complete", "COMP_WORDS": "fingerpost to", "COMP_CWORD": "1"}
    done = person.runs(extra=asked)
    assert done.stdout.split() == ["plain,tools", "plain,tool"]
