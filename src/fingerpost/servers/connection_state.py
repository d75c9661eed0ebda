"""State shared by the parts of one connection: whether and why it ended, and when to reconnect."""

from __future__ import annotations

import random
from collections import deque
from enum import StrEnum

import anyio

from fingerpost.frozen import frozen
from fingerpost.servers.process import LogFolder, RingBuffer

STRAY_OUTPUT_HINT = "its standard output is for the protocol: it must log to standard error"


class RetryPace(StrEnum):
    """How soon to reconnect."""

    NOW = "now"  # the server is reachable and asked for a new handshake
    SOON = "soon"  # the server may be back at any moment
    SLOW = "slow"  # a person has to act first


@frozen
class ConnectionFailure:
    """Why a connection ended or could not be made."""

    reason: str
    pace: RetryPace = RetryPace.SOON
    hint: str | None = None
    refused: bool = False  # the server requires authentication (HTTP 401 or 403)


class ConnectionState:
    """State of one connection from before its first byte until its end."""

    def __init__(self, server: str, *, stderr: RingBuffer, logs: LogFolder | None = None) -> None:
        self.server = server
        self.stderr = stderr
        self._logs = logs
        self.ended = anyio.Event()
        self.failure: ConnectionFailure | None = None
        # Before that, an unexpected response is part of version negotiation, not a failure.
        self.is_initialized = False
        self.stray_lines = 0  # lines on stdout that were not messages
        self._last_stray = ""
        self._probe_requested = anyio.Event()

    def note_stderr(self, data: bytes) -> None:
        """Keep what the server wrote to stderr."""
        self.stderr.write(data)
        if self._logs is not None:
            self._logs.write(self.server, data)

    def note_stray_line(self, line: str) -> None:
        """Record a line on the server's stdout that is no protocol message. It may be shown to users."""
        self.stray_lines += 1
        self._last_stray = line

    def describe_stray_lines(self) -> str:
        """Return the recorded stray lines as the end of a sentence."""
        if not self.stray_lines:
            return ""
        lines = "a line that is" if self.stray_lines == 1 else f"{self.stray_lines} lines that are"
        return f"; it wrote {lines} not MCP to its standard output, such as: {self._last_stray}"

    def end(self, failure: ConnectionFailure) -> None:
        """Mark the connection as ended. Only the first failure is kept; later ones are its consequences."""
        if self.failure is None:
            self.failure = failure
            self.ended.set()

    def request_probe(self) -> None:
        """Request an immediate probe after a failure that may mean the server is gone."""
        self._probe_requested.set()

    async def wait_for_probe_request(self) -> None:
        await self._probe_requested.wait()
        self._probe_requested = anyio.Event()


FIRST_DELAY = 0.5
MIN_DELAY = 0.05
STABLE_SECONDS = 30.0  # after a connection of this length the delays start small again
MAX_IMMEDIATE_RETRIES = 10  # new handshakes a server may ask for in that time without delay


class Backoff:
    """Reconnect delays of one server, based on its earlier failures.

    A new handshake that the server asked for starts at once, because the server is reachable. A server that
    keeps asking is delayed like any other.
    """

    def __init__(self, *, max_delay: float) -> None:
        self._max_delay = max_delay
        self._granted: deque[float] = deque(maxlen=MAX_IMMEDIATE_RETRIES)
        self.failures = 0  # consecutive

    def next_delay(self, pace: RetryPace, *, began: float, now: float) -> float:
        """Count the end of the connection started at `began`. Return the seconds to wait before the next."""
        if now - began >= STABLE_SECONDS:
            self.failures = 0
        if pace is RetryPace.NOW and self._may_retry_now(now):
            self._granted.append(now)
            self.failures = 0
            return 0.0
        self.failures += 1
        return compute_delay(self.failures, pace=pace, max_delay=self._max_delay)

    def _may_retry_now(self, now: float) -> bool:
        return len(self._granted) < MAX_IMMEDIATE_RETRIES or now - self._granted[0] >= STABLE_SECONDS


def compute_delay(attempt: int, *, pace: RetryPace, max_delay: float) -> float:
    """Return the seconds before the next attempt after `attempt` consecutive failures (1 is the first).

    The delay doubles with full jitter, so that many clients of a restarted server do not reconnect at the
    same time. Failures that need a person are retried rarely.
    """
    if pace is RetryPace.SLOW:
        return random.uniform(max_delay / 2, max_delay)  # noqa: S311 - spreading load, not guarding a secret
    ceiling = min(max_delay, FIRST_DELAY * 2 ** min(attempt - 1, 30))
    return max(min(MIN_DELAY, max_delay), random.uniform(0, ceiling))  # noqa: S311 - as above
