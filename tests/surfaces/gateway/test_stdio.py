"""Both eras on two pipes, as a client that started us would use them."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import orjson

from fingerpost.events import MemorySink
from fingerpost.settings import GatewaySettings
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.gateway.stdio import OversizedLine, read_lines, serve_stdio
from tests.kit.gateway_client import INITIALIZE, modern, old
from tests.kit.small_gateway import SmallMethods
from tests.requirements import proves


class Pipes:
    """The client's ends."""

    def __init__(self, to_server: int, from_server: int) -> None:
        self._to = to_server
        self._lines = read_lines(from_server, limit=1 << 20)
        self.methods = SmallMethods()
        self.audience = NotificationListeners()
        self.events = MemorySink()
        self.ended = anyio.Event()
        self.serving = anyio.CancelScope()

    async def send(self, *messages: object) -> None:
        data = b"".join((m if isinstance(m, bytes) else orjson.dumps(m)) + b"\n" for m in messages)
        await anyio.to_thread.run_sync(os.write, self._to, data)

    async def read(self) -> Any:
        with anyio.fail_after(30):
            line = await anext(self._lines)
        assert not isinstance(line, OversizedLine)
        return orjson.loads(line)

    async def ask(self, message: object) -> Any:
        await self.send(message)
        return await self.read()

    def close(self) -> None:
        if self._to >= 0:
            os.close(self._to)
            self._to = -1


@asynccontextmanager
async def conversation(**settings: Any) -> AsyncGenerator[Pipes]:
    for_server, to_server = os.pipe()
    from_server, by_server = os.pipe()
    pipes = Pipes(to_server, from_server)

    async def run() -> None:
        with pipes.serving:
            await serve_stdio(
                pipes.methods,
                GatewaySettings(**settings),
                pipes.events,
                audience=pipes.audience,
                descriptors=(for_server, by_server),
            )
        pipes.ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield pipes
        pipes.close()
        with anyio.fail_after(30):
            await pipes.ended.wait()
        tasks.cancel_scope.cancel()
    for descriptor in (for_server, from_server, by_server):
        os.close(descriptor)


def call(name: str, request_id: str | int = 1, **arguments: Any) -> dict[str, Any]:
    return old("tools/call", {"name": name, "arguments": arguments}, request_id)


@proves("G1")
async def test_a_handshake_and_calls():
    async with conversation() as pipes:
        opened = await pipes.ask(INITIALIZE)
        assert opened["result"]["protocolVersion"] == "2025-11-25"
        await pipes.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (await pipes.ask(old("ping")))["result"] == {}
        assert (await pipes.ask(call("echo", text="hi")))["result"]["content"][0]["text"] == "hi"
        assert (await pipes.ask(call("none")))["error"]["code"] == -32602
        assert (await pipes.ask(INITIALIZE))["error"]["code"] == -32600


@proves("G1")
async def test_a_batch_is_answered_together_in_the_one_version_that_has_them():
    params = {**INITIALIZE["params"], "protocolVersion": "2025-03-26"}
    ping = old("ping", request_id="a")
    news = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with conversation() as pipes:
        assert (await pipes.ask([ping]))["error"]["code"] == -32600  # before any session
        await pipes.ask({**INITIALIZE, "params": params})
        await pipes.send([call("wait", "slow"), news, ping, 7])
        await pipes.methods.entered.wait()
        assert (await pipes.ask(call("echo", "fast")))["id"] == "fast"
        pipes.methods.may_proceed.set()
        assert [answer["id"] for answer in await pipes.read()] == ["slow", "a", None]
        assert (await pipes.ask([]))["error"]["code"] == -32600
    async with conversation() as pipes:
        await pipes.ask(INITIALIZE)
        assert (await pipes.ask([ping]))["error"]["code"] == -32600


@proves("G1")
async def test_requests_that_stand_alone():
    async with conversation() as pipes:
        found = await pipes.ask(modern("server/discover"))
        assert found["result"]["supportedVersions"] == ["2026-07-28"]
        got = await pipes.ask(modern("tools/call", {"name": "echo", "arguments": {"text": "x"}}))
        assert got["result"] == {"resultType": "complete", "content": [{"type": "text", "text": "x"}]}
        later = modern("tools/list", version="2030-01-01")
        assert (await pipes.ask(later))["error"]["code"] == -32022
        assert (await pipes.ask(old("tools/list")))["error"]["code"] == -32600


@proves("G8")
async def test_questions_news_and_notes():
    async with conversation() as pipes:
        await pipes.ask(INITIALIZE)
        question = await pipes.ask(call("ask", message="ok?"))
        assert question["params"] == {"message": "ok?"}
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert (await pipes.ask(reply))["result"]["content"][0]["text"] == '{"action":"accept"}'
        pipes.audience.publish("notifications/tools/list_changed", {})
        assert (await pipes.read())["method"] == "notifications/tools/list_changed"
        await pipes.send(call("tell"))
        messages = [await pipes.read() for _ in range(3)]
        assert [one.get("method") for one in messages] == ["notifications/message"] * 2 + [None]


@proves("G8")
async def test_requests_run_side_by_side_and_are_cancelled_without_an_answer():
    async with conversation() as pipes:
        await pipes.ask(INITIALIZE)
        await pipes.send(call("wait", "slow"))
        await pipes.methods.entered.wait()
        assert (await pipes.ask(call("echo", "fast")))["id"] == "fast"
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}}
        await pipes.send(cancel)
        with anyio.fail_after(30):
            await pipes.methods.cancelled.wait()
        assert (await pipes.ask(call("echo", "next")))["id"] == "next"


async def test_a_subscription_on_stdio():
    async with conversation() as pipes:
        agreed = await pipes.ask(
            modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        )
        assert agreed["params"]["notifications"] == {"toolsListChanged": True}
        pipes.audience.publish("notifications/tools/list_changed", {})
        assert (await pipes.read())["method"] == "notifications/tools/list_changed"
        pipes.close()
        assert (await pipes.read())["result"]["resultType"] == "complete"


async def test_broken_lines_are_answered_and_the_next_is_read():
    async with conversation(body_bytes=2048) as pipes:
        assert (await pipes.ask(b"{oops"))["error"]["code"] == -32700
        assert (await pipes.ask(b"[]"))["error"]["code"] == -32600
        assert (await pipes.ask(b'"' + b"x" * 200_000 + b'"'))["error"]["code"] == -32600
        assert (await pipes.ask(INITIALIZE))["result"]
        await pipes.send(b'"' + b"x" * 200_000)  # and no end of it
        pipes.close()
        assert "2048 bytes" in (await pipes.read())["error"]["message"]


async def test_what_was_asked_is_answered_after_the_client_closed_its_side():
    async with conversation() as pipes:
        await pipes.send(INITIALIZE, call("wait", 2), call("echo", 3))
        await pipes.methods.entered.wait()
        pipes.close()
        pipes.methods.may_proceed.set()
        assert {(await pipes.read())["id"] for _ in range(3)} == {0, 2, 3}
        with anyio.fail_after(30):
            await pipes.ended.wait()
        assert pipes.methods.left_sessions


async def test_what_ends_it_ends_its_requests():
    async with conversation() as pipes:
        await pipes.ask(INITIALIZE)
        await pipes.send(call("wait"))
        await pipes.methods.entered.wait()
        pipes.serving.cancel()
        with anyio.fail_after(30):
            await pipes.ended.wait()
        assert pipes.methods.cancelled.is_set()
        assert pipes.methods.left_sessions
