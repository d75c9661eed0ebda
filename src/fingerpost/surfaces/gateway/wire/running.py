"""The requests being answered now, so that each can be ended from outside."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import anyio

from fingerpost.tasks import create_cancel_scope

CANCELLED_BY_CLIENT: Final = "The client cancelled the request."


class ActiveRequests:
    """Everything that runs. Somebody who closes the gateway may wait for its end."""

    __slots__ = ("_done", "_running")

    def __init__(self) -> None:
        self._running: set[ActiveRequest] = set()
        self._done: anyio.Event | None = None

    def add(self, active: ActiveRequest) -> None:
        self._running.add(active)

    def remove(self, active: ActiveRequest) -> None:
        self._running.discard(active)
        if self._done is not None and not self._running:
            self._done.set()

    async def wait_until_done(self) -> None:
        """Until nothing runs any more."""
        while self._running:
            self._done = anyio.Event()
            await self._done.wait()

    def cancel_all(self, reason: str) -> None:
        for running in list(self._running):
            running.cancel(reason)


class ActiveRequest:
    """One request being answered, so that it can be ended from outside. Used with `with`."""

    __slots__ = ("_work", "reason", "scope")

    def __init__(self, active_requests: ActiveRequests) -> None:
        self._work = active_requests
        self.scope = create_cancel_scope()
        self.reason = ""

    def cancel(self, reason: str) -> None:
        """Stop it; the first reason is the one that is told."""
        if not self.reason:
            self.reason = reason
        self.scope.cancel()

    def cancel_for_client(self) -> None:
        """Stop it because the client wants it no more."""
        self.cancel(CANCELLED_BY_CLIENT)

    @property
    def is_cancelled_by_client(self) -> bool:
        return self.reason == CANCELLED_BY_CLIENT

    def __enter__(self) -> Self:
        self._work.add(self)
        self.scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._work.remove(self)
        return bool(self.scope.__exit__(kind, error, trace))
