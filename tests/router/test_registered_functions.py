"""Python functions as tools, registered while the router runs."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from fingerpost import Router
from fingerpost.errors import ConfigError, UnknownTool
from fingerpost.events import CallFinished, MemorySink
from fingerpost.records import Effect, ErrorKind
from tests.kit.routers import build_settings
from tests.requirements import proves


@asynccontextmanager
async def open_empty_router(folder: Path, **more: Any) -> AsyncGenerator[Router]:
    async with Router(settings=build_settings(folder, **more)) as router:
        yield router


def get_stock(item: str, shelf: int = 1) -> dict[str, Any]:
    """Count what is in stock of an item on a shelf."""
    return {"item": item, "shelf": shelf, "thread": threading.current_thread() is threading.main_thread()}


async def read_label(item: str) -> str:
    """Read the label of an item."""
    return f"This is {item}."


@proves("A17")
async def test_a_function_registered_at_run_time_is_listed_found_and_called_like_every_tool(
    tmp_path: Path,
) -> None:
    sink = MemorySink()
    async with Router(settings=build_settings(tmp_path), sinks=[sink]) as router:
        card = await router.register(get_stock, effect="read")
        await router.register(read_label, effect="read")
        assert [one.key for one in router.tools.cards] == ["local/get_stock", "local/read_label"]
        assert (card.description, card.effect.value) == (get_stock.__doc__, Effect.READ)
        schema = cast("dict[str, Any]", card.definition["inputSchema"])
        assert (schema["required"], list(schema["properties"])) == (["item"], ["item", "shelf"])
        found = await router.narrow("how many owls are in stock on the shelf?")
        assert found.shortlist.offered[0].tool == "local/get_stock"
        counted = await router.call("get_stock", {"item": "owl", "shelf": "2"})  # put right
        label = await router.call("local/read_label", {"item": "an owl"})
        wrong = await router.call("get_stock", {"item": "owl", "shelf": "top"})
    assert counted.result is not None
    assert counted.result["structuredContent"] == {"item": "owl", "shelf": 2, "thread": False}
    assert label.content == "This is an owl."
    assert wrong.error is ErrorKind.INVALID_PARAMETERS
    assert [event.tool for event in sink.events if isinstance(event, CallFinished)][:2] == [
        "local/get_stock",
        "local/read_label",
    ]


@proves("A17")
async def test_policy_timeouts_and_failures_hold_for_a_registered_function(tmp_path: Path) -> None:
    async def delete_item(item: str) -> str:
        return f"{item} is gone"

    async def wait_for_ever() -> str:
        await anyio.sleep_forever()
        return "never"

    def fail(item: str) -> str:
        message = f"{item} is not on the shelf"
        raise LookupError(message)

    slow = [{"match": "local/wait_for_ever", "timeout_ms": 50}]
    async with open_empty_router(tmp_path, tools=slow, call={"retries": 0}) as router:
        await router.register(delete_item, effect="destroy")
        await router.register(wait_for_ever, effect="read")
        await router.register(fail, effect="read")
        asked = await router.call("delete_item", {"item": "owl"})
        late = await router.call("wait_for_ever", {})
        failed = await router.call("fail", {"item": "owl"})
    assert asked.error is ErrorKind.AUTHORIZATION_REQUIRED
    assert late.error is ErrorKind.TIMEOUT
    assert not failed.success
    assert "owl is not on the shelf" in failed.content


@proves("A17")
async def test_a_registered_function_is_replaced_and_taken_away(tmp_path: Path) -> None:
    async with open_empty_router(tmp_path, flags={"pins": False}) as router:
        await router.register(read_label)
        await router.register(lambda: "Quite another label.", name="read_label", effect="read")
        assert (await router.call("read_label", {})).content == "Quite another label."
        await router.unregister("local/read_label")
        assert router.tools.cards == ()
        with pytest.raises(UnknownTool):
            await router.unregister("local/read_label")
        gone = await router.call("local/read_label", {})
    assert gone.error is ErrorKind.TOOL_NOT_FOUND


@proves("A17")
async def test_a_definition_without_a_function_is_refused(tmp_path: Path) -> None:
    async with open_empty_router(tmp_path) as router:
        definition: Any = {"name": "roll_dice", "inputSchema": {"type": "object"}}
        with pytest.raises(ConfigError, match="is not a function") as caught:
            await router.register(definition)
        assert caught.value.hint
        with pytest.raises(ConfigError, match="has no name"):
            await router.register(lambda: 6)
        assert router.tools.cards == ()


@proves("X8")
async def test_a_read_that_is_not_certain_asks_once_and_the_answer_is_kept(tmp_path: Path) -> None:
    ran: list[str] = []

    def fetch_url(url: str) -> str:
        """Fetch a page."""
        ran.append(url)
        return "a page"

    def query(sql: str) -> str:
        """Query the rows of a table."""
        ran.append(sql)
        return "rows"

    async with open_empty_router(tmp_path) as router:
        card = await router.register(fetch_url)
        await router.register(query)
        for name, arguments in (
            ("fetch_url", {"url": "https://example.com"}),
            ("query", {"sql": "drop table x"}),
        ):
            asked = await router.call(name, arguments)
            assert asked.error is ErrorKind.AUTHORIZATION_REQUIRED
        assert ran == []
        await router.say_only_reads(card.key, by="dana", fingerprint=card.fingerprint)
        assert (await router.call("fetch_url", {"url": "https://example.com"})).content == "a page"
    async with open_empty_router(tmp_path) as router:  # and later, from the store
        await router.register(fetch_url)
        assert (await router.call("fetch_url", {"url": "https://example.com"})).content == "a page"
    assert len(ran) == 2
