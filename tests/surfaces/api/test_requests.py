"""Asking over the API: routed, answered, streamed, called."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import Scope
from fingerpost.testing import HANG, ScriptedModel, ToolServer, calls, tool_server
from tests.kit.api import ServedApi, open_served_api, open_stream
from tests.kit.call_recorder import READS, tool
from tests.kit.routers import script_model, write_review, write_selection
from tests.requirements import proves

READ = write_selection("files__read_file", {"path": "a.txt"})
WISH = "What stands in the file a.txt?"


async def _read(name: str, arguments: dict[str, Any]) -> str:
    return f"{arguments['path']}: forty-two"


def _files() -> ToolServer:
    tools = (
        tool("read_file", "Read a text file.", "path", title="Read a file", **READS),
        tool("list_files", "List the files of a folder.", "path", **READS),
    )
    return tool_server("files", tools, call=_read)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[ServedApi]:
    model = script_model(
        selection=lambda request: READ,
        review=lambda request: write_review(),
        answer=lambda request: "It says forty-two, says files/read_file.",
    )
    async with open_served_api(tmp_path, _files().spec(), model=model, operator=True) as made:
        yield made


@proves("I2")
async def test_a_route_explains_and_calls_nothing(tmp_path: Path) -> None:
    server = _files()
    async with open_served_api(tmp_path, server.spec()) as opened:
        body = {"request": "read the file a.txt", "about": "files/list_files", "max_tools": 1}
        routed = (await opened.post("/api/route", body)).json()
        assert routed["cards"]["files/read_file"] == {
            "title": "Read a file", "description": "Read a text file.", "effect": "read", "server": "files",
        }  # fmt: skip
        candidates = {one["tool"]: one for one in routed["shortlist"]["candidates"]}
        assert candidates["files/read_file"]["offered"] is True
        assert candidates["files/list_files"]["lost"]
        assert routed["need"]["verdict"] == "tool"
    assert server.calls == []


@pytest.mark.slow
async def test_a_request_is_answered(api: ServedApi) -> None:
    answer = (await api.post("/api/ask", {"request": WISH, "conversation": "c1"})).json()
    assert (answer["outcome"], answer["answer"]) == ("answered", "It says forty-two, says files/read_file.")
    assert answer["sources"] == ["files/read_file"]
    assert (await api.get("/api/me")).json()["keyless"] is False
    line = (await api.get(f"/api/packets/{answer['packet_id']}")).json()["line"]
    assert (line["caller"], line["conversation"], line["state"]) == ("local", "c1", "ended")


@proves("B12")
async def test_a_named_conversation_is_recalled_for_its_caller_alone(tmp_path: Path) -> None:
    texts: list[str] = []

    def answer(request: ModelRequest) -> str:
        texts.append(" | ".join(message.text for message in request.messages[1:]))
        return f"Answer {len(texts)}."

    async with open_served_api(tmp_path, _files().spec(), model=script_model(answer=answer)) as opened:
        dana, ruth = await opened.key("dana"), await opened.key("ruth")
        afresh: dict[str, Any] = {"request": "Good night!", "history": []}
        for question, headers in (
            ({"request": "Good morning!"}, dana),
            ({"request": "Thank you!"}, dana),
            ({"request": "Thank you!"}, ruth),
            (afresh, dana),
        ):
            body = {**question, "conversation": "c1"}
            assert (await opened.post("/api/ask", body, headers=headers)).status_code == 200
    assert texts == [
        "Good morning!",
        "Good morning! | Answer 1. | Thank you!",
        "Thank you!",
        "Good night!",
    ]


@proves("B12")
async def test_a_local_caller_continues_a_conversation_of_the_command_line(tmp_path: Path) -> None:
    """The command line has no caller name, the API calls it `local`; a named caller is another caller."""
    texts: list[str] = []

    def answer(request: ModelRequest) -> str:
        texts.append(" | ".join(message.text for message in request.messages[1:]))
        return f"Answer {len(texts)}."

    async with open_served_api(tmp_path, _files().spec(), model=script_model(answer=answer)) as opened:
        await opened.router.route("Good morning!", conversation="c1")
        await opened.router.route("Good evening!", conversation="c1", caller="dana")
        body = {"request": "Thank you!", "conversation": "c1"}
        assert (await opened.post("/api/ask", body)).status_code == 200
        await opened.router.route("Good night!", conversation="c1")
    assert texts[2:] == [
        "Good morning! | Answer 1. | Thank you!",
        "Good morning! | Answer 1. | Thank you! | Answer 3. | Good night!",
    ]


@pytest.mark.slow
async def test_a_request_is_answered_as_a_stream(api: ServedApi) -> None:
    async with open_stream(api, "/api/ask", body={"request": WISH}) as stream:
        kinds: list[str] = []
        text = ""
        while (frame := await stream.next()).event != "route":
            if frame.event == "event":
                kinds.append(frame.data["kind"])
            else:
                text += frame.data["text"]
        with pytest.raises(EOFError):
            await stream.next()
    assert kinds[0] == "packet_received"
    assert "call_finished" in kinds
    assert text == frame.data["answer"]
    # Errors after the start of a stream are sent in it.
    async with open_stream(api, "/api/ask", body={"request": WISH, "mode": "keyless"}) as stream:
        while (frame := await stream.next()).event not in ("route", "problem"):
            pass
        assert frame.data["mode"] == "keyless"


async def test_a_stream_that_fails_says_so(tmp_path: Path) -> None:
    body = {"request": WISH, "mode": "staged"}  # needs a model, and there is none
    async with open_served_api(tmp_path) as opened, open_stream(opened, "/api/ask", body=body) as stream:
        problem = (await stream.next("problem")).data
        assert (problem["status"], "model" in problem["detail"]) == (422, True)


async def test_a_question_is_answered_once_by_its_caller(tmp_path: Path) -> None:
    server = _files()
    async with open_served_api(tmp_path, server.spec()) as opened:
        asked = (await opened.post("/api/ask", {"request": "read the file please"})).json()
        assert asked["outcome"] == "asked", asked
        reply = {"request": "a.txt", "answers": asked["packet_id"]}
        stranger = await opened.post("/api/ask", reply, headers=await opened.key("stranger"))
        assert stranger.status_code == 404
        done = (await opened.post("/api/ask", reply)).json()
        assert (done["packet_id"], done["outcome"]) == (asked["packet_id"], "answered")
        assert "forty-two" in done["answer"]
        assert (await opened.post("/api/ask", reply)).status_code == 404
        again = (await opened.post("/api/ask", {"request": "read the file please"})).json()
        reply = {"request": "b.txt", "answers": again["packet_id"]}
        async with open_stream(opened, "/api/ask", body=reply) as stream:
            assert (await stream.next("route")).data["outcome"] == "answered"
    assert [arguments["path"] for _, arguments in server.calls] == ["a.txt", "b.txt"]


async def test_a_client_that_disconnects_stops_its_work(tmp_path: Path) -> None:
    model = script_model(selection=lambda request: HANG)
    async with open_served_api(tmp_path, _files().spec(), model=model) as opened:
        async with open_stream(opened, "/api/events?kinds=route_began&kinds=model_asked") as began:
            with anyio.move_on_after(0.5) as scope:
                async with anyio.create_task_group() as tasks:

                    async def leave_when_begun() -> None:
                        await began.next()
                        scope.cancel()

                    tasks.start_soon(leave_when_begun)
                    await opened.post("/api/ask", {"request": WISH, "mode": "staged"})
        with anyio.fail_after(30):
            await opened.api.drain(5)


@proves("C3")
async def test_an_unavailable_tool_says_why_to_callers_who_may_use_it(api: ServedApi) -> None:
    off = {"on": False, "reason": "maintenance"}
    assert (await api.post("/api/tools/files/list_files/switch", off)).status_code == 200
    call = {"tool": "files/list_files", "arguments": {"path": "."}}
    for tool_name in ("files/list_files", "list_files", "files__list_files"):
        response = (await api.post("/api/call", {**call, "tool": tool_name})).json()
        assert (response["success"], response["error"], response["tool"]) == (
            False,
            "unavailable",
            "files/list_files",
        )
        assert "switched off by local: maintenance" in response["content"]
    other = await api.key("other", scope=Scope(tools=("files/read_file",)))
    hidden = await api.post("/api/call", call, headers=other)
    assert (hidden.status_code, "switched" in hidden.text) == (404, False)


async def test_a_tool_is_called_within_bounds(api: ServedApi) -> None:
    call = {"tool": "files/read_file", "arguments": {"path": "a.txt"}}
    done = (await api.post("/api/call", call)).json()
    assert (done["success"], "a.txt: forty-two" in done["content"]) == (True, True)
    dry = (await api.post("/api/call", {**call, "dry_run": True})).json()
    assert dry["attempts"] == []
    unknown = await api.post("/api/call", {"tool": "files/read_fil", "arguments": {}})
    assert unknown.status_code == 404 or unknown.json()["tool"] == "files/read_file"
    nowhere = await api.post("/api/call", {"tool": "xyzzy", "arguments": {}})
    assert (nowhere.status_code, nowhere.json()["title"]) == (404, "There is no such tool")


ALLOWED: Any = [{"verdict": "allow", "server": "desk"}]
APPEND = ("desk__append_file", {"path": "log.txt", "content": "one line "})
CREATE = ("desk__create_file", {"path": "new.txt", "content": "text"})
DELETE = ("desk__delete_file", {"path": "new.txt"})


def _create_file_tools(files: dict[str, str]) -> ToolServer:
    """Tools that change these files."""

    async def act(name: str, arguments: dict[str, Any]) -> str:
        path = arguments["path"]
        if name == "delete_file":
            del files[path]
            return "Deleted"
        before = files.get(path, "") if name == "append_file" else ""
        files[path] = before + arguments["content"]
        return "Created"

    tools = (
        tool("append_file", "Append a line to a text file.", "path", "content"),
        tool("create_file", "Create a text file.", "path", "content"),
        tool("delete_file", "Delete a file.", "path"),
    )
    return tool_server("desk", tools, call=act)


def _turns(*turns: ModelReply) -> ScriptedModel:
    """A model that makes these turns, one after the other, and then answers."""
    left = iter(turns)

    def play(request: ModelRequest) -> str | ModelReply:
        return next(left, "All done.") if request.tools else "All done."

    return ScriptedModel(play)


@proves("A17", "C4")
async def test_a_write_that_a_model_repeats_is_made_again_each_time(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    model = _turns(*(calls(APPEND, first=number) for number in range(1, 4)))
    async with open_served_api(
        tmp_path, _create_file_tools(files).spec(), model=model, policy=ALLOWED
    ) as opened:
        body = {"request": "Append the line 'one line' to log.txt three times", "mode": "simple"}
        answer = (await opened.post("/api/ask", body)).json()
    assert answer["outcome"] == "answered", answer
    assert files["log.txt"] == "one line " * 3


async def test_what_was_created_and_deleted_is_created_again(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    model = _turns(calls(CREATE), calls(DELETE, first=2), calls(CREATE, first=3))
    async with open_served_api(
        tmp_path, _create_file_tools(files).spec(), model=model, policy=ALLOWED
    ) as opened:
        body = {"request": "Create new.txt, delete the file, create it again", "mode": "simple"}
        answer = (await opened.post("/api/ask", body)).json()
    assert answer["outcome"] == "answered", answer
    assert files["new.txt"] == "text"


async def test_the_same_write_twice_in_one_turn_is_made_once_and_the_model_hears_that(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    model = _turns(calls(APPEND, APPEND), calls(APPEND, first=3))
    async with open_served_api(
        tmp_path, _create_file_tools(files).spec(), model=model, policy=ALLOWED
    ) as opened:
        body = {"request": "Append the line 'one line' to log.txt", "mode": "simple"}
        assert (await opened.post("/api/ask", body)).json()["outcome"] == "answered"
    prompt = [message.text for message in model.asked[1].messages if message.role == "tool"]
    assert "Created" in prompt[0]
    assert prompt[1].startswith("duplicate: ")
    assert "Created" not in prompt[1]
    # In a turn of its own it is a new call.
    assert files["log.txt"] == "one line " * 2


async def test_a_program_that_repeats_a_write_gets_as_many_as_it_asked_for(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    call = {"tool": "desk/append_file", "arguments": APPEND[1]}
    async with open_served_api(tmp_path, _create_file_tools(files).spec(), policy=ALLOWED) as opened:
        for _ in range(3):
            assert (await opened.post("/api/call", call)).json()["success"]
    assert files["log.txt"] == "one line " * 3


@proves("B13")
async def test_a_caller_keeps_a_preference_for_quick_or_thorough_answers_of_their_own(tmp_path: Path) -> None:
    async with open_served_api(
        tmp_path, _files().spec(), model=ScriptedModel(lambda _request: "Hello.")
    ) as opened:
        dana, eli = await opened.key("dana"), await opened.key("eli")
        watcher = await opened.key("vera", "watch")
        path = "/api/me/preference"
        assert (await opened.get(path, headers=dana)).json() == {"effort": None}
        kept = await opened.client.put(path, json={"effort": "quick"}, headers=dana)
        assert (kept.status_code, kept.json()) == (200, {"effort": "quick"})
        assert (await opened.get(path, headers=dana)).json() == {"effort": "quick"}
        assert (await opened.get(path, headers=eli)).json() == {"effort": None}
        modes = [
            (await opened.post("/api/ask", {"request": "Hello!"}, headers=key)).json()["mode"]
            for key in (dana, eli)
        ]
        assert modes == ["single", "staged"]
        assert (await opened.client.put(path, json={"effort": "lazy"}, headers=dana)).status_code == 422
        assert (await opened.client.put(path, json={"effort": "quick"}, headers=watcher)).status_code == 403
        await opened.client.put(path, json={"effort": None}, headers=dana)
        assert (await opened.get(path, headers=dana)).json() == {"effort": None}
