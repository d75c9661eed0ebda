"""An event loop in a thread of its own, and the portal into it.

`anyio.from_thread.start_blocking_portal` does the same in a generator, which ends what it began when it
is forgotten: a forked child, which has no such thread, would wait for it for ever, at its exit at the latest.
"""

from __future__ import annotations

from concurrent.futures import Future
from threading import Thread
from types import TracebackType

import anyio
from anyio.from_thread import BlockingPortal


class EventLoopThread:
    """Runs from `with` to its end, which waits for the thread."""

    def __init__(self, name: str) -> None:
        self._ready: Future[BlockingPortal] = Future()
        self._thread = Thread(target=self._run_loop, name=name, daemon=True)

    def __enter__(self) -> BlockingPortal:
        self._thread.start()
        return self._ready.result()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        portal = self._ready.result()
        portal.call(portal.stop, exc is not None)
        self._thread.join()

    def _run_loop(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:  # noqa: BLE001 - the thread that waits has to hear of it
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        async with BlockingPortal() as portal:
            self._ready.set_result(portal)
            await portal.sleep_until_stopped()
