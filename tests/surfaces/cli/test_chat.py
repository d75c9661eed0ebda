"""`fingerpost chat`: lines from a pipe and from a terminal, with a model and real servers beside it."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.kit.command_line import CommandLine, tool
from tests.kit.strong_model import StrongModel, beside, runs
from tests.kit.terminal import Terminal
from tests.requirements import proves

pytestmark = pytest.mark.process

OSLO = "what time is it in Oslo right now?"
WRITE = 'write a new file new.md with the content "hello"'


@pytest.fixture
def clerk(person: CommandLine) -> CommandLine:
    folder = person.home / "desk"
    folder.mkdir()
    person.has("time", command="mcp-server-time", args=["--local-timezone", "Etc/UTC"])
    person.has_files()
    person.writes("fingerpost.toml", "[flags]\ndense_scores = false\n")
    return person


@pytest.fixture
def visitor(person: CommandLine) -> CommandLine:
    """Has one small server, which starts at once."""
    person.has("calendar", [tool("list_events", "List calendar events.")])
    person.writes("fingerpost.toml", "[flags]\ndense_scores = false\n")
    return person


def clever(person: CommandLine) -> StrongModel:
    """Knows the clock and the folder, and says what it was asked last."""

    def select(read: str) -> dict[str, Any] | None:
        if "new.md" in read:
            path = str(person.home / "desk" / ("other.md" if "other.md" in read else "new.md"))
            return {"tool": "files__write_file", "arguments": {"path": path, "content": "hello"}}
        if "Oslo" in read:
            return {"tool": "time__get_current_time", "arguments": {"timezone": "Europe/Oslo"}}
        return None

    def answer(read: str) -> str:
        if "hello again" in read:
            return "You have said hello before."
        if "new.md" in read:
            return "files/write_file has written it."
        return "It is noon, says time/get_current_time." if "Oslo" in read else "Hello yourself."

    return StrongModel(select=select, answer=answer)


@proves("B12", "W9")
async def test_lines_from_a_pipe_are_one_conversation(visitor: CommandLine) -> None:
    model = clever(visitor)
    async with beside(visitor, model):
        done = await runs(visitor, "chat", stdin="hello\n\nhello again\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Hello yourself.\nYou have said hello before.\n"
    assert "Hello yourself." in json.dumps(model.about("answer")[-1]["messages"])


@proves("W9")
async def test_one_can_ask_what_was_offered_why_and_how_it_went(clerk: CommandLine) -> None:
    lines = [OSLO, "/tools", "/why", "/why files/read_text_file", "/why nothing_at_all", "/trace", "/model"]
    async with beside(clerk, clever(clerk)):
        more = ["/prefer", "/prefer quick", "/prefer lazy", "/mode", "/mode single", "/help", "/tolls"]
        done = await runs(clerk, "chat", stdin="\n".join([*lines, *more]))
        kept = await runs(clerk, "prefer")
    assert done.returncode == 0, done.stderr
    for words in (
        "It is noon, says time/get_current_time.",
        "offered for the last request: time/get_current_time",
        "tools of 2 servers",
        "Tool needed?   Yes",
        "files/read_text_file is",
        "No tool is called 'nothing_at_all'.",
        f"asked {OSLO}",
        "prime: strong",
        "gets the usual answers",
        "gets quick answers",
        "mode auto",
        "mode single",
        "/save FILE",
        "Stop the answer.",
    ):
        assert words in done.stdout, done.stdout
    assert "Unknown command /tolls. Did you mean /tools?" in done.stderr
    assert "There is no preference lazy. There are: quick, thorough, usual." in done.stderr
    assert "gets quick answers" in kept.stdout


@proves("E5", "W9")
async def test_a_conversation_may_change_its_subject_and_why_tells_what_was_offered_for_it(
    person: CommandLine,
) -> None:
    person.has("clock", [tool("get_current_time", "The current time in a city or time zone.")])
    person.has("sqlite", [tool("list_tables", "List the tables of the database.")])
    for number in range(4):
        person.has(
            f"box{number}", [tool(f"box{number}_{n}", f"Shelf {n} of box {number}.") for n in range(3)]
        )
    person.writes("fingerpost.toml", '[flags]\ndense_scores = false\n[smart_routing]\nmode = "on"\n')
    why = "/why sqlite/list_tables"
    lines = [
        "What time is it in Tokyo right now?",
        why,
        "Which tables does the database have?",
        why,
        "/tools",
    ]
    done = await runs(person, "chat", "--mode", "keyless", stdin="\n".join(lines))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("sqlite/list_tables is offered, number 1", maxsplit=1)
    assert "sqlite/list_tables is not offered" in first, done.stdout
    assert "offered for the last request: sqlite/list_tables" in second


@proves("C6", "W9")
async def test_a_line_approves_what_waits_and_another_request_never_does(clerk: CommandLine) -> None:
    file = clerk.home / "desk" / "new.md"
    async with beside(clerk, clever(clerk)):
        asked = await runs(clerk, "chat", stdin=f"{WRITE}\nyes\n")
        assert "files/write_file needs your approval" in asked.stderr
        assert not file.exists()
        decided = ("/approve", WRITE, "/approve maybe", "/approve no not today", "/approve")
        again = (WRITE, "/approve edit content='good day'")
        done = await runs(clerk, "chat", stdin="\n".join((*decided, *again)))
    assert done.stderr.count("No call waits for approval here.") == 2  # before the request, and after the no
    assert "Type /approve" in done.stderr
    assert done.stdout.endswith("files/write_file has written it.\n"), done.stderr
    assert file.read_text(encoding="utf-8") == "good day"


@proves("W9")
async def test_control_c_stops_the_answer_and_the_conversation_goes_on(visitor: CommandLine) -> None:
    model = StrongModel(answer="And so on for ever and ever", stops_after=2)
    async with beside(visitor, model):
        process = await anyio.open_process(
            visitor.command("chat"), cwd=visitor.home, env=visitor.environment, stderr=subprocess.PIPE
        )
        async with process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            await process.stdin.send(b"hello\n")
            with anyio.fail_after(40):
                await model.halfway.wait()
                begun = b""
                while len(begun) < 12:
                    begun += await process.stdout.receive()
                assert begun == b"And so on fo"
                process.send_signal(signal.SIGINT)
                await model.gone.wait()
                model.stops_after = None
                await process.stdin.send(b"hello\n")
                await process.stdin.aclose()
                output = b"".join([piece async for piece in process.stdout])
                noted = b"".join([piece async for piece in process.stderr])
                assert await process.wait() == 0, noted
    assert output == b"\nAnd so on for ever and ever\n"
    assert b"stopped" in noted
    assert "And so on fo" not in json.dumps(model.asked[-1]["messages"])  # what was stopped was not said


@proves("B12")
async def test_a_conversation_survives_a_restart_and_another_begins_from_nothing(
    visitor: CommandLine,
) -> None:
    model = clever(visitor)
    async with beside(visitor, model):
        await runs(visitor, "chat", "--conversation", "hall", stdin="hello\n")
        later = await runs(
            visitor, "chat", "--conversation", "hall", stdin="hello again\n/new\nhello again\n"
        )
    assert "2 messages so far" in later.stderr
    remembered, fresh = (json.dumps(body["messages"]) for body in model.about("answer")[-2:])
    assert "Hello yourself." in remembered
    assert "Hello yourself." not in fresh


async def test_a_conversation_is_saved_for_its_owner_and_never_over_something_else(
    visitor: CommandLine,
) -> None:
    taken = visitor.writes("taken.md", "mine")
    async with beside(visitor, clever(visitor)):
        done = await runs(visitor, "chat", stdin="hello\n/save talk.md\n/save taken.md\n/save\n")
    saved = visitor.home / "talk.md"
    text = saved.read_text(encoding="utf-8")
    assert text == "**You**\n\nhello\n\n**Fingerpost**\n\nHello yourself.\n"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert taken.read_text(encoding="utf-8") == "mine"
    assert "taken.md cannot be written: File exists" in done.stderr
    assert "Name a file: /save FILE" in done.stderr


@proves("W4")
def test_without_a_model_a_line_answers_the_question_before_it(clerk: CommandLine) -> None:
    note = clerk.home / "desk" / "note.md"
    note.write_text("The lucky number is 42.\n", encoding="utf-8")
    read = "read a text file for me"
    other = "what time is it in Tokyo right now?"  # the person may ask for something else instead
    done = clerk.runs("chat", stdin="\n".join((read, other, read, str(note))))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Which path? (path") == 2
    assert "Asia/Tokyo" in done.stdout
    assert "The lucky number is 42." in done.stdout


async def test_a_failure_is_explained_and_the_conversation_goes_on(visitor: CommandLine) -> None:
    done = await runs(visitor, "chat", stdin="/mode react\nhello\n/mode keyless\nhello\n")
    assert done.returncode == 0, done.stderr
    assert "needs a language model" in done.stderr
    assert done.stdout.count("\n") >= 3  # both modes, and a greeting


@proves("W9")
async def test_at_a_terminal_lines_are_edited_calls_approved_and_control_d_ends_it(
    clerk: CommandLine,
) -> None:
    file = clerk.home / "desk" / "new.md"

    def sit_down() -> int:
        with Terminal(clerk, "chat") as terminal:
            terminal.until("› ")
            terminal.presses_control_c_until("To end the chat")
            terminal.types(WRITE)
            terminal.until("[n]o: ")
            terminal.types("c")
            terminal.until("files/write_file has written it.")
            terminal.until("› ")
            terminal.types(WRITE)  # allowed for the conversation: not asked again
            terminal.until("files/write_file has written it.")
            terminal.until("› ")
            terminal.ends_input()
            return terminal.end()

    async with beside(clerk, clever(clerk)):
        assert await anyio.to_thread.run_sync(sit_down) == 0
    assert file.read_text(encoding="utf-8") == "hello"


def test_a_conversation_is_not_for_programs(visitor: CommandLine) -> None:
    done = visitor.runs("chat", "--json")
    assert done.returncode == 2
    assert "fingerpost ask --json" in done.stderr
