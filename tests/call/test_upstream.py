"""What goes between a caller and a server beside the call: rounds, questions, the server's own errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext

from fingerpost import Router, Settings
from fingerpost.call.approvals import ROUND_SECONDS, RoundPermits
from fingerpost.errors import ServerUnavailable, ToolFailed
from fingerpost.records import (
    CallContext,
    Decision,
    Effect,
    ErrorKind,
    JsonObject,
    Outcome,
    ServerSpec,
    ToolCall,
    create_id,
)
from fingerpost.servers.in_flight import forward_question
from fingerpost.servers.requests import RequestClock, RequestContext
from tests.kit.call_runner import HandClock, RunnerFixture, a_call, a_context, create_permit
from tests.kit.stores import place_empty_store
from tests.requirements import proves

READ = a_call("notes/read")
WRITE = a_call("notes/write", effect=Effect.WRITE)
OTHER = a_call("archive/read")
QUESTION: dict[str, Any] = {
    "resultType": "input_required",
    "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Who?"}}},
    "requestState": "state 1",
}
GOOD: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


class DelayedCaller:
    """A caller who answers after `seconds`."""

    key = "session-1"
    authorization: str | None = None

    def __init__(self, *, accepts_input_required: bool = True, seconds: float = 0.0) -> None:
        self.capabilities: JsonObject = {"elicitation": {}}
        self.accepts_input_required = accepts_input_required
        self.seconds = seconds
        self.asked: list[str] = []
        self.notifications: list[str] = []

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        self.asked.append(method)
        await anyio.sleep(self.seconds)
        return {"action": "accept"}

    async def tell(self, method: str, params: JsonObject) -> None:
        self.notifications.append(method)


Answer = Callable[[RequestContext | None, RequestClock], Awaitable[JsonObject]]


class ScriptedUpstreamCalls:
    """Servers with scripted answers, one after the other; the last one is repeated."""

    def __init__(self, *answers: Answer | JsonObject) -> None:
        self._answers = list(answers)
        self.passages: list[RequestContext | None] = []
        self.tools: list[str] = []

    def hold(self, name: str) -> AbstractContextManager[object]:
        return nullcontext()

    async def ensure(self, name: str, *, timeout: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def call(
        self,
        name: str,
        tool: str,
        arguments: JsonObject,
        *,
        clock: RequestClock,
        context: RequestContext | None = None,
        **_: Any,
    ) -> JsonObject:
        self.passages.append(context)
        self.tools.append(f"{name}/{tool}")
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return await answer(context, clock) if callable(answer) else answer


async def ask_and_fail(passage: RequestContext | None, clock: RequestClock) -> JsonObject:
    assert passage is not None
    assert passage.caller is not None
    await passage.caller.tell("notifications/message", {})
    await forward_question("notes", passage.caller, "elicitation/create", {}, clock)
    raise ServerUnavailable("gone", server="notes")


async def fail(_: RequestContext | None, __: RequestClock) -> JsonObject:
    raise ServerUnavailable("gone", server="notes")


@proves("G8")
async def test_a_server_that_asks_for_input_is_handed_to_a_caller_who_takes_rounds_untouched() -> None:
    door = ScriptedUpstreamCalls(QUESTION)
    passage = RequestContext(caller=DelayedCaller(), meta={"traceparent": "00-1"}, log_level="info")
    execution = await RunnerFixture(door).run(READ, request_context=passage, alternatives=[OTHER])
    assert execution.error is None
    assert execution.result is QUESTION
    assert door.tools == ["notes/read"]  # a question is not an empty answer: no fallback is used
    (sent,) = door.passages
    assert sent is not None
    assert (sent.meta, sent.log_level) == (passage.meta, "info")


async def test_a_caller_who_takes_no_rounds_hears_that_the_tool_wants_more() -> None:
    execution = await RunnerFixture(ScriptedUpstreamCalls(QUESTION)).run(
        READ, request_context=RequestContext(caller=DelayedCaller(accepts_input_required=False))
    )
    assert execution.error is ErrorKind.OPERATION_NOT_SUPPORTED


@proves("G8")
async def test_a_further_round_is_neither_a_duplicate_nor_cached_nor_a_loop() -> None:
    for call in (READ, WRITE):
        door = ScriptedUpstreamCalls(QUESTION, GOOD)
        b = RunnerFixture(door, repeat_limit=2)
        context = a_context(conversation="c", caller="dana")
        first = await b.run(call, context=context, request_context=RequestContext(caller=DelayedCaller()))
        assert first.result is QUESTION
        further = RequestContext(caller=DelayedCaller(), input_responses={"who": {}}, request_state="state 1")
        for _ in range(8):
            assert (await b.run(call, context=context, request_context=further)).result is GOOD
        assert len(door.passages) == 9  # each of them reached the server
        assert door.passages[1] is not None
        assert door.passages[1].request_state == "state 1"
        assert door.passages[1].input_responses == {"who": {}}


async def test_an_answer_to_a_further_round_is_not_given_to_the_next_first_round() -> None:
    door = ScriptedUpstreamCalls(QUESTION, GOOD, QUESTION)
    b = RunnerFixture(door)
    context = a_context(caller="dana")
    person = DelayedCaller()
    await b.run(READ, context=context, request_context=RequestContext(caller=person))
    await b.run(READ, context=context, request_context=RequestContext(caller=person, request_state="state 1"))
    again = await b.run(READ, context=context, request_context=RequestContext(caller=person))
    assert again.result is QUESTION


@proves("G8")
async def test_once_a_person_was_asked_nothing_is_repeated_and_there_is_no_fallback() -> None:
    door, person = ScriptedUpstreamCalls(ask_and_fail, GOOD), DelayedCaller()
    execution = await RunnerFixture(door).run(
        READ, request_context=RequestContext(caller=person), alternatives=[OTHER]
    )
    assert execution.error is ErrorKind.UNAVAILABLE
    assert (door.tools, person.asked, person.notifications) == (
        ["notes/read"],
        ["elicitation/create"],
        ["notifications/message"],
    )
    further = RequestContext(caller=person, request_state="state 1")
    door = ScriptedUpstreamCalls(fail, GOOD)
    assert (
        await RunnerFixture(door).run(READ, request_context=further, alternatives=[OTHER])
    ).error is not None
    assert door.tools == ["notes/read"]
    # Without a dialogue the same failure is repeated, and then another tool takes over.
    door = ScriptedUpstreamCalls(fail, GOOD)
    assert (
        await RunnerFixture(door).run(
            READ, request_context=RequestContext(caller=person), alternatives=[OTHER]
        )
    ).error is None
    assert len(door.tools) == 2


async def test_while_a_person_thinks_the_tool_has_not_become_slow() -> None:
    async def ask(passage: RequestContext | None, clock: RequestClock) -> JsonObject:
        assert passage is not None
        await forward_question("notes", passage.caller, "elicitation/create", {}, clock)
        return GOOD

    thinking = DelayedCaller(seconds=0.3)  # longer than the tool's time
    execution = await RunnerFixture(ScriptedUpstreamCalls(ask)).run(
        READ, seconds=0.1, request_context=RequestContext(caller=thinking)
    )
    assert execution.result is GOOD


@proves("G8")
async def test_the_servers_own_error_code_and_data_are_kept() -> None:
    async def refuse(_: RequestContext | None, __: RequestClock) -> JsonObject:
        raise ToolFailed("no such thing", server="notes", code=-32042, data={"why": [1]})

    execution = await RunnerFixture(ScriptedUpstreamCalls(refuse)).run(READ)
    assert (execution.code, execution.data) == (-32042, {"why": [1]})


def test_leave_for_a_further_round_is_for_this_call_caller_and_state_once_and_for_a_while() -> None:
    clock = HandClock()
    rounds = RoundPermits(clock=clock)
    context = a_context(caller="dana", conversation="c")
    given = create_permit(WRITE, "grant gnt_1 by eve")
    passage = RequestContext(request_state="state 1")

    def check_kept() -> None:
        rounds.keep_permit(WRITE, context, QUESTION, given)

    check_kept()
    assert rounds.take_permit(WRITE, context, None) is None
    assert rounds.take_permit(WRITE, context, RequestContext(request_state="state 2")) is None
    assert rounds.take_permit(WRITE, a_context(caller="eve", conversation="c"), passage) is None
    assert (
        rounds.take_permit(a_call("notes/write", {"q": "y"}, effect=Effect.WRITE), context, passage) is None
    )
    assert rounds.take_permit(WRITE, context, passage) is given
    assert rounds.take_permit(WRITE, context, passage) is None
    check_kept()
    clock.turn(ROUND_SECONDS)
    assert rounds.take_permit(WRITE, context, passage) is None


WRITE_TOOL = {
    "name": "write",
    "description": "Write a note.",
    "annotations": {"readOnlyHint": False, "destructiveHint": False},
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


class AskingServer:
    """A real server that asks who it is before it writes."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.server = Server[Any]("notes", on_list_tools=self._list, on_call_tool=self._call)

    @property
    def spec(self) -> ServerSpec:
        return ServerSpec(name="notes", transport="in_process", in_process=self.server, era="2026-07-28")

    async def _list(self, _: ServerRequestContext[Any], __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool.model_validate(WRITE_TOOL)])

    async def _call(
        self, _: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.request_state is None:
            return types.InputRequiredResult(request_state="who are you?")
        self.written.append(f"{params.request_state} {(params.arguments or {})['text']}")
        return types.CallToolResult(content=[types.TextContent(type="text", text="written")])


@proves("G6", "G8")
async def test_a_person_is_asked_once_for_all_rounds_of_a_call(tmp_path: Path) -> None:
    asking = AskingServer()
    settings = Settings.model_validate({"store": {"url": place_empty_store(tmp_path, "s.db")}})
    tool_call = ToolCall(name="notes/write", arguments={"text": "hello"})

    async def call(passage: RequestContext, caller: str = "dana") -> Outcome:
        context = CallContext(call_id=create_id("cal"), conversation="c", caller=caller)
        return await router.calls.call(tool_call, context, passage)

    async with Router([asking.spec], settings=settings) as router:
        await router.connect()
        waiting = await call(RequestContext(caller=DelayedCaller()))
        assert waiting.pending_id is not None
        await router.calls.decide(waiting.pending_id, Decision.APPROVED, by="eve")
        asked = await router.calls.resume(
            waiting.pending_id, CallContext(call_id=create_id("cal")), RequestContext(caller=DelayedCaller())
        )
        assert asked.success, asked
        assert asked.result is not None
        assert asked.result["resultType"] == "input_required"
        assert asked.digest is None
        further = RequestContext(caller=DelayedCaller(), request_state="who are you?")
        assert (await call(further, caller="mallory")).error is ErrorKind.AUTHORIZATION_REQUIRED
        assert asking.written == []
        done = await call(further)
        assert done.success, done
        assert done.result is not None
        assert done.result["content"] == [{"type": "text", "text": "written"}]
        assert asking.written == ["who are you? hello"]
        assert (await call(further)).error is ErrorKind.AUTHORIZATION_REQUIRED
        profiles = await router.store.usage.get_profiles()
        assert profiles["notes/write"].calls == 1  # the question was no use of the tool
