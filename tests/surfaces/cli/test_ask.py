"""`fingerpost ask` as a person and a program use it: real servers, with and without a model."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.kit.command_line import CommandLine, tool
from tests.kit.strong_model import StrongModel, beside, runs
from tests.kit.terminal import Terminal
from tests.requirements import proves
from tests.test_public_api import HEAVY, list_loaded_packages

pytestmark = pytest.mark.process

WORDS_ALONE = "[flags]\ndense_scores = false\n"


@pytest.fixture
def clerk(person: CommandLine) -> CommandLine:
    """Has a real clock, and a folder."""
    folder = person.home / "desk"
    folder.mkdir()
    (folder / "note.md").write_text("The lucky number is 42.\n", encoding="utf-8")
    person.has("time", command="mcp-server-time", args=["--local-timezone", "Etc/UTC"])
    person.has_files()
    person.writes("fingerpost.toml", WORDS_ALONE)
    return person


@pytest.fixture
def visitor(person: CommandLine) -> CommandLine:
    """Has one small server, which starts at once."""
    person.has("calendar", [tool("list_events", "List calendar events.")])
    person.writes("fingerpost.toml", WORDS_ALONE)
    return person


def clock(read: str) -> dict[str, Any] | None:
    if "Europe/Oslo" in read or "Oslo" in read:
        return {"tool": "time__get_current_time", "arguments": {"timezone": "Europe/Oslo"}}
    return None


def writer(folder: Path) -> StrongModel:
    """Writes a file when asked to."""
    return StrongModel(
        select=lambda _: {
            "tool": "files__write_file",
            "arguments": {"path": str(folder / "new.md"), "content": "hello"},
        },
        answer=lambda read: (
            "It was not written, because you want another folder."
            if 'Their reason: "use another folder"' in read
            else "It is written, says files/write_file."
        ),
    )


def find_pending_id(shown: str) -> str:
    """The id under which a call waits, from the words that say how to go on."""
    found = re.search(
        r"`fingerpost approvals approve (\w+)[^`]*`, then continue with `fingerpost ask --resume \1[^`]*`",
        shown,
    )
    assert found is not None, shown
    return found[1]


FILES = ("--server", "files")  # one server less to start
WRITE = 'write a new file new.md with the content "hello"'


@proves("W4")
def test_without_a_model_a_tool_answers_and_the_output_says_so(clerk: CommandLine) -> None:
    done = clerk.runs("ask", "what time is it in Tokyo right now?")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Asia/Tokyo" in done.stdout
    assert "No language model" in done.stdout
    assert "time/get_current_time · no model used" in done.stderr


@proves("W4")
def test_a_greeting_calls_nothing(visitor: CommandLine) -> None:
    route = visitor.reads("ask", "hello!")
    assert route["outcome"] == "answered"
    assert route["sources"] == []
    assert route["steps"] == []


@proves("W9", "W4")
def test_a_question_back_is_an_exit_code_and_the_conversation_takes_the_answer(clerk: CommandLine) -> None:
    there = ("--conversation", "desk", *FILES)
    asked = clerk.runs("ask", "read a text file for me", *there)
    assert asked.returncode == 5, asked.stdout + asked.stderr
    assert asked.stdout == ""
    assert "Which path? (path" in asked.stderr
    assert 'fingerpost ask --conversation desk "…"' in asked.stderr
    done = clerk.runs("ask", str(clerk.home / "desk" / "note.md"), *there)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The lucky number is 42." in done.stdout


@proves("W9")
def test_at_a_terminal_the_question_is_asked_and_the_answer_goes_on(clerk: CommandLine) -> None:
    with Terminal(clerk, "ask", "read a text file for me", *FILES) as terminal:
        terminal.until("Which path? (path")
        terminal.until("> ")
        terminal.types(str(clerk.home / "desk" / "note.md"))
        terminal.until("The lucky number is 42.")
        assert terminal.end() == 0


@proves("A10", "W9")
async def test_the_answer_streams_to_stdout_and_nothing_else_does(clerk: CommandLine) -> None:
    model = StrongModel(select=clock, answer="It is noon in Oslo, says time/get_current_time. \x1b[31mRed?")
    async with beside(clerk, model):
        done = await runs(clerk, "ask", "what time is it in Oslo right now?")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "It is noon in Oslo, says time/get_current_time. \\x1b[31mRed?\n"
    assert "time/get_current_time · by strong-1" in done.stderr
    (answered,) = model.about("answer")
    assert answered["stream"] is True
    assert "Europe/Oslo" in json.dumps(answered["messages"])  # the tool's reply is its input


@proves("W9")
async def test_control_c_stops_the_answer_and_the_model_hears_of_it(clerk: CommandLine) -> None:
    model = StrongModel(select=clock, answer="It is noon in Oslo, and so on for ever", stops_after=2)
    async with beside(clerk, model):
        process = await anyio.open_process(
            clerk.command("ask", "what time is it in Oslo right now?"),
            cwd=clerk.home,
            env=clerk.environment,
            stdin=subprocess.DEVNULL,
        )
        async with process:
            assert process.stdout is not None
            with anyio.fail_after(40):
                await model.halfway.wait()
                output = b""
                while len(output) < 10:  # it is there while the model is still writing
                    output += await process.stdout.receive()
            assert output == b"It is noon"  # the guard holds a word back until it is known
            process.send_signal(signal.SIGINT)
            with anyio.fail_after(40):
                assert await process.wait() == 130
                await model.gone.wait()


@proves("C6", "A5", "W9", "W2")
async def test_a_write_waits_and_goes_on_in_another_process_after_it_was_approved(clerk: CommandLine) -> None:
    folder = clerk.home / "desk"
    model = writer(folder)
    async with beside(clerk, model):
        asked = await runs(clerk, "ask", *FILES, WRITE)
        assert asked.returncode == 4, asked.stdout + asked.stderr
        assert asked.stdout == ""
        assert "files/write_file" in asked.stderr
        assert "content  hello" in asked.stderr
        name = find_pending_id(asked.stderr)
        assert not (folder / "new.md").exists()
        assert (await runs(clerk, "approvals", "approve", name)).returncode == 0
        selections = len(model.about("selection"))
        done = await runs(clerk, "ask", *FILES, "--resume", name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "It is written, says files/write_file.\n"
    assert (folder / "new.md").read_text(encoding="utf-8") == "hello"
    assert len(model.about("selection")) == selections  # the stored call ran, no second selection


@proves("C6")
async def test_what_was_rejected_is_not_done_and_the_model_hears_why(clerk: CommandLine) -> None:
    folder = clerk.home / "desk"
    async with beside(clerk, writer(folder)):
        name = find_pending_id((await runs(clerk, "ask", *FILES, WRITE)).stderr)
        early = await runs(clerk, "ask", *FILES, "--resume", name)
        assert (early.returncode, find_pending_id(early.stderr)) == (4, name)  # not decided yet
        await runs(clerk, "approvals", "reject", name, "--reason", "use another folder")
        done = await runs(clerk, "ask", *FILES, "--resume", name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == "It was not written, because you want another folder.\n"
    assert not (folder / "new.md").exists()


async def test_yes_approves_as_the_person_and_a_dry_run_changes_nothing(clerk: CommandLine) -> None:
    folder = clerk.home / "desk"
    async with beside(clerk, writer(folder)):
        dry = await runs(clerk, "ask", *FILES, WRITE, "--dry-run", "--json")
        assert not (folder / "new.md").exists()
        assert json.loads(dry.stdout)["pending"] is None
        done = await runs(clerk, "ask", *FILES, WRITE, "--yes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    route = json.loads(done.stdout)
    assert route["outcome"] == "answered"
    assert route["sources"] == ["files/write_file"]
    assert (folder / "new.md").exists()


@proves("W9")
async def test_json_holds_what_waits_and_the_exit_code_says_so(clerk: CommandLine) -> None:
    async with beside(clerk, writer(clerk.home / "desk")):
        done = await runs(clerk, "ask", *FILES, WRITE, "--json")
    route = json.loads(done.stdout)
    assert done.returncode == 4
    assert route["outcome"] == "waiting"
    assert route["pending"]["tool"] == "files/write_file"
    assert route["pending"]["arguments"]["content"] == "hello"


@proves("C6", "W9")
async def test_at_a_terminal_a_person_sees_the_call_edits_it_and_lets_it_run(clerk: CommandLine) -> None:
    folder = clerk.home / "desk"

    def sit_down() -> tuple[int, str, str]:
        with Terminal(clerk, "ask", *FILES, WRITE) as terminal:
            shown = terminal.until("[n]o: ")
            terminal.types("what?")  # none of the four: asked again
            terminal.until("[n]o: ")
            terminal.types("e")
            terminal.until("an empty line runs it.")
            terminal.types("content=goodbye")
            terminal.types("")
            return terminal.end(), shown, terminal.shown

    async with beside(clerk, writer(folder)):
        code, shown, rest = await anyio.to_thread.run_sync(sit_down)
    assert code == 0, rest
    assert "files/write_file needs your approval: it can overwrite files" in shown
    assert f"  path     {folder}/new.md\r\n  content  hello\r\n  because: " in shown
    assert "It is written" in rest
    assert (folder / "new.md").read_text(encoding="utf-8") == "goodbye"


@proves("C6", "C8")
async def test_at_a_terminal_the_model_hears_why_not_and_answers(clerk: CommandLine) -> None:
    folder = clerk.home / "desk"

    def sit_down() -> int:
        with Terminal(clerk, "ask", *FILES, WRITE) as terminal:
            terminal.until("[n]o: ")
            terminal.types("n")
            terminal.until("Why not?")
            terminal.types("use another folder")
            terminal.until("It was not written, because you want another folder.")
            return terminal.end()

    async with beside(clerk, writer(folder)):
        code = await anyio.to_thread.run_sync(sit_down)
    assert code == 1
    assert not (folder / "new.md").exists()
    trail = json.dumps(await anyio.to_thread.run_sync(clerk.reads, "audit", "show"))
    assert "use another folder" in trail


@proves("D10", "W9")
async def test_at_a_terminal_the_stages_are_shown_and_gone_when_the_answer_begins(clerk: CommandLine) -> None:
    model = StrongModel(select=clock, answer="It is noon in Oslo, says time/get_current_time.")

    def sit_down() -> tuple[int, str]:
        with Terminal(clerk, "ask", "what time is it in Oslo right now?") as terminal:
            terminal.until("asking strong")
            before = terminal.until("It is noon in Oslo, says time/get_current_time.")
            return terminal.end(), before

    async with beside(clerk, model):
        code, before = await anyio.to_thread.run_sync(sit_down)
    assert code == 0
    assert "\x1b[2K" in before  # the line of the stage is wiped before the answer stands there


@proves("D3", "W9")
async def test_explain_shows_how_the_answer_came_about(clerk: CommandLine) -> None:
    model = StrongModel(select=clock, answer="It is noon in Oslo, says time/get_current_time.")
    async with beside(clerk, model):
        done = await runs(clerk, "ask", "--server", "time", "--explain", "what time is it in Oslo right now?")
    assert done.returncode == 0, done.stderr
    answer, _, why = done.stdout.partition("\n")
    assert answer == "It is noon in Oslo, says time/get_current_time."
    for words in (
        "Tool needed?   Yes",
        "Chosen         time/get_current_time",
        "Review         agrees at 0.95",
        "Confidence     go at",
        "selection (strong-1)",
        "40 + 8 tokens",
        "▓",
        "model calls: 120 read, 24 written",
    ):
        assert words in why, why


@proves("B12")
async def test_a_conversation_goes_on_in_another_process(person: CommandLine) -> None:
    model = StrongModel(answer="Nice to meet you, Dana.")
    async with beside(person, model):
        first = await runs(person, "ask", "hello, my name is Dana", "--conversation", "hall")
        assert first.returncode == 0, first.stderr
        await runs(person, "ask", "hello again", "--conversation", "Hall")
        await runs(person, "ask", "thanks! and what was my name?", "--conversation", "hall")
    stranger, friend = (json.dumps(body["messages"]) for body in model.about("answer")[-2:])
    assert "my name is Dana" in friend
    assert "Nice to meet you, Dana." in friend
    assert "Dana" not in stranger  # a conversation's name is exact


async def test_a_request_comes_from_stdin(person: CommandLine) -> None:
    model = StrongModel(answer="Hello yourself.")
    async with beside(person, model):
        done = await runs(person, "ask", "-", stdin="hello\nthere\n")
    assert done.returncode == 0, done.stderr
    assert "hello\\nthere" in json.dumps(model.asked[-1]["messages"])


@proves("D11")
async def test_a_model_that_refuses_gives_guidance_and_the_details_only_when_asked(
    person: CommandLine,
) -> None:
    person.writes(
        "fingerpost.toml",
        f'{WORDS_ALONE}[models.prime]\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\nretries = 0\n',
    )
    plainly = await runs(person, "ask", "write me a poem about rain")
    assert "Traceback" not in plainly.stderr
    assert "Technical details:" not in plainly.stderr
    assert "Technical details:" in (await runs(person, "ask", "write me a poem", "--technical")).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "the request is missing"),
        (("  ",), "the request is missing"),
        (("--resume", "apr_1", "and this"), "leave the request out"),
        (("--mode", "magic", "hello"), "is not one of"),
        (("--server", "tiem", "hello"), "tiem"),
        (("--mode", "react", "hello"), "needs a language model"),
        (("--resume", "apr_nothing"), "fingerpost approvals"),
    ],
)
def test_what_cannot_be_done_is_explained(
    visitor: CommandLine, arguments: tuple[str, ...], words: str
) -> None:
    done = visitor.runs("ask", *arguments)
    assert done.returncode in (2, 3)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_without_servers_and_without_a_model_ask_explains_what_is_missing(person: CommandLine) -> None:
    done = person.runs("ask", "hello")
    assert done.returncode == 2
    assert "no servers are configured" in done.stderr


async def test_without_servers_a_model_still_answers(person: CommandLine) -> None:
    async with beside(person, StrongModel(answer="Hello yourself.")):
        done = await runs(person, "ask", "hello")
    assert (done.returncode, done.stdout) == (0, "Hello yourself.\n"), done.stderr


@proves("P9")
@pytest.mark.parametrize("command", ["ask", "chat", "compare"])
def test_the_help_of_the_commands_loads_nothing_heavy(command: str) -> None:
    loaded = list_loaded_packages(
        f"sys.argv = ['fingerpost', {command!r}, '--help']\n"
        "from fingerpost.surfaces.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as leave:\n    assert not leave.code, leave.code\n"
    )
    assert loaded & HEAVY == set()


async def test_a_reader_that_leaves_ends_the_answer_quietly(person: CommandLine) -> None:
    model = StrongModel(answer="line after line\n" * 20_000)
    async with beside(person, model):
        command = [*person.command("ask", "hello"), "|", "head", "-c", "4"]
        done = await anyio.to_thread.run_sync(
            lambda: subprocess.run(
                ["bash", "-c", " ".join(command) + "; exit ${PIPESTATUS[0]}"],
                cwd=person.home,
                env=person.environment,
                capture_output=True,
                text=True,
                timeout=50,
                check=False,
            )
        )
    assert (done.returncode, done.stdout) == (0, "line"), done.stderr
    assert "Error" not in done.stderr


@proves("W4", "D11")
def test_where_the_only_server_is_down_ask_says_that(person: CommandLine) -> None:
    person.has_fault("crashing", "crash_loop")
    done = person.runs("ask", "What time is it in Tokyo right now?")
    output = done.stdout + done.stderr
    assert "No tools can be used now: crashing" in output
    assert "add a server" not in output.lower()
