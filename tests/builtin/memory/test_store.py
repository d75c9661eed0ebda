"""Memory through the call path: whose it is, what it refuses, how it is found and forgotten."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from fingerpost import Router
from fingerpost.builtin import BuiltinHost, make_server, open_router
from fingerpost.events import encode
from fingerpost.records import Decision, ErrorKind, Json, Outcome
from fingerpost.settings import Settings
from fingerpost.store import MemoryOwner
from tests.requirements import proves

TOOL = "memory/memory_operations"
FOLDER = Path("/")  # it has no use for one


def enable_memory(settings: Settings, **memory: Any) -> Settings:
    """With our memory switched on; compared by words alone unless said otherwise."""
    return Settings.model_validate(
        {
            **settings.model_dump(),
            "builtin": {"enabled": ["memory"], "memory": memory},
            "flags": {"dense_scores": False},
        }
    )


@asynccontextmanager
async def open_memory_router(settings: Settings, **memory: Any) -> AsyncGenerator[Router]:
    async with open_router(settings=enable_memory(settings, **memory), folder=FOLDER) as router:
        await router.connect()
        yield router


async def do(router: Router, operation: str, caller: str | None = "dana", **more: Json) -> Outcome:
    conversation = more.pop("conversation", None)
    return await router.call(
        TOOL,
        {"operation": operation, **more},
        caller=caller,
        conversation=conversation if isinstance(conversation, str) else None,
    )


async def list_texts(
    router: Router, person: str | None = "dana", conversation: str | None = None
) -> list[str]:
    found = await router.store.memories.list_all(MemoryOwner(person=person, conversation=conversation))
    return [one.text for one in found]


def id_in(outcome: Outcome) -> str:
    found = re.search(r"mem_\w+", outcome.content)
    assert found is not None, outcome.content
    return found[0]


@pytest.mark.slow
@proves("U9", "C5", "C6")
async def test_what_is_stored_is_found_again_by_its_own_person_alone(settings: Settings) -> None:
    async with open_memory_router(settings) as router:
        stored = await do(router, "store", text="I am allergic to peanuts")
        assert stored.success, stored.content  # memory is safe: no approval is needed
    async with open_memory_router(settings) as router:  # after a restart, in another conversation
        found = await do(router, "search", query="which food am I allergic to", conversation="ses_9")
        assert "peanuts" in found.content
        for operation, more in (("search", {"query": "peanuts"}), ("list", {})):
            assert "peanuts" not in (await do(router, operation, "erik", **more)).content
            assert "peanuts" not in (await do(router, operation, None, **more)).content
        refused = await do(router, "forget", "erik", id=id_in(found))
        assert not refused.success
        assert await list_texts(router) == ["I am allergic to peanuts"]


@proves("U9")
async def test_what_belongs_to_a_conversation_stays_in_it(settings: Settings) -> None:
    async with open_memory_router(settings) as router:
        await do(router, "store", text="the draft is called blue", scope="conversation", conversation="ses_1")
        await do(router, "store", text="the draft folder is on disk two", conversation="ses_1")
        in_conversation = await do(router, "list", conversation="ses_1")
        assert "blue" in in_conversation.content and "disk two" in in_conversation.content
        only = await do(router, "search", query="draft", scope="conversation", conversation="ses_1")
        assert "blue" in only.content and "disk two" not in only.content
        there = await do(router, "search", query="draft", conversation="ses_2")
        assert "blue" not in there.content and "disk two" in there.content
        nowhere = await do(router, "store", text="x", scope="conversation")
        assert not nowhere.success and "`user`" in nowhere.content


@proves("U9")
async def test_the_person_without_a_name_is_the_local_caller(settings: Settings) -> None:
    async with open_memory_router(settings) as router:
        await do(router, "store", None, text="the server room is cold")
        assert "cold" in (await do(router, "search", "local", query="server room")).content


@proves("U9")
@pytest.mark.parametrize(
    "text",
    [
        "my card is 4111 1111 1111 1111",
        "the password for the router is hunter2!",
        "password: correct-horse",
        "key: sk-proj-abcdefghijklmnopqrstuvwx",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
        "PIN: 4711",
    ],
)
async def test_a_secret_is_refused_with_a_reason_and_not_kept(settings: Settings, text: str) -> None:
    async with open_memory_router(settings) as router:
        refused = await do(router, "store", text=text)
        assert refused.error is ErrorKind.EXECUTION_FAILED
        assert "not remembered" in refused.content and text not in refused.content
        assert await list_texts(router) == []


@proves("U9")
async def test_bounds_hold_and_the_oldest_go_first(settings: Settings) -> None:
    async with open_memory_router(settings, most=2, text_bytes=64) as router:
        assert "64 bytes" in (await do(router, "store", text="ä" * 40)).content
        for number in range(2):
            await do(router, "store", text=f"fact number {number}")
        assert "1 oldest" in (await do(router, "store", text="fact number 2")).content
        assert await list_texts(router) == ["fact number 2", "fact number 1"]


@proves("U9")
async def test_forgetting_by_words_shows_what_it_means_first(settings: Settings) -> None:
    async with open_memory_router(settings) as router:
        for text in ("the old address is Elm Street 5", "the old phone rings", "tea without sugar"):
            await do(router, "store", text=text)
        shown = await do(router, "forget", query="old")
        assert "confirm=2" in shown.content and len(await list_texts(router)) == 3
        wrong = await do(router, "forget", query="old", confirm=1)
        assert "Nothing was forgotten" in wrong.content and len(await list_texts(router)) == 3
        assert (await do(router, "forget", query="old", confirm=2)).content.startswith("Forgot 2")
        assert await list_texts(router) == ["tea without sugar"]
        assert "tea" in (await do(router, "search", query="tea")).content
        assert "old" not in (await do(router, "search", query="address phone")).content


@proves("U9", "C6")
async def test_forgetting_everything_asks_a_person(settings: Settings) -> None:
    async with open_memory_router(settings) as router:
        await do(router, "store", text="one thing")
        await do(router, "store", "erik", text="another's")
        asked = await do(router, "forget_all")
        assert asked.error is ErrorKind.AUTHORIZATION_REQUIRED and asked.pending_id is not None
        assert await list_texts(router) == ["one thing"]
        await router.calls.decide(asked.pending_id, Decision.APPROVED, by="dana")
        assert (await do(router, "forget_all")).content == "Forgot everything: 1."
        assert await list_texts(router) == [] and await list_texts(router, "erik") == ["another's"]


@proves("U9")
async def test_another_process_is_heard_of(settings: Settings) -> None:
    async with open_memory_router(settings) as one, open_memory_router(settings) as two:
        await do(one, "store", text="the meeting is on Monday")
        assert "Monday" in (await do(two, "search", query="meeting")).content
        await do(one, "store", text="the meeting room is upstairs")
        assert "upstairs" in (await do(two, "search", query="meeting")).content
        await do(one, "forget", query="Monday", confirm=1)
        assert "Monday" not in (await do(two, "search", query="meeting")).content


@proves("C5")
async def test_thinking_changes_nothing_and_is_seen_in_the_trace(settings: Settings) -> None:
    async with open_memory_router(settings) as router:
        thought = await router.call("memory/think", {"thought": "first the list, then the sum"})
        assert thought.success and len(thought.content) < 50
        assert not (await router.call("memory/think", {"thought": "x" * 20_001})).success
        await router.store.journal.flush()
        events = await router.store.journal.list_events(packet_id=thought.call_id)
        assert any("first the list" in str(encode(entry.event)) for entry in events)


@proves("U1", "U9")
async def test_it_works_alone_over_the_protocol(settings: Settings, tmp_path: Path) -> None:
    own = make_server("memory", BuiltinHost(settings=enable_memory(settings), folder=tmp_path))
    async with own.open(), Client(own.mcp) as client:
        arguments = {"operation": "store", "text": "the garden faces south"}
        await client.call_tool("memory_operations", arguments)
        found = await client.call_tool("memory_operations", {"operation": "search", "query": "garden"})
        assert "south" in str(found.content)
    async with open_memory_router(settings) as router:  # the same store: the person at this machine
        assert await list_texts(router, None) == ["the garden faces south"]


@proves("U9")
async def test_a_model_is_offered_it_where_something_is_to_be_remembered(settings: Settings) -> None:
    async with open_memory_router(settings) as router:
        for request in (
            "Remember that I prefer short answers",
            "What do you remember about my trip to Oslo?",
            "Please forget what I told you about my old address",
        ):
            narrowed = await router.narrow(request)
            assert narrowed.shortlist.offered[0].tool == TOOL, request
        plain = await router.narrow("What is the capital of France?")
        assert not plain.shortlist.offered
