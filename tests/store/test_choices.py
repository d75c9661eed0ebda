from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from fingerpost.records import Choice, ToolFollower
from fingerpost.redaction import MASK
from fingerpost.store.learning import MAX_CHOICE_REQUEST_LENGTH, MAX_CHOICES
from tests.kit.store_samples import NOON
from tests.kit.stores import OpenStore
from tests.requirements import proves


def choice(tool: str = "git/log", request: str = "what changed last week?", **changes: object) -> Choice:
    fields: dict[str, object] = {"request": request, "tool": tool, "worked": True, "at": NOON}
    return Choice(**(fields | changes))  # pyright: ignore[reportArgumentType] - fields by name


@proves("A17", "H4")
async def test_choices_of_two_processes_come_back_newest_first_and_exactly(open_store: OpenStore) -> None:
    first = choice(conversation="ses-1")
    second = choice("odd\x00name/\ud800", "מה השתנה?", worked=False, at=NOON + timedelta(microseconds=1))
    async with open_store() as one, open_store() as two:
        await one.choices.record(first)
        await two.choices.record(second)
        assert await one.choices.list_recent() == [second, first]
        assert await one.choices.list_recent(limit=1) == [second]


@proves("A17")
async def test_noted_choices_are_there_after_a_restart_and_gone_after_clear(open_store: OpenStore) -> None:
    async with open_store() as store:
        for number in range(5):
            store.choices.record_soon(choice(f"git/{number}"))
    async with open_store() as store:
        assert [found.tool for found in await store.choices.list_recent(2)] == ["git/4", "git/3"]
        assert await store.choices.clear() == 5
        assert await store.choices.list_recent() == []
        assert await store.choices.list_followers() == []
        assert await store.choices.clear() == 0


@proves("F49", "A17")
@pytest.mark.parametrize("padding", [0, 480, 496])
async def test_a_request_is_kept_masked_and_short(open_store: OpenStore, padding: int) -> None:
    secret = "ghp_" + "a1B2" * 9
    async with open_store() as store:
        await store.choices.record(
            choice(request="x" * padding + " " + secret + " push it " + "y" * 2_000_000)
        )
        (kept,) = await store.choices.list_recent()
    assert len(kept.request) == MAX_CHOICE_REQUEST_LENGTH
    assert "ghp_" not in kept.request
    assert kept.request.startswith(("x" * padding + " " + MASK)[:500])


@proves("A17", "H4")
async def test_what_follows_what_is_counted_within_conversations_and_only_where_it_worked(
    open_store: OpenStore,
) -> None:
    steps = [
        ("ses-1", "web/search", True),
        ("ses-2", "mail/read", True),
        ("ses-1", "web/fetch", True),
        ("ses-2", "web/search", True),
        ("ses-2", "web/crawl", False),
        ("ses-2", "web/fetch", True),
        (None, "web/search", True),
        (None, "mail/send", True),
    ]
    async with open_store() as store:
        for conversation, tool, worked in steps:
            await store.choices.record(choice(tool, worked=worked, conversation=conversation))
        found = await store.choices.list_followers()
        most = await store.choices.list_followers(limit=1)
    search_then_fetch = ToolFollower(tool="web/search", then="web/fetch", times=2)
    assert found == [search_then_fetch, ToolFollower(tool="mail/read", then="web/search", times=1)]
    assert most == [search_then_fetch]


async def test_only_the_newest_choices_are_kept(
    open_store: OpenStore, url: str, tamper: Callable[[str], None]
) -> None:
    async with open_store() as store:
        await store.choices.record(choice("git/first"))
        await store.choices.record(choice("git/second"))
    skipped = MAX_CHOICES + 1  # the next row gets this number, as if so many had come in between
    tamper(
        f"UPDATE sqlite_sequence SET seq = {skipped - 1} WHERE name = 'choices'"
        if url.startswith("sqlite")
        else f"ALTER SEQUENCE choices_seq_seq RESTART WITH {skipped}"
    )
    async with open_store() as store:
        await store.choices.record(choice("git/late"))
        assert [found.tool for found in await store.choices.list_recent()] == ["git/late", "git/second"]
