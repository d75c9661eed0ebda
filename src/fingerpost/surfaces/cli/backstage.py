"""The router on a thread of its own, so that this thread is free for the person.

Reading a line, writing an answer and hearing Ctrl-C are things only the main
thread does well. So the event loop runs behind it: what happens there comes over
a queue, and is shown here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from anyio.from_thread import start_blocking_portal

from fingerpost.events import Event
from fingerpost.settings import Loaded
from fingerpost.surfaces.cli.house import any_router, connect, open_router
from fingerpost.surfaces.cli.narrowing import settle

if TYPE_CHECKING:
    from fingerpost.router import Router

R = TypeVar("R")

Heard = str | Event  # a piece of the answer, or something that happened
Hear = Callable[[Heard], None]

UNWIND_SECONDS: Final = 10.0  # how long a stopped answer may take to let go of what it holds
LOOK_AGAIN: Final = 0.2  # a wait without end cannot be interrupted everywhere


class Ear:
    """An event sink that passes on what happens while somebody listens."""

    def __init__(self) -> None:
        self.tell: Hear | None = None

    def emit(self, event: Event) -> None:
        if self.tell is not None:
            self.tell(event)


class Backstage:
    """Between `with` and its end: a router, and a way to have things done on its event loop."""

    router: Router

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._ear = Ear()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            opened = self._portal.wrap_async_context_manager(_opened(self._loaded))
            self.router = stack.enter_context(opened)
            self.router.events.add(self._ear)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What this thread raised (Ctrl-C, a closed pipe) is nothing the event loop could do with.
        self._stack.close()

    def ready(self, *, server: str | None, wait: float) -> None:
        """Connect the servers, or the one, and wait a little for the tools' meanings."""

        async def work() -> None:
            if server is not None:
                self.router.servers.status(server)  # an unknown name is answered with the near ones
            await connect(self.router, *([server] if server else []), wait=wait)
            await settle(self.router)

        self.run(lambda _: work())

    def run(self, work: Callable[[Hear], Coroutine[Any, Any, R]], hear: Hear | None = None) -> R:
        """What `work` comes to; `hear` is told, on this thread, what it says and what happens meanwhile.

        Ctrl-C stops the work; when it has let go of everything, `KeyboardInterrupt` is raised.
        """
        said: SimpleQueue[Heard | None] = SimpleQueue()

        async def whole() -> R:
            self._ear.tell = said.put
            try:
                return await work(said.put)
            finally:
                self._ear.tell = None
                said.put(None)

        task = self._portal.start_task_soon(whole)
        try:
            _listen(said, hear or _ignore)
        except BaseException:  # Ctrl-C, or nobody reads what we write any more
            task.cancel()
            _drain(said)
            raise
        return task.result()


@asynccontextmanager
async def _opened(loaded: Loaded) -> AsyncGenerator[Router]:
    """The router. With a model but without servers there is still somebody to talk to."""
    models = loaded.settings.models
    alone = models.lite is None and models.prime is None
    async with (open_router if alone else any_router)(loaded) as router:
        yield router


def _listen(said: SimpleQueue[Heard | None], hear: Hear) -> None:
    while True:
        try:
            heard = said.get(timeout=LOOK_AGAIN)
        except Empty:
            continue
        if heard is None:
            return
        hear(heard)


def _drain(said: SimpleQueue[Heard | None]) -> None:
    """Wait until the work has ended; what it still says is of no interest."""
    try:
        while said.get(timeout=UNWIND_SECONDS) is not None:
            pass
    except Empty:
        return


def _ignore(heard: Heard) -> None:
    """Nobody listens."""
