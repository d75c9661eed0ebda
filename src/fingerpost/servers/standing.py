"""How one server is doing: its state with the reason, told to whoever wants to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio

from fingerpost.errors import ServerUnavailable
from fingerpost.events import EventSink, ServerStateChanged
from fingerpost.records import Listing, ServerSpec, ServerState, ServerStatus, utc_now
from fingerpost.redaction import scrub
from fingerpost.servers.ring import RingBuffer

MAX_STDERR_SHOWN = 2000

SETTLED_STATES = frozenset({ServerState.READY, ServerState.DEGRADED, ServerState.DOWN, ServerState.DISABLED})


class StatusTracker:
    """The status of one server, kept by its supervisor."""

    def __init__(
        self, spec: ServerSpec, stderr: RingBuffer, *, events: EventSink, on_change: Callable[[str], None]
    ) -> None:
        self._name = spec.name
        self._stderr = stderr
        self._events = events
        self._changed = on_change
        self._status = ServerStatus(
            name=spec.name,
            transport=spec.transport,
            state=ServerState.IDLE if spec.enabled else ServerState.DISABLED,
            since=utc_now(),
        )
        self.settled = anyio.Event()
        self._moved = anyio.Event()
        if not spec.enabled:
            self.settled.set()

    @property
    def status(self) -> ServerStatus:
        return replace(self._status, stderr_tail=scrub(self._stderr.read_text(MAX_STDERR_SHOWN)))

    @property
    def state(self) -> ServerState:
        return self._status.state

    def describe_last_stderr(self) -> str:
        """The last line of its stderr, to end a sentence with."""
        lines = self._stderr.read_text(MAX_STDERR_SHOWN).strip().splitlines()
        return f"; it last said: {scrub(lines[-1])[:200]}" if lines else ""

    def update(self, **facts: Any) -> None:
        """Facts about the server that are no change of its state."""
        self._status = replace(self._status, **facts)

    async def wait_for_change(self) -> None:
        """Return at its next move."""
        await self._moved.wait()

    def set_state(
        self,
        state: ServerState,
        reason: str | None,
        *,
        hint: str | None = None,
        retry_in: float | None = None,
        attempts: int = 0,
    ) -> None:
        before = self._status
        same = before.state is state
        self._status = replace(
            before,
            state=state,
            reason=reason,
            hint=hint,
            since=before.since if same else utc_now(),
            retry_in=retry_in,
            attempts=attempts,
        )
        if state in SETTLED_STATES:
            self.settled.set()
        self._moved.set()
        self._moved = anyio.Event()
        if same and before.reason == reason:
            return
        self._events.emit(
            ServerStateChanged(server=self._name, previous=before.state, state=state, reason=reason)
        )
        self._changed(self._name)

    def reset(self) -> None:
        """Nobody asked for it yet: whoever waits until it has settled waits for its next attempt."""
        self.settled = anyio.Event()
        self.set_state(ServerState.IDLE, None)

    def build_unavailable(self) -> ServerUnavailable:
        """Why nothing can be asked of this server now."""
        status = self._status
        name = self._name
        if status.state is ServerState.DISABLED and status.reason is not None:
            return ServerUnavailable(f"{name} is {status.reason}", server=name, hint="switch it on again")
        if status.state is ServerState.DISABLED:
            return ServerUnavailable(
                f"{name} is disabled", server=name, hint="enable it in the configuration"
            )
        reason = status.reason or "it is not connected"
        hint = status.hint
        if hint is None and status.retry_in is not None:
            hint = f"the next attempt follows within {status.retry_in:.1f} s"
        return ServerUnavailable(f"{name} is {status.state}: {reason}", server=name, hint=hint)


def describe_listing_fault(listing: Listing | None) -> str | None:
    """What is missing or wrong with a listing, in one sentence."""
    if listing is None:
        return None
    parts: list[str] = []
    if listing.truncated is not None:
        parts.append(listing.truncated)
    if listing.dropped:
        first = listing.dropped[0]
        count = len(listing.dropped)
        more = f" and {count - 1} more" if count > 1 else ""
        parts.append(f"{count} of its tools dropped: {first.name}{more} ({first.reason})")
    return "; ".join(parts) or None
