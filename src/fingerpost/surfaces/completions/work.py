"""The requests being answered now, so that they can be waited for and ended."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from fingerpost.surfaces.completions.faults import CLOSING, ApiFault


@dataclass(slots=True, eq=False)
class Running:
    """One of them. `ended`: stopped because we close."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: bool = False


class Work:
    """At most so many at once, and none once we close."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: set[Running] = set()
        self._closing = False
        self._done = anyio.Event()

    @contextmanager
    def running(self) -> Generator[Running]:
        """A request from its beginning to its end. Raises `ApiFault` where there is no room."""
        if self._closing:
            raise ApiFault(503, CLOSING)
        if len(self._running) >= self._most:
            raise ApiFault(
                503, "Too many requests are being answered; try again.", headers=((b"retry-after", b"5"),)
            )
        one = Running()
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

    async def finished(self) -> None:
        """Until nothing runs any more."""
        while self._running:
            self._done = anyio.Event()
            await self._done.wait()

    def end(self) -> None:
        """Stop what runs."""
        for one in self._running:
            one.ended = True
            one.scope.cancel()
