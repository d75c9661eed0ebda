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
from fingerpost.surfaces.api.operation import ApiProblem, ApiRequest, StreamingResponse
from fingerpost.surfaces.web.asgi import Header, Receive, Send
from fingerpost.surfaces.web.events import EventStream, open_event_stream

CHECK_INTERVAL_S: Final = 3.0


class StreamSlots:
    """Every open stream has a place; when there is none left, others wait."""

    def __init__(self, limit: int) -> None:
        self._most = limit
        self._open: dict[anyio.CancelScope, str] = {}  # and whose each is
        self._closing = False

    @property
    def count(self) -> int:
        return len(self._open)

    def build_streaming(
        self, write: Callable[[EventStream], Awaitable[None]], request: ApiRequest
    ) -> StreamingResponse:
        """An answer that `write` goes on with, until it returns, or the client leaves, or may not stay.

        Raises `ApiProblem`.
        """
        self._check_limit(request.principal)

        async def run(receive: Receive, send: Send, headers: tuple[Header, ...]) -> None:
            with self._take_slot(request.principal) as scope:
                async with open_event_stream(receive, send, headers=headers) as stream:
                    with scope:
                        async with anyio.create_task_group() as tasks:
                            tasks.start_soon(_end_when_unauthenticated, request, scope)
                            await write(stream)
                            tasks.cancel_scope.cancel()

        return StreamingResponse(run=run)

    def end_all(self) -> None:
        """End all of them in good order: each client gets the end of its answer."""
        self._closing = True
        for scope in tuple(self._open):
            scope.cancel()

    @contextmanager
    def _take_slot(self, principal: Principal) -> Generator[anyio.CancelScope]:
        self._check_limit(principal)
        scope = anyio.CancelScope()
        self._open[scope] = principal.name
        try:
            yield scope
        finally:
            del self._open[scope]

    def _check_limit(self, principal: Principal) -> None:
        if self._closing:
            raise ApiProblem(503, "Closing", "This Fingerpost is being stopped. Come back in a moment.")
        if len(self._open) >= self._most:
            detail = f"{self._most} streams are open already (api.streams). Close one, or try again later."
            raise ApiProblem(503, "Too many streams", detail)
        theirs = sum(name == principal.name for name in self._open.values())
        if principal.kind != "local" and theirs >= max(1, self._most // 2):  # others get a place, too
            detail = f"{theirs} of your streams are open already: half of api.streams. Close one."
            raise ApiProblem(503, "Too many streams", detail)


async def _end_when_unauthenticated(request: ApiRequest, scope: anyio.CancelScope) -> None:
    while True:
        await anyio.sleep(CHECK_INTERVAL_S)
        if not await request.is_still_valid():
            scope.cancel()
