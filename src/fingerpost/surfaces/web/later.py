"""A surface that is opened when somebody first asks for it: who never does pays nothing for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import anyio
import anyio.to_thread

from fingerpost.surfaces.web.asgi import AsgiScope, Receive, Send, respond
from fingerpost.surfaces.web.port import ServedApp

log = logging.getLogger("fingerpost.web")

AppLoader: TypeAlias = Callable[[], AbstractAsyncContextManager[ServedApp]]

_UNAVAILABLE = b'{"error": "This part could not be opened; the log says why."}'


class LazyApp:
    """Stands for the surface. `keep_open` runs in a task of the house, which opens it and closes it again.

    `load` runs in a thread, since it imports the surface, and gives what opens it.
    """

    def __init__(self, load: AppLoader) -> None:
        self._load = load
        self._wanted = anyio.Event()
        self._settled = anyio.Event()
        self._app: ServedApp | None = None

    async def keep_open(self) -> None:
        """Wait until it is wanted, then hold it open until cancelled. One that failed is tried again."""
        while True:
            await self._wanted.wait()
            try:
                opening = await anyio.to_thread.run_sync(self._load)
                async with opening as app:
                    self._app = app
                    self._settled.set()
                    await anyio.sleep_forever()
            except Exception:
                log.exception("A part of the house could not be opened, or broke")
            finally:
                self._app = None
                self._settled.set()
            self._wanted, self._settled = anyio.Event(), anyio.Event()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if self._app is None:
            self._wanted.set()
            await self._settled.wait()
        if self._app is None:
            await respond(send, 503, _UNAVAILABLE)
        else:
            await self._app(scope, receive, send)

    async def drain(self, seconds: float) -> None:
        if self._app is not None:
            await self._app.drain(seconds)
