"""Working for a client only while it listens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from fingerpost.surfaces.web.asgi import ClientGone, Receive

R = TypeVar("R")


async def client_left(receive: Receive) -> None:
    """Returns when the client is gone. Whatever else it sends is for nobody."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_heard(receive: Receive, work: Callable[[TaskGroup], Awaitable[R]]) -> R:
    """What `work` gives. Raises `ClientGone` when the client leaves first: the work is cancelled then.

    `work` may start tasks that end with it.
    """
    gone = False
    results: list[R] = []
    failures: list[Exception] = []
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal gone
            await client_left(receive)
            gone = True
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            results.append(await work(tasks))
        except Exception as error:  # noqa: BLE001 - raised below; the group would wrap it
            failures.append(error)
        tasks.cancel_scope.cancel()
    if results:
        return results[0]
    if failures and not gone:
        raise failures[0]
    raise ClientGone
