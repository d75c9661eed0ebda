"""Task groups and what runs in them, cancel scopes for what happens often, work put aside."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import cache
from types import TracebackType
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import RunVar

logger = logging.getLogger("fingerpost.tasks")

FIRST_PAUSE_S = 0.1  # before something that broke is begun again
MAX_PAUSE_S = 30.0

R = TypeVar("R")
Given = TypeVarTuple("Given")

_thread_limiter: RunVar[anyio.CapacityLimiter] = RunVar("fingerpost.turns")


async def run_in_thread(work: Callable[[*Given], R], *given: *Given) -> R:
    """Do what takes the processor for long in a thread, so that answers go out meanwhile.

    One such thing at a time: two would take turns with each other before the event loop got one.
    """
    turn = _thread_limiter.get(None)
    if turn is None:
        turn = anyio.CapacityLimiter(1)
        _thread_limiter.set(turn)
    return await anyio.to_thread.run_sync(work, *given, limiter=turn)


@cache
def _get_scope_class() -> type[anyio.CancelScope]:
    """The event loop's own kind, which anyio looks up each time: that takes longer than making one."""
    return type(anyio.CancelScope())


def create_cancel_scope(deadline: float = math.inf) -> anyio.CancelScope:
    """`anyio.CancelScope`, for every request and every call."""
    return _get_scope_class()(deadline=deadline)


async def run_contained(work: Callable[[*Given], Awaitable[object]], *given: *Given) -> None:
    """Do this in a task group that others share: what goes wrong is logged, and ends this task alone."""
    try:
        await work(*given)
    except Exception:
        logger.exception("%s failed", getattr(work, "__qualname__", work))


async def run_restarting(work: Callable[[*Given], Awaitable[object]], *given: *Given) -> None:
    """Do what goes on until it is cancelled; where it breaks it is logged, and begun again after a pause."""
    pause = FIRST_PAUSE_S
    while True:
        began = anyio.current_time()
        try:
            await work(*given)
            return
        except Exception:
            logger.exception("%s broke, and is begun again", getattr(work, "__qualname__", work))
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
    """Cancel what runs in the group and end it, as the last act of whoever entered it.

    The caller's own error goes its own way: it has nothing to do with the tasks, and the
    group would wrap it into an exception group. Only a cancellation is the group's matter.
    """
    tasks.cancel_scope.cancel()
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return await tasks.__aexit__(kind, error, trace)
    await tasks.__aexit__(None, None, None)
    return None
