"""/v1 against callers who write what no client would."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from fingerpost.events import ApprovalRequested, Event
from fingerpost.llm import ModelRequest
from fingerpost.surfaces.http.approvals import CHECK_INTERVAL_S
from fingerpost.testing import ScriptedModel, calls
from tests.kit.chat_completions import MAP, ServedCompletions, ask, open_served_completions, user
from tests.requirements import proves
from tests.surfaces.openai.test_approvals import NOT_HELD, body, decide, writes

ASKED = {"model": "fingerpost", "messages": [user("Good morning")]}


@pytest.fixture
async def completions(tmp_path: Path) -> AsyncGenerator[ServedCompletions]:
    async with open_served_completions(tmp_path, ScriptedModel(lambda request: "Good morning.")) as opened:
        yield opened


@proves("O6")
async def test_a_path_of_many_slashes_delays_no_other_request(completions: ServedCompletions) -> None:
    async with completions.plain() as client:
        began = time.process_time()
        got = await client.get(f"/v1/{'/' * 50_000}x")
    assert got.status_code == 404
    assert time.process_time() - began < 3


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
async def test_odd_values_are_the_callers_fault(
    completions: ServedCompletions, path: str, body: Any, param: str
) -> None:
    got = await ask(completions, body, path=path)
    assert (got.status, got.error["param"]) == (400, param)


@pytest.mark.parametrize("number", ["1e999", "-1E+400", f"{'9' * 310}e10", "9" * 5000])
async def test_numbers_that_cannot_be_written_again_are_refused(
    completions: ServedCompletions, number: str
) -> None:
    body = f'{json.dumps(ASKED)[:-1]}, "temperature": {number}}}'
    async with completions.plain() as client:
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

    async with open_served_completions(tmp_path, ScriptedModel(answer)) as opened:
        question = user("What time is it in Tokyo? Show it.")
        first = await ask(opened, {"model": "fingerpost", "messages": [question], "tools": [MAP]})
        handed = first.json["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": handed["tool_calls"][0]["id"], "content": "shown"}
        for often, put_back in ((1, 1), (30, 0)):  # repeated, it is no chat that was ever answered
            again = [question, *([handed, result] * often)]
            await ask(opened, {"model": "fingerpost", "messages": again, "tools": [MAP]})
            assert sum("21:00" in message.text for message in asked[-1].messages) == put_back


async def test_a_caller_who_left_leaves_no_request_that_seems_to_run(tmp_path: Path) -> None:
    reached = anyio.Event()

    async def wait(request: ModelRequest) -> str:
        reached.set()
        await anyio.sleep_forever()
        return ""

    async with open_served_completions(tmp_path, ScriptedModel(wait)) as opened, opened.plain() as client:
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                await client.post("/v1/chat/completions", json=ASKED)

            tasks.start_soon(leave)
            await reached.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(30):
            while not (ends := await opened.router.store.journal.list_events(kinds=("route_ended",))):
                await opened.router.store.journal.flush()
                await anyio.sleep(0.02)
    assert [getattr(entry.event, "outcome", None) for entry in ends] == ["left"]


@pytest.mark.slow
async def test_a_store_that_is_gone_for_a_moment_does_not_end_a_held_request(tmp_path: Path) -> None:
    answers: list[Any] = []
    async with (
        open_served_completions(tmp_path, writes(), completions={"approval_seconds": 20}) as opened,
        anyio.create_task_group() as tasks,
    ):

        async def hold() -> None:
            answers.append(await ask(opened, body()))

        with opened.router.live.subscribe() as events, anyio.fail_after(30):
            tasks.start_soon(hold)
            pending_id = await _wait_for_packet(events)
        await opened.router.store.journal.flush()
        await anyio.to_thread.run_sync(_rename, tmp_path, "approvals", "elsewhere")
        await anyio.sleep(2 * CHECK_INTERVAL_S)
        assert answers == []
        await anyio.to_thread.run_sync(_rename, tmp_path, "elsewhere", "approvals")
        await decide(opened.router, pending_id)
    assert answers[0].status == 200
    assert answers[0].text.startswith("I wrote it down.")


async def _wait_for_packet(events: AsyncIterator[Event]) -> str:
    async for event in events:
        if isinstance(event, ApprovalRequested):
            return event.pending_id
    raise EOFError


def _rename(folder: Path, old: str, new: str) -> None:
    with closing(sqlite3.connect(folder / "store.db", timeout=10)) as connection, connection:
        connection.execute(f"ALTER TABLE {old} RENAME TO {new}")


async def test_what_is_gone_on_with_has_its_id_from_the_first_chunk(tmp_path: Path) -> None:
    async with open_served_completions(tmp_path, writes(), **NOT_HELD) as opened:
        extension = (await ask(opened, body())).json["fingerpost"]
        await decide(opened.router, extension["pending_id"])
        async with opened.plain() as client:
            again = body(stream=True, fingerpost={"resume": extension["pending_id"]})
            got = await client.post("/v1/chat/completions", json=again)
    frames = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: {")]
    assert {frame["id"] for frame in frames} == {f"chatcmpl-{extension['packet_id']}"}
    assert got.headers["x-fingerpost-packet"] == extension["packet_id"]
