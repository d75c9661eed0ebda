from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from fingerpost.errors import CallError
from fingerpost.records import Decision, Pending
from tests.kit.store_samples import NOON, create_pending, minutes
from tests.kit.stores import OpenStore
from tests.requirements import proves


@proves("H4")
async def test_a_call_waits_for_a_decision(open_store: OpenStore) -> None:
    call = create_pending()
    async with open_store() as store:
        await store.approvals.add(call)
    async with open_store() as store:
        assert await store.approvals.list_waiting(now=NOON) == [call]
        decided = await store.approvals.decide(
            call.pending_id,
            Decision.APPROVED,
            by="dana",
            reason="not forced",
            edited_arguments={"remote": "origin", "force": False},
            now=NOON + minutes(1),
        )
        assert decided == replace(
            call,
            decision=Decision.APPROVED,
            decided_by="dana",
            decided_at=NOON + minutes(1),
            decision_reason="not forced",
            edited_arguments={"remote": "origin", "force": False},
        )
        assert await store.approvals.get(call.pending_id) == decided
        assert await store.approvals.list_waiting(now=NOON) == []


async def test_the_first_decision_stands_and_the_second_is_told_so(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.approvals.add(create_pending())
        first = await store.approvals.decide("pending-1", Decision.REJECTED, by="dana", now=NOON)
        second = await store.approvals.decide("pending-1", Decision.APPROVED, by="eve", now=NOON)
    assert first.decision is Decision.REJECTED
    assert second == first


async def test_of_many_decisions_at_once_one_counts(open_store: OpenStore) -> None:
    answers: list[Pending] = []

    async def decide(name: str) -> None:
        answers.append(await store.approvals.decide("pending-1", Decision.APPROVED, by=name, now=NOON))

    async with open_store() as store:
        await store.approvals.add(create_pending())
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(decide, f"person {number}")
    assert len({answer.decided_by for answer in answers}) == 1


async def test_a_call_whose_time_has_passed_is_expired_and_cannot_be_approved(open_store: OpenStore) -> None:
    call = create_pending()
    async with open_store() as store:
        await store.approvals.add(call)
        found = await store.approvals.get(call.pending_id, now=call.expires)
        assert found == replace(call, decision=Decision.EXPIRED)
        late = await store.approvals.decide(
            call.pending_id, Decision.APPROVED, by="dana", now=call.expires + minutes(1)
        )
        assert late.decision is Decision.EXPIRED
        assert late.decided_by is None
        assert await store.approvals.list_waiting(now=call.expires) == []


async def test_waiting_calls_are_listed_oldest_first(open_store: OpenStore) -> None:
    async with open_store() as store:
        for age in (1, 3, 2):
            await store.approvals.add(create_pending(f"pending-{age}", created=NOON - minutes(age)))
        assert [call.pending_id for call in await store.approvals.list_waiting(now=NOON)] == [
            "pending-3",
            "pending-2",
            "pending-1",
        ]


async def test_calls_are_listed_page_by_page_newest_first(open_store: OpenStore) -> None:
    asked = [replace(create_pending(), pending_id=f"p{n}", created=NOON + minutes(n // 2)) for n in range(6)]
    async with open_store() as store:
        for call in asked:
            await store.approvals.add(replace(call, expires=NOON + minutes(30)))
        await store.approvals.decide("p1", Decision.APPROVED, by="dana", now=NOON)

        async def list_ids(**wanted: Any) -> list[str]:
            return [call.pending_id for call in await store.approvals.list_recent(now=NOON, **wanted)]

        assert await list_ids() == ["p5", "p4", "p3", "p2", "p1", "p0"]
        assert await list_ids(limit=2, before="p4") == ["p3", "p2"]
        assert await list_ids(decided=True) == ["p1"]
        assert await list_ids(decided=False, before="p3") == ["p2", "p0"]
        assert await store.approvals.list_recent(decided=False, now=NOON + minutes(31)) == []


async def test_deciding_an_unknown_call_is_an_error(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert await store.approvals.get("nothing") is None
        with pytest.raises(CallError, match="'nothing'"):
            await store.approvals.decide("nothing", Decision.APPROVED, by="dana")


async def test_only_approving_and_rejecting_are_decisions(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.approvals.add(create_pending())
        for decision in (Decision.WAITING, Decision.EXPIRED):
            with pytest.raises(ValueError, match="not a decision"):
                await store.approvals.decide("pending-1", decision, by="dana", now=NOON)


async def test_adding_a_decided_call_again_does_not_reopen_it(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.approvals.add(create_pending())
        await store.approvals.decide("pending-1", Decision.REJECTED, by="dana", now=NOON)
        await store.approvals.add(create_pending())
        assert await store.approvals.list_waiting(now=NOON) == []
