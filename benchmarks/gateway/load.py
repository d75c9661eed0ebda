"""Load: many workers for a while, on several subjects in turn, so that all meet the same machine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import anyio

from benchmarks.gateway.client import HANDSHAKE, CallFailed, Era, GatewayClient
from benchmarks.gateway.programs import RunningProgram

_TEXTS = itertools.count()
_PADDING = "x" * 92


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Something to be measured: where it is, and the programs whose processor time counts."""

    name: str
    url: str
    tool: str  # what echo is called there
    upstream: RunningProgram
    gateway: RunningProgram | None = None  # None: direct
    era: Era = HANDSHAKE
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def client(self) -> GatewayClient:
        return GatewayClient(self.url, self.era, self.headers)


@dataclass
class LoadFigures:
    """What came of all slices of one subject at one load."""

    milliseconds: list[float] = field(default_factory=list[float])
    wall: float = 0.0
    gateway_cpu: float = 0.0
    upstream_cpu: float = 0.0
    errors: list[str] = field(default_factory=list[str])

    @property
    def calls(self) -> int:
        return len(self.milliseconds)

    @property
    def per_second(self) -> float:
        return self.calls / self.wall if self.wall else 0.0

    @property
    def p50(self) -> float:
        return self.quantile(0.5)

    @property
    def gateway_ms(self) -> float:
        """Processor time of the gateway for one call."""
        return 1000 * self.gateway_cpu / max(1, self.calls)

    @property
    def upstream_ms(self) -> float:
        return 1000 * self.upstream_cpu / max(1, self.calls)

    def quantile(self, share: float) -> float:
        if not self.milliseconds:
            return float("nan")
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


Work = Callable[[GatewayClient, Subject], Awaitable[object]]


async def echo(client: GatewayClient, subject: Subject) -> None:
    """One call; never the same twice, so that no cache and no loop guard applies."""
    text = f"{next(_TEXTS):08d}{_PADDING}"
    if await client.call(subject.tool, {"text": text}) != text:
        raise CallFailed("the answer of another call")


async def list_tools(client: GatewayClient, _: Subject) -> None:
    await client.list_tools()


async def first_page(client: GatewayClient, _: Subject) -> None:
    await client.first_page()


async def alternate(
    subjects: Sequence[Subject],
    work: Work,
    *,
    workers: int,
    seconds: float,
    rounds: int,
    own_sessions: bool = False,
) -> dict[str, LoadFigures]:
    """Slices of `seconds` on each subject in turn, `rounds` times."""
    figures = {subject.name: LoadFigures() for subject in subjects}
    for _ in range(rounds):
        for subject in subjects:
            found = figures[subject.name]
            await _slice(subject, work, found, workers=workers, seconds=seconds, own_sessions=own_sessions)
    return figures


async def _slice(
    subject: Subject, work: Work, found: LoadFigures, *, workers: int, seconds: float, own_sessions: bool
) -> None:
    first = await subject.client().open()
    sharing = None if own_sessions else first
    clients = [first, *[await subject.client().open(sharing) for _ in range(workers - 1)]]
    await work(first, subject)  # whatever only the first call pays
    before = _cpu(subject)
    begun = time.perf_counter()
    end = begun + seconds

    async def worker(client: GatewayClient) -> None:
        while (at := time.perf_counter()) < end:
            try:
                await work(client, subject)
            except (CallFailed, OSError) as error:
                found.errors.append(str(error)[:300])
                await anyio.sleep(0.01)
            else:
                found.milliseconds.append(1000 * (time.perf_counter() - at))

    async with anyio.create_task_group() as group:
        for client in clients:
            group.start_soon(worker, client)
    found.wall += time.perf_counter() - begun
    after = _cpu(subject)
    found.gateway_cpu += after[0] - before[0]
    found.upstream_cpu += after[1] - before[1]
    for client in clients:
        await client.close()


def _cpu(subject: Subject) -> tuple[float, float]:
    gateway = 0.0 if subject.gateway is None else subject.gateway.cpu_seconds()
    return gateway, subject.upstream.cpu_seconds()
