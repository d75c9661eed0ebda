"""Streams to clients: how many there may be, and how they end.

A stream lasts for as long as a client likes, a key may not: whoever holds one is looked at
again every few seconds, as if they had asked anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final

import anyio

from fingerpost.records import Principal
from fingerpost.surfaces.api.operation import ApiRequest, Problem, Streaming
from fingerpost.surfaces.web.asgi import Header, Receive, Send
from fingerpost.surfaces.web.events import EventStream, open_stream

LOOK_AGAIN_S: Final = 3.0


class Streams:
    """Every open stream has a place; when there is none left, others wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[anyio.CancelScope, str] = {}  # and whose each is
        self._closing = False

    @property
    def count(self) -> int:
        return len(self._open)

    def streaming(self, write: Callable[[EventStream], Awaitable[None]], request: ApiRequest) -> Streaming:
        """An answer that `write` goes on with, until it returns, or the client leaves, or may not stay.

        Raises `Problem`.
        """
        self._check(request.principal)

        async def run(receive: Receive, send: Send, headers: tuple[Header, ...]) -> None:
            with self._place(request.principal) as scope:
                async with open_stream(receive, send, headers=headers) as stream:
                    with scope:
                        async with anyio.create_task_group() as tasks:
                            tasks.start_soon(_end_when_unknown, request, scope)
                            await write(stream)
                            tasks.cancel_scope.cancel()

        return Streaming(run=run)

    def end(self) -> None:
        """End all of them in good order: each client gets the end of its answer."""
        self._closing = True
        for scope in tuple(self._open):
            scope.cancel()

    @contextmanager
    def _place(self, principal: Principal) -> Generator[anyio.CancelScope]:
        self._check(principal)
        scope = anyio.CancelScope()
        self._open[scope] = principal.name
        try:
            yield scope
        finally:
            del self._open[scope]

    def _check(self, principal: Principal) -> None:
        if self._closing:
            raise Problem(503, "Closing", "This Fingerpost is being stopped. Come back in a moment.")
        if len(self._open) >= self._most:
            detail = f"{self._most} streams are open already (api.streams). Close one, or try again later."
            raise Problem(503, "Too many streams", detail)
        theirs = sum(name == principal.name for name in self._open.values())
        if principal.kind != "local" and theirs >= max(1, self._most // 2):  # others get a place, too
            detail = f"{theirs} of your streams are open already: half of api.streams. Close one."
            raise Problem(503, "Too many streams", detail)


async def _end_when_unknown(request: ApiRequest, scope: anyio.CancelScope) -> None:
    while True:
        await anyio.sleep(LOOK_AGAIN_S)
        if not await request.still():
            scope.cancel()
