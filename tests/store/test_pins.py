"""Pins that several processes share: what one changes, each of the others hears."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from fingerpost import Router, Settings
from fingerpost.events import MemorySink, PinAccepted, ToolQuarantined
from fingerpost.records import Pin
from fingerpost.store import PinChanges, Store
from fingerpost.testing import ToolServer, tool_server
from tests.kit.store_samples import eventually, pin
from tests.kit.stores import OpenStore
from tests.requirements import proves

OLD = {"name": "get_price", "description": "Get the price of a thing", "annotations": {"readOnlyHint": True}}
NEW = {**OLD, "description": "Get the price of a thing, with taxes"}
KEY = "shop/get_price"


@proves("H4", "F24")
async def test_the_first_look_finds_all_pins_and_every_other_what_changed(open_store: OpenStore) -> None:
    one, two = pin("a/x", "f1"), pin("b/y", "f2")
    async with open_store() as store, open_store() as there:
        await store.pins.put(one, two)
        assert await store.pins.take_changes() == PinChanges(
            changed={one.key: one, two.key: two}, gone=frozenset()
        )
        assert await store.pins.take_changes() is None
        accepted = replace(one, fingerprint="f3", accepted_by="dana")
        await there.pins.put(accepted)
        await there.pins.remove(two.key)
        assert await store.pins.take_changes() == PinChanges(
            changed={one.key: accepted}, gone=frozenset({two.key})
        )
        assert not await there.pins.remove(two.key)
        await there.pins.put()
        assert await store.pins.take_changes() is None
        await store.pins.put(two)
        await there.pins.remove(two.key)
        assert await store.pins.take_changes() == PinChanges(changed={}, gone=frozenset({two.key}))


@asynccontextmanager
async def process(url: str, server: ToolServer, *sinks: MemorySink) -> AsyncGenerator[Router]:
    """A router as another process would have it: all they share is the store."""
    settings = Settings.model_validate({"store": {"url": url}})
    async with Router([server.spec()], settings=settings, sinks=sinks) as router:
        await router.connect()
        yield router


async def wait_for_pin(store: Store) -> Pin:
    """The pin of the tool, once it is there."""
    with anyio.fail_after(20):
        while KEY not in (pins := await store.pins.list_all()):  # noqa: ASYNC110 - another process puts it there
            await anyio.sleep(0.05)
    return pins[KEY]


@pytest.mark.slow
@proves("H4", "F24")
async def test_what_one_process_accepts_the_others_offer_again(url: str) -> None:
    server, facts = tool_server("shop", [OLD]), MemorySink()
    async with process(url, server, facts) as gateway:
        await server.replace([NEW])
        await eventually(lambda: bool(gateway.catalog.quarantined))
        async with process(url, server) as other:
            (held,) = other.catalog.quarantined
            await other.accept(KEY, by="dana", fingerprint=held.card.fingerprint)
        await eventually(lambda: gateway.tools.get(KEY) is not None)
        assert gateway.catalog.quarantined == ()
        assert not [
            fact for fact in facts.events if isinstance(fact, PinAccepted)
        ]  # reported where it was done
        accepted = await wait_for_pin(gateway.store)
        assert (accepted.accepted_by, accepted.definition["description"]) == ("dana", NEW["description"])


@pytest.mark.slow
@proves("H4", "F24")
async def test_accepting_another_definition_than_ours_holds_ours_back(url: str) -> None:
    ours, theirs, facts = tool_server("shop", [OLD]), tool_server("shop", [NEW]), MemorySink()
    async with process(url, ours, facts) as gateway:
        await wait_for_pin(gateway.store)
        async with process(url, theirs) as other:
            (held,) = other.catalog.quarantined
            await other.accept(KEY, by="dana", fingerprint=held.card.fingerprint)
            await eventually(lambda: bool(gateway.catalog.quarantined))
            assert gateway.tools.get(KEY) is None
            assert [fact.tool for fact in facts.events if isinstance(fact, ToolQuarantined)] == [KEY]


@pytest.mark.slow
@proves("H4", "F24")
@pytest.mark.parametrize("changed", [True, False])
async def test_a_forgotten_pin_makes_way_for_what_is_seen_now(
    url: str, open_store: OpenStore, changed: bool
) -> None:
    server = tool_server("shop", [OLD])
    async with process(url, server) as gateway:
        if changed:
            await server.replace([NEW])
            await eventually(lambda: bool(gateway.catalog.quarantined))
        async with open_store() as store:
            before = await wait_for_pin(store)
            assert await store.pins.remove(KEY)
            after = await wait_for_pin(store)
        assert (after.definition["description"], after.accepted_by) == (
            (NEW if changed else OLD)["description"],
            None,
        )
        assert after.pinned_at > before.pinned_at
        assert gateway.catalog.quarantined == ()
