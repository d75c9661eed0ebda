"""The end of a command: it and everything it started, also what slipped out of its group."""

from __future__ import annotations

import contextlib
import os
import signal

import anyio
import anyio.to_thread
from anyio.abc import Process

from fingerpost.servers.process import KILL_GRACE, TERM_GRACE, close_pipes, wait_for_exit
from fingerpost.servers.watchdog import kill_marked


async def end_process(process: Process, process_mark: str, *, politely: bool) -> None:
    """Have nothing of the command left. All within bounds."""
    if politely and process.returncode is None:
        _send_signal(process.pid, signal.SIGTERM)
        await wait_for_exit(process, TERM_GRACE)
    _send_signal(
        process.pid, signal.SIGKILL
    )  # also when it is gone itself: its children are in the same group
    await anyio.to_thread.run_sync(kill_marked, process_mark)
    await wait_for_exit(process, KILL_GRACE)
    await close_pipes(process)


def _send_signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
