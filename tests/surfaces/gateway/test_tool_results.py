"""Results that are no MCP, and results with too much beside their text: what clients get instead."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fingerpost.events import AttemptFinished, CallFinished
from fingerpost.records import ErrorKind
from fingerpost.servers import Server
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from tests.kit.gateway_methods import OpenMethods, open_gateway_methods, text_of
from tests.kit.raw_http import raw_server, with_length
from tests.kit.tables import table
from tests.requirements import proves

HELLO: dict[str, Any] = {"type": "text", "text": "hello"}
MUCH = "z" * 1_100_000


@asynccontextmanager
async def open_raw_gateway(folder: Path, **reply: Any) -> AsyncGenerator[OpenMethods]:
    """A gateway in front of a server whose tool answers with exactly `reply`, as it is at that time."""

    def answer(usual: bytes) -> list[bytes]:
        return [with_length(json.dumps({"jsonrpc": "2.0", "id": json.loads(usual)["id"], **reply}).encode())]

    rules = [{"verdict": "allow"}]
    async with (
        raw_server(answer) as (_, url),
        open_gateway_methods(folder, Server.http("raw", url), policy=rules, call={"data_flow": "off"}) as it,
    ):
        yield it


AskRaw = Callable[[Any], Awaitable[Any]]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def result_of(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[AskRaw]:
    """Returns what a client gets for a result. One gateway for all results that are no failures."""
    result: dict[str, Any] = {}

    async def ask(wanted: Any) -> Any:
        result.clear()
        result.update(wanted)
        return await it.call("raw__echo", modern=True)

    async with open_raw_gateway(tmp_path_factory.mktemp("raw"), result=result) as it:
        yield ask


@proves("G8", "G14")
@table(
    ("result", "content"),
    [
        ({"content": "hello"}, [HELLO]),
        ({"content": HELLO}, [HELLO]),
        ({"content": ["hello"]}, [HELLO]),
        ({"content": [{"text": "hello"}]}, [HELLO]),
        ({"content": None}, []),
        ({}, []),
        ({"structuredContent": {"a": 1}}, []),
        (
            {"content": [{"type": "resource_link", "uri": "file:///a"}]},
            [{"type": "resource_link", "uri": "file:///a", "name": "file:///a"}],
        ),
        ({"content": [{"type": "hologram", "x": 1}]}, [{"type": "hologram", "x": 1}]),  # not yet known to us
    ],
)
async def test_what_is_certainly_meant_is_mended(result_of: AskRaw, result: Any, content: Any) -> None:
    got = await result_of(result)
    assert got["content"] == content
    assert not got.get("isError")
    assert got.get("structuredContent") == result.get("structuredContent")


@proves("G8", "G14")
@table(
    "odd",
    [
        7,
        None,
        ["x"],
        {},
        {"type": 5},
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "image", "mimeType": "image/png"},
        {"type": "resource"},
        {"type": "resource", "resource": {"uri": 5, "text": "x"}},
        {"type": "resource", "resource": {"uri": "file:///a"}},
        {"type": "resource_link", "name": "a"},
    ],
)
async def test_a_block_that_is_none_is_left_out_with_a_word_and_its_neighbours_stay(
    result_of: AskRaw, odd: Any
) -> None:
    got = await result_of({"content": [HELLO, odd, HELLO]})
    assert got["content"][:2] == [HELLO, HELLO]
    assert "clients cannot read it" in got["content"][2]["text"]
    assert len(got["content"]) == 3


@proves("G8")
@pytest.mark.parametrize(
    ("error_flag", "meant"),
    [("false", False), ("true", True), ("no", True), (0, True), ({}, True), (None, False)],
)
async def test_an_error_that_is_no_yes_or_no(tmp_path: Path, error_flag: Any, meant: bool) -> None:
    async with open_raw_gateway(tmp_path, result={"content": [HELLO], "isError": error_flag}) as it:
        got = await it.call("raw__echo")
        assert got.get("isError", False) is meant
        it.router.store.journal.emit_pending()
        [end] = [event for event in it.events.events if isinstance(event, CallFinished)]
        assert end.success is not meant


@proves("G8")
@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"task": {"taskId": "1", "status": "working"}}, "that was not requested"),
        ({"resultType": "task", "taskId": "1"}, "that was not requested"),
        ({"resultType": "input_required", "requestState": 5}, "requestState is not text"),
        ({"resultType": "input_required", "inputRequests": "x"}, "inputRequests are not an object"),
    ],
)
async def test_what_is_no_result_is_an_invalid_reply(tmp_path: Path, result: Any, words: str) -> None:
    async with open_raw_gateway(tmp_path, result=result) as it:
        got = await it.call("raw__echo", modern=True)
        assert got["isError"] is True
        assert words in text_of(got)
        it.router.store.journal.emit_pending()
        [end] = [event for event in it.events.events if isinstance(event, AttemptFinished)]
        assert end.attempt.error in (ErrorKind.EXECUTION_FAILED, ErrorKind.UNKNOWN)


@pytest.mark.slow
@proves("G14")
@table(
    ("result", "named"),
    [
        ({"content": [HELLO], "_meta": {"a": MUCH}}, "`_meta`"),
        ({"content": [HELLO], "foo": MUCH}, "`foo`"),
        ({"content": [{**HELLO, "annotations": {"audience": [MUCH]}, "_meta": {"q": MUCH}}]}, "notes beside"),
        (
            {"content": [HELLO, {"type": "resource_link", "uri": "a:b", "name": "n", "description": MUCH}]},
            "notes beside",
        ),
        ({"content": [HELLO, {"type": "resource_link", "uri": "a:b", "name": MUCH}]}, "1 blocks"),
        ({"content": [HELLO, *[{"type": "text", "text": ""}] * 50_000]}, "blocks"),
        ({"content": [HELLO], "structuredContent": [MUCH]}, "Left out"),
    ],
)
async def test_what_is_too_much_beside_the_text_is_left_out_with_a_word(
    result_of: AskRaw, result: Any, named: str
) -> None:
    got = await result_of(result)
    assert len(json.dumps(got, separators=(",", ":"))) < 1_100_000  # the bound, and our own words
    assert text_of(got).startswith(HELLO["text"])
    assert named in text_of(got)


@pytest.mark.slow
@proves("G14")
@table(
    "block",
    [
        {"type": "hologram", "data": {"x": MUCH}},
        {"type": "hologram", "text": MUCH},
        {"type": "hologram", "data": "x", "resource": {"uri": "a:b", "blob": MUCH * 4}},
    ],
)
async def test_an_unknown_kind_of_block_has_the_same_bound(result_of: AskRaw, block: Any) -> None:
    got = await result_of({"content": [block]})
    assert len(json.dumps(got)) < 100_000


@pytest.mark.slow
@proves("G14")
async def test_thousands_of_links_are_cut_and_a_handle_leads_to_all(tmp_path: Path) -> None:
    links = [{"type": "resource_link", "uri": f"file:///{number}", "name": "n"} for number in range(4_000)]
    async with open_raw_gateway(tmp_path, result={"content": links}) as it:
        got = await it.call("raw__echo")
        assert len(json.dumps(got)) < 200_000
        assert "more blocks left out" in text_of(got)
        page = await it.call("read_result", {"handle": got["_meta"]["fingerpost/handle"], "page": 2})
        assert "file:///" in text_of(page)


@proves("G14")
async def test_what_comes_with_an_error_has_a_bound(tmp_path: Path) -> None:
    error = {"code": -32050, "message": "the shop is closed", "data": {"x": MUCH}}
    async with open_raw_gateway(tmp_path, error=error) as it:
        with pytest.raises(JsonRpcError, match="the shop is closed") as refused:
            await it.call("raw__echo")
        assert refused.value.code == -32050
        assert len(json.dumps(refused.value.data)) < 1_000


@proves("G8")
async def test_a_good_deal_beside_the_text_goes_through_as_it_is(result_of: AskRaw) -> None:
    meta = {"widget.example/state": "z" * 500_000}
    got = await result_of({"content": [HELLO], "_meta": meta, "foo": "bar"})
    assert (got["content"], got["foo"]) == ([HELLO], "bar")
    assert got["_meta"]["widget.example/state"] == meta["widget.example/state"]
