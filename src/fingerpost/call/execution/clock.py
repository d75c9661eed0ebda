"""The clock that deadlines are kept by, and the time one tool's turn has."""

from __future__ import annotations

import time

# What event loops count by, without asking which loop this is: that is a system call each time.
loop_time = time.monotonic


class ToolDeadline:
    """The time one tool's turn has: its own, and over that the caller's patience.

    The tool's own time stands still while its call waits for a slot: that is our queue, and says nothing
    about the server. Waiting has as much time of its own, in all.
    """

    __slots__ = ("_own", "_seconds", "_waiting", "until")

    def __init__(self, seconds: float, *, until: float) -> None:
        self._seconds = seconds
        self._own = loop_time() + seconds
        self._waiting = seconds
        self.until = until  # the caller's patience

    def renew(self) -> ToolDeadline:
        """The same from now on, within the same patience of the caller."""
        return ToolDeadline(self._seconds, until=self.until)

    @property
    def expires_at(self) -> float:
        """When it is over, as things stand."""
        return min(self._own, self.until)

    @property
    def remaining(self) -> float:
        return max(0.0, self.expires_at - loop_time())

    @property
    def is_cut_short(self) -> bool:
        """Whether the caller's patience is over, and the tool had not yet had its own time."""
        return self.until < self._own and loop_time() >= self.until

    def get_wait_deadline(self, now: float) -> float:
        """How long a call that begins to wait for a slot now may do so."""
        return min(now + self._waiting, self.until)

    def add_wait(self, seconds: float) -> None:
        self._own += seconds
        self._waiting -= seconds
