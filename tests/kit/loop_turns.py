"""Whether others have their turn while something is done."""

from __future__ import annotations

from collections.abc import Awaitable

import anyio
import anyio.lowlevel


async def turns_during(work: Awaitable[object]) -> int:
    """How often the event loop came round while this was done."""
    turns = before = after = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await anyio.lowlevel.checkpoint()
        before = turns
        await work
        after = turns
        tasks.cancel_scope.cancel()
    return after - before
