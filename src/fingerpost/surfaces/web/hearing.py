"""Working for a client only while it listens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from fingerpost.surfaces.web.asgi import ClientDisconnected, Receive

WorkResult = TypeVar("WorkResult")


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client is gone. Whatever else it sends is for nobody."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def run_while_connected(
    receive: Receive, work: Callable[[TaskGroup], Awaitable[WorkResult]]
) -> WorkResult:
    """What `work` gives. Raises `ClientDisconnected` when the client leaves first: the work is cancelled
    then.

    `work` may start tasks that end with it.
    """
    gone = False
    results: list[WorkResult] = []
    failures: list[Exception] = []
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal gone
            await wait_for_disconnect(receive)
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
    raise ClientDisconnected
