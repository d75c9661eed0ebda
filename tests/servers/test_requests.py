"""What goes between a caller and a server besides arguments and a result: nothing lost, nothing added."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as McpServer
from mcp_types import ListToolsResult

from fingerpost.errors import ServerReplyInvalid, ToolFailed, ToolTimeout
from fingerpost.events import MemorySink
from fingerpost.records import JsonObject
from fingerpost.servers import RequestContext, Server, ServerPool
from fingerpost.settings import LimitSettings
from fingerpost.testing import MemoryTokens, served, tool_server
from tests.kit import warm
from tests.kit.full_server import STATE, FullServer, serve_full_server
from tests.kit.server_callers import RecordingCaller
from tests.kit.server_pools import PATIENCE, eventually, open_pool, text_of
from tests.kit.tables import table
from tests.requirements import proves

OLD, NEW = "2025-11-25", "2026-07-28"
TRACE: JsonObject = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=1",
    "baggage": "user=7",
    "com.example/unknown": {"deep": [1, None, "ü"]},
}


@asynccontextmanager
async def open_pool_over(way: str, era: Any, talkative: FullServer) -> AsyncGenerator[ServerPool]:
    """The same server over each way that leads to it."""
    if way == "memory":
        async with open_pool(Server.in_process("talk", talkative.server, era=era)) as servers:
            yield servers
    else:
        async with serve_full_server(talkative, json_response=way == "json") as (url, _):
            book = await create_tokens(url) if way == "signed in" else None
            async with open_pool(Server.http("talk", url, era=era), tokens=book) as servers:
                yield servers


async def create_tokens(url: str) -> MemoryTokens:
    """A sign-in to the server. Requests that carry one go the long way, by the library."""
    book = MemoryTokens()
    sign_in = {"address": url, "tokens": {"access_token": "ours", "token_type": "Bearer"}}
    await book.put("talk", json.dumps(sign_in).encode())
    return book


async def call(
    servers: ServerPool, tool: str, passage: RequestContext | None = None, *, timeout: float = PATIENCE
) -> JsonObject:
    return await servers.call("talk", tool, {}, timeout=timeout, context=passage)


@proves("G9")
@pytest.mark.parametrize("era", [OLD, NEW])
async def test_trace_context_arrives_and_the_callers_token_does_not(era: Any):
    caller = RecordingCaller(authorization="Bearer of-the-caller")
    async with (
        serve_full_server(FullServer()) as (url, record),
        open_pool(Server.http("talk", url, era=era, headers={"X-Own": "1"})) as servers,
    ):
        result = await call(servers, "meta", RequestContext(caller=caller, meta=TRACE))
        ((headers, body),) = record.of("tools/call")
    seen = json.loads(text_of(result))
    assert {key: seen[key] for key in TRACE} == TRACE
    assert headers["x-own"] == "1"
    assert "of-the-caller" not in json.dumps([record.requests])
    assert "authorization" not in headers
    assert "cookie" not in headers
    assert body["params"]["_meta"]["progressToken"] == body["id"]


@proves("G9")
async def test_a_server_that_is_to_get_the_callers_token_gets_it_with_that_one_request():
    async with serve_full_server(FullServer()) as (url, record):
        spec = replace(Server.http("talk", url), forward_authorization=True)
        async with open_pool(spec) as servers:
            await call(servers, "meta", RequestContext(caller=RecordingCaller(authorization="Bearer mine")))
            await call(servers, "meta", RequestContext(caller=RecordingCaller(authorization="Bearer yours")))
            await call(servers, "meta")
    sent = [headers.get("authorization") for headers, _ in record.of("tools/call")]
    assert sent == ["Bearer mine", "Bearer yours", None]
    others = [headers for headers, body in record.requests if body.get("method") != "tools/call"]
    assert not any("authorization" in headers for headers in others)


@pytest.mark.slow
@proves("G8")
@table("era", [OLD, NEW])
@table("way", ["memory", "http", "signed in"])
async def test_progress_and_log_messages_reach_the_caller_before_the_result(way: str, era: Any):
    caller = RecordingCaller()
    received: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total, message))

    async with open_pool_over(way, era, FullServer()) as servers:
        await servers.call(
            "talk",
            "report",
            {},
            timeout=PATIENCE,
            on_progress=on_progress,
            context=RequestContext(caller=caller, log_level="info"),
        )
        events = list(caller.notifications)
    steps: list[Any] = [params for method, params in events if method == "notifications/progress"]
    assert [(step["progress"], step["total"], step["message"]) for step in steps] == received
    assert received == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert not any("progressToken" in step for step in steps)
    logs: list[Any] = [params for method, params in events if method == "notifications/message"]
    assert [log["data"] for log in logs] == [{"at": "work"}]


async def test_the_level_of_log_messages_is_asked_for_in_the_modern_way():
    talkative = FullServer()
    async with open_pool_over("http", NEW, talkative) as servers:
        await call(servers, "meta", RequestContext(caller=RecordingCaller(), log_level="warning"))
        await call(servers, "meta", RequestContext(caller=RecordingCaller()))
    levels = [meta.get("io.modelcontextprotocol/logLevel") for meta in talkative.metas]
    assert levels == ["warning", None]


@proves("G8")
@pytest.mark.parametrize("way", ["memory", "http", "signed in"])
async def test_a_handshake_server_asks_the_caller_of_its_own_request(way: str):
    """Two at once over HTTP, where the stream says whose question it is; one over a pipe, where none does."""
    people = [
        RecordingCaller(key=f"p{n}", answer={"action": "accept", "content": {"n": n}}, thinks=0.05)
        for n in (1, 2)
    ]
    people = people[:1] if way == "memory" else people
    answers: dict[str, Any] = {}
    async with open_pool_over(way, OLD, FullServer()) as servers:

        async def ask(person: RecordingCaller) -> None:
            answers[person.key] = json.loads(
                text_of(await call(servers, "ask", RequestContext(caller=person)))
            )

        async with anyio.create_task_group() as tasks:
            for person in people:
                tasks.start_soon(ask, person)
    assert answers == {person.key: person.answer for person in people}
    method, params = people[0].asked[0]
    assert method == "elicitation/create"
    assert params["message"] == "Which colour?"
    assert params["requestedSchema"]["properties"] == {"colour": {"type": "string"}}


@pytest.mark.process
async def test_over_standard_streams_the_only_request_is_the_one_that_asks():
    caller = RecordingCaller()
    spec = Server.stdio("talk", [*warm.python(), "-m", "tests.kit.full_server"], era=OLD)
    async with open_pool(spec) as servers:
        answer = json.loads(text_of(await call(servers, "ask", RequestContext(caller=caller))))
        await call(servers, "report", RequestContext(caller=caller))
    assert answer == caller.answer
    assert [method for method, _ in caller.notifications] == ["notifications/progress"] * 3 + [
        "notifications/message"
    ]


async def test_a_question_that_could_belong_to_several_callers_is_dropped():
    talkative = FullServer()
    other, caller = RecordingCaller(key="other"), RecordingCaller(key="caller")
    alone = result = ""
    async with (
        serve_full_server(talkative) as (url, recorder),
        open_pool(Server.http("talk", url, era=OLD)) as servers,
        anyio.create_task_group() as tasks,
    ):
        await eventually(lambda: recorder.streams > 0)  # for such questions
        alone = text_of(await call(servers, "ask_outside", RequestContext(caller=caller)))
        tasks.start_soon(call, servers, "wait", RequestContext(caller=other))
        await talkative.began.wait()
        result = text_of(await call(servers, "ask_outside", RequestContext(caller=caller)))
        tasks.cancel_scope.cancel()
    assert alone == "accept"
    assert result.startswith(
        "-32601 elicitation/create cannot be answered: it names no request, and those of 2 callers run"
    )
    assert other.asked == []
    assert len(caller.asked) == 1


@pytest.mark.parametrize("way", ["memory", "http"])
async def test_what_the_caller_cannot_do_is_refused_with_the_code_for_it(way: str):
    async with open_pool_over(way, OLD, FullServer()) as servers:
        lacking = text_of(await call(servers, "sample", RequestContext(caller=RecordingCaller())))
        nobody = text_of(await call(servers, "sample"))
    assert lacking == "-32601 sampling/createMessage cannot be answered: the caller does not offer sampling"
    assert nobody == "-32601 sampling/createMessage cannot be answered: there is no caller to ask"


async def test_the_callers_refusal_reaches_the_server_with_its_code():
    caller = RecordingCaller(capabilities={"sampling": {}}, answer=None)
    async with open_pool_over("http", OLD, FullServer()) as servers:
        assert text_of(await call(servers, "sample", RequestContext(caller=caller))) == "-32042 not today"


@pytest.mark.slow
@table("era", [OLD, NEW])
@table("way", ["memory", "http"])
async def test_the_time_a_person_thinks_is_not_the_servers(way: str, era: Any):
    caller = RecordingCaller(thinks=1.2)
    async with open_pool_over(way, era, FullServer()) as servers:
        assert "blue" in text_of(await call(servers, "ask", RequestContext(caller=caller), timeout=1))
        with pytest.raises(ToolTimeout):
            await call(servers, "wait", RequestContext(caller=caller), timeout=0.2)


@proves("G8")
@table("way", ["memory", "http", "json", "signed in"])
async def test_rounds_of_a_modern_server_go_back_as_they_are_to_who_takes_them(way: str):
    talkative = FullServer()
    caller = RecordingCaller(accepts_input_required=True)
    async with open_pool_over(way, NEW, talkative) as servers:
        first = await call(servers, "ask", RequestContext(caller=caller))
        assert first["resultType"] == "input_required"
        assert first["requestState"] == STATE
        answers: JsonObject = {"colour": {"action": "accept", "content": {"colour": "red"}}}
        again = RequestContext(caller=caller, input_responses=answers, request_state=STATE)
        assert again.is_continuation
        result = await call(servers, "ask", again)
    assert json.loads(text_of(result)) == answers["colour"]
    assert talkative.states == [None, STATE]
    assert caller.asked == []
    seen = [meta["io.modelcontextprotocol/clientCapabilities"] for meta in talkative.metas]
    assert seen == [caller.capabilities] * 2


@pytest.mark.slow
@proves("G8")
@table("way", ["memory", "http", "json", "signed in"])
async def test_rounds_of_a_modern_server_are_answered_for_who_cannot(way: str):
    talkative = FullServer()
    caller = RecordingCaller()
    async with open_pool_over(way, NEW, talkative) as servers:
        result = await call(servers, "ask", RequestContext(caller=caller))
        assert text_of(await call(servers, "twice", RequestContext(caller=caller))) == "done"
        with pytest.raises(ToolFailed, match="there is no caller to ask"):
            await call(servers, "ask")
        if way == "memory":  # two seconds of pauses, the same in every way
            with pytest.raises(ServerReplyInvalid, match="still wanted input after 10 rounds"):
                await call(servers, "endless", RequestContext(caller=caller))
    assert json.loads(text_of(result)) == caller.answer
    assert [method for method, _ in caller.asked] == ["elicitation/create"]
    assert talkative.states[:4] == [None, STATE, None, STATE]


@proves("G8")
@table("era", [OLD, NEW])
@table("way", ["memory", "http"])
async def test_anything_can_be_asked_and_errors_keep_code_and_data(way: str, era: Any):
    async with open_pool_over(way, era, FullServer()) as servers:
        read = await servers.ask("talk", "resources/read", {"uri": "notes://one"}, timeout=PATIENCE)
        prompt = await servers.ask("talk", "prompts/get", {"name": "greet"}, timeout=PATIENCE)
        reference = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "a", "value": "x"}}
        completed = await servers.ask("talk", "completion/complete", reference, timeout=PATIENCE)
        with pytest.raises(ToolFailed) as absent:
            await servers.ask("talk", "resources/read", {"uri": "notes://none"}, timeout=PATIENCE)
        with pytest.raises(ToolFailed) as failed:
            await call(servers, "fail")
    contents: Any = read["contents"]
    assert contents[0]["text"] == "a note"
    assert "messages" in prompt
    assert json.loads(json.dumps(completed))["completion"]["values"] == ["x!"]
    assert absent.value.data == {"uri": "notes://none"}
    assert (failed.value.code, failed.value.data) == (-32050, {"why": ["rain"]})


@pytest.mark.slow
@table("era", [OLD, NEW])
@table("way", ["http", "signed in"])
async def test_a_caller_who_leaves_cancels_upstream_and_leaves_nothing_behind(way: str, era: Any):
    talkative = FullServer()
    async with open_pool_over(way, era, talkative) as servers:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, servers, "wait", RequestContext(caller=RecordingCaller()))
            await talkative.began.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE):
            await talkative.cancelled.wait()
        supervisor = servers._supervisors["talk"]  # pyright: ignore[reportPrivateUsage] - what is left is inside
        assert supervisor.connection is not None
        assert supervisor.connection.in_flight_count == 0
        assert json.loads(text_of(await call(servers, "meta"))) == talkative.metas[-1]


async def test_every_request_has_an_id_of_its_own():
    async with (
        serve_full_server(FullServer()) as (url, record),
        open_pool(Server.http("talk", url)) as servers,
    ):
        for _ in range(5):
            await call(servers, "meta")
        ids = [body["id"] for _, body in record.of("tools/call")]
    assert len(set(ids)) == 5


@proves("H12")
@pytest.mark.parametrize("era", [OLD, NEW])
async def test_one_call_after_the_other_shares_a_connection(era: Any):
    """A new connection for every call would cost more than the call."""
    ports: list[int] = []
    inner: Any = tool_server("talk").server.streamable_http_app()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            ports.append(scope["client"][1])
        await inner(scope, receive, send)

    async with served(app) as base, open_pool(Server.http("talk", f"{base}/mcp", era=era)) as servers:
        await anyio.sleep(0.2)  # whatever belongs to connecting is over
        ports.clear()
        for _ in range(10):
            await call(servers, "echo")
            await anyio.sleep(0.01)
    assert len(ports) == 10
    assert len(set(ports)) == 1


@pytest.mark.parametrize("era", [OLD, NEW])
async def test_an_isolating_server_gets_a_connection_for_each_caller(era: Any):
    talkative = FullServer()
    one, two = RecordingCaller(key="one"), RecordingCaller(key="two")
    async with serve_full_server(talkative) as (url, record):
        spec = replace(Server.http("talk", url, era=era), isolate=True)
        async with open_pool(spec) as servers:
            for caller in (one, two, one, two):
                await call(servers, "meta", RequestContext(caller=caller))
            await call(servers, "meta")
            if era == OLD:
                sessions = [headers["mcp-session-id"] for headers, _ in record.of("tools/call")]
                assert sessions[0] == sessions[2] != sessions[1] == sessions[3]
                assert sessions[4] not in sessions[:4]
                assert len(record.of("initialize")) == 3
            supervisor = servers._supervisors["talk"]  # pyright: ignore[reportPrivateUsage] - see above
            assert len(supervisor.caller_connections) == 2
            await servers.remove("talk")
            await eventually(lambda: len(supervisor.caller_connections) == 0)


@proves("G8")
@pytest.mark.parametrize("asked", [True, False])
async def test_capabilities_are_declared_only_where_a_client_can_be_asked(asked: bool) -> None:
    received: list[object] = []

    async def tools(ctx: ServerRequestContext[Any, Any], _: object) -> ListToolsResult:
        declared = ctx.session.client_capabilities
        received.append(None if declared is None else declared.elicitation)
        return ListToolsResult(tools=[])

    spec = Server.in_process("nosy", McpServer[Any]("nosy", on_list_tools=tools), era=OLD)
    async with ServerPool([spec], events=MemorySink(), limits=LimitSettings()) as servers:
        if asked:
            servers.advertise_client_capabilities()
        await servers.ensure("nosy", timeout=10)
    assert (received[0] is not None) is asked
