"""Many requests at once, requests that are given up, models that hang: each is its own matter."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Awaitable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.call.execution import BreakerState
from fingerpost.events import (
    AnswerGiven,
    AttemptFinished,
    AttemptStarted,
    Event,
    ModelAnswered,
    RouteBegan,
    find_unfinished_attempts,
    rebuild_packet,
)
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import RouteOutcome
from fingerpost.router import AnswerPiece, Route
from fingerpost.testing import HANG, ScriptedModel, ToolServer, calls, tool_server
from tests.kit.call_recorder import READS, matches_journal, read_journal, tool
from tests.kit.routers import open_router, script_model, write_review, write_selection
from tests.requirements import proves

WISH = "Read the text file {}.txt"
_NUMBER = re.compile(r"text file (\d+)\.txt")


def number_in(request: ModelRequest) -> int:
    return int(_NUMBER.findall("\n".join(message.text for message in request.messages))[0])


def library(*, slow: float | None = None) -> ToolServer:
    """Reads files; `slow` seconds each, for ever without an end."""

    async def read(name: str, arguments: dict[str, Any]) -> str:
        if slow is not None:
            await anyio.sleep(slow)
        return f"The content of {arguments['path']}"

    return tool_server("files", [tool("read_file", "Read a text file.", "path", **READS)], call=read)


def reader() -> ScriptedModel:
    """Reads the file the request names, and says which it was."""
    return script_model(
        selection=lambda request: write_selection("files__read_file", {"path": f"{number_in(request)}.txt"}),
        review=lambda request: write_review(),
        answer=lambda request: f"This is {number_in(request)}, by files/read_file.",
    )


async def until(happened: anyio.Event) -> None:
    with anyio.fail_after(25):
        await happened.wait()


@pytest.mark.slow
@proves("W1", "H23")
async def test_requests_at_once_keep_everything_apart(tmp_path: Path) -> None:
    base = reader()

    async def play(request: ModelRequest) -> ModelReply:
        await anyio.sleep(number_in(request) * 7 % 11 / 300)  # the later overtake the earlier
        return await base.complete(request)

    server = library()
    routes: dict[int, Route] = {}
    async with open_router(tmp_path, [server.spec()], ScriptedModel(play)) as router:

        async def one(number: int) -> None:
            routes[number] = await router.route(WISH.format(number))

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(one, number)
        for number, route in routes.items():
            assert route.answer == f"This is {number}, by files/read_file."
            assert {event.packet_id for event in route.events} == {route.packet_id}
            assert sum(isinstance(event, RouteBegan) for event in route.events) == 1
            assert [step.arguments for step in route.packet.tool_routing.steps] == [{"path": f"{number}.txt"}]
            assert f"The content of {number}.txt" in route.packet.tool_routing.steps[0].text
            assert await matches_journal(router, route)
    assert len(server.calls) == 12


@proves("F31", "W1")
async def test_a_request_given_up_while_a_model_thinks_leaves_a_usable_house(tmp_path: Path) -> None:
    thinking = anyio.Event()
    base = reader()

    async def play(request: ModelRequest) -> str | ModelReply:
        if number_in(request) == 1:
            thinking.set()
            return HANG
        return await base.complete(request)

    server = library()
    seen: list[Event] = []
    async with open_router(tmp_path, [server.spec()], ScriptedModel(play)) as router:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: router.route(WISH.format(1)))
            await until(thinking)
            tasks.cancel_scope.cancel()
        route = await router.route(WISH.format(2))
        assert route.outcome is RouteOutcome.ANSWERED
        await router.store.journal.flush()
        seen = [entry.event for entry in await router.store.journal.list_events(kinds=("model_answered",))]
    given_up = [event for event in seen if isinstance(event, ModelAnswered) and event.error is not None]
    assert [event.error for event in given_up] == ["the request was cancelled"]
    assert [arguments for _, arguments in server.calls] == [{"path": "2.txt"}]


@proves("F31", "D9")
async def test_a_request_given_up_during_a_call_is_told_and_blames_no_server(tmp_path: Path) -> None:
    calling = anyio.Event()

    async def read(name: str, arguments: dict[str, Any]) -> str:
        if arguments["path"] == "1.txt":
            calling.set()
            await anyio.sleep_forever()
        return "read"

    server = tool_server("files", [tool("read_file", "Read a text file.", "path", **READS)], call=read)
    async with open_router(tmp_path, [server.spec()], reader()) as router:
        for _ in range(6):  # more than a breaker would take
            calling = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: router.route(WISH.format(1)))
                await until(calling)
                tasks.cancel_scope.cancel()
        assert {status.state for status in router.calls.runner.breakers.values()} <= {BreakerState.CLOSED}
        route = await router.route(WISH.format(2))
        assert route.outcome is RouteOutcome.ANSWERED
        await router.store.journal.flush()
        entries = await router.store.journal.list_events(kinds=("attempt_started", "attempt_finished"))
        events = [entry.event for entry in entries]
        assert not find_unfinished_attempts(events)
        ended = [event.attempt.error for event in events if isinstance(event, AttemptFinished)]
        assert [str(error) for error in ended] == ["cancelled"] * 6 + ["None"]


@proves("F31")
async def test_a_reader_who_stops_early_ends_the_work(tmp_path: Path) -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def read(name: str, arguments: dict[str, Any]) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return "never"

    server = tool_server("files", [tool("read_file", "Read a text file.", "path", **READS)], call=read)
    async with open_router(tmp_path, [server.spec()], reader()) as router:
        async with aclosing(router.stream(WISH.format(1))) as items:
            async for item in items:
                if isinstance(item, AttemptStarted):
                    break
            await until(begun)
        await until(ended)
        stopped = [entry.event for entry in await router.store.journal.list_events(kinds=("answer_given",))]
        assert stopped == []


@pytest.mark.slow
@proves("F31")
async def test_a_reader_who_just_goes_away_ends_the_work_too(tmp_path: Path) -> None:
    thinking, ended = anyio.Event(), anyio.Event()

    async def play(request: ModelRequest) -> str:
        thinking.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return "never"

    async with open_router(tmp_path, [library().spec()], ScriptedModel(play)) as router:
        items = router.stream(WISH.format(1))
        async for _ in items:
            break
        await until(thinking)
        del items  # it is closed by the interpreter
        gc.collect()
        await until(ended)


async def test_a_stream_ends_with_the_route_and_its_pieces_are_the_answer(tmp_path: Path) -> None:
    async with open_router(tmp_path, [library().spec()], reader()) as router:
        items = [item async for item in router.stream(WISH.format(4))]
        route = items[-1]
        assert isinstance(route, Route)
        assert route.answer == "".join(item.text for item in items if isinstance(item, AnswerPiece))
        events = [item for item in items if isinstance(item, Event)]
        assert list(route.events) == events
        assert await matches_journal(router, route)


@proves("W3")
async def test_a_model_that_hangs_is_bounded_by_the_seconds_of_the_request(tmp_path: Path) -> None:
    async with open_router(tmp_path, [library().spec()], ScriptedModel(lambda request: HANG)) as router:
        for mode in ("staged", "single", "simple", "react"):
            with anyio.fail_after(25):
                route = await router.route(WISH.format(1), mode=mode, seconds=0.4)
            assert route.outcome is RouteOutcome.LIMITED, mode
            assert "0.4 s are over (as long as the request was given)" in route.answer
            assert await matches_journal(router, route)


@proves("W3")
async def test_no_time_at_all_is_said_at_once(tmp_path: Path) -> None:
    server = library()
    async with open_router(tmp_path, [server.spec()], reader()) as router:
        route = await router.route(WISH.format(1), seconds=0.0)
        assert route.outcome is RouteOutcome.LIMITED
    assert server.calls == []


@proves("W3", "D8")
async def test_a_deadline_during_a_call_ends_the_request_with_what_there_is(tmp_path: Path) -> None:
    server = library(slow=30.0)
    async with open_router(tmp_path, [server.spec()], reader()) as router:
        with anyio.fail_after(25):
            route = await router.route(WISH.format(1), seconds=1.0)
        assert route.outcome is RouteOutcome.LIMITED, route.trace
        assert [step.error for step in route.packet.tool_routing.steps] == ["timeout"]
        assert await matches_journal(router, route)
        assert not find_unfinished_attempts(await read_journal(router, route))


@proves("W3", "W4")
async def test_without_a_model_the_second_call_has_no_more_time_than_the_request(tmp_path: Path) -> None:
    """What the first call left of the time is all there is; nothing left is not "no limit"."""

    async def slowly(name: str, arguments: dict[str, Any]) -> str:
        await anyio.sleep(30.0)
        return "never"

    clock = tool("get_current_time", "Get the current time in a time zone.", "timezone", **READS)
    servers = [library(slow=30.0), tool_server("time", [clock], call=slowly)]
    async with open_router(tmp_path, [server.spec() for server in servers]) as router:
        with anyio.fail_after(25):
            route = await router.route(
                'Read the text file "1.txt" and tell me what time it is in Tokyo', seconds=1.0
            )
        assert route.outcome is RouteOutcome.LIMITED, route.trace
        assert len(route.packet.tool_routing.steps) == 1


@proves("W1")
async def test_a_failing_listener_does_not_cost_the_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[str] = []

    def listen(piece: str) -> None:
        received.append(piece)
        message = "the terminal is gone"
        raise OSError(message)

    async with open_router(tmp_path, [library().spec()], reader()) as router:
        with caplog.at_level(logging.ERROR, logger="fingerpost.router"):
            route = await router.route(WISH.format(7), on_text=listen)
        assert route.outcome is RouteOutcome.ANSWERED
        assert route.answer == "This is 7, by files/read_file."
        assert await matches_journal(router, route)
    assert len(received) == 1
    assert "the on_text callback failed" in caplog.text


@pytest.mark.slow
@proves("W1")
async def test_a_mistake_of_our_own_is_raised_where_it_was_asked_and_nowhere_else(tmp_path: Path) -> None:
    base = reader()

    async def play(request: ModelRequest) -> str | ModelReply:
        if number_in(request) % 2:
            await anyio.sleep(0.02)
            message = "a mistake in the program"
            raise AssertionError(message)
        await anyio.sleep(0.1)
        return await base.complete(request)

    good: list[Route] = []
    bad: list[str] = []
    async with open_router(tmp_path, [library().spec()], ScriptedModel(play)) as router:

        async def ask(work: Awaitable[Route]) -> None:
            try:
                good.append(await work)
            except AssertionError as error:
                bad.append(str(error))

        async def stream_route(number: int) -> Route:
            items = [item async for item in router.stream(WISH.format(number))]
            assert isinstance(items[-1], Route)
            return items[-1]

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(ask, router.route(WISH.format(number)))
                tasks.start_soon(ask, stream_route(number))
        assert [route.outcome for route in good] == [RouteOutcome.ANSWERED] * 4
        assert bad == ["a mistake in the program"] * 4
        assert (await router.route(WISH.format(8))).outcome is RouteOutcome.ANSWERED


@proves("W1", "H23")
async def test_an_interrupted_journey_can_be_rebuilt_as_far_as_it_came(tmp_path: Path) -> None:
    thinking = anyio.Event()

    async def play(request: ModelRequest) -> str | ModelReply:
        if request.tools and not any(message.role == "tool" for message in request.messages):
            return calls(("files__read_file", {"path": "1.txt"}))
        thinking.set()
        return HANG

    async with open_router(tmp_path, [library().spec()], ScriptedModel(play)) as router:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: router.route(WISH.format(1), mode="simple"))
            await until(thinking)
            tasks.cancel_scope.cancel()
        await router.store.journal.flush()
        events = [entry.event for entry in await router.store.journal.list_events()]
        (began,) = (event for event in events if isinstance(event, RouteBegan))
        mine = [event for event in events if event.packet_id == began.packet_id]
        packet = rebuild_packet(mine)
        assert packet is not None
        assert [step.success for step in packet.tool_routing.steps] == [True]
        assert not [event for event in mine if isinstance(event, AnswerGiven)]
