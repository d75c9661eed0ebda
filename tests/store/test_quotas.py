"""Quotas hold for all processes of a store together."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from fingerpost.call.quotas import Quotas
from fingerpost.errors import QuotaReached
from fingerpost.records import Principal, Quota, utc_now
from tests.kit.stores import OpenStore
from tests.requirements import proves
from tests.store.processes import lines, start_process

DANA = Principal(name="laptop", kind="key", user="dana")
LIMIT = 100
PATIENCE_S = 100


@asynccontextmanager
async def open_instances(
    open_store: OpenStore, count: int, *quotas: Quota
) -> AsyncGenerator[tuple[list[Quotas], list[float]]]:
    """Several processes, as far as their store can tell, and the clock that they share."""
    clock = [1_000_000 * 60.0]
    async with AsyncExitStack() as stack:
        found: list[Quotas] = []
        for number in range(count):
            store = await stack.enter_async_context(open_store())
            await store.instances.renew_lease(f"ins_{number}", lease_s=600)
            found.append(Quotas(quotas, store.quotas, f"ins_{number}", clock=lambda: clock[0]))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        for one in found:
            tasks.start_soon(one.return_spare_slots)
        yield found, clock


async def take(
    quotas: Quotas, times: int, refused: Counter[str] | None = None, *, who: Principal = DANA
) -> int:
    """How many of these calls are admitted."""
    admitted = 0
    for _ in range(times):
        try:
            async with quotas.admit(who, None, calls=True):
                admitted += 1
        except QuotaReached as reached:
            if refused is not None:
                refused[f"{reached.limit} {reached.seconds}"] += 1
    return admitted


async def take_slots(quotas: Quotas, count: int) -> None:
    """Run so many calls at once."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(quotas.admit(DANA, None, runs=True))


async def take_slots_in_time(quotas: Quotas, count: int) -> None:
    """Run so many calls at once when the other process has returned its slots."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                return await take_slots(quotas, count)
            except QuotaReached:
                await anyio.sleep(0.02)


@proves("M30")
async def test_instances_together_admit_as_many_calls_as_the_limit(open_store: OpenStore) -> None:
    async with open_instances(open_store, 3, Quota(match="dana", calls_per_minute=LIMIT)) as (found, clock):
        counts: list[int] = []
        refused: Counter[str] = Counter()

        async def call(quotas: Quotas) -> None:
            counts.append(await take(quotas, LIMIT // 5, refused))

        async with anyio.create_task_group() as tasks:
            for quotas in (*found, *found, *found):
                tasks.start_soon(call, quotas)
        assert sum(counts) <= LIMIT  # of 180 calls at once, at three processes
        for quotas in found:  # one of them may have taken more units than it needed
            await call(quotas)
        assert sum(counts) == LIMIT
        assert refused == {"calls_per_minute 60": 140}
        clock[0] += 59.5
        refused.clear()
        assert await take(found[0], 1, refused) == 0
        assert refused == {"calls_per_minute 1": 1}
        clock[0] += 0.5
        assert await take(found[1], 2) == 2


@proves("M30")
async def test_one_process_uses_the_whole_limit_with_few_transactions(open_store: OpenStore) -> None:
    async with open_store() as store:
        quotas = Quotas((Quota(calls_per_minute=1000),), store.quotas, "ins", clock=lambda: 0.0)
        before = store.statistics.commits
        assert await take(quotas, 500) == 500
        assert store.statistics.commits - before < 25
        assert await take(quotas, 600) == 500
        assert store.statistics.commits - before < 80


@proves("M30")
async def test_what_a_second_limit_refuses_does_not_count(open_store: OpenStore) -> None:
    both = (Quota(calls_per_minute=10), Quota(of="key", match="lap*", calls_per_minute=4))
    async with open_instances(open_store, 1, *both) as ([quotas], _):
        assert await take(quotas, 9) == 4
        other_key = Principal(name="desk", kind="key", user="dana")
        assert await take(quotas, 9, who=other_key) == 6


@proves("M30")
async def test_slots_of_cancelled_requests_are_returned(open_store: OpenStore) -> None:
    async with open_instances(open_store, 2, Quota(running=20)) as ([one, other], _):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(take_slots, one, 1)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await take_slots_in_time(other, 20)


@proves("M30")
async def test_slots_are_shared_and_returned(open_store: OpenStore) -> None:
    async with open_instances(open_store, 2, Quota(running=3)) as ([one, other], _):
        async with AsyncExitStack() as busy:
            for quotas in (one, one, other):
                await busy.enter_async_context(quotas.admit(DANA, None, runs=True))
            for quotas in (one, other):
                with pytest.raises(QuotaReached, match="3 calls at once for user dana"):
                    await busy.enter_async_context(quotas.admit(DANA, None, runs=True))
        await take_slots_in_time(other, 3)


@proves("M30")
@pytest.mark.parametrize(
    ("quota", "limit", "amount"),
    [
        (Quota(tokens_per_day=2_000_000), "tokens_per_day", "2,000,000"),
        (Quota(cost_per_day=0.5), "cost_per_day", "0.5"),
    ],
)
async def test_what_one_instance_spends_counts_at_another(
    open_store: OpenStore, quota: Quota, limit: str, amount: str
) -> None:
    async with open_instances(open_store, 2, quota) as ([one, other], clock):
        await other.check_spending("laptop", None)
        for _ in range(2):
            one.add_spending("laptop", None, tokens=1_000_000, cost=0.25)
        with anyio.fail_after(PATIENCE_S), pytest.raises(QuotaReached) as reached:
            while True:  # it is written a moment later
                await other.check_spending("laptop", None)
                await anyio.sleep(0.01)
        assert str(reached.value).startswith(f"the limit of {amount} {limit.split('_')[0]}")
        assert (reached.value.limit, reached.value.seconds) == (limit, 86_400 - clock[0] % 86_400)
        await other.check_spending("another", None)
        clock[0] += reached.value.seconds
        await other.check_spending("laptop", None)


@pytest.mark.process
@proves("M30")
async def test_a_killed_process_loses_its_slots_with_its_lease(
    open_store: OpenStore, url: str, anchor: Path
) -> None:
    async with open_store() as store, start_process("hold_slots", url, anchor) as process:
        quotas = Quotas((Quota(running=2),), store.quotas, "ins")
        with anyio.fail_after(PATIENCE_S):
            assert await anext(lines(process)) == "2"
            process.kill()
            await process.wait()
        with pytest.raises(QuotaReached):
            await take_slots(quotas, 1)
        an_hour_ago = utc_now() - timedelta(hours=1)
        await store.instances.renew_lease("ins_child", lease_s=600, now=an_hour_ago)
        await take_slots(quotas, 2)
