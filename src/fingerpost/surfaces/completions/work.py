"""The requests being answered now, so that they can be waited for and ended."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from fingerpost.surfaces.completions.faults import SHUTDOWN_MESSAGE, CompletionError


@dataclass(slots=True, eq=False)
class ActiveCompletion:
    """One of them. `ended`: stopped because we close."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: bool = False


class ActiveCompletions:
    """At most so many at once, and none once we close."""

    def __init__(self, limit: int) -> None:
        self._most = limit
        self._running: set[ActiveCompletion] = set()
        self._closing = False
        self._done = anyio.Event()

    @contextmanager
    def track_request(self) -> Generator[ActiveCompletion]:
        """A request from its beginning to its end. Raises `CompletionError` where there is no room."""
        if self._closing:
            raise CompletionError(503, SHUTDOWN_MESSAGE)
        if len(self._running) >= self._most:
            raise CompletionError(
                503, "Too many requests are being answered; try again.", headers=((b"retry-after", b"5"),)
            )
        one = ActiveCompletion()
        self._running.add(one)
        try:
            with one.scope:
                yield one
        finally:
            self._running.discard(one)
            if not self._running:
                self._done.set()

    def close(self) -> None:
        """No more are taken."""
        self._closing = True

    async def wait_until_done(self) -> None:
        """Until nothing runs any more."""
        while self._running:
            self._done = anyio.Event()
            await self._done.wait()

    def cancel_all(self) -> None:
        """Stop what runs."""
        for one in self._running:
            one.ended = True
            one.scope.cancel()
