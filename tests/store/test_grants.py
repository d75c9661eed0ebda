from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from fingerpost.records import Grant
from tests.kit.store_samples import NOON, create_scoped_grant, exact_grant, minutes
from tests.kit.stores import OpenStore
from tests.requirements import proves


@proves("C6", "F33", "H4")
async def test_a_one_time_grant_is_spent_once(open_store: OpenStore) -> None:
    grant = exact_grant("call-1")
    async with open_store() as store:
        await store.grants.add(grant)
        spent = await store.grants.spend(call_fingerprint="call-1", now=NOON + minutes(1))
        assert spent is not None
        assert (spent.grant_id, spent.granted_by, spent.spent_at) == (
            grant.grant_id,
            "dana",
            NOON + minutes(1),
        )
        assert await store.grants.spend(call_fingerprint="call-1", now=NOON + minutes(1)) is None
        assert await store.grants.list_active(now=NOON) == []


@proves("F33")
async def test_many_tasks_spend_a_one_time_grant_once(open_store: OpenStore) -> None:
    spent: list[Grant] = []

    async def spend() -> None:
        grant = await store.grants.spend(call_fingerprint="call-1", now=NOON)
        if grant is not None:
            spent.append(grant)

    async with open_store() as store:
        await store.grants.add(exact_grant("call-1"))
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(spend)
    assert len(spent) == 1


@proves("C6")
async def test_a_grant_for_another_call_does_not_help(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.grants.add(exact_grant("call-1"))
        await store.grants.add(create_scoped_grant(conversation="ses-1", operation="git.push"))
        for lookup in (
            {"call_fingerprint": "call-2"},
            {"call_fingerprint": "call-2", "conversation": "ses-1"},
            {"call_fingerprint": "call-2", "operation": "git.push"},
            {"call_fingerprint": "call-2", "conversation": "ses-2", "operation": "git.push"},
            {"call_fingerprint": "call-2", "conversation": "ses-1", "operation": "git.reset"},
        ):
            assert await store.grants.spend(**lookup, now=NOON) is None
        assert len(await store.grants.list_active(now=NOON)) == 2


@proves("C6")
async def test_an_expired_grant_does_not_help(open_store: OpenStore) -> None:
    grant = exact_grant("call-1")
    async with open_store() as store:
        await store.grants.add(grant)
        assert await store.grants.spend(call_fingerprint="call-1", now=grant.expires) is None
        assert await store.grants.list_active(now=grant.expires) == []


async def test_a_grant_for_an_operation_lasts_until_it_expires(open_store: OpenStore) -> None:
    grant = create_scoped_grant(one_time=False)
    lookup = {"call_fingerprint": "any", "conversation": "ses-1", "operation": "git.push"}
    async with open_store() as store:
        await store.grants.add(grant)
        for _ in range(3):
            assert await store.grants.spend(**lookup, now=NOON) == grant
        assert await store.grants.list_active(now=NOON) == [grant]
        assert await store.grants.spend(**lookup, now=grant.expires) is None


async def test_the_grant_for_the_exact_call_goes_first_then_what_expires_first(open_store: OpenStore) -> None:
    exact = exact_grant("call-1", expires=NOON + minutes(60))
    soon, late = (
        create_scoped_grant(expires=NOON + minutes(5)),
        create_scoped_grant(expires=NOON + minutes(9)),
    )
    async with open_store() as store:
        for grant in (late, soon, exact):
            await store.grants.add(grant)
        order = [
            await store.grants.spend(
                call_fingerprint="call-1", conversation="ses-1", operation="git.push", now=NOON
            )
            for _ in range(4)
        ]
    assert [grant and grant.grant_id for grant in order] == [
        exact.grant_id,
        soon.grant_id,
        late.grant_id,
        None,
    ]


async def test_an_exact_grant_narrowed_to_a_conversation_holds_only_there(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.grants.add(exact_grant("call-1", conversation="ses-1"))
        assert await store.grants.spend(call_fingerprint="call-1", conversation="ses-2", now=NOON) is None
        assert await store.grants.spend(call_fingerprint="call-1", now=NOON) is None
        assert await store.grants.spend(call_fingerprint="call-1", conversation="ses-1", now=NOON)


@proves("C6")
async def test_a_grant_for_an_asker_holds_in_each_of_their_conversations(open_store: OpenStore) -> None:
    mine = replace(exact_grant("call-1"), conversation="key:dana")
    scoped = create_scoped_grant(conversation="key:dana", operation="git.push")
    async with open_store() as store:
        await store.grants.add(mine)
        await store.grants.add(scoped)
        lookup: dict[str, Any] = {"conversation": "ses-2", "operation": "git.push", "now": NOON}
        assert await store.grants.spend(call_fingerprint="call-1", asker="key:eve", **lookup) is None
        assert await store.grants.spend(call_fingerprint="call-2", asker="key:dana", **lookup) is None
        spent = await store.grants.spend(call_fingerprint="call-1", asker="key:dana", **lookup)
        assert spent is not None
        assert spent.grant_id == mine.grant_id
        assert await store.grants.spend(call_fingerprint="call-1", asker="key:dana", **lookup) is None


async def test_adding_a_spent_grant_again_does_not_revive_it(open_store: OpenStore) -> None:
    grant = exact_grant("call-1")
    async with open_store() as store:
        await store.grants.add(grant)
        await store.grants.spend(call_fingerprint="call-1", now=NOON)
        await store.grants.add(grant)
        assert await store.grants.spend(call_fingerprint="call-1", now=NOON) is None


async def test_a_grant_survives_a_restart(open_store: OpenStore) -> None:
    grant = exact_grant("call-1")
    async with open_store() as store:
        await store.grants.add(grant)
    async with open_store() as store:
        assert await store.grants.list_active(now=NOON) == [grant]


async def test_a_moment_without_a_time_zone_is_refused(open_store: OpenStore) -> None:
    async with open_store() as store:
        with pytest.raises(ValueError, match="time zone"):
            await store.grants.add(exact_grant(expires=NOON.replace(tzinfo=None)))
        await store.grants.add(exact_grant())
