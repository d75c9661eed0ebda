"""Leaving a task group without being wrapped by it."""

from __future__ import annotations

from types import TracebackType

import anyio
from anyio.abc import TaskGroup


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
