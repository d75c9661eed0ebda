"""The time a server has for its answer, which does not run while a person is asked on its behalf."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from fingerpost.errors import FingerpostError


class Clock:
    """Watches over the deadline of one request; without a scope there is none.

    Whoever made the scope looks at `loss` when it was cancelled: it may not have been the time.
    """

    def __init__(self, scope: anyio.CancelScope | None = None) -> None:
        self.scope = scope
        self.loss: FingerpostError | None = None  # the connection went away under the request
        self.stood = False  # somebody was asked: the request cannot be made anew
        self._waiting = 0
        self._seconds_left = math.inf

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Several questions may be open at once: it runs again after the last one."""
        if self.scope is None:
            yield
            return
        if self._waiting == 0:
            self.stand()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self.go_on()

    def stand(self) -> None:
        """Stop. For `stopped` alone, and for whoever has to know of it."""
        assert self.scope is not None
        self.stood = True
        self._seconds_left = self.scope.deadline - anyio.current_time()
        self.scope.deadline = math.inf

    def go_on(self) -> None:
        """Run again, with the time that was left."""
        assert self.scope is not None
        self.scope.deadline = anyio.current_time() + self._seconds_left
