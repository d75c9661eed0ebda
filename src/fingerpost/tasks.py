"""Helpers for task groups, cancel scopes and CPU-bound work."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import cache
from types import TracebackType
from typing import Self, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import RunVar

logger = logging.getLogger("fingerpost.tasks")

FIRST_PAUSE_S = 0.1  # before a failed task is restarted
MAX_PAUSE_S = 30.0

R = TypeVar("R")
Given = TypeVarTuple("Given")

_thread_limiter: RunVar[anyio.CapacityLimiter] = RunVar("fingerpost.turns")


async def run_in_thread(work: Callable[[*Given], R], *given: *Given) -> R:
    """Run CPU-bound work in a thread, so that the event loop stays responsive.

    Only one runs at a time, because several would compete with the event loop for the GIL.
    """
    limiter = _thread_limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(1)
        _thread_limiter.set(limiter)
    return await anyio.to_thread.run_sync(work, *given, limiter=limiter)


@cache
def _get_scope_class() -> type[anyio.CancelScope]:
    """Return the cancel scope class of the event loop. anyio looks it up each time, which is slower than
    creating a scope.
    """
    return type(anyio.CancelScope())


def create_cancel_scope(deadline: float = math.inf) -> anyio.CancelScope:
    """Return an `anyio.CancelScope`, faster than its constructor."""
    return _get_scope_class()(deadline=deadline)


async def run_contained(work: Callable[[*Given], Awaitable[object]], *given: *Given) -> None:
    """Run this in a shared task group. An exception is logged and ends only this task."""
    try:
        await work(*given)
    except Exception:
        logger.exception("%s failed", getattr(work, "__qualname__", work))


async def run_restarting(work: Callable[[*Given], Awaitable[object]], *given: *Given) -> None:
    """Run this until it returns or is cancelled. After an exception, log it and restart after a delay."""
    pause = FIRST_PAUSE_S
    while True:
        began = anyio.current_time()
        try:
            await work(*given)
            return
        except Exception:
            logger.exception("%s failed and is restarted", getattr(work, "__qualname__", work))
        if anyio.current_time() - began > MAX_PAUSE_S:
            pause = FIRST_PAUSE_S
        await anyio.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_S)


async def cancel_and_exit(
    tasks: TaskGroup,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> bool | None:
    """Cancel the tasks of the group and exit it, as the last step of its owner.

    The owner's error is raised as it is, because the group would wrap it in an exception group. Only a
    cancellation is passed to the group.
    """
    tasks.cancel_scope.cancel()
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return await tasks.__aexit__(kind, error, trace)
    await tasks.__aexit__(None, None, None)
    return None


class TaskOwner:
    """A context with a task group of its own. Leaving it cancels the tasks."""

    _tasks: TaskGroup | None = None  # None: the context is not open

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        tasks, self._tasks = self._tasks, None
        return await cancel_and_exit(tasks, kind, error, trace)
