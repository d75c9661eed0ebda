"""The clock that deadlines are kept by."""

from __future__ import annotations

import asyncio


def loop_time() -> float:
    """The event loop's own clock: `anyio.current_time` without finding out whose loop it is each time."""
    return asyncio.get_running_loop().time()
