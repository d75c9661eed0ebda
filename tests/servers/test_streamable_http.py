"""The short way to servers at an address: broken streams, redirects, questions in the middle of a reply."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from fingerpost.errors import ServerReplyInvalid, ServerUnavailable, ToolFailed, ToolTimeout
from fingerpost.servers import RequestContext, Server, ServerPool
from fingerpost.servers.in_flight import InFlightRequest, RequestRegistry
from fingerpost.servers.streamable_http import MAX_EMPTY_RESPONSES
from fingerpost.testing import served
from tests.kit.plain_http import Act, PlainHttp, PlainRequest
from tests.kit.server_callers import RecordingCaller
from tests.kit.server_pools import PATIENCE, eventually, names, open_pool, text_of
from tests.requirements import proves

OLD: Mapping[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "plain", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "ping": {},
}
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


@asynccontextmanager
async def plain(acts: Mapping[str, Act], **spec: Any) -> AsyncGenerator[tuple[PlainHttp, ServerPool]]:
    server = PlainHttp(OLD, acts)
    async with (
        served(server) as base,
        open_pool(Server.http("plain", f"{base}/mcp", era="2025-11-25", **spec)) as servers,
    ):
        yield server, servers


def reply(asked: PlainRequest, result: object = DONE) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}


async def call(
    servers: ServerPool, caller: RecordingCaller | None = None, *, timeout: float = PATIENCE
) -> Any:
    return await servers.call("plain", "echo", {}, timeout=timeout, context=RequestContext(caller=caller))


async def test_nothing_is_asked_before_the_server_knows_that_the_handshake_is_over():
    """Servers refuse what comes sooner, and connections differ in how soon they bring it."""
    known = False

    async def take_long(asked: PlainRequest) -> None:
        nonlocal known
        await anyio.sleep(0.2)
        known = True
        await asked.answer(None, 202)

    async def lists(asked: PlainRequest) -> None:
        await asked.result(OLD["tools/list"] if known else {"tools": []}, mcp_session_id="s1")

    async with plain({"notifications/initialized": take_long, "tools/list": lists}) as (_, servers):
        assert names(servers, "plain") == ["echo"]


async def test_what_we_ask_ourselves_is_not_taken_for_a_callers_request():
    talks, caller = RequestRegistry("plain", lambda _method, _params, _caller: None), RecordingCaller()
    talks.open(InFlightRequest("plain", 1), internal=True)
    with pytest.raises(MCPError, match="there is no caller"):
        await talks.answer_server_request("elicitation/create", {}, request=None)
    talks.open(InFlightRequest("plain", 2, context=RequestContext(caller=caller)))
    assert await talks.answer_server_request("elicitation/create", {}, request=None) == caller.answer


async def test_a_stream_that_breaks_off_is_picked_up_where_it_was():
    picked: list[str | None] = []
    waiting: list[PlainRequest] = []

    async def break_off(asked: PlainRequest) -> None:
        waiting.append(asked)
        await asked.begin(kind="text/event-stream")
        await asked.event(None, id="7", retry=20)
        await asked.write(b"", more=False)

    async def pick_up(asked: PlainRequest) -> None:
        if "last-event-id" not in asked.headers:
            await asked.answer(None, 405)
            return
        picked.append(asked.headers["last-event-id"])
        assert asked.headers["mcp-session-id"] == "s1"
        await asked.begin(kind="text/event-stream")
        if len(picked) == 1:
            await asked.event(
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}, id="8"
            )
            await asked.write(b"", more=False)
        else:
            await asked.event(reply(waiting[0]), id="9")
            await asked.write(b"", more=False)

    caller = RecordingCaller()
    async with plain({"tools/call": break_off, "GET": pick_up}) as (server, servers):
        assert text_of(await call(servers, caller)) == "done"
    assert picked == ["7", "8"]
    assert server.asked.count("tools/call") == 1
    assert caller.notifications == [("notifications/message", {"data": 1})]


async def test_a_stream_that_cannot_be_picked_up_is_an_error_that_says_so():
    async def break_off(asked: PlainRequest) -> None:
        await asked.begin(kind="text/event-stream")
        await asked.event(None, id="7", retry=5)
        await asked.write(b"", more=False)

    async with plain({"tools/call": break_off}) as (_, servers):
        with pytest.raises(ServerUnavailable, match="ended its reply before it was complete") as caught:
            await call(servers)
        assert caught.value.hint is not None
        assert "unknown" in caught.value.hint


def break_off_at_once(times: list[PlainRequest]) -> Act:
    """Breaks off at once, and wants to be asked for the rest at once."""

    async def act(asked: PlainRequest) -> None:
        if asked.method == "GET" and "last-event-id" not in asked.headers:
            await asked.answer(None, 405)
            return
        times.append(asked)
        await asked.begin(kind="text/event-stream")
        await asked.event(None, id="7", retry=0)
        await asked.write(b"", more=False)

    return act


@pytest.mark.slow
async def test_a_stream_in_which_nothing_new_comes_is_asked_for_less_and_less_and_then_given_up():
    asked: list[PlainRequest] = []
    async with plain({"tools/call": break_off_at_once([]), "GET": break_off_at_once(asked)}) as (_, servers):
        with pytest.raises(ServerUnavailable, match="ended its reply before it was complete"):
            await call(servers)
    assert len(asked) == MAX_EMPTY_RESPONSES


async def test_a_server_that_wants_to_be_asked_for_the_rest_at_once_is_not_hammered():
    asked: list[PlainRequest] = []
    async with plain({"tools/call": break_off_at_once([]), "GET": break_off_at_once(asked)}) as (_, servers):
        with pytest.raises(ToolTimeout):
            await call(servers, timeout=1)
    assert len(asked) <= 4  # after 0.1, 0.3, 0.7 and, where it is late, 1.5 seconds


@proves("G8")
async def test_questions_notices_and_the_reply_in_one_stream():
    """The server goes on talking while its question is answered."""
    answered: dict[Any, Any] = {}
    have_all = anyio.Event()

    async def answer(asked: PlainRequest) -> None:
        answered[asked.message["id"]] = asked.message.get("result") or asked.message.get("error")
        await asked.answer(None, 202)
        if len(answered) == 4:
            have_all.set()

    async def talk(asked: PlainRequest) -> None:
        def question(number: object, method: str, params: object = None) -> dict[str, Any]:
            return {
                "jsonrpc": "2.0",
                "id": number,
                "method": method,
                **({"params": params} if params else {}),
            }

        token = asked.message["params"]["_meta"]["progressToken"]
        await asked.begin(kind="text/event-stream")
        await asked.event(question("q1", "elicitation/create", {"message": "?", "unknown": {"kept": [1]}}))
        await asked.event(question(2, "ping"))
        progress = {"progressToken": token, "progress": 1, "unknown": True}
        await asked.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        await asked.event({"jsonrpc": "2.0", "method": "notifications/com.example/news", "params": {"a": 1}})
        await asked.event(
            {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a:b"}}
        )
        await asked.event(question(3, "roots/list"))
        await asked.event(question(4, "tasks/unheard-of"))
        await have_all.wait()
        await asked.event(reply(asked))
        await asked.write(b"", more=False)

    caller = RecordingCaller(thinks=0.05)
    everybody: list[tuple[str, str, Any]] = []
    async with plain({"tools/call": talk, "answer": answer}) as (_, servers):
        servers.subscribe_to_notifications(
            lambda server, method, params, caller: everybody.append((server, method, params))
        )
        assert text_of(await call(servers, caller)) == "done"
    assert caller.asked == [("elicitation/create", {"message": "?", "unknown": {"kept": [1]}})]
    assert caller.notifications == [
        ("notifications/progress", {"progress": 1, "unknown": True}),
        ("notifications/com.example/news", {"a": 1}),
    ]
    assert everybody == [("plain", "notifications/resources/updated", {"uri": "a:b"})]
    assert answered["q1"] == caller.answer
    assert answered[2] is None or answered[2] == {}
    assert answered[3]["code"] == -32601
    assert answered[4]["code"] == -32601


async def test_a_reply_ends_an_unanswered_question():
    async def talk(asked: PlainRequest) -> None:
        await asked.begin(kind="text/event-stream")
        await asked.event(
            {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": "?"}}
        )
        await anyio.sleep(0.05)
        await asked.event(reply(asked))
        await asked.write(b"", more=False)

    caller = RecordingCaller(thinks=3600)
    async with plain({"tools/call": talk}) as (_, servers):
        assert text_of(await call(servers, caller)) == "done"
        assert len(caller.asked) == 1


@pytest.mark.parametrize("while_asking", [True, False])
async def test_a_stream_cut_in_the_middle_is_an_error_at_once(while_asking: bool):
    async def cut(asked: PlainRequest) -> None:
        await asked.begin(kind="text/event-stream")
        if while_asking:
            question = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": "?"}}
            await asked.event(question)
            await anyio.sleep(0.05)
        await asked.write(b'data: {"jsonrpc":"2.0","i', more=False)

    async with plain({"tools/call": cut}) as (_, servers):
        with pytest.raises(ServerUnavailable, match="ended its reply before it was complete"):
            await call(servers, RecordingCaller(thinks=3600))


@proves("F50")
async def test_a_redirect_is_followed_with_its_body_only_within_the_server():
    async def send_redirect(asked: PlainRequest) -> None:
        if asked.path == "/mcp":
            await asked.answer(None, 307, location="/mcp/")
        else:
            await asked.result(DONE)

    async with plain({"tools/call": send_redirect}) as (server, servers):
        assert text_of(await call(servers)) == "done"
        assert text_of(await call(servers)) == "done"
        assert server.asked.count("tools/call") == 3  # the second call knew the way

    async def away(asked: PlainRequest) -> None:
        await asked.answer(None, 308, location="http://localhost:9/mcp?key=secret")

    async with plain({"tools/call": away}, headers={"X-Key": "ours"}) as (_, servers):
        with pytest.raises(
            ServerUnavailable, match="redirects to http://localhost:9/mcp, another address"
        ) as caught:
            await call(servers)
        assert "secret" not in str(caught.value)

    async def around(asked: PlainRequest) -> None:
        await asked.answer(None, 307, location=asked.path + "x")

    async with plain({"tools/call": around}) as (server, servers):
        with pytest.raises(ServerUnavailable, match="redirects to"):
            await call(servers)
        assert server.asked.count("tools/call") <= 10

    async def to_itself(asked: PlainRequest) -> None:
        await asked.answer(None, 308, location=asked.path)

    async with plain({"tools/call": to_itself}) as (_, servers):
        with pytest.raises(ServerUnavailable, match="redirect loop") as caught:
            await call(servers)
        assert "another address" not in str(caught.value)


@pytest.mark.parametrize("status", [202, 204])
async def test_an_answer_without_content_is_a_reply_that_is_missing(status: int):
    async def nothing(asked: PlainRequest) -> None:
        await asked.answer(None, status)

    async with plain({"tools/call": nothing}) as (_, servers):
        with pytest.raises(ServerReplyInvalid, match=f"the reply of plain is missing .HTTP {status}"):
            await call(servers)


async def test_a_cookie_of_the_handshake_comes_back_to_its_server_and_to_no_other():
    cookies: dict[str, list[str | None]] = {"one": [], "two": []}

    def app(name: str) -> PlainHttp:
        async def greet(asked: PlainRequest) -> None:
            await asked.result(OLD["initialize"], set_cookie=f"machine={name}; Path=/", mcp_session_id="s1")

        async def answer(asked: PlainRequest) -> None:
            cookies[name].append(asked.headers.get("cookie"))
            await asked.result(DONE, set_cookie="later=1")

        return PlainHttp(OLD, {"initialize": greet, "tools/call": answer})

    async with (
        served(app("one")) as one,
        served(app("two")) as two,
        open_pool(
            Server.http("one", one, era="2025-11-25"), Server.http("two", two, era="2025-11-25")
        ) as servers,
    ):
        for name in ("one", "two", "one"):
            await servers.call(name, "echo", {}, timeout=PATIENCE)
    assert cookies == {"one": ["machine=one"] * 2, "two": ["machine=two"]}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("123456789012345678901234567890", None),
        ('"\\ud800"', "not valid Unicode"),
        ("1e999", "JSON cannot represent"),
    ],
)
async def test_values_a_fast_parser_gets_wrong(number: str, words: str | None):
    async def odd(asked: PlainRequest) -> None:
        await asked.begin()
        body = f'{{"jsonrpc":"2.0","id":{asked.message["id"]},"result":{{"n":{number}}}}}'
        await asked.write(body.encode(), more=False)

    async with plain({"tools/call": odd}) as (_, servers):
        if words is None:
            assert (await call(servers))["n"] == int(number)
            return
        with pytest.raises(ServerReplyInvalid, match=words):
            await call(servers)


async def test_arguments_a_fast_encoder_refuses_arrive():
    async def echo(asked: PlainRequest) -> None:
        await asked.result(asked.message["params"]["arguments"])

    async with plain({"tools/call": echo}) as (_, servers):
        arguments = {"long": 10**30, "nested": ({"a": 1},)}
        result = await servers.call("plain", "echo", arguments, timeout=PATIENCE)
        assert json.loads(json.dumps(result)) == json.loads(json.dumps(arguments))


async def test_an_error_with_a_bad_status_keeps_its_code_and_data():
    async def refuse(asked: PlainRequest) -> None:
        error = {"code": -32602, "message": "bad argument", "data": {"field": "x"}}
        await asked.answer({"jsonrpc": "2.0", "id": None, "error": error}, 400)

    async with plain({"tools/call": refuse}) as (_, servers):
        with pytest.raises(ToolFailed) as caught:
            await call(servers)
        assert (caught.value.code, caught.value.data) == (-32602, {"field": "x"})


@proves("F2")
async def test_a_call_that_is_given_up_is_called_off_and_its_connection_closed():
    gone = anyio.Event()

    async def hang(asked: PlainRequest) -> None:
        await asked.wait_for_disconnect()
        gone.set()

    async with plain({"tools/call": hang}) as (server, servers):
        with pytest.raises(ToolTimeout):
            await call(servers, timeout=0.1)
        with anyio.fail_after(PATIENCE):
            await gone.wait()
        await eventually(lambda: "notifications/cancelled" in server.asked)
        sent = next(message for message in server.messages if message.get("method") == "tools/call")
        texts = next(
            message for message in server.messages if message.get("method") == "notifications/cancelled"
        )
        assert texts["params"]["requestId"] == sent["id"]


async def test_calls_under_way_end_with_the_connection():
    began = anyio.Event()

    async def hang(asked: PlainRequest) -> None:
        began.set()
        await asked.wait_for_disconnect()

    async with plain({"tools/call": hang}) as (_, servers), anyio.create_task_group() as tasks:

        async def call_closed_server() -> None:
            with pytest.raises(ServerUnavailable, match="disconnected before it answered"):
                await call(servers)

        tasks.start_soon(call_closed_server)
        await began.wait()
        await servers.remove("plain")
