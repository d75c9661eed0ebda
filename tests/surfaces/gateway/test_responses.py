"""One answer, whole or as a stream, with pings between: whatever falls together, one answer goes out."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.surfaces.gateway.responses import PostResponse
from fingerpost.surfaces.gateway.state import McpHttpRequest
from fingerpost.surfaces.http.access import Endpoint
from fingerpost.surfaces.http.asgi import AsgiMessage
from tests.requirements import proves

STEPS = st.lists(st.sampled_from(["ping", "notify", "turn"]), max_size=6)


@pytest.mark.slow
@proves("G1")
@given(before=STEPS, beside=STEPS, behind=STEPS)
@settings(deadline=None, max_examples=60)
async def test_there_is_one_answer_however_pings_fall(
    before: list[str], beside: list[str], behind: list[str]
) -> None:
    sent: list[AsgiMessage] = []

    async def send(message: AsgiMessage) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(message)

    async def receive() -> AsgiMessage:
        return {"type": "http.disconnect"}

    inbound = McpHttpRequest("POST", {}, Endpoint(path="/mcp", mode="auto"), receive, send)
    reply = PostResponse(inbound, accepts=(True, True), headers=())

    async def do(steps: list[str]) -> None:
        for step in steps:
            if step == "ping":
                await reply.send_ping()
            elif step == "notify":
                await reply.notify("notifications/message", {"level": "info"})
            else:
                await anyio.lowlevel.checkpoint()

    await do(before)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(do, beside)
        tasks.start_soon(reply.finish, 200, b"{}")
    await do(behind)
    heads = [message for message in sent if message["type"] == "http.response.start"]
    ends = [number for number, message in enumerate(sent) if not message.get("more_body", True)]
    body = [message["body"] for message in sent if message["type"] == "http.response.body"]
    assert len(heads) == 1
    assert sent[0] is heads[0]
    assert b"{}" in body[-1]
    assert ends in ([], [len(sent) - 1])
