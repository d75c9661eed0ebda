"""2026-07-28 over HTTP: one POST, one answer."""

from __future__ import annotations

import json
from typing import Any

import anyio

from tests.kit.gateway_client import (
    MODERN,
    ask,
    eventually,
    modern,
    modern_headers,
    open_raw_connection,
    tool_call,
)
from tests.kit.small_gateway import open_small_gateway
from tests.kit.tables import table
from tests.requirements import proves

LISTEN = "subscriptions/listen"
KEY = "io.modelcontextprotocol/subscriptionId"


@proves("G1")
async def test_a_call_is_answered_as_json():
    async with open_small_gateway() as gateway:
        got = await ask(gateway, *echo_call("hello"))
        assert (got.status, got.headers["content-type"]) == (200, "application/json")
        assert got.json == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {"resultType": "complete", "content": [{"type": "text", "text": "hello"}]},
        }
        (request,) = gateway.methods.requests
        assert (request.modern, request.session, request.client) == (True, None, "bytes 1")


def echo_call(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    body, headers = tool_call("echo", text=text)
    return body, {**headers, "mcp-param-text": text}


@proves("G1")
async def test_discovery_describes_the_endpoint():
    async with open_small_gateway() as gateway:
        got = await ask(
            gateway, modern("server/discover"), modern_headers("server/discover"), path="/mcp/p/support"
        )
        result = got.json["result"]
        assert result["supportedVersions"] == [MODERN]
        assert result["instructions"] == "/mcp/p/support"
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "small"
        assert {"resultType", "ttlMs", "cacheScope", "capabilities"} <= set(result)


async def test_an_unknown_profile_is_not_there():
    async with open_small_gateway() as gateway:
        got = await ask(gateway, *echo_call("x"), path="/mcp/p/nobody")
        assert got.status == 404
        assert not gateway.methods.requests


@proves("G1")
async def test_what_is_told_on_the_way_makes_the_answer_a_stream():
    async with open_small_gateway() as gateway:
        got = await ask(gateway, *tool_call("tell"))
        assert got.headers["content-type"] == "text/event-stream"
        first, second, last = got.events
        assert (first["params"]["data"], second["params"]["data"]) == ("one", "two")
        assert last["result"]["content"][0]["text"] == "told"


async def test_a_client_that_takes_no_stream_gets_the_result_alone():
    async with open_small_gateway() as gateway:
        body, headers = tool_call("tell")
        got = await ask(gateway, body, {**headers, "accept": "application/json"})
        assert got.json["result"]["content"][0]["text"] == "told"


async def test_a_client_that_takes_streams_alone_gets_one():
    async with open_small_gateway() as gateway:
        body, headers = echo_call("x")
        got = await ask(gateway, body, {**headers, "accept": "text/event-stream"})
        assert got.events[0]["result"]["content"][0]["text"] == "x"


@proves("G1")
@table(
    ("change", "status", "code"),
    [
        ({"mcp-method": "tools/list"}, 400, -32020),
        ({"mcp-name": "other"}, 400, -32020),
        ({"mcp-protocol-version": "2027-01-01"}, 400, -32020),
        ({"mcp-param-text": "other"}, 400, -32020),
        ({"accept": "text/html"}, 406, -32600),
        ({"content-type": "text/plain"}, 400, -32600),
    ],
)
async def test_headers_must_agree_with_the_body(change: dict[str, str], status: int, code: int):
    async with open_small_gateway() as gateway:
        body, headers = echo_call("x")
        got = await ask(gateway, body, {**headers, **change})
        assert (got.status, got.code) == (status, code)
        assert not gateway.methods.requests


async def test_a_header_given_twice_is_refused():
    async with open_small_gateway() as gateway:
        body, headers = echo_call("x")
        got = await ask(gateway, body, {**headers, "Mcp-Name": "echo"})
        assert (got.status, got.code) == (400, -32020)
        got = await ask(gateway, body, {**headers, "Authorization": "a", "authorization": "b"})
        assert (got.status, got.code) == (400, -32600)


@proves("G1")
async def test_spaces_around_a_header_are_not_part_of_it():
    async with open_small_gateway() as gateway:
        body, headers = echo_call("x")
        assert (await ask(gateway, body, {**headers, "mcp-name": "  echo \t"})).status == 200


@proves("G9")
async def test_credentials_of_a_caller_are_not_passed_on():
    async with open_small_gateway() as gateway:
        body, headers = echo_call("x")
        await ask(gateway, body, {**headers, "authorization": "Bearer ours"})
        await ask(gateway, body, {**headers, "authorization": "Bearer theirs", "x-api-key": "ours"})
        assert [one.authorization for one in gateway.methods.requests] == [None, "Bearer theirs"]


@proves("G1")
async def test_a_wrong_envelope_is_explained():
    async with open_small_gateway() as gateway:
        headers = modern_headers("tools/list")
        bare = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}
        got = await ask(gateway, bare, headers)
        assert (got.status, got.code, got.json["id"]) == (400, -32602, 5)
        later = modern("tools/list", version="2030-01-01")
        got = await ask(gateway, later, {**headers, "mcp-protocol-version": "2030-01-01"})
        assert (got.status, got.code) == (400, -32022)
        assert got.json["error"]["data"] == {"supported": [MODERN], "requested": "2030-01-01"}
        # No header at all, though the body is of the newer era.
        got = await ask(gateway, modern("tools/list"))
        assert (got.status, got.code) == (400, -32020)


@table("method", ["initialize", "ping", "logging/setLevel", "no/such"])
async def test_methods_of_the_older_era_do_not_exist(method: str):
    async with open_small_gateway() as gateway:
        got = await ask(gateway, modern(method), modern_headers(method))
        assert (got.status, got.code) == (404, -32601)


async def test_a_fault_inside_says_nothing_of_the_inside():
    async with open_small_gateway() as gateway:
        got = await ask(gateway, *tool_call("fail"))
        assert (got.status, got.code) == (200, -32603)
        assert b"secret" not in got.body
        assert b"Traceback" not in got.body


async def test_other_messages_and_methods():
    async with open_small_gateway() as gateway:
        headers = modern_headers("notifications/cancelled")
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await ask(gateway, note, headers)).status == 202
        assert (await ask(gateway, {"jsonrpc": "2.0", "id": 1, "result": {}}, headers)).code == -32600
        assert (await ask(gateway, [note], headers)).code == -32600
        got = await ask(gateway, None, headers, method="GET")
        assert (got.status, got.headers["allow"]) == (405, "POST")


@proves("F30")
async def test_a_client_that_leaves_ends_its_request():
    async with open_small_gateway() as gateway:
        async with open_raw_connection(gateway) as line:
            await line.send(*tool_call("wait"))
            await gateway.methods.entered.wait()
        with anyio.fail_after(30):
            await gateway.methods.cancelled.wait()


async def test_a_slow_answer_leaves_its_connection_in_order():
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        for _ in range(2):
            await line.send(*tool_call("wait"))
            await gateway.methods.entered.wait()
            await anyio.sleep(0.1)  # longer than the wire waits before it looks after the client
            gateway.methods.may_proceed.set()
            assert (await line.got()).json["result"]["content"][0]["text"] == "waited"
        assert (await line.ask(*echo_call("after"))).status == 200
        assert not gateway.methods.cancelled.is_set()


async def test_odd_text_of_a_server_is_written_as_json():
    async with open_small_gateway() as gateway:
        got = await ask(gateway, *tool_call("odd"))
        assert b"\\ud800 and 1" in got.body


async def test_integers_of_any_size_arrive_as_they_were_sent():
    async with open_small_gateway() as gateway:
        body, headers = tool_call("wait", number="N")
        gateway.methods.may_proceed.set()
        raw = json.dumps(body).replace('"N"', "1" * 30).encode()
        await ask(gateway, raw, headers)
        arguments: Any = gateway.methods.requests[0].params["arguments"]
        assert arguments["number"] == int("1" * 30)


@proves("G1", "G8")
async def test_a_subscription_hears_what_it_asked_for():
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a:1"], "unknownKind": True}
        await line.send(modern(LISTEN, {"notifications": wanted}), modern_headers(LISTEN))
        status, headers = await line.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        agreed = await line.event()
        assert agreed["method"] == "notifications/subscriptions/acknowledged"
        assert agreed["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["a:1"],
        }
        assert agreed["params"]["_meta"] == {KEY: 1}
        publish = gateway.audience.publish
        publish("notifications/prompts/list_changed", {})
        publish("notifications/resources/updated", {"uri": "b:2"})
        publish(
            "notifications/resources/updated", {"uri": "a:1"}, should_receive=lambda request: request.modern
        )
        publish("notifications/tools/list_changed", {}, should_receive=lambda request: not request.modern)
        publish("notifications/tools/list_changed", {})
        publish("notifications/tools/list_changed", {})
        received = [await line.event(), await line.event()]
        assert [one["method"] for one in received] == [
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        assert received[0]["params"] == {"uri": "a:1", "_meta": {KEY: 1}}
        await gateway.app.drain(1)
        last = await line.event()
        assert last["result"] == {"resultType": "complete", "_meta": {KEY: 1}}
        (left,) = gateway.methods.left_sessions
        assert left == gateway.methods.requests[0].session


async def test_a_subscription_is_a_stream_and_says_what_it_wants():
    async with open_small_gateway() as gateway:
        headers = modern_headers(LISTEN)
        got = await ask(
            gateway, modern(LISTEN, {"notifications": {}}), {**headers, "accept": "application/json"}
        )
        assert got.status == 406
        got = await ask(gateway, modern(LISTEN), headers)
        assert (got.status, got.code) == (400, -32602)


async def test_a_stream_whose_client_left_is_forgotten():
    async with open_small_gateway() as gateway:
        async with open_raw_connection(gateway) as line:
            await line.send(
                modern(LISTEN, {"notifications": {"toolsListChanged": True}}), modern_headers(LISTEN)
            )
            await line.head()
            await line.event()
            assert len(gateway.audience) == 1
        await eventually(lambda: not len(gateway.audience))
        assert gateway.methods.left_sessions
