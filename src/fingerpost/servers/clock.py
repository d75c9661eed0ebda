"""The time a server has for its answer.

It does not run while a person is asked on its behalf, and begins anew with every sign that the server gets
on: what is slow and says so is not stuck. That, too, has an end.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import anyio

from fingerpost.errors import FingerpostError

MAX_EXTENSIONS: Final = 10  # times its usual time that a server gets which reports progress


class RequestClock:
    """Watches over the deadline of one request; without a scope there is none.

    `patience` is how many seconds a server has without a sign of progress, and `until` when its time is
    over whatever it says.

    Whoever made the scope looks at `loss` when it was cancelled: it may not have been the time.
    """

    def __init__(
        self, scope: anyio.CancelScope | None = None, *, timeout: float = 0.0, deadline: float = math.inf
    ) -> None:
        self.scope = scope
        self.max_progress = -math.inf  # what the server last reported of its progress
        self._patience = timeout
        self._spare = (MAX_EXTENSIONS - 1) * timeout  # seconds that progress may still add
        self._until = deadline
        self.loss: FingerpostError | None = None  # why the request was ended, where it was not the time
        self.was_paused = False  # somebody was asked: the request cannot be made anew
        self._waiting = 0
        self._seconds_left = math.inf

    @contextmanager
    def paused(self) -> Generator[None]:
        """Several questions may be open at once: it runs again after the last one."""
        if self.scope is None:
            yield
            return
        if self._waiting == 0:
            self.pause()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self.resume()

    def pause(self) -> None:
        """Stop. For `paused` alone, and for whoever has to know of it."""
        assert self.scope is not None
        self.was_paused = True
        self._seconds_left = self.scope.deadline - anyio.current_time()
        self.scope.deadline = math.inf

    def resume(self) -> None:
        """Run again, with the time that was left."""
        assert self.scope is not None
        self.scope.deadline = anyio.current_time() + self._seconds_left

    def note_progress(self, progress: float) -> None:
        """The server reports its progress. Where that is more than before, its time begins anew."""
        if self.scope is None or not progress > self.max_progress:
            return
        self.max_progress = progress
        if self._waiting:
            return  # it stands still anyway
        now = anyio.current_time()
        left = self.scope.deadline - now
        more = min(self._patience - left, self._spare, self._until - now - left)
        if more > 0:
            self._spare -= more
            self.scope.deadline += more

    def format_timeout(self, subject: str, seconds: float) -> str:
        """What is wrong when its time is over, of `seconds` at first."""
        if self.max_progress == -math.inf or anyio.current_time() >= self._until:
            return f"{subject} did not answer within {round(seconds, 2):g} s"
        if self._spare > 0:
            return f"{subject} reported no further progress for {round(seconds, 2):g} s, and did not answer"
        return (
            f"{subject} reported progress, but did not answer within {round(seconds * MAX_EXTENSIONS, 2):g} s"
        )
