"""Commands that run in the background, each for whoever started it."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import TaskGroup, TaskStatus

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.commands.running import RunningCommand
from fingerpost.builtin.workspace.ground import RootFolder
from fingerpost.frozen import frozen
from fingerpost.tasks import cancel_and_exit

log = logging.getLogger("fingerpost.builtin")

MAX_JOBS_KEPT: Final = 50  # that are over: their output can still be read


@frozen(kw_only=False)
class BackgroundJob:
    """One of them. `owner` alone sees it."""

    id: str
    owner: str | None
    command: RunningCommand
    scope: anyio.CancelScope


class BackgroundJobs:
    """All background commands of a server, which end when it does."""

    def __init__(self, root_folder: RootFolder, limit: int) -> None:
        self._ground = root_folder
        self._most = limit
        self._jobs: dict[str, BackgroundJob] = {}
        self._count = 0
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        """While entered, commands can be started; afterwards none is left."""
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        tasks, self._tasks = self._tasks, None
        return await cancel_and_exit(tasks, kind, error, trace)

    async def start_job(self, owner: str | None, command: RunningCommand) -> BackgroundJob:
        """Begin it. Raises `ToolRefused` when too many run, or when it cannot be started."""
        if self._tasks is None:
            message = "Nothing can run in the background: the server is not open."
            raise ToolRefused(message)
        active = sum(not job.command.finished.is_set() for job in self._jobs.values())
        if active >= self._most:
            message = f"{active} commands run in the background already; {self._most} is the most."
            raise ToolRefused(message, hint="Stop one of them; `list` shows yours.")
        self._count += 1
        job = BackgroundJob(f"job-{self._count}", owner, command, anyio.CancelScope())
        await self._tasks.start(self._run_job, job)
        self._jobs[job.id] = job
        self._forget_oldest()
        return job

    async def _run_job(self, job: BackgroundJob, *, task_status: TaskStatus[None]) -> None:
        begun = False

        def started() -> None:
            nonlocal begun
            begun = True
            task_status.started()

        with job.scope:
            try:
                await job.command.run(self._ground, started=started)
            except Exception:
                if not begun:
                    raise  # whoever waits for its start hears it
                log.exception("a background command ended in a way it should not")

    def list_jobs(self, owner: str | None) -> list[BackgroundJob]:
        """Those of one caller, the oldest first."""
        return [job for job in self._jobs.values() if job.owner == owner]

    def get_job(self, owner: str | None, name: str) -> BackgroundJob:
        """One of a caller's. Raises `ToolRefused`."""
        job = self._jobs.get(name)
        if job is None or job.owner != owner:
            own = ", ".join(each.id for each in self.list_jobs(owner)) or "none"
            message = f"There is no background command {name[:40]} of yours."
            raise ToolRefused(message, hint=f"There are: {own}.")
        return job

    async def stop_job(self, job: BackgroundJob) -> None:
        """End it and everything it started."""
        job.scope.cancel()
        await job.command.finished.wait()

    def _forget_oldest(self) -> None:
        over = [job.id for job in self._jobs.values() if job.command.finished.is_set()]
        for name in over[: max(0, len(over) - MAX_JOBS_KEPT)]:
            del self._jobs[name]
