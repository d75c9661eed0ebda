"""What is being done on the event loop for threads that wait: bounded in time, ended with the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from fingerpost.errors import FingerpostError, LimitReached

T = TypeVar("T")


class BoundedTasks:
    """What is being done on the event loop; lives there."""

    def __init__(self) -> None:
        self.closing = False
        self._scopes: set[anyio.CancelScope] = set()
        self._done = anyio.Event()

    async def run_bounded(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """The result of `work`, unless it takes too long or everything is closed meanwhile."""
        if self.closing:
            raise build_closed_error()
        with anyio.move_on_after(seconds) as scope:
            self._scopes.add(scope)
            try:
                return await work()
            finally:
                self._scopes.discard(scope)
                self._done.set()
        if self.closing:
            raise build_closed_error()
        message = f"no answer within {seconds:g} s"
        raise LimitReached(message, hint="Allow more time with `timeout`, or bound the request: seconds=….")

    async def stop(self) -> None:
        """End everything that runs, and wait until it has."""
        self.closing = True
        for scope in tuple(self._scopes):
            scope.cancel()
        while self._scopes:
            self._done = anyio.Event()
            await self._done.wait()


def build_closed_error() -> FingerpostError:
    """The error for whoever still waited."""
    message = "Fingerpost was closed before it had answered"
    return FingerpostError(message, hint="Let the answers come before the `with` block ends.")
