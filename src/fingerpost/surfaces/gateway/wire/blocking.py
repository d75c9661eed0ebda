"""Reading and writing that may wait for ever, in a thread nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar, TypeVarTuple

Result = TypeVar("Result")
WorkArguments = TypeVarTuple("WorkArguments")


class BlockingThread:
    """One thread of its own, for one call after the other.

    The threads of a pool are waited for when the interpreter ends, so one that reads from a client that
    neither writes nor leaves would keep the process. This one goes with it.
    """

    def __init__(self, name: str) -> None:
        self._asked: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[*WorkArguments], Result], *arguments: *WorkArguments) -> Result:
        """What `work` gives. Whoever is cancelled goes at once; the call may go on in its thread."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._asked.put((future, lambda: work(*arguments)))
        return await future

    def close(self) -> None:
        """No more calls. One that waits for somebody else is left to itself."""
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, work = asked
            tell = _run_work(work)
            try:
                future.get_loop().call_soon_threadsafe(_settle_future, future, tell)
            except RuntimeError:
                return  # the event loop is closed: nobody waits any more


def _run_work(work: Callable[[], Any]) -> Callable[[asyncio.Future[Any]], None]:
    try:
        result = work()
    except Exception as raised:  # noqa: BLE001 - raised again where it was called from
        error = raised
        return lambda future: future.set_exception(error)
    return lambda future: future.set_result(result)


def _settle_future(future: asyncio.Future[Any], apply: Callable[[asyncio.Future[Any]], None]) -> None:
    if not future.done():
        apply(future)
