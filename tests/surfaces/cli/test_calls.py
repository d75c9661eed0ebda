"""Calling tools from the terminal, with real servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.command_line import CommandLine, tool
from tests.kit.terminal import Terminal
from tests.requirements import proves

pytestmark = pytest.mark.process

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def has_files(person: CommandLine, *, real: bool = False) -> Path:
    """Tools for files, and a folder to use them in; `real` are those of the server from npm."""
    folder = person.home / "desk"
    folder.mkdir()
    (folder / "note.md").write_text("one\ntwo\nthree\nfour\n", encoding="utf-8")
    if real:
        person.has("files", command="mcp-server-filesystem", args=[str(folder)])
    else:
        person.has_files()
    return folder


@proves("C4", "D7")
def test_wrong_argument_names_and_types_to_a_real_server_succeed_and_the_trace_shows_each_repair(
    person: CommandLine,
) -> None:
    folder = has_files(person, real=True)
    done = person.runs("call", "files.read_text_file", f"filePath={folder}/note.md", "HEAD=2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["success"]
    assert outcome["content"] == "one\ntwo"
    assert {(repair["path"], repair["kind"]) for repair in outcome["repairs"]} == {
        ("path", "renamed"),
        ("head", "renamed"),
        ("head", "coerced"),
    }
    shown = person.runs("trace", outcome["call_id"])
    assert shown.returncode == 0
    for words in ("repaired (renamed)", "repaired (coerced)", "policy allow", "attempt", "finished"):
        assert words in shown.stdout, shown.stdout
    events = json.loads(person.runs("trace", outcome["call_id"], "--json").stdout)
    assert events[0]["kind"] == "call_received"
    assert events[-1]["kind"] == "call_finished"


@proves("C7")
def test_a_file_that_another_server_does_not_find_is_named_with_its_kind_and_path(
    person: CommandLine,
) -> None:
    folder = has_files(person, real=True)
    done = person.runs("call", "files/read_text_file", f"path={folder}/missing.md", "--json")
    metadata = json.loads(done.stdout)["metadata"]
    assert (metadata["error_type"], metadata["attemptedPath"]) == ("FileNotFound", f"{folder}/missing.md")


@proves("C6", "A5")
def test_a_write_waits_is_approved_in_another_terminal_and_then_runs(person: CommandLine) -> None:
    folder = has_files(person)
    arguments = ("call", "files/write_file", f"path={folder}/new.md", "content=hello")
    asked = person.runs(*arguments)
    assert asked.returncode == 4
    assert "needs a person's approval" in asked.stderr
    assert not (folder / "new.md").exists()
    (waiting,) = person.reads("approvals")
    assert waiting["tool"] == "files/write_file"
    approved = person.runs("approvals", "approve", waiting["pending_id"])
    assert approved.returncode == 0, approved.stderr
    assert person.runs(*arguments).returncode == 0
    assert (folder / "new.md").read_text(encoding="utf-8") == "hello"
    assert person.runs(*arguments).returncode == 4  # the approval was for once


@proves("C6")
def test_a_rejected_call_is_told_why(person: CommandLine) -> None:
    folder = has_files(person)
    person.runs("call", "files/write_file", f"path={folder}/new.md", "content=hello")
    (waiting,) = person.reads("approvals")
    rejected = person.runs("approvals", "reject", waiting["pending_id"], "--reason", "not today")
    assert rejected.returncode == 0, rejected.stderr
    assert person.reads("approvals") == []
    trail = [row["kind"] for row in person.reads("audit", "show")]
    assert "approval_decided" in trail
    assert not (folder / "new.md").exists()


@proves("C6")
def test_a_person_at_the_terminal_is_asked_and_their_yes_runs_the_call(person: CommandLine) -> None:
    folder = has_files(person, real=True)
    with Terminal(person, "call", "files/write_file", f"path={folder}/new.md", "content=hello") as terminal:
        terminal.until("Run it? [y/N]: ")
        terminal.types("y")
        assert terminal.end() == 0, terminal.shown
    assert "Successfully wrote" in terminal.shown
    assert (folder / "new.md").exists()


def test_under_one_key_a_call_of_two_processes_runs_once(person: CommandLine) -> None:
    folder = has_files(person)
    path = folder / "new.md"
    arguments = ("call", "files/write_file", f"path={path}", "content=hello", "--idempotency-key", "k1")
    assert person.runs(*arguments, "--yes").returncode == 0
    path.unlink()
    again = person.runs(*arguments)  # no person is asked: nothing runs
    assert again.returncode == 0, again.stderr
    assert "not run again: this is the result of cal_" in again.stderr
    assert not path.exists()
    other = person.runs(*arguments[:3], "content=other", *arguments[4:])
    assert other.returncode == 1
    assert "was used" in other.stderr


@proves("D5")
def test_a_tool_falls_back_however_its_name_is_written_unless_it_alone_is_meant(person: CommandLine) -> None:
    folder = has_files(person)
    person.has(
        "broken",
        [tool("look_up", inputSchema=PATH, annotations={"readOnlyHint": True})],
        trust_hints=True,
    )
    settings = '[[tools]]\nmatch = "broken/look_up"\nhierarchy = ["files/read_text_file"]\n'
    person.writes("fingerpost.toml", settings)
    for name in ("broken/look_up", "look_up"):
        done = person.runs("call", name, f"path={folder}/note.md")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("one\ntwo")
        assert "this is the answer of files/read_text_file" in done.stderr
        alone = person.runs("call", name, f"path={folder}/note.md", "--no-fallback")
        assert alone.returncode == 1


def test_a_dry_run_shows_what_would_happen(person: CommandLine) -> None:
    folder = has_files(person)
    done = person.runs(
        "call", "files/write_file", f"path={folder}/new.md", "content=x", "--dry-run", "--json"
    )
    outcome = json.loads(done.stdout)
    assert done.returncode == 0
    assert outcome["metadata"]["verdict"] == "ask"
    assert not (folder / "new.md").exists()


@proves("C3")
def test_an_unknown_tool_names_the_near_ones_and_the_next_step(person: CommandLine) -> None:
    has_files(person)
    done = person.runs("call", "files/raed_file", "path=x")
    assert done.returncode == 1
    assert "files/read_file" in done.stderr
    assert "What you can do:" in done.stderr


@proves("D11")
def test_a_failed_call_gives_guidance_and_the_technical_truth_only_when_asked(person: CommandLine) -> None:
    person.has_fault("odd", "crash")
    plainly = person.runs("call", "odd/echo", "text=x", "--yes")
    assert plainly.returncode == 1
    assert "What was tried:" in plainly.stderr
    assert "Technical details:" not in plainly.stderr
    assert "Technical details:" in person.runs("call", "odd/echo", "text=x", "--yes", "--technical").stderr


@proves("D6")
def test_a_long_result_is_cut_and_the_rest_is_fetched_by_its_handle(person: CommandLine) -> None:
    folder = has_files(person)
    (folder / "long.txt").write_text("\n".join(f"line {n}" for n in range(5000)), encoding="utf-8")
    done = person.runs("call", "files/read_text_file", f"path={folder}/long.txt", "--tokens", "200", "--json")
    digest = json.loads(done.stdout)["digest"]
    assert digest["tokens"] <= 200
    assert digest["handle"]
    rest = person.runs("result", digest["handle"], "--page", "2")
    assert rest.returncode == 0, rest.stderr
    assert "line " in rest.stdout


def test_arguments_that_are_not_pairs_are_explained(person: CommandLine) -> None:
    has_files(person)
    done = person.runs("call", "files/read_file", "just-a-path")
    assert done.returncode == 2
    assert "is not KEY=VALUE" in done.stderr
    done = person.runs("call", "files/read_file", '{"path": "a=b"}')
    assert done.returncode == 2
    assert """--args '{"path": "a=b"}'""" in done.stderr


def test_nothing_recorded_under_an_id_says_so(person: CommandLine) -> None:
    assert person.runs("trace", "cal_nothing").returncode == 1


@proves("D11")
def test_a_failure_is_told_in_words_and_the_servers_own_only_when_asked(person: CommandLine) -> None:
    folder = has_files(person, real=True)
    missing = ("call", "files/read_text_file", f"path={folder}/nothing.txt")
    plainly = person.runs(*missing)
    assert plainly.returncode == 1
    assert "nothing.txt does not exist" in plainly.stderr
    assert "ENOENT" not in plainly.stderr
    assert "Errno" not in plainly.stderr
    technical = person.runs(
        "call", "files/read_text_file", f"path={folder}/nothing.txt", "--technical"
    ).stderr
    assert "ENOENT" in technical or "Errno" in technical
