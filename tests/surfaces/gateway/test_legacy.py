"""2025-11-25 and before over HTTP: sessions, streams, questions."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from fingerpost.events import ClientConnected, ClientLeft
from tests.kit.gateway_client import INITIALIZE, ask, eventually, old, open_raw_connection, open_session
from tests.kit.small_gateway import open_small_gateway
from tests.kit.tables import table
from tests.requirements import proves


def call(name: str, request_id: str | int = 1, **arguments: Any) -> dict[str, Any]:
    return old("tools/call", {"name": name, "arguments": arguments}, request_id)


@proves("G1")
@table(
    ("asked", "spoken"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ],
)
async def test_the_version_is_agreed_on(asked: str, spoken: str):
    async with open_small_gateway() as gateway:
        got = await ask(gateway, {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": asked}})
        assert got.json["result"]["protocolVersion"] == spoken
        assert got.json["result"]["serverInfo"]["name"] == "small"
        assert len(got.headers["mcp-session-id"]) >= 32


@proves("G1")
async def test_a_session_from_hello_to_goodbye():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        got = await ask(gateway, call("echo", text="hi"), session)
        assert (got.status, got.headers["content-type"]) == (200, "application/json")
        assert got.json["result"] == {"content": [{"type": "text", "text": "hi"}]}
        assert (await ask(gateway, old("ping"), session)).json["result"] == {}
        assert gateway.methods.requests[0].capabilities == {"elicitation": {}}
        assert (await ask(gateway, None, session, method="DELETE")).status == 200
        assert (await ask(gateway, old("ping"), session)).status == 404
        assert [type(event) for event in gateway.events.events] == [ClientConnected, ClientLeft]
        assert gateway.methods.left_sessions == [session["mcp-session-id"]]


@proves("G1")
async def test_a_session_is_its_owners_alone():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway, {"x-who": "ana"})
        assert (await ask(gateway, old("ping"), session)).status == 200
        assert (await ask(gateway, old("ping"), {**session, "x-who": "bob"})).status == 404
        assert (await ask(gateway, old("ping"), session, path="/mcp/all")).status == 404
        assert (await ask(gateway, old("ping"), {"mcp-session-id": "guess"})).status == 404
        assert (await ask(gateway, old("ping"))).status == 400
        assert (await ask(gateway, None, {**session, "x-who": "bob"}, method="DELETE")).status == 404


async def test_an_unknown_version_is_named():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        got = await ask(gateway, old("tools/list"), {**session, "mcp-protocol-version": "2099-01-01"})
        assert (got.status, got.code) == (400, -32022)
        data = got.json["error"]["data"]
        assert data["requested"] == "2099-01-01"
        assert {"2025-11-25", "2026-07-28"} <= set(data["supported"])
        assert not gateway.methods.requests
        for method in ("GET", "DELETE"):
            got = await ask(gateway, None, {**session, "mcp-protocol-version": "2099-01-01"}, method=method)
            assert (got.status, got.code) == (400, -32022)


@pytest.mark.parametrize("head", [b'"id":null,', b""], ids=["the id null", "no id"])
async def test_an_error_that_belongs_to_no_request_is_taken(head: bytes):
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        error = b'{"jsonrpc":"2.0",' + head + b'"error":{"code":-32700,"message":"what?"}}'
        assert (await ask(gateway, error, session)).status == 202


async def test_errors_are_answers_in_this_era():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        got = await ask(gateway, old("no/such"), session)
        assert (got.status, got.code) == (200, -32601)
        got = await ask(gateway, call("none"), session)
        assert (got.status, got.json["error"]["data"]) == (200, {"tool": "none"})
        got = await ask(gateway, old("server/discover"), session)
        assert got.code == -32601
        got = await ask(gateway, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
        assert got.code == -32602


@proves("G8")
async def test_a_client_is_asked_while_its_request_runs():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as line:
            await line.send(call("ask", message="sure?"), session)
            assert (await line.head())[1]["content-type"] == "text/event-stream"
            question = await line.event()
            assert (question["method"], question["params"]) == ("elicitation/create", {"message": "sure?"})
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
            stranger = await open_session(gateway)
            assert (await ask(gateway, {**reply, "result": {"action": "no"}}, stranger)).status == 202
            assert (await ask(gateway, reply, session)).status == 202
            last = await line.event()
            assert last["result"]["content"][0]["text"] == '{"action":"accept"}'


async def test_the_clients_own_error_comes_back():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as line:
            await line.send(call("ask"), session)
            await line.head()
            question = await line.event()
            error = {"code": -1, "message": "not now", "data": {"why": 1}}
            await ask(gateway, {"jsonrpc": "2.0", "id": question["id"], "error": error}, session)
            assert (await line.event())["error"] == error


async def test_a_client_without_streams_cannot_be_asked():
    async with open_small_gateway() as gateway:
        session = {**await open_session(gateway), "accept": "application/json"}
        assert (await ask(gateway, call("ask"), session)).code == -32601


@proves("G8")
async def test_a_request_is_cancelled():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as line:
            await line.send(call("wait", "a"), session)
            await gateway.methods.entered.wait()
            same = await ask(gateway, call("wait", "a"), session)
            assert same.code == -32600
            other = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "b"}}
            await ask(gateway, other, session)
            assert not gateway.methods.cancelled.is_set()
            await ask(gateway, {**other, "params": {"requestId": "a"}}, session)
            got = await line.got()
            assert got.code == -32800
            assert gateway.methods.cancelled.is_set()


@proves("F30")
async def test_a_client_that_leaves_ends_its_request():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as line:
            await line.send(call("wait"), session)
            await gateway.methods.entered.wait()
        with anyio.fail_after(30):
            await gateway.methods.cancelled.wait()


async def test_requests_of_one_session_run_side_by_side():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as line:
            await line.send(call("wait", 7), session)
            await gateway.methods.entered.wait()
            assert (await ask(gateway, call("echo", 8, text="x"), session)).status == 200
            gateway.methods.may_proceed.set()
            assert (await line.got()).json["id"] == 7


@proves("G8")
async def test_news_reach_the_stream_and_are_resumed():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        publish = gateway.audience.publish
        publish("notifications/tools/list_changed", {})  # before there is a listener
        publish("notifications/tools/list_changed", {})  # says no more than the one before
        async with open_raw_connection(gateway) as line:
            await line.send(None, session, method="GET")
            status, headers = await line.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            assert (await line.event())["method"] == "notifications/tools/list_changed"
            publish(
                "notifications/message",
                {"data": 1},
                should_receive=lambda one: one.session == session["mcp-session-id"],
            )
            publish("notifications/message", {"data": 2}, should_receive=lambda one: one.session == "another")
            chunk = await line.chunk()
            assert chunk.startswith(b"id: 2\n")
            publish("notifications/message", {"data": 3})
            await line.event()
        async with open_raw_connection(gateway) as line:
            await line.send(None, {**session, "last-event-id": "1"}, method="GET")
            await line.head()
            await line.chunk()
            again = await line.chunk()
            assert [frame.split(b"\n")[0] for frame in again.strip().split(b"\n\n")] == [b"id: 2", b"id: 3"]


async def test_the_newest_stream_of_a_session_counts():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as first, open_raw_connection(gateway) as second:
            await first.send(None, session, method="GET")
            await first.head()
            await first.chunk()
            await second.send(None, session, method="GET")
            await second.head()
            with anyio.fail_after(30):
                while await first.chunk():
                    pass
            gateway.audience.publish("notifications/tools/list_changed", {})
            assert (await second.event())["method"] == "notifications/tools/list_changed"


@proves("G1")
async def test_silent_sessions_end():
    async with open_small_gateway(session_seconds=0.2) as gateway:
        session = await open_session(gateway)
        await eventually(lambda: gateway.methods.left_sessions)
        assert (await ask(gateway, old("ping"), session)).status == 404
        assert "idle" in gateway.events.events[-1].summary()


async def test_the_longest_silent_session_makes_room():
    async with open_small_gateway(max_sessions=2) as gateway:
        first = await open_session(gateway)
        second = await open_session(gateway)
        assert (await ask(gateway, old("ping"), first)).status == 200
        third = await open_session(gateway)
        statuses = [(await ask(gateway, old("ping"), session)).status for session in (first, second, third)]
        assert statuses == [200, 404, 200]


async def test_busy_sessions_stay():
    async with open_small_gateway(max_sessions=1) as gateway:
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as line:
            await line.send(call("wait"), session)
            await gateway.methods.entered.wait()
            assert (await ask(gateway, INITIALIZE)).status == 503
            gateway.methods.may_proceed.set()
            assert (await line.got()).status == 200


async def test_the_end_of_a_session_ends_what_runs_in_it():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as line:
            await line.send(call("ask"), session)
            await line.head()
            await line.event()
            await ask(gateway, None, session, method="DELETE")
            with anyio.fail_after(30):
                assert "error" in await line.event()
