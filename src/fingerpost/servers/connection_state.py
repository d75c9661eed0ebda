"""How the parts of one connection tell each other that it has ended and why, and when to try again."""

from __future__ import annotations

import random
from collections import deque
from enum import StrEnum

import anyio

from fingerpost.frozen import frozen
from fingerpost.servers.process import RingBuffer

STRAY_OUTPUT_HINT = "its standard output belongs to the protocol: let it log to standard error"


class RetryPace(StrEnum):
    """How soon another attempt makes sense."""

    NOW = "now"  # the server is there and asked for a new handshake
    SOON = "soon"  # it may be back any moment
    SLOW = "slow"  # a person has to do something first


@frozen
class ConnectionFailure:
    """Why there is no connection (any more)."""

    reason: str
    pace: RetryPace = RetryPace.SOON
    hint: str | None = None
    refused: bool = False  # it wants to know who asks (HTTP 401 or 403)


class ConnectionState:
    """The life of one connection, from before its first byte to its end."""

    def __init__(self, server: str, *, stderr: RingBuffer) -> None:
        self.server = server
        self.stderr = stderr
        self.ended = anyio.Event()
        self.failure: ConnectionFailure | None = None
        self.is_initialized = False  # before that, an odd answer is part of finding the era, not a loss
        self.stray_lines = 0  # lines on its standard output that were no messages
        self._last_stray = ""
        self._doubts = anyio.Event()

    def note_stray_line(self, line: str) -> None:
        """It wrote something to its standard output that is not the protocol. `line` may be shown."""
        self.stray_lines += 1
        self._last_stray = line

    def describe_stray_lines(self) -> str:
        """What stray lines there were, to end a sentence with."""
        if not self.stray_lines:
            return ""
        lines = "a line that is" if self.stray_lines == 1 else f"{self.stray_lines} lines that are"
        return f"; it wrote {lines} not MCP to its standard output, such as: {self._last_stray}"

    def end(self, failure: ConnectionFailure) -> None:
        """It is over. The first reason stands: later ones are its consequences."""
        if self.failure is None:
            self.failure = failure
            self.ended.set()

    def request_probe(self) -> None:
        """Something failed that may mean the server is gone: have it checked now rather than later."""
        self._doubts.set()

    async def wait_for_probe_request(self) -> None:
        """Return when somebody doubts."""
        await self._doubts.wait()
        self._doubts = anyio.Event()


FIRST_DELAY = 0.5
MIN_DELAY = 0.05
STABLE_SECONDS = 30.0  # a connection that held this long was a good one: waits start small again
MAX_IMMEDIATE_RETRIES = 10  # new handshakes a server may ask for in that time before it has to wait for them


class Backoff:
    """When to try one server again, after all that happened to it so far.

    A new handshake the server itself asked for is granted at once: it is there, and answers. Only one
    that keeps asking waits like any other.
    """

    def __init__(self, *, max_delay: float) -> None:
        self._longest = max_delay
        self._granted: deque[float] = deque(maxlen=MAX_IMMEDIATE_RETRIES)
        self.failures = 0  # in a row

    def get_delay(self, pace: RetryPace, *, began: float, now: float) -> float:
        """Seconds to wait now that the connection tried for at `began` is over."""
        if now - began >= STABLE_SECONDS:
            self.failures = 0
        if pace is RetryPace.NOW and self._may_retry_now(now):
            self._granted.append(now)
            self.failures = 0
            return 0.0
        self.failures += 1
        return compute_delay(self.failures, pace=pace, max_delay=self._longest)

    def _may_retry_now(self, now: float) -> bool:
        return len(self._granted) < MAX_IMMEDIATE_RETRIES or now - self._granted[0] >= STABLE_SECONDS


def compute_delay(attempt: int, *, pace: RetryPace, max_delay: float) -> float:
    """Seconds before the next try, after `attempt` failures in a row (1 is the first).

    Doubling with full jitter, so that many clients of one restarted server do
    not come back in step. What needs a person is looked at rarely.
    """
    if pace is RetryPace.SLOW:
        return random.uniform(max_delay / 2, max_delay)  # noqa: S311 - spreading load, not guarding a secret
    ceiling = min(max_delay, FIRST_DELAY * 2 ** min(attempt - 1, 30))
    return max(min(MIN_DELAY, max_delay), random.uniform(0, ceiling))  # noqa: S311 - as above
