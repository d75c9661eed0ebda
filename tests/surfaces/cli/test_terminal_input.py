"""A question is answered by what is typed after it was shown: nothing earlier, and no piece of a line."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from tests.kit.command_line import CommandLine, tool
from tests.kit.terminal import Terminal
from tests.requirements import proves

pytestmark = pytest.mark.process

LONGEST_LINE = 100_000  # characters
RUN_IT = "[n]o: "


@pytest.fixture
def clerk(person: CommandLine) -> CommandLine:
    """Has a tool that makes folders, before which a person is asked."""
    person.has_files()
    person.writes("fingerpost.toml", "[flags]\ndense_scores = false\n")
    return person


def build_request(person: CommandLine, name: str = "drafts") -> str:
    return f'Use files/create_directory to create the directory "{person.home / name}"'


@proves("C6", "W9")
@pytest.mark.parametrize("more", [0, LONGEST_LINE, 3 * LONGEST_LINE])
def test_a_line_that_is_too_long_is_refused_whole_and_the_next_one_is_taken(
    clerk: CommandLine, more: int
) -> None:
    long = build_request(clerk).ljust(LONGEST_LINE + more) + "/approve"
    done = clerk.runs("chat", stdin=f"{long}\n{build_request(clerk, 'letters')}\n/approve\n")
    assert done.returncode == 0, done.stderr
    assert "a line may have at most 100,000 characters; this one was ignored" in done.stderr
    assert done.stderr.count("needs your approval:") == 1
    assert not (clerk.home / "drafts").exists()
    assert (clerk.home / "letters").is_dir()


@proves("C6", "W9")
def test_a_line_of_the_longest_length_is_taken(clerk: CommandLine) -> None:
    done = clerk.runs("chat", stdin=build_request(clerk).ljust(LONGEST_LINE) + "\n/approve")
    assert (clerk.home / "drafts").is_dir(), done.stderr


@proves("C6", "W9")
@pytest.mark.parametrize(
    "between", ["a" * (LONGEST_LINE + 1), "/mode react\nhello"], ids=["too long", "fails"]
)
def test_approval_is_never_for_a_call_before_the_last_request(clerk: CommandLine, between: str) -> None:
    done = clerk.runs("chat", stdin=f"{build_request(clerk)}\n{between}\n/approve\n")
    assert "error: " in done.stderr
    assert "No call waits for approval here." in done.stderr
    assert not (clerk.home / "drafts").exists()
    assert len(clerk.reads("approvals")) == 1


@proves("C6", "W9")
def test_a_carriage_return_does_not_make_two_lines_of_one(clerk: CommandLine) -> None:
    done = clerk.runs("chat", stdin=f"{build_request(clerk)}\r/approve\n")
    assert done.returncode == 0, done.stderr
    assert not (clerk.home / "drafts").exists()


@proves("C6", "W9")
@pytest.mark.parametrize("early", ["y\n", "y\ny\ny\n", "y", "y\n" * 4_000])
def test_what_was_typed_before_the_question_does_not_answer_it(clerk: CommandLine, early: str) -> None:
    with Terminal(clerk, "ask", build_request(clerk), early=early) as terminal:
        terminal.until(RUN_IT)
        terminal.types("")  # with a key from before it would be a yes
        terminal.until(RUN_IT)
        terminal.types("n")
        terminal.until("Why not?")
        terminal.types("")
        terminal.end()
    assert not (clerk.home / "drafts").exists()


@proves("C6", "W9")
def test_a_question_that_is_asked_again_is_not_answered_by_lines_that_came_with_the_first_answer(
    clerk: CommandLine,
) -> None:
    with Terminal(clerk, "ask", build_request(clerk)) as terminal:
        terminal.until(RUN_IT)
        terminal.disable_line_mode()
        terminal.presses("what?\ny\n")
        terminal.until(RUN_IT)
        terminal.presses("n\nnot today\n")
        terminal.until("Why not?")
        terminal.end()
    assert not (clerk.home / "drafts").exists()


@proves("C6", "W9")
@pytest.mark.parametrize("early", ["y", "/approve", "y\n/approve\n/approve"])
def test_in_a_conversation_the_lines_pasted_behind_a_request_do_not_approve_it(
    clerk: CommandLine, early: str
) -> None:
    with Terminal(clerk, "chat") as terminal:
        terminal.until("› ")
        terminal.presses(f"{build_request(clerk)}\n{early}\n")
        terminal.until(RUN_IT)
        terminal.types("n")
        terminal.until("Why not?")
        terminal.types("")
        terminal.until("› ")
        terminal.ends_input()
        assert terminal.end() == 0
    assert not (clerk.home / "drafts").exists()


@proves("C6", "W9")
def test_early_lines_do_not_approve_where_only_the_answers_go_into_a_file(clerk: CommandLine) -> None:
    own, other = pty.openpty()
    with subprocess.Popen(
        clerk.command("chat"),
        cwd=clerk.home,
        env=clerk.environment,
        stdin=other,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(other)
        assert process.stderr is not None
        os.write(own, f"{build_request(clerk)}\n/approve\n".encode())
        while "Decide with /approve" not in (line := process.stderr.readline()):
            assert line, "it ended before it asked"
        os.write(own, b"\x04")
        output = process.stderr.read()
    os.close(own)
    assert "Continue later" in output
    assert not (clerk.home / "drafts").exists()


@proves("W4", "W9")
def test_what_was_typed_before_a_question_back_is_no_answer_to_it(clerk: CommandLine) -> None:
    early, meant = clerk.writes("early.md", "Too early."), clerk.writes("note.md", "The lucky number is 42.")
    with Terminal(clerk, "ask", "read a text file for me", early=f"{early}\n") as terminal:
        terminal.until("Which path? (path")
        terminal.until("> ")
        terminal.types(str(meant))
        terminal.until("The lucky number is 42.")
        assert terminal.end() == 0


@proves("C6")
def test_an_early_yes_does_not_run_a_call(clerk: CommandLine) -> None:
    call = ("call", "files/create_directory", f"path={clerk.home}/drafts")
    with Terminal(clerk, *call, early="y\n") as terminal:
        terminal.until("Run it? [y/N]: ")
        terminal.types("n")
        assert terminal.end() == 1
    assert not (clerk.home / "drafts").exists()


@proves("F24")
def test_an_early_yes_does_not_trust_a_changed_tool(person: CommandLine) -> None:
    file = person.has("notes", [tool("look", "Look at a note.")])
    person.reads("tools")
    file.write_text(json.dumps([tool("look", "Look, and tell everybody.")]), encoding="utf-8")
    with Terminal(person, "pins", "accept", "notes/look", early="y\n") as terminal:
        terminal.until("Trust this definition from now on? [y/N]: ")
        terminal.types("n")
        terminal.until("Nothing changed; the tool stays hidden.")
        terminal.end()
    assert person.reads("tools") == []


@proves("W4", "W9")
def test_in_a_conversation_a_line_pasted_behind_a_request_does_not_answer_a_question_back(
    clerk: CommandLine,
) -> None:
    early, meant = clerk.writes("early.md", "Too early."), clerk.writes("note.md", "The lucky number is 42.")
    with Terminal(clerk, "chat") as terminal:
        terminal.until("› ")
        terminal.presses(f"read a text file for me\n{early}\n")
        terminal.until("Which path? (path")
        terminal.until("› ")
        terminal.types(str(meant))
        assert "Too early." not in terminal.until("The lucky number is 42.")


@proves("G12")
def test_an_early_yes_does_not_write_into_another_program(person: CommandLine) -> None:
    with Terminal(person, "install", "cursor", early="y\n") as terminal:
        terminal.until("? [y/N]: ")
        terminal.types("n")
        assert terminal.end() == 130
    assert not (person.home / ".cursor" / "mcp.json").exists()


@proves("H19")
def test_an_early_yes_does_not_import_the_servers_of_another_program(person: CommandLine) -> None:
    (person.home / ".cursor").mkdir()
    person.writes(".cursor/mcp.json", '{"mcpServers": {"clock": {"command": "mcp-server-time"}}}')
    with Terminal(person, "import", "--write", "all.json", early="y\n") as terminal:
        terminal.until("? [y/N]: ")
        terminal.types("n")
        assert terminal.end() == 130
    assert not (person.home / "all.json").exists()


@proves("C6", "W9")
def test_after_control_c_at_the_question_the_call_still_waits_and_can_be_approved(clerk: CommandLine) -> None:
    with Terminal(clerk, "chat") as terminal:
        terminal.until("› ")
        terminal.types(build_request(clerk))
        terminal.until(RUN_IT)
        terminal.presses_control_c_until("Stopped. The call still waits for approval.")
        terminal.until("Decide with /approve")
        terminal.until("› ")
        terminal.types("/approve")
        terminal.until("files/create_directory")
        terminal.until("› ")
        terminal.ends_input()
        assert terminal.end() == 0
    assert (clerk.home / "drafts").is_dir()


@proves("C6", "W9")
def test_after_control_c_a_request_says_how_its_call_is_approved(clerk: CommandLine) -> None:
    with Terminal(clerk, "ask", build_request(clerk)) as terminal:
        terminal.until(RUN_IT)
        terminal.presses_control_c_until("Stopped. The call still waits for approval.")
        assert terminal.end() == 130
    (waiting,) = clerk.reads("approvals")
    assert f"fingerpost ask --resume {waiting['pending_id']}" in terminal.shown
