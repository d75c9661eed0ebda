"""The end of a command: it and everything it started, also what slipped out of its group."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import Process

from fingerpost.servers.process import KILL_GRACE, TERM_GRACE, exits_within, let_go

MARK: Final = "FINGERPOST_COMMAND"  # in the environment of a command, and so of whatever it starts
_PROC: Final = Path("/proc")


async def end(process: Process, mark: str, *, politely: bool) -> None:
    """Have nothing of the command left. All within bounds."""
    if politely and process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        await exits_within(process, TERM_GRACE)
    _signal(process.pid, signal.SIGKILL)  # also when it is gone itself: its children are in the same group
    await anyio.to_thread.run_sync(_end_strays, mark)
    await exits_within(process, KILL_GRACE)
    await let_go(process)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_strays(mark: str) -> None:
    """What made itself a session of its own still has the mark in its environment. Linux only."""
    if not sys.platform.startswith("linux"):
        return
    wanted = f"{MARK}={mark}".encode()
    for _ in range(3):  # one that was just being started is seen the next time
        strays = [number for number in _numbers() if _has_mark(number, wanted)]
        if not strays:
            return
        for number in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit() and int(name) != os.getpid()]  # noqa: PTH208 - names alone


def _has_mark(number: int, wanted: bytes) -> bool:
    try:
        return wanted in (_PROC / str(number) / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return False
