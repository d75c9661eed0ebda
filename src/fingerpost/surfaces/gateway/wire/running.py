"""The requests being answered now, so that each can be ended from outside."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import anyio

from fingerpost.tasks import cancel_scope

WITHDRAWN: Final = "The client cancelled the request."


class Work:
    """Everything that runs. Somebody who closes the gateway may wait for its end."""

    __slots__ = ("_done", "_running")

    def __init__(self) -> None:
        self._running: set[Running] = set()
        self._done: anyio.Event | None = None

    def add(self, running: Running) -> None:
        self._running.add(running)

    def remove(self, running: Running) -> None:
        self._running.discard(running)
        if self._done is not None and not self._running:
            self._done.set()

    async def finished(self) -> None:
        """Until nothing runs any more."""
        while self._running:
            self._done = anyio.Event()
            await self._done.wait()

    def end(self, reason: str) -> None:
        for running in list(self._running):
            running.end(reason)


class Running:
    """One request being answered, so that it can be ended from outside. Used with `with`."""

    __slots__ = ("_work", "reason", "scope")

    def __init__(self, work: Work) -> None:
        self._work = work
        self.scope = cancel_scope()
        self.reason = ""

    def end(self, reason: str) -> None:
        """Stop it; the first reason is the one that is told."""
        if not self.reason:
            self.reason = reason
        self.scope.cancel()

    def withdraw(self) -> None:
        """Stop it because the client wants it no more."""
        self.end(WITHDRAWN)

    @property
    def withdrawn(self) -> bool:
        return self.reason == WITHDRAWN

    def __enter__(self) -> Self:
        self._work.add(self)
        self.scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._work.remove(self)
        return bool(self.scope.__exit__(kind, error, trace))
