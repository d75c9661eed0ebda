"""The command where its streams are not what they should be: ordinary conditions, no bugs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kit.command_line import CommandLine, tool
from tests.requirements import proves

pytestmark = pytest.mark.process

FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is a device of Linux")
HEBREW = "מזג_אוויר"


def under(person: CommandLine, how: str, *arguments: str, **extra: str) -> subprocess.CompletedProcess[bytes]:
    """The command as installed, with the streams the shell gives it."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {how}', "sh", *person.cold_command(*arguments)],
        cwd=person.home,
        env={**person.environment, **extra},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=150,
        check=False,
    )


@proves("H19")
def test_letters_the_terminal_lacks_are_written_out(person: CommandLine) -> None:
    person.has("weather", [tool(HEBREW, "התחזית 🌧 לעיר.")])
    shown = person.runs("tools", extra={"PYTHONIOENCODING": "latin-1"})
    assert shown.returncode == 0, shown.stderr
    assert "weather/\\u05de\\u05d6\\u05d2" in shown.stdout


@proves("H19")
@FULL
@pytest.mark.parametrize("arguments", [("keys", "list"), ("ask", "hello")])
def test_a_full_disk_is_told_in_a_sentence(person: CommandLine, arguments: tuple[str, ...]) -> None:
    person.has("weather", [tool("forecast", "Tell the weather.")])
    full = under(person, ">/dev/full", *arguments)
    assert full.returncode == 3
    output = full.stderr.decode()
    assert "cannot be written: No space left on device" in output
    assert "bug" not in output
    assert "Traceback" not in output
    assert "Exception ignored" not in output


@proves("H19")
@FULL
def test_where_there_is_no_room_for_the_reason_either_the_exit_code_tells(person: CommandLine) -> None:
    assert under(person, ">/dev/full 2>/dev/full", "--help").returncode == 3


@proves("H19")
@pytest.mark.parametrize(
    ("left_out", "arguments"), [(">&-", ("keys", "list")), ("<&- >&- 2>&-", ("ask", "hello"))]
)
def test_a_stream_that_is_not_there_is_no_bug(
    person: CommandLine, left_out: str, arguments: tuple[str, ...]
) -> None:
    person.has("weather", [tool("forecast", "Tell the weather.")])
    done = under(person, left_out, *arguments)
    assert done.returncode == 0, done.stderr
    # Another file under the number of a missing stream would have got what is printed.
    assert (person.home / "store.db").read_bytes().startswith(b"SQLite format 3")


@proves("H19")
def test_without_stdin_there_is_no_request(person: CommandLine) -> None:
    asked = under(person, "<&-", "ask", "-")
    assert asked.returncode == 2
    assert "the request is missing" in asked.stderr.decode()
