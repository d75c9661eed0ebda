"""Small records for the store's tests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import anyio

from fingerpost.events import Event, ServerStateChanged, ToolQuarantined
from fingerpost.records import Effect, Grant, Pending, Pin, ServerState, UsageSample, create_id


async def eventually(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait until the condition holds, for a bounded time."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another thread
            await anyio.sleep(0.01)


NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def ordinary(name: str = "git") -> Event:
    """An event that is not audited."""
    return ServerStateChanged(server=name, previous=ServerState.IDLE, state=ServerState.READY)


def create_audited_event(tool: str = "git/log") -> Event:
    return ToolQuarantined(tool=tool, pinned="a" * 64, seen="b" * 64)


def pin(key: str = "git/log", fingerprint: str = "f1") -> Pin:
    return Pin(key=key, fingerprint=fingerprint, definition={"name": key, "inputSchema": {}}, pinned_at=NOON)


def exact_grant(call: str = "call-1", **changes: object) -> Grant:
    fields: dict[str, object] = {
        "grant_id": create_id("grant"),
        "granted_by": "dana",
        "granted_at": NOON,
        "expires": NOON + minutes(5),
        "call_fingerprint": call,
    }
    return Grant(**(fields | changes))  # pyright: ignore[reportArgumentType] - fields by name


def create_scoped_grant(**changes: object) -> Grant:
    scope: dict[str, object] = {"call_fingerprint": None, "conversation": "ses-1", "operation": "git.push"}
    return exact_grant(**(scope | changes))  # pyright: ignore[reportArgumentType] - fields by name


def create_pending(pending_id: str = "pending-1", **changes: object) -> Pending:
    fields: dict[str, object] = {
        "pending_id": pending_id,
        "tool": "git/push",
        "operation": "git.push",
        "arguments": {"remote": "origin", "force": True},
        "call_fingerprint": "call-1",
        "effect": Effect.WRITE,
        "reason": "writes",
        "created": NOON,
        "expires": NOON + minutes(10),
    }
    return Pending(**(fields | changes))  # pyright: ignore[reportArgumentType] - fields by name


def sample(tool: str = "git/log", ms: float = 100.0, tokens: int = 50, **changes: object) -> UsageSample:
    fields: dict[str, object] = {
        "tool": tool,
        "milliseconds": ms,
        "tokens": tokens,
        "success": True,
        "at": NOON,
    }
    return UsageSample(**(fields | changes))  # pyright: ignore[reportArgumentType] - fields by name
