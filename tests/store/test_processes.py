"""What only several processes, or a killed one, can show."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.kit.store_samples import NOON, exact_grant
from tests.kit.stores import OpenStore, Postgres
from tests.requirements import proves
from tests.store.processes import lines, read_output, start_process

pytestmark = pytest.mark.process


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    url = postgres.new_database(empty=True)
    yield url
    postgres.drop_database(url)


async def kill_after_acknowledgements(url: str, anchor: Path, count: int) -> list[str]:
    """Ids a program acknowledged, killed (SIGKILL) after `count` of them and whatever came meanwhile."""
    received: list[str] = []
    with anyio.fail_after(50):
        async with start_process("append_for_ever", url, anchor) as process:
            async for line in lines(process):
                received.append(line)
                if len(received) == count:
                    process.kill()
    return received


@proves("H5", "H6")
async def test_no_acknowledged_event_is_lost_when_the_process_is_killed(
    url: str, anchor: Path, open_store: OpenStore
) -> None:
    acknowledged: list[str] = []
    for _ in range(3):
        acknowledged += await kill_after_acknowledgements(url, anchor, random.randrange(1, 100))
    assert len(acknowledged) >= 3
    async with open_store() as store:
        stored = {item.event.event_id for item in await store.journal.list_events(limit=100_000)}
        report = await store.audit.verify()
        trail = {entry.event_id for entry in await store.audit.list_entries(limit=100_000)}
        kinds = Counter(item.event.audited for item in await store.journal.list_events(limit=100_000))
    assert set(acknowledged) <= stored
    assert report.intact, report.reason
    assert trail <= stored
    # Both events of an append are there, or neither is; the audited one is in the trail.
    assert kinds[True] == kinds[False] == len(trail) == report.rows


@proves("H6", "H27")
async def test_two_processes_extend_a_trail_that_neither_finds_made(
    url: str, anchor: Path, open_store: OpenStore
) -> None:
    outcome: list[list[str]] = []

    async def append() -> None:
        outcome.append(await read_output("append_some", url, anchor, "60"))

    async with anyio.create_task_group() as tasks:
        for _ in range(2):  # both create the database, if the other has not
            tasks.start_soon(append)
    async with open_store() as store:
        report = await store.audit.verify()
        trail = {entry.event_id for entry in await store.audit.list_entries(limit=1000)}
    assert (report.rows, report.intact) == (120, True), report.reason
    assert report.chains <= 2
    assert report.anchors >= 1
    assert trail == set(outcome[0]) | set(outcome[1])


@proves("F33")
async def test_processes_racing_for_one_time_grants_spend_each_exactly_once(
    url: str, anchor: Path, open_store: OpenStore
) -> None:
    grants = [exact_grant(f"call-{number}") for number in range(100)]
    async with open_store() as store:
        async with anyio.create_task_group() as tasks:
            for grant in grants:
                tasks.start_soon(store.grants.add, grant)

        spent: list[str] = []
        ready = [anyio.Event() for _ in range(3)]
        begin = anyio.Event()

        async def race(mine: anyio.Event) -> None:
            async with start_process("spend_all", url, anchor, str(len(grants))) as process:
                async for line in lines(process):
                    if line != "ready":
                        spent.append(line)
                        continue
                    mine.set()
                    await begin.wait()
                    assert process.stdin is not None
                    await process.stdin.send(b"\n")
                assert await process.wait() == 0

        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:
                for event in ready:
                    tasks.start_soon(race, event)
                for event in ready:
                    await event.wait()
                begin.set()
        assert Counter(spent) == Counter(grant.grant_id for grant in grants)
        assert await store.grants.list_active(now=NOON) == []
