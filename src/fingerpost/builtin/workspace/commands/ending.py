"""The end of a command: it and everything it started, also what slipped out of its group."""

from __future__ import annotations

import contextlib
import os
import signal

import anyio
import anyio.to_thread
from anyio.abc import Process

from fingerpost.servers.process import KILL_GRACE, TERM_GRACE, exits_within, let_go
from fingerpost.servers.watchdog import end_marked


async def end(process: Process, mark: str, *, politely: bool) -> None:
    """Have nothing of the command left. All within bounds."""
    if politely and process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        await exits_within(process, TERM_GRACE)
    _signal(process.pid, signal.SIGKILL)  # also when it is gone itself: its children are in the same group
    await anyio.to_thread.run_sync(end_marked, mark)
    await exits_within(process, KILL_GRACE)
    await let_go(process)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
