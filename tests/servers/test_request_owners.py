"""Whose is it? What a server says or asks without naming a request, on a connection that many share."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError

from fingerpost.records import JsonObject
from fingerpost.servers import RequestContext, Server, ServerPool
from fingerpost.servers.in_flight import ANSWERED_SECONDS, GIVEN_UP_SECONDS, InFlightRequest, RequestRegistry
from fingerpost.servers.requests import LOG_METHOD
from tests.kit.call_runner import HandClock
from tests.kit.full_server import FullServer, serve_full_server
from tests.kit.server_callers import RecordingCaller
from tests.kit.server_pools import PATIENCE, eventually, open_pool, text_of
from tests.requirements import proves

ELICIT = "elicitation/create"
OLD = "2025-11-25"


class ScriptedConnection:
    """The talks of one connection, and what comes in on it."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.clock = HandClock()
        self.outside: list[tuple[Any, str | None]] = []
        self._tasks = tasks
        self._number = 0
        self.talks = RequestRegistry(
            "notes",
            lambda method, params, caller: self.outside.append((params["data"], caller)),
            now=self.clock,
        )

    def begin(self, who: RecordingCaller | None) -> InFlightRequest:
        self._number += 1
        talk = InFlightRequest("notes", self._number, context=RequestContext(caller=who))
        self.talks.open(talk)
        return talk

    def end(self, talk: InFlightRequest, *, answered: bool) -> None:
        talk.answered = answered
        self.talks.close(talk)

    def log(self, data: str) -> None:
        self.talks.dispatch_notification(
            LOG_METHOD, {"level": "info", "data": data}, self._tasks.start_soon, request=None
        )

    async def ask(self, *, of: int | None = None) -> Any:
        return await self.talks.answer_server_request(ELICIT, {"message": "?"}, request=of)


@asynccontextmanager
async def a_line() -> AsyncGenerator[ScriptedConnection]:
    async with anyio.create_task_group() as tasks:
        yield ScriptedConnection(tasks)


@proves("G8")
async def test_a_question_is_dropped_while_it_may_belong_to_an_abandoned_call_of_another_caller() -> None:
    dana, eve = RecordingCaller(key="dana"), RecordingCaller(key="eve")
    async with a_line() as line:
        line.end(line.begin(dana), answered=False)
        line.begin(eve)
        with pytest.raises(MCPError, match="of 2 callers run or were given up lately"):
            await line.ask()
        line.clock.turn(GIVEN_UP_SECONDS + 1)
        await line.ask()
    assert (len(dana.asked), len(eve.asked)) == (0, 1)


@proves("G8")
async def test_who_was_answered_has_no_more_questions() -> None:
    dana, eve = RecordingCaller(key="dana"), RecordingCaller(key="eve")
    async with a_line() as line:
        line.end(line.begin(dana), answered=True)
        line.begin(eve)
        await line.ask()
    assert (len(dana.asked), len(eve.asked)) == (0, 1)


async def test_a_question_of_a_finished_call_is_dropped() -> None:
    dana, eve = RecordingCaller(key="dana"), RecordingCaller(key="eve")
    async with a_line() as line:
        over = line.begin(dana)
        line.end(over, answered=False)
        with pytest.raises(MCPError, match="there is no caller to ask"):
            await line.ask()
        line.begin(eve)
        with pytest.raises(MCPError, match="there is no caller to ask"):
            await line.ask(of=int(over.request))
    assert dana.asked == eve.asked == []


@proves("G8")
async def test_a_late_log_message_goes_to_the_only_one_it_can_be_about() -> None:
    dana, eve = RecordingCaller(key="dana"), RecordingCaller(key="eve")
    async with a_line() as line:
        line.end(line.begin(dana), answered=True)
        line.log("of dana's")
        line.end(line.begin(eve), answered=True)
        line.log("of dana's or eve's")
        line.clock.turn(ANSWERED_SECONDS + 1)
        line.log("the server's own")
        line.end(line.begin(None), answered=True)
        line.log("of our own")
    assert line.outside == [("of dana's", "dana"), ("the server's own", None)]
    assert dana.notifications == eve.notifications == []


async def test_what_is_remembered_of_callers_is_bounded() -> None:
    async with a_line() as line:
        for number in range(3000):
            line.end(line.begin(RecordingCaller(key=f"p{number}")), answered=number % 2 == 0)
            line.clock.turn(1)
        line.clock.turn(GIVEN_UP_SECONDS)
        line.log("the server's own")
        eve = RecordingCaller(key="eve")
        line.begin(eve)
        await line.ask()
    assert line.outside == [("the server's own", None)]
    assert len(eve.asked) == 1


@asynccontextmanager
async def a_server(talkative: FullServer) -> AsyncGenerator[ServerPool]:
    async with (
        serve_full_server(talkative) as (url, recorder),
        open_pool(Server.http("talk", url, era=OLD)) as servers,
    ):
        await eventually(lambda: recorder.streams > 0)  # for what names no request
        yield servers


async def call(servers: ServerPool, tool: str, who: RecordingCaller) -> str:
    return text_of(await servers.call("talk", tool, {}, timeout=PATIENCE, context=RequestContext(caller=who)))


@proves("G8")
async def test_a_server_that_continues_a_cancelled_call_asks_no_other_caller() -> None:
    talkative = FullServer()
    dana, eve = RecordingCaller(key="dana"), RecordingCaller(key="eve")
    async with a_server(talkative) as servers, anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as given_up:
            given_up.start_soon(call, servers, "stubborn", dana)
            await talkative.began.wait()
            talkative.began = anyio.Event()
            tasks.start_soon(call, servers, "wait", eve)
            await talkative.began.wait()
            given_up.cancel_scope.cancel()
        await eventually(lambda: bool(talkative.stubborn))
        tasks.cancel_scope.cancel()
    [answer] = talkative.stubborn
    assert "cannot be answered" in text_of(answer.model_dump(by_alias=True))
    assert dana.asked == eve.asked == []


@proves("G8")
async def test_questions_may_come_from_any_request_of_one_caller() -> None:
    talkative = FullServer()
    dana = RecordingCaller(key="dana", thinks=0.1)
    async with a_server(talkative) as servers, anyio.create_task_group() as tasks:
        tasks.start_soon(call, servers, "wait", dana)
        await talkative.began.wait()
        assert await call(servers, "ask_outside", dana) == "accept"
        tasks.cancel_scope.cancel()
    assert len(dana.asked) == 1


@proves("G8")
async def test_a_log_message_after_its_answer_reaches_no_other_caller() -> None:
    talkative = FullServer()
    dana = RecordingCaller(key="dana")
    received: list[str | None] = []

    def receive(server: str, method: str, params: JsonObject, caller: str | None) -> None:
        if method == LOG_METHOD:  # the lists of a server may change at any time
            received.append(caller)

    def count() -> int:
        return len(received) + len(dana.notifications)

    async with a_server(talkative) as servers:
        servers.subscribe_to_notifications(receive)
        with anyio.fail_after(60):
            while not count():  # what the server says before a stream for it is open is lost
                await call(servers, "log_outside", dana)
                await anyio.sleep(0.05)
        before = count()
        for _ in range(10):
            assert await call(servers, "log_outside", dana) == "logged"
        await eventually(lambda: count() >= before + 10)
    assert set(received) <= {"dana"}
