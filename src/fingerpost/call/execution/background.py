"""Long work in the background: start it, get a handle, look in, fetch the result, or call it off.

The work is anything that ends in a result; for a call that is its `Execution`
or `Outcome`. Everything is bounded: how much runs at once, how many results are
kept, and for how long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from fingerpost.call.execution.door import ProgressReporter, TimeSource
from fingerpost.errors import CallError, LimitReached
from fingerpost.frozen import frozen
from fingerpost.records import create_id
from fingerpost.redaction import scrub
from fingerpost.tasks import cancel_and_exit

logger = logging.getLogger("fingerpost.call")

T = TypeVar("T")

MAX_RUNNING = 32
MAX_KEPT_RESULTS = 200
KEEP_SECONDS = 3600.0


class BackgroundState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"  # our own mistake: what a tool does wrong is a result like any other


@frozen
class BackgroundStatus:
    """How far a piece of work has come."""

    handle: str
    tool: str
    state: BackgroundState
    seconds: float
    progress: float | None = None
    total: float | None = None
    message: str = ""


class _BackgroundJob(Generic[T]):
    """One piece of work."""

    def __init__(self, handle: str, tool: str, owner: str | None, began: float) -> None:
        self.handle = handle
        self.tool = tool
        self.owner = owner
        self.began = began
        self.ended: float | None = None
        self.state = BackgroundState.RUNNING
        self.progress: tuple[float | None, float | None, str] = (None, None, "")
        self.result: T | None = None
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress = (progress, total, scrub(message or ""))


class BackgroundCalls(Generic[T]):
    """The work under way and the results not yet forgotten. Leaving it calls everything off."""

    def __init__(
        self,
        *,
        max_running: int = MAX_RUNNING,
        max_kept: int = MAX_KEPT_RESULTS,
        keep_seconds: float = KEEP_SECONDS,
        clock: TimeSource = time.monotonic,
    ) -> None:
        self._most_running = max_running
        self._most_kept = max_kept
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._pieces: dict[str, _BackgroundJob[T]] = {}
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        tasks, self._tasks = self._tasks, None
        return await cancel_and_exit(tasks, kind, error, trace)

    def start(
        self, work: Callable[[ProgressReporter], Awaitable[T]], *, tool: str, owner: str | None = None
    ) -> str:
        """Begin, and return the handle at once. `owner` alone may then use it."""
        if self._tasks is None:
            message = "background work is started inside `async with Background()`"
            raise RuntimeError(message)
        self._remove_expired()
        running = sum(piece.state is BackgroundState.RUNNING for piece in self._pieces.values())
        if running >= self._most_running:
            message = f"{running} calls already run in the background"
            raise LimitReached(message, hint="wait for one of them, or cancel one")
        piece = _BackgroundJob[T](create_id("bgr"), tool, owner, self._clock())
        self._pieces[piece.handle] = piece
        self._tasks.start_soon(self._run, piece, work)
        return piece.handle

    def poll(self, handle: str, *, owner: str | None = None) -> BackgroundStatus:
        """How it is coming along. Raises `CallError` for a handle that is not, or no longer, known."""
        piece = self._find(handle, owner)
        ended = self._clock() if piece.ended is None else piece.ended
        progress, total, message = piece.progress
        return BackgroundStatus(
            handle=handle,
            tool=piece.tool,
            state=piece.state,
            seconds=ended - piece.began,
            progress=progress,
            total=total,
            message=message,
        )

    async def result(self, handle: str, *, timeout: float = 0.0, owner: str | None = None) -> T | None:
        """The result, waiting up to `timeout` seconds for it; None when there is none (yet): see `poll`."""
        piece = self._find(handle, owner)
        with anyio.move_on_after(timeout):
            await piece.over.wait()
        return piece.result

    async def cancel(self, handle: str, *, timeout: float = 10.0, owner: str | None = None) -> bool:
        """Call it off and wait until it has ended. False when it was over already."""
        piece = self._find(handle, owner)
        if piece.over.is_set():
            return False
        piece.scope.cancel()
        with anyio.move_on_after(timeout):
            await piece.over.wait()
        return piece.state is BackgroundState.CANCELLED

    async def _run(self, job: _BackgroundJob[T], work: Callable[[ProgressReporter], Awaitable[T]]) -> None:
        state = BackgroundState.CANCELLED
        try:
            with job.scope:
                job.result = await work(job.report_progress)
                state = BackgroundState.DONE
        except Exception:
            # One failed piece must not call off the others.
            logger.exception("background work on %s failed", job.tool)
            state = BackgroundState.FAILED
        finally:
            job.state = state
            job.ended = self._clock()
            job.over.set()

    def _find(self, handle: str, owner: str | None) -> _BackgroundJob[T]:
        self._remove_expired()
        piece = self._pieces.get(handle)
        if piece is None or piece.owner != owner:
            message = f"there is no background call {handle}"
            raise CallError(message, hint="results are kept for a while only; start the call again")
        return piece

    def _remove_expired(self) -> None:
        now = self._clock()
        over = [piece for piece in self._pieces.values() if piece.ended is not None]
        surplus = len(over) - self._most_kept
        for index, piece in enumerate(over):
            if index < surplus or (piece.ended is not None and now - piece.ended >= self._keep_seconds):
                del self._pieces[piece.handle]
