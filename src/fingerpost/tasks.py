"""Leaving a task group without being wrapped by it; a cancel scope for what happens often."""

from __future__ import annotations

import math
from functools import cache
from types import TracebackType

import anyio
from anyio.abc import TaskGroup


@cache
def _scope_kind() -> type[anyio.CancelScope]:
    """The event loop's own kind, which anyio looks up each time: that takes longer than making one."""
    return type(anyio.CancelScope())


def cancel_scope(deadline: float = math.inf) -> anyio.CancelScope:
    """`anyio.CancelScope`, for every request and every call."""
    return _scope_kind()(deadline=deadline)


async def leave(
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
