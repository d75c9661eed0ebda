"""Independent work side by side, in bounded number, with results in the order given.

Calls a model makes in one breath are independent, with one exception: what
changes the same server happens in the order it was asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio

from fingerpost.frozen import frozen
from fingerpost.records import Effect

T = TypeVar("T")

MAX_PARALLEL = 16


@frozen(kw_only=False)
class ParallelJob(Generic[T]):
    """Work on one server."""

    server: str
    effect: Effect
    work: Callable[[], Awaitable[T]]


async def run_in_parallel(
    jobs: Sequence[ParallelJob[T]], *, max_parallel: int = MAX_PARALLEL
) -> tuple[T, ...]:
    """What every job came to. When one raises, the others are cancelled."""
    results: dict[int, T] = {}
    limit = anyio.Semaphore(max_parallel)

    async def work_through(lane: list[int]) -> None:
        for index in lane:
            async with limit:
                results[index] = await jobs[index].work()

    async with anyio.create_task_group() as tasks:
        for lane in _group_in_lanes(jobs):
            tasks.start_soon(work_through, lane)
    return tuple(results[index] for index in range(len(jobs)))


def _group_in_lanes(jobs: Sequence[ParallelJob[T]]) -> list[list[int]]:
    """Jobs that follow each other: the writes to one server. Every read goes alone."""
    lanes: list[list[int]] = []
    writes: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        if job.effect is Effect.READ:
            lanes.append([index])
        elif job.server in writes:
            writes[job.server].append(index)
        else:
            writes[job.server] = [index]
            lanes.append(writes[job.server])
    return lanes
