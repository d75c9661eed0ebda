from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import anyio

from fingerpost.records import IdempotencyState, KeyedCall
from tests.kit.store_samples import NOON
from tests.kit.stores import OpenStore

CALL = KeyedCall(
    caller="noa",
    key="k\ud800",
    call_fingerprint="f",
    tool="bank/pay",
    call_id="cal_1",
    began=NOON,
    expires=NOON + timedelta(days=1),
)


async def test_of_many_processes_that_claim_a_key_one_has_it_and_all_see_how_its_call_ended(
    open_store: OpenStore,
) -> None:
    async with open_store() as one, open_store() as two:
        had: list[KeyedCall | None] = []

        async def claim(number: int) -> None:
            store = (one, two)[number % 2]
            had.append(await store.idempotency.claim(replace(CALL, call_id=f"cal_{number}")))

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(claim, number)
        assert had.count(None) == 1
        first = next(call for call in had if call is not None)
        assert await two.idempotency.claim(replace(CALL, caller="tal")) is None
        done = replace(first, state=IdempotencyState.DONE, outcome=b"{}")
        await one.idempotency.finish(replace(done, call_id="cal_other"))  # whose it is not
        assert await two.idempotency.claim(CALL) == first
        await one.idempotency.finish(done)
    async with open_store() as later:
        assert await later.idempotency.claim(CALL) == done
        after = CALL.expires + timedelta(seconds=1)
        assert await later.idempotency.claim(replace(CALL, began=after, expires=after)) is None


async def test_a_released_key_may_be_claimed_again(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert await store.idempotency.claim(CALL) is None
        await store.idempotency.release(CALL)
        assert await store.idempotency.claim(CALL) is None
