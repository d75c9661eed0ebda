"""When a tool fails, the next in line takes over: never twice, never unasked, never on top of a write."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from fingerpost.call.execution.results import is_empty_result
from fingerpost.events import AttemptStarted, FallbackTaken
from fingerpost.records import Call, Effect, ErrorKind, JsonObject, Permit
from fingerpost.servers import Server
from fingerpost.testing import tool_server
from tests.kit.call_runner import (
    GivenFallbacks,
    a_call,
    a_run,
    all_lasting,
    create_permit,
    open_bench,
)
from tests.kit.tables import table
from tests.requirements import proves

FIRST = a_call("first/find")
SECOND = a_call("second/search", {"query": "x"})
THIRD = a_call("third/look")


async def hang(_: str, __: dict[str, Any]) -> str:
    await anyio.sleep_forever()
    return ""


async def find_nothing(_: str, __: dict[str, Any]) -> str:
    return " [ ] "


async def fail(_: str, __: dict[str, Any]) -> str:
    raise MCPError(-32000, "out of order")


async def ill_formed(_: str, __: dict[str, Any]) -> str:
    raise MCPError(-32602, "q is not what I call it")


@pytest.mark.process
@proves("D5")
@table("fault", ["down", "hanging", "empty", "failing"])
async def test_a_tool_that_is_down_hangs_fails_or_finds_nothing_is_stood_in_for(fault: str):
    acts = {"hanging": hang, "empty": find_nothing, "failing": fail}
    first = (
        Server.stdio("first", ["/no/such/program"])
        if fault == "down"
        else tool_server("first", ["find"], call=acts[fault]).spec()
    )
    second = tool_server("second", ["search"])
    async with open_bench(first, second.spec(), retries=0) as b:
        execution = await b.run(FIRST, seconds=0.2, alternatives=[SECOND], latency_of=all_lasting(10))
    assert execution.error is None
    assert execution.call == SECOND
    assert [attempt.tool for attempt in execution.attempts] == ["first/find", "second/search"]
    assert second.calls == [("search", {"query": "x"})]
    taken = b.list_events(FallbackTaken)
    assert [(event.tool, event.instead_of) for event in taken] == [("second/search", "first/find")]
    assert b.list_events(AttemptStarted)[-1].fallback is True


@proves("D5")
async def test_an_open_breaker_sends_the_call_to_the_next_tool_at_once():
    first = tool_server("first", ["find"], call=hang)
    second = tool_server("second", ["search"])
    async with open_bench(first.spec(), second.spec(), breaker_failures=1) as b:
        await b.run(FIRST, seconds=0.25)
        execution = await b.run(FIRST, alternatives=[SECOND])
    assert execution.call == SECOND
    assert len(first.calls) == 1
    assert execution.attempts[0].error is ErrorKind.UNAVAILABLE
    assert execution.attempts[0].milliseconds == 0


@proves("D5", "F40")
async def test_a_circular_hierarchy_ends_with_each_tool_tried_once():
    servers = [tool_server(name, [tool], call=fail) for name, tool in _TOOLS]
    async with open_bench(*(server.spec() for server in servers)) as b:
        with anyio.fail_after(30):
            execution = await b.run(FIRST, alternatives=cycle([SECOND, FIRST, THIRD]))
    assert [len(server.calls) for server in servers] == [1, 1, 1]
    assert execution.error is ErrorKind.EXECUTION_FAILED
    assert execution.call == FIRST  # what was asked for, and why it failed
    assert execution.detail == "out of order"
    assert len(execution.attempts) == 3


_TOOLS = [("first", "find"), ("second", "search"), ("third", "look")]


@proves("D5")
async def test_a_fallback_without_leave_is_skipped_and_noted():
    first = tool_server("first", ["find"], call=fail)
    second = tool_server("second", ["search"])
    third = tool_server("third", ["look"])

    async def only_third(call: Call) -> Permit | None:
        return create_permit(call) if call == THIRD else None

    async with open_bench(first.spec(), second.spec(), third.spec()) as b:
        execution = await b.run(FIRST, alternatives=[SECOND, THIRD], permitting=only_third)
    assert execution.call == THIRD
    assert second.calls == []
    noted = [(attempt.tool, attempt.error) for attempt in execution.attempts]
    assert noted[1] == ("second/search", ErrorKind.DENIED)
    assert [event.tool for event in b.list_events(FallbackTaken)] == ["third/look"]


async def test_a_permit_for_another_call_is_no_leave_for_a_fallback():
    second = tool_server("second", ["search"])

    async def mistaken(_: Call) -> Permit | None:
        return create_permit(FIRST)

    async def broken(_: Call) -> Permit | None:
        raise ZeroDivisionError

    async with open_bench(tool_server("first", ["find"], call=fail).spec(), second.spec()) as b:
        for permitting in (mistaken, broken):
            execution = await b.run(FIRST, alternatives=[SECOND], permitting=permitting)
            assert execution.error is ErrorKind.EXECUTION_FAILED
    assert second.calls == []


async def test_a_read_never_becomes_a_write_whatever_the_policy_allows():
    second = tool_server("second", ["search"])
    strong = a_call("second/search", effect=Effect.WRITE)
    async with open_bench(tool_server("first", ["find"], call=fail).spec(), second.spec()) as b:
        execution = await b.run(FIRST, alternatives=[strong])
    assert execution.error is ErrorKind.EXECUTION_FAILED
    assert second.calls == []
    assert "could write" in execution.attempts[-1].detail


@proves("D5")
@pytest.mark.parametrize("act", [hang, fail])
async def test_nothing_follows_a_write_that_may_have_taken_effect(act: Any):
    second = tool_server("second", ["search"])
    write = a_call("first/find", effect=Effect.WRITE)
    other = a_call("second/search", effect=Effect.WRITE)
    async with open_bench(tool_server("first", ["find"], call=act).spec(), second.spec()) as b:
        execution = await b.run(write, seconds=0.25, alternatives=[other])
    assert execution.error in (ErrorKind.UNKNOWN, ErrorKind.EXECUTION_FAILED)
    assert second.calls == []


@pytest.mark.process
async def test_a_write_that_was_never_sent_may_go_elsewhere():
    second = tool_server("second", ["search"])
    write = a_call("first/find", effect=Effect.WRITE)
    other = a_call("second/search", effect=Effect.WRITE)
    async with open_bench(Server.stdio("first", ["/no/such/program"]), second.spec(), retries=0) as b:
        execution = await b.run(write, alternatives=[other])
    assert execution.error is None
    assert execution.call == other
    assert len(b.journal) == 1


@pytest.mark.process
async def test_when_the_stand_in_of_a_write_ends_unknown_that_is_what_is_reported():
    second = tool_server("second", ["search"], call=hang)
    third = tool_server("third", ["look"])
    write, other, last = (
        a_call(tool, effect=Effect.WRITE) for tool in ("first/find", "second/search", "third/look")
    )
    down = Server.stdio("first", ["/no/such/program"])
    async with open_bench(down, second.spec(), third.spec(), retries=0) as b:
        execution = await b.run(write, alternatives=[other, last], latency_of=all_lasting(0.25))
    assert execution.error is ErrorKind.UNKNOWN
    assert execution.call == other
    assert third.calls == []


async def test_wrong_parameters_are_the_callers_to_mend():
    second = tool_server("second", ["search"])
    async with open_bench(tool_server("first", ["find"], call=ill_formed).spec(), second.spec()) as b:
        execution = await b.run(FIRST, alternatives=[SECOND])
    assert execution.error is ErrorKind.INVALID_PARAMETERS
    assert second.calls == []


@proves("D5")
async def test_a_tool_without_alternatives_fails_at_once_and_an_empty_result_stands():
    async with open_bench(tool_server("first", ["find"], call=find_nothing).spec()) as b:
        execution = await b.run(FIRST)
    assert execution.error is None
    assert execution.result is not None
    async with open_bench(
        tool_server("first", ["find"], call=find_nothing).spec(),
        tool_server("second", ["search"], call=fail).spec(),
    ) as b:
        execution = await b.run(FIRST, alternatives=[SECOND])
    assert execution.error is None
    assert execution.call == FIRST


async def test_without_the_flag_no_other_tool_is_tried():
    second = tool_server("second", ["search"])
    first = tool_server("first", ["find"], call=fail)
    async with open_bench(first.spec(), second.spec(), flags={"fallback": False}) as b:
        execution = await b.run(FIRST, alternatives=[SECOND])
    assert execution.error is ErrorKind.EXECUTION_FAILED
    assert second.calls == []


async def test_a_hierarchy_that_breaks_does_not_hide_why_the_call_failed():
    def broken(_: Call) -> Iterator[Call]:
        yield SECOND
        raise ZeroDivisionError

    async with open_bench(
        tool_server("first", ["find"], call=fail).spec(), tool_server("second", ["search"], call=fail).spec()
    ) as b:
        execution = await b.runner.run(a_run(FIRST, fallbacks=GivenFallbacks(broken)))
    assert execution.error is ErrorKind.EXECUTION_FAILED
    assert len(execution.attempts) == 2


def text(*texts: str) -> JsonObject:
    return {"content": [{"type": "text", "text": item} for item in texts]}


@table(
    "result",
    [
        {},
        {"content": []},
        text(""),
        text(" \n"),
        text("[]"),
        text("{ }"),
        text("null"),
        text("", "[]"),
        {"content": [], "structuredContent": {}},
        {"content": [{"type": "text", "text": "[]"}], "structuredContent": {"result": []}},
    ],
)
def test_what_says_nothing_is_empty(result: JsonObject):
    assert is_empty_result(result)


@table(
    "result",
    [
        text("0"),
        text("false"),
        text("no results"),
        text("", "x"),
        text('{"open_issues": []}'),
        {"content": [{"type": "image", "data": "", "mimeType": "image/png"}]},
        {"content": [], "structuredContent": {"result": 0}},
        {"content": [], "structuredContent": {"result": False}},
        {"content": [], "structuredContent": {"total": 0}},
        {"content": "not a list"},
    ],
)
def test_what_says_anything_is_not_empty(result: JsonObject):
    assert not is_empty_result(result)


# Values that matter here, rather than any: drawing from all of Unicode is slow on a cold start.
words = st.sampled_from(["", " ", "[]", "null", "x", "text", "type", "result"])
json_values = st.recursive(
    st.sampled_from([None, True, 0, 1.5]) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["content", "structuredContent", "isError"]), json_values))
def test_whatever_a_server_sends_emptiness_can_be_told(result: dict[str, Any]):
    assert is_empty_result(result) in (True, False)
