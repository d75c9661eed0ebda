"""A surface that is opened when it is first asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from fingerpost.surfaces.http.asgi import AsgiMessage, AsgiScope, Receive, Send, respond
from fingerpost.surfaces.http.server import LazyApp, ServedApp
from tests.kit.server_pools import all_blocked


class Greeting:
    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await respond(send, 200, b"hello")

    async def drain(self, seconds: float) -> None:
        """Nothing runs."""


async def status_of(app: ServedApp) -> int:
    sent: list[AsgiMessage] = []

    async def send(message: AsgiMessage) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    await app({"type": "http", "path": "/"}, receive, send)
    return sent[0]["status"]


async def test_it_is_opened_once_and_one_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[str] = []

    @asynccontextmanager
    async def open_app() -> AsyncGenerator[ServedApp]:
        tries.append("opened")
        if len(tries) == 1:
            raise OSError("not yet")
        yield Greeting()
        tries.append("closed")

    later = LazyApp(open_app)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(later.keep_open)
        await anyio.lowlevel.checkpoint()
        assert tries == []
        assert await status_of(later) == 503
        assert "could not be opened" in caplog.text
        await all_blocked()
        assert [await status_of(later), await status_of(later)] == [200, 200]
        await later.drain(1.0)
        tasks.cancel_scope.cancel()
    assert tries[:2] == ["opened", "opened"]
