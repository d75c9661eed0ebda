from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fingerpost.records import create_id
from fingerpost.store import Memory, MemoryOwner, Store
from tests.kit.store_samples import NOON
from tests.kit.stores import OpenStore
from tests.requirements import proves

PLENTY = 1000


def memory(text: str, person: str | None = None, conversation: str | None = None) -> Memory:
    return Memory(
        memory_id=create_id("mem"), text=text, at=NOON, person=person, conversation=conversation
    )  # fmt: skip


async def texts(store: Store, person: str | None = None, conversation: str | None = None) -> list[str]:
    return [
        one.text
        for one in await store.memories.list_all(MemoryOwner(person=person, conversation=conversation))
    ]


@proves("U9")
async def test_each_person_sees_their_own_and_of_conversations_the_one_they_are_in(
    open_store: OpenStore,
) -> None:
    odd = "half \ud83d\x00 \\0000"
    async with open_store() as store:
        for one in (
            memory("dana's", "dana"),
            memory("dana's here", "dana", "ses_1"),
            memory("dana's there", "dana", "ses_2"),
            memory("erik's", "erik"),
            memory(odd),
        ):
            assert await store.memories.add(one, max_memories=PLENTY) == 0
    async with open_store() as store:  # after a restart
        assert await texts(store, "dana") == ["dana's"]
        assert await texts(store, "dana", "ses_1") == ["dana's here", "dana's"]
        assert await texts(store, "erik", "ses_1") == ["erik's"]
        assert await texts(store) == [odd]
        assert await texts(store, "") == []  # no name at all is not an empty name


@proves("U9")
async def test_forgetting_does_not_reach_memories_of_others(open_store: OpenStore) -> None:
    mine, theirs = memory("mine", "dana"), memory("theirs", "erik")
    elsewhere = memory("elsewhere", "dana", "ses_2")
    async with open_store() as store:
        for one in (mine, theirs, elsewhere):
            await store.memories.add(one, max_memories=PLENTY)
        owner = MemoryOwner(person="dana", conversation="ses_1")
        everything = [one.memory_id for one in (mine, theirs, elsewhere)]
        assert await store.memories.forget(owner, everything) == 1
        assert await store.memories.forget(owner, everything) == 0
        assert await store.memories.forget_all(owner, conversation_only=True) == 0
        assert await store.memories.forget_all(MemoryOwner(person="dana"), conversation_only=True) == 0
        assert await texts(store, "dana", "ses_2") == ["elsewhere"]
        assert await store.memories.forget_all(owner) == 1
        assert await texts(store, "erik") == ["theirs"]


async def test_the_oldest_of_one_person_go_first(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.memories.add(memory("erik's", "erik"), max_memories=PLENTY)
        gone = [
            await store.memories.add(memory(str(each), "dana", "ses"), max_memories=3) for each in range(5)
        ]
        assert gone == [0, 0, 0, 1, 1]
        assert await texts(store, "dana", "ses") == ["4", "3", "2"]
        assert await store.memories.add(memory("5", "dana"), max_memories=1) == 3
        assert await texts(store, "dana", "ses") == ["5"]
        assert await texts(store, "erik") == ["erik's"]


async def test_another_process_changes_the_stamp(open_store: OpenStore) -> None:
    owner = MemoryOwner(person="dana")
    async with open_store() as one, open_store() as two:
        stamps = [await one.memories.get_stamp(owner)]
        first = memory("a", "dana")
        await two.memories.add(first, max_memories=PLENTY)
        stamps.append(await one.memories.get_stamp(owner))
        await two.memories.forget(owner, [first.memory_id])
        await two.memories.add(memory("b", "dana"), max_memories=PLENTY)  # as many as before
        stamps.append(await one.memories.get_stamp(owner))
        await two.memories.forget_all(owner)
        stamps.append(await one.memories.get_stamp(owner))
        assert len(set(stamps[:3])) == 3 and stamps[3] != stamps[2]
        await two.memories.add(memory("c", "erik"), max_memories=PLENTY)
        assert await one.memories.get_stamp(owner) == stamps[3]


people = st.sampled_from([None, "dana", "erik"])
places = st.sampled_from([None, "ses_1", "ses_2"])
doing = st.one_of(
    st.tuples(st.just("add"), people, places),
    st.tuples(st.just("forget"), people, places),
    st.tuples(st.just("forget_all"), people, places),
)


@pytest.mark.slow
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # fmt: skip
@given(steps=st.lists(doing, max_size=12))
async def test_after_any_operations_each_owner_sees_what_a_list_would_hold(
    sqlite_url: str, steps: list[tuple[str, str | None, str | None]]
) -> None:
    model: list[Memory] = []

    def list_seen(person: str | None, place: str | None) -> list[Memory]:
        return [one for one in model if one.person == person and one.conversation in (None, place)]

    async with Store.open(sqlite_url) as store:
        for person in (None, "dana", "erik"):
            await store.memories.forget_all(MemoryOwner(person=person))
        for what, person, place in steps:
            owner = MemoryOwner(person=person, conversation=place)
            if what == "add":
                model.append(memory(str(len(model)), person, place))
                await store.memories.add(model[-1], max_memories=PLENTY)
            elif what == "forget":
                gone = list_seen(person, place)[:1]
                await store.memories.forget(owner, [one.memory_id for one in model][:1] if not gone else
                                            [gone[0].memory_id])  # fmt: skip
                model = [one for one in model if one not in gone]
            else:
                await store.memories.forget_all(owner)
                model = [one for one in model if one.person != person]
        for person in (None, "dana", "erik"):
            for place in (None, "ses_1", "ses_2"):
                found = await store.memories.list_all(MemoryOwner(person=person, conversation=place))
                assert found == list_seen(person, place)[::-1]
