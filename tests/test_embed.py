"""Fingerpost in programs without an event loop of their own: threads, time-outs, an orderly end."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fingerpost import Settings
from fingerpost.embed import Embedded
from fingerpost.errors import ConfigError, FingerpostError, LimitReached, UnknownServer
from fingerpost.llm import ModelRequest
from fingerpost.records import Approval, Decision, ErrorKind, RouteOutcome, ServerState
from fingerpost.testing import HANG, ScriptedModel, ToolServer, calls, tool_server
from tests.kit import warm
from tests.kit.stores import place_empty_store
from tests.requirements import proves

NOTES = [
    {
        "name": "search_notes",
        "description": "Search the notes for words and list those that hold them.",
        "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "delete_note",
        "description": "Delete one note for ever.",
        "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "annotations": {"destructiveHint": True},
    },
]


def settings(folder: Path) -> Settings:
    return Settings.model_validate(
        {
            "store": {"url": place_empty_store(folder, "s.db")},
            "narrow": {"vectors": str(folder / "vectors")},
            "flags": {"dense_scores": False},
        }
    )


async def answer(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}: {arguments}"


def create_embedded(
    folder: Path, lines: list[Any] | Callable[[ModelRequest], Any] | None = None, **options: Any
) -> tuple[Embedded, ToolServer]:
    notes = tool_server("notes", NOTES, call=answer)
    model = None if lines is None else ScriptedModel(lines)
    return Embedded([notes.spec()], settings=settings(folder), prime=model, **options), notes


@proves("E8", "W8")
def test_a_program_without_an_event_loop_asks_narrows_and_calls(tmp_path: Path):
    embedded, notes = create_embedded(tmp_path, lambda _: "Two notes.")
    with embedded as fingerpost:
        (status,) = fingerpost.connect()
        assert status.state is ServerState.READY
        assert fingerpost.status() == (status,)
        assert [card.key for card in fingerpost.tools.cards] == ["notes/delete_note", "notes/search_notes"]
        found = fingerpost.narrow("search my notes for the budget")
        assert found.shortlist.offered[0].tool == "notes/search_notes"
        outcome = fingerpost.call("notes/search_notes", {"query": "budget"})
        assert outcome.success
        route = fingerpost.ask("Search my notes for the budget", mode="simple")
        assert (route.outcome, route.answer) == (RouteOutcome.ANSWERED, "Two notes.")
    assert notes.calls == [("search_notes", {"query": "budget"})]


@pytest.mark.process
def test_servers_come_from_a_file_as_other_programs_write_it(tmp_path: Path):
    entry = {"command": warm.server("mcp-server-time"), "args": ["--local-timezone", "Etc/UTC"]}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"time": entry}}))
    with Embedded(str(file), settings=settings(tmp_path)) as fingerpost:
        fingerpost.connect()
        outcome = fingerpost.call("time/get_current_time", {"timezone": "Asia/Tokyo"})
        assert outcome.success
        assert "Asia/Tokyo" in str(outcome.content)
    with pytest.raises(ConfigError):
        Embedded(tmp_path / "nowhere.json")


@proves("E8", "W8")
def test_servers_need_not_be_connected_first(tmp_path: Path):
    embedded, notes = create_embedded(tmp_path)
    with embedded as fingerpost:
        assert fingerpost.call("notes/search_notes", {"query": "budget"}).success
    assert notes.calls == [("search_notes", {"query": "budget"})]
    embedded, _ = create_embedded(tmp_path)
    with embedded as fingerpost:
        found = fingerpost.narrow("search my notes for the budget")
        assert found.shortlist.offered[0].tool == "notes/search_notes"


@proves("E8", "W8")
def test_the_answer_is_heard_in_the_thread_that_asked(tmp_path: Path):
    received: list[tuple[str, int]] = []
    embedded, _ = create_embedded(tmp_path, ["There are two notes about it."])
    with embedded as fingerpost:
        route = fingerpost.ask(
            "Search my notes for the budget",
            mode="simple",
            on_text=lambda piece: received.append((piece, threading.get_ident())),
        )
    assert "".join(piece for piece, _ in received) == route.answer
    assert {thread for _, thread in received} == {threading.get_ident()}


def test_a_listener_that_raises_ends_its_request_and_no_other(tmp_path: Path):
    def lines(request: ModelRequest) -> str:
        return "A long answer, in several pieces, that nobody wants to hear to its end."

    embedded, _ = create_embedded(tmp_path, lines)
    with embedded as fingerpost:

        def interrupt(_: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fingerpost.ask("Search my notes for the budget", mode="simple", on_text=interrupt)
        assert fingerpost.ask("Search my notes for the budget", mode="simple").answer.startswith("A long")


@proves("E8", "W8")
def test_many_threads_ask_at_once(tmp_path: Path):
    together = threading.Barrier(8)

    def echo(request: ModelRequest) -> str:
        return next(message.text for message in reversed(request.messages) if "number" in message.text)[-40:]

    embedded, _ = create_embedded(tmp_path, echo)
    with embedded as fingerpost, ThreadPoolExecutor(8) as threads:

        def ask(number: int) -> str:
            together.wait(60)
            return fingerpost.ask(f"Search my notes for number {number}!", mode="simple").answer

        answers = list(threads.map(ask, range(8)))
    for number, answer in enumerate(answers):
        assert f"number {number}!" in answer


def test_an_answer_that_takes_too_long_is_given_up(tmp_path: Path):
    answers: list[Any] = [HANG]  # until the first request was given up
    embedded, _ = create_embedded(tmp_path, lambda _: answers[-1], timeout=60)
    with embedded as fingerpost:
        with pytest.raises(LimitReached, match=r"no answer within 0\.5 s") as late:
            fingerpost.ask("Search my notes for the budget", mode="simple", timeout=0.5)
        assert late.value.hint
        answers.append("there")
        assert fingerpost.ask("Search my notes for the budget", mode="simple").answer == "there"


@proves("E8", "W8")
def test_a_dangerous_call_waits_for_a_person_and_goes_on(tmp_path: Path):
    embedded, notes = create_embedded(
        tmp_path, [calls(("notes__delete_note", {"name": "plan.md"})), "It is gone."]
    )
    with embedded as fingerpost:
        route = fingerpost.ask("Delete the note plan.md", mode="simple")
        assert route.pending is not None
        fingerpost.decide(route.pending.approve(by="dana"))
        assert fingerpost.resume(route).outcome is RouteOutcome.ANSWERED
        outcome = fingerpost.call("notes/delete_note", {"name": "old.md"})
        assert outcome.pending_id is not None
        assert fingerpost.resume_call(outcome.pending_id).error is ErrorKind.AUTHORIZATION_REQUIRED
    assert notes.calls == [("delete_note", {"name": "plan.md"})]


@proves("E8", "C6")
def test_a_call_that_waited_goes_on_in_another_process(tmp_path: Path):
    embedded, _ = create_embedded(tmp_path, [])
    with embedded as fingerpost:
        asked = fingerpost.call("notes/delete_note", {"name": "old.md"})
        assert asked.pending_id is not None
    embedded, notes = create_embedded(tmp_path, [])
    with embedded as later:
        later.decide(Approval(pending_id=asked.pending_id, decision=Decision.APPROVED, by="dana"))
        assert later.resume_call(asked.pending_id).success  # the server is not connected yet
    assert notes.calls == [("delete_note", {"name": "old.md"})]


@proves("E8", "W8")
def test_an_agent_keeps_its_conversation_and_is_switched_from_another_thread(tmp_path: Path):
    thinking = '{"thought": "easy", "action": null, "answer": "Still two."}'
    embedded, _ = create_embedded(tmp_path, ["Two notes.", thinking])
    with embedded as fingerpost:
        agent = fingerpost.agent()
        received: list[str] = []
        agent.ask("Search my notes for the budget", on_text=received.append)
        switching = threading.Thread(target=agent.agent.set_mode, args=("react",))
        switching.start()
        switching.join()
        route = agent.ask("Search my notes again: how many?")
        assert "".join(received) == "Two notes."
        assert (route.mode.value, route.answer) == ("react", "Still two.")
        assert [message.role for message in agent.history] == ["user", "assistant"] * 2
        assert agent.stats().requests == 2
        assert agent.status().mode == "react"
        agent.reset()
        assert agent.history == ()
        fingerpost.switches.set_smart_routing("off")
        assert agent.status().smart_routing == "off"


def test_errors_are_those_of_the_router(tmp_path: Path):
    embedded, _ = create_embedded(tmp_path)
    with embedded as fingerpost:
        with pytest.raises(UnknownServer):
            fingerpost.connect("nobody")
        with pytest.raises(ConfigError, match="needs a language model"):
            fingerpost.ask("Search my notes", mode="react")


def test_pending_calls_get_an_error_when_it_closes(tmp_path: Path):
    reached = threading.Event()

    def hang(_: ModelRequest) -> str:
        reached.set()
        return HANG

    failures: list[BaseException] = []
    embedded, _ = create_embedded(tmp_path, hang)
    with embedded as fingerpost:

        def wait() -> None:
            try:
                fingerpost.ask("Search my notes for the budget", mode="simple")
            except FingerpostError as error:
                failures.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert reached.wait(60)
    waiting.join(60)
    assert not waiting.is_alive()
    assert [str(error) for error in failures] == ["Fingerpost was closed before it had answered"]


def test_it_answers_only_between_its_beginning_and_its_end(tmp_path: Path):
    embedded, _ = create_embedded(tmp_path)
    with pytest.raises(ConfigError, match="not running here"):
        embedded.status()
    with embedded:
        with pytest.raises(ConfigError, match="open already"), embedded:
            pass
        assert len(embedded.status()) == 1  # other users of it keep it open
    with pytest.raises(ConfigError, match="not running here"):
        embedded.status()
    with pytest.raises(ConfigError, match="cannot be opened again"), embedded:
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "fingerpost"]
    with pytest.raises(ConfigError, match="timeout = 0"):
        create_embedded(tmp_path, timeout=0)


def test_an_error_in_the_block_closes_everything_and_stays_itself(tmp_path: Path):
    embedded, _ = create_embedded(tmp_path)
    with pytest.raises(ZeroDivisionError), embedded as fingerpost:
        fingerpost.connect()
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "fingerpost"]


def test_a_store_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path):
    wrong = Settings.model_validate({"store": {"url": f"sqlite:///{tmp_path}"}})
    with pytest.raises(FingerpostError), Embedded([], settings=wrong):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "fingerpost"]


async def test_it_does_not_stop_an_event_loop(tmp_path: Path):
    embedded, _ = create_embedded(tmp_path)
    with pytest.raises(ConfigError, match="this thread runs an event loop"), embedded:
        pass


@pytest.mark.process
def test_ctrl_c_ends_the_request_and_the_program_in_good_order(tmp_path: Path):
    program = f"""
import sys
from fingerpost import Settings
from fingerpost.embed import Embedded
from fingerpost.testing import HANG, ScriptedModel, tool_server
settings = Settings.model_validate({{"store": {{"url": "sqlite:///{tmp_path}/s.db"}},
    "narrow": {{"vectors": {str(tmp_path / "v")!r}}}, "flags": {{"dense_scores": False}}}})
def hang(request):
    print("asked", flush=True)
    return HANG
try:
    with Embedded([tool_server("notes").spec()], settings=settings, prime=ScriptedModel(hang)) as fingerpost:
        fingerpost.ask("Search my notes for the budget", mode="simple")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen([*warm.python(), "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(60) == 0
        assert time.monotonic() - began < 60


@pytest.mark.process
def test_a_forked_child_is_told_that_it_needs_its_own(tmp_path: Path):
    program = f"""
import os
from fingerpost import Settings
from fingerpost.embed import Embedded
from fingerpost.errors import ConfigError
from fingerpost.testing import tool_server
settings = Settings.model_validate({{"store": {{"url": "sqlite:///{tmp_path}/s.db"}},
    "narrow": {{"vectors": {str(tmp_path / "v")!r}}}, "flags": {{"dense_scores": False}}}})
with Embedded([tool_server("notes").spec()], settings=settings) as fingerpost:
    fingerpost.connect()
    child = os.fork()
    if child == 0:
        try:
            fingerpost.status()
        except ConfigError as refused:
            print(refused, refused.hint, flush=True)
    else:
        assert os.waitpid(child, 0)[1] == 0
        print(len(fingerpost.status()), flush=True)
"""
    done = subprocess.run(
        [*warm.python(), "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    refused, counted = done.stdout.splitlines()
    assert "was forked" in refused
    assert "in each process" in refused
    assert counted == "1"
