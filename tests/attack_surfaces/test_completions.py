"""/v1 against callers who write what no client would."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.events import ApprovalRequested
from fingerpost.llm import ModelRequest
from fingerpost.testing import ScriptedModel, calls
from tests.completions.kit import MAP, Place, ask, house, user
from tests.requirements import proves

ASKED = {"model": "fingerpost", "messages": [user("Good morning")]}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncGenerator[Place]:
    async with house(tmp_path, ScriptedModel(lambda request: "Good morning.")) as opened:
        yield opened


@proves("O6")
async def test_a_path_of_many_slashes_holds_nobody_up(place: Place) -> None:
    async with place.plain() as client:
        began = time.monotonic()
        got = await client.get(f"/v1/{'/' * 50_000}x")
    assert got.status_code == 404
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            "/v1/chat/completions",
            {**ASKED, "tools": [MAP], "tool_choice": {"type": "function", "function": {"name": ["x"]}}},
            "tool_choice.function.name",
        ),
        (
            "/v1/responses",
            {"model": "fingerpost", "input": "hi", "tool_choice": {"type": "function", "name": {"a": 1}}},
            "tool_choice",
        ),
        ("/v1/chat/completions", {**ASKED, "model": "m\r\nX-Other: yes"}, "model"),
    ],
    ids=["choice", "choice-of-responses", "model"],
)
async def test_odd_values_are_the_callers_fault(place: Place, path: str, body: Any, param: str) -> None:
    got = await ask(place, body, path=path)
    assert (got.status, got.error["param"]) == (400, param)


@pytest.mark.parametrize("number", ["1e999", "-1E+400", f"{'9' * 310}e10", "9" * 5000])
async def test_numbers_that_cannot_be_written_again_are_refused(place: Place, number: str) -> None:
    body = f'{json.dumps(ASKED)[:-1]}, "temperature": {number}}}'
    async with place.plain() as client:
        got = await client.post(
            "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
        )
    assert (got.status_code, got.json()["error"]["code"]) == (400, "invalid_json")


async def test_what_a_caller_repeats_is_put_back_once(tmp_path: Path) -> None:
    """Else one kept exchange, however large, comes back as often as its caller likes."""
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        asked.append(request)
        if len(asked) == 1:
            return calls(("time__get_current_time", {"timezone": "Asia/Tokyo"}))
        return calls(("show_map", {"place": "Tokyo"})) if len(asked) == 2 else "There it is."

    async with house(tmp_path, ScriptedModel(answer)) as opened:
        question = user("What time is it in Tokyo? Show it.")
        first = await ask(opened, {"model": "fingerpost", "messages": [question], "tools": [MAP]})
        handed = first.json["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": handed["tool_calls"][0]["id"], "content": "shown"}
        again = [question, *([handed, result] * 30)]
        await ask(opened, {"model": "fingerpost", "messages": again, "tools": [MAP]})
    assert sum("21:00" in message.text for message in asked[-1].messages) == 1


async def test_a_caller_who_left_leaves_no_request_that_seems_to_run(tmp_path: Path) -> None:
    reached = anyio.Event()

    async def wait(request: ModelRequest) -> str:
        reached.set()
        await anyio.sleep_forever()
        return ""

    async with house(tmp_path, ScriptedModel(wait)) as opened, opened.plain() as client:
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                await client.post("/v1/chat/completions", json=ASKED)

            tasks.start_soon(leave)
            await reached.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            while not (ends := await opened.router.store.journal.events(kinds=("route_ended",))):
                await opened.router.store.journal.flush()
                await anyio.sleep(0.02)
    assert [getattr(entry.event, "outcome", None) for entry in ends] == ["left"]


async def test_a_store_that_is_gone_for_a_moment_does_not_end_a_held_request(tmp_path: Path) -> None:
    model = ScriptedModel(
        lambda request: (
            "It is written."
            if any(message.role == "tool" for message in request.messages)
            else calls(("notes__delete_and_write_note", {"text": "x"}))
        )
    )
    wanted = {**ASKED, "messages": [user("Write a note, deleting the one that was there")]}
    answers: list[Any] = []
    async with house(tmp_path, model, completions={"approval_seconds": 20}) as opened:
        with opened.router.live.subscribe() as events:
            async with anyio.create_task_group() as tasks:

                async def held() -> None:
                    answers.append(await ask(opened, wanted))

                tasks.start_soon(held)
                with anyio.fail_after(10):
                    async for event in events:
                        if isinstance(event, ApprovalRequested):
                            break
                await opened.router.store.journal.flush()
                await anyio.to_thread.run_sync(_rename, tmp_path, "approvals", "elsewhere")
                await anyio.sleep(2.2)  # it looks every second
                await anyio.to_thread.run_sync(_rename, tmp_path, "elsewhere", "approvals")
                waiting = await opened.router.calls.approvals.waiting()
                approval = waiting[0].approve(by="anna")
                await opened.router.calls.decide(approval.pending_id, approval.decision, by="anna")
    assert (answers[0].status, answers[0].text) == (200, "It is written.")


def _rename(folder: Path, old: str, new: str) -> None:
    with sqlite3.connect(folder / "store.db", timeout=10) as connection:
        connection.execute(f"ALTER TABLE {old} RENAME TO {new}")
    connection.close()


async def test_what_is_gone_on_with_has_its_id_from_the_first_chunk(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> Any:
        done = any(message.role == "tool" for message in request.messages)
        return "It is written." if done else calls(("notes__delete_and_write_note", {"text": "x"}))

    async with house(tmp_path, ScriptedModel(answer), completions={"approval_seconds": 0}) as opened:
        first = await ask(opened, {**ASKED, "messages": [user("Write a note, deleting the other")]})
        told = first.json["fingerpost"]
        waiting = await opened.router.calls.approvals.waiting()
        approval = waiting[0].approve(by="anna")
        await opened.router.calls.decide(approval.pending_id, approval.decision, by="anna")
        body = {**ASKED, "stream": True, "fingerpost": {"resume": told["pending_id"]}}
        async with opened.plain() as client:
            got = await client.post("/v1/chat/completions", json=body)
    frames = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: {")]
    assert {frame["id"] for frame in frames} == {f"chatcmpl-{told['packet_id']}"}
    assert got.headers["x-fingerpost-packet"] == told["packet_id"]
