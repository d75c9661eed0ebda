"""Attacks on the wire: what one client sends must not cost the others anything."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.records import Principal, utc_now
from fingerpost.store import Store
from fingerpost.surfaces.gateway.protocol import NEWEST_HANDSHAKE_VERSION, ClientRequest
from fingerpost.surfaces.gateway.sessions import (
    MAX_NOTIFICATION_BYTES,
    McpSession,
    McpSessions,
    NotificationListeners,
)
from fingerpost.surfaces.http.access import Endpoint
from tests.kit.gateway_client import (
    INITIALIZE,
    ask,
    modern,
    modern_headers,
    old,
    open_raw_connection,
    open_session,
)
from tests.kit.server_pools import all_blocked
from tests.kit.small_gateway import open_small_gateway
from tests.kit.stores import place_empty_store
from tests.requirements import proves

MCP = Endpoint(path="/mcp", mode="auto")


def create_initialize(who: str) -> ClientRequest:
    return ClientRequest(
        id=0,
        method="initialize",
        params={},
        version=NEWEST_HANDSHAKE_VERSION,
        endpoint=MCP,
        principal=Principal(name=who, kind="key"),
        session=McpSessions.create_id(),
    )


@proves("G1")
def test_a_caller_that_opens_too_many_sessions_loses_its_own() -> None:
    ended: list[str] = []

    def record_end(session: McpSession, reason: str) -> None:
        del reason
        ended.append(session.request.principal.name)

    sessions = McpSessions(NotificationListeners(), limit=10, idle_seconds=60, on_end=record_end)
    victim = sessions.open(create_initialize("victim"))
    assert victim is not None
    for _ in range(100):
        assert sessions.open(create_initialize("flood")) is not None
    assert sessions.find(victim.id, victim.request.principal, MCP) is victim
    assert set(ended) == {"flood"}
    for number in range(3):  # who has none yet gets the room of the one with the most
        assert sessions.open(create_initialize(f"newcomer{number}")) is not None
    assert sessions.find(victim.id, victim.request.principal, MCP) is victim
    assert set(ended) == {"flood"}


@proves("G1", "X11")
async def test_of_shared_sessions_too_the_caller_with_the_most_loses_its_own(tmp_path: Path) -> None:
    async with Store.open(place_empty_store(tmp_path)) as store:
        for who in ("anna", *["flood"] * 20, "ben"):
            record = {"principal": who, "kind": "key", "path": "/mcp", "client": "", "version": ""}
            await store.mcp_sessions.add(McpSessions.create_id(), record)
        ended = await store.mcp_sessions.end_idle(utc_now() - timedelta(hours=1), limit=10)
        assert [one.record["principal"] for one in ended] == ["flood"] * 12
        assert await store.mcp_sessions.end_idle(utc_now() - timedelta(hours=1), limit=10) == []
        assert len(await store.mcp_sessions.end_idle(utc_now(), limit=10)) == 10


@proves("G13")
async def test_news_too_long_to_be_kept_for_everybody_are_not() -> None:
    """They wait for clients that never read: sixty-four of twenty megabytes would be a lot."""
    audience = NotificationListeners()
    sessions = McpSessions(audience, limit=10, idle_seconds=60, on_end=lambda session, reason: None)
    session = sessions.open(create_initialize("anybody"))
    assert session is not None
    audience.publish("notifications/message", {"level": "info", "data": "x" * MAX_NOTIFICATION_BYTES})
    audience.publish("notifications/message", {"level": "info", "data": "short"})
    assert [b"short" in message for _, message in session.backlog.take_unsent()] == [True]


@proves("G1")
async def test_a_thousand_headers_are_refused() -> None:
    async with open_small_gateway() as gateway:
        many: dict[str, Any] = {f"x-{number}": "1" for number in range(1000)}
        got = await ask(gateway, modern("server/discover"), {**modern_headers("server/discover"), **many})
        assert got.status == 431


@proves("G1")
async def test_a_batch_is_taken_in_the_one_version_that_has_them() -> None:
    """All answers together, in order; what is no message costs itself alone."""
    batch = [
        old("ping", request_id="a"),
        old("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, request_id="b"),
        7,
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}},
        old("initialize", request_id="c"),
        old("ping", request_id="a"),
    ]
    async with open_small_gateway() as gateway:
        opened = await ask(
            gateway, {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": "2025-03-26"}}
        )
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        got = await ask(gateway, batch, session)
        assert [entry.get("id") for entry in got.json] == ["a", "b", None, "c", "a"]
        assert got.json[1]["result"]["content"][0]["text"] == "hi"
        assert (await ask(gateway, [batch[3]], session)).status == 202
        assert (await ask(gateway, [], session)).status == 400
        assert (await ask(gateway, [old("ping")] * 101, session)).status == 400
        newer = await open_session(gateway)
        for headers in (newer, {}, modern_headers("ping")):
            refused = await ask(gateway, batch, headers)
            assert refused.status == 400
            assert "2025-03-26" in refused.json["error"]["message"]


@proves("G1")
async def test_a_batch_ends_with_its_client() -> None:
    async with open_small_gateway() as gateway:
        opened = await ask(
            gateway, {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": "2025-03-26"}}
        )
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        async with open_raw_connection(gateway) as line:
            await line.send(
                [old("tools/call", {"name": "wait"}, request_id=1), old("ping", request_id=2)], session
            )
            await gateway.methods.entered.wait()
        await gateway.methods.cancelled.wait()


@proves("G13")
@pytest.mark.parametrize("patience", [0.0, 5.0])
async def test_what_runs_in_a_session_at_the_end_is_given_its_time_and_told_the_truth(
    patience: float,
) -> None:
    async with open_small_gateway() as gateway:
        answer: Any = None
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as line, anyio.create_task_group() as tasks:
            await line.send(old("tools/call", {"name": "wait"}), session)
            await gateway.methods.entered.wait()
            tasks.start_soon(gateway.app.drain, patience)
            if patience:
                await all_blocked()
                gateway.methods.may_proceed.set()
            answer = (await line.got()).json
        if patience:
            assert answer["result"]["content"][0]["text"] == "waited"
        else:
            assert "shutting down" in answer["error"]["message"]
