"""How answers go out on a connection, byte by byte."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from fingerpost.surfaces.http.asgi import AsgiScope, Receive, Send
from fingerpost.surfaces.http.server import get_address, listen_at, serve_app
from tests.kit.gateway_client import open_raw_connection, tool_call
from tests.kit.small_gateway import Address, open_small_gateway

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]}


class App:
    """An app of one function."""

    def __init__(self, answer: Callable[[Send], Awaitable[None]]) -> None:
        self._answer = answer

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await self._answer(send)

    async def drain(self, seconds: float) -> None:
        del seconds


@asynccontextmanager
async def serve_answer(answer: Callable[[Send], Awaitable[None]]) -> AsyncGenerator[Address]:
    listening = listen_at("127.0.0.1", 0)
    host, port = get_address(listening).split(":")
    async with anyio.create_task_group() as tasks:
        started = anyio.Event()

        async def serve() -> None:
            await serve_app(App(answer), listening, on_started=started.set, signals=False)

        tasks.start_soon(serve)
        await started.wait()
        yield Address(host, int(port))
        tasks.cancel_scope.cancel()


async def test_head_alone_is_answered_without_a_body_and_the_connection_goes_on():
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        await line.send(method="HEAD", path="/healthz")
        status, headers = await line.head()
        assert (status, headers["content-length"]) == (200, "15")
        assert (await line.ask(method="GET", path="/healthz")).json == {"status": "ok"}


async def test_an_older_client_gets_its_answer_and_the_end_of_the_connection():
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        await line.stream.send(b"GET /healthz HTTP/1.0\r\nhost: x\r\n\r\n")
        got = await line.got()
        assert (got.json, got.headers["connection"]) == ({"status": "ok"}, "close")
        with pytest.raises(anyio.EndOfStream):
            await line.stream.receive()


async def test_requests_sent_ahead_are_answered_in_their_order():
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        texts = [f"number {number}" for number in range(5)]
        for text in texts:
            body, headers = tool_call("echo", text=text)
            await line.send(body, {**headers, "mcp-param-text": text})
        got = [(await line.got()).json["result"]["content"][0]["text"] for _ in texts]
        assert got == texts


async def test_a_body_in_several_parts_arrives_whole():
    async def answer(send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        await send({"type": "http.response.body", "body": b"de"})

    async with serve_answer(answer) as address, open_raw_connection(address) as line:
        for _ in range(2):
            assert (await line.ask(method="GET")).body == b"abcde"


async def test_an_app_that_fails_between_head_and_body_is_an_error_to_its_client():
    async def answer(send: Send) -> None:
        await send(START)
        raise RuntimeError

    async with serve_answer(answer) as address, open_raw_connection(address) as line:
        assert (await line.ask(method="GET")).status == 500


async def test_a_body_of_another_length_than_told_ends_the_connection():
    async def answer(send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"too long"})

    async with serve_answer(answer) as address, open_raw_connection(address) as line:
        await line.send(method="GET")
        await line.head()
        with pytest.raises(anyio.EndOfStream):
            await line.stream.receive()


async def test_the_garbage_collector_looks_less_often_only_while_something_is_served():
    found, usual = gc.get_threshold(), (700, 10, 10)
    gc.set_threshold(*usual)  # something else in this process may be serving
    try:
        async with open_small_gateway():
            assert gc.get_threshold()[0] > usual[0]
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*found)
