"""Links in results are read from the server that sent them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fingerpost.catalog.resources import ResourceCollection, collect_resources
from fingerpost.records import Era, Json, JsonObject, ServerResources
from fingerpost.surfaces.gateway.tool_results import (
    MAX_LINKS,
    MAX_LOOKUPS_INLINE,
    rewrite_prompt_links,
    rewrite_result_links,
)
from tests.kit.gateway_methods import (
    ROUTE,
    FixedResultServer,
    LibraryServer,
    OpenMethods,
    open_gateway_methods,
    profile,
)
from tests.kit.tables import table
from tests.requirements import proves

TEXT: dict[str, Any] = {"type": "text", "text": "See book://a."}


def link(uri: str) -> dict[str, Any]:
    return {"type": "resource_link", "uri": uri, "name": "a book", "annotations": {"priority": 0.5}}


def embed_resource(uri: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "text": "inside", "mimeType": "text/plain"}}


FOUND = [
    TEXT,
    link("book://a"),
    embed_resource("book://a"),
    link("book://shelf/7"),
    link("https://example.com/"),
]


def library(name: str, found: list[dict[str, Any]] | None = None) -> LibraryServer:
    made = LibraryServer(name, resources=["book://a"], templates=["book://shelf/{number}"])
    made.found = FOUND if found is None else found
    return made


def addresses(result: Any) -> list[str]:
    blocks = [block.get("resource", block) for block in result["content"]]
    return [block["uri"] for block in blocks if "uri" in block]


async def read(it: OpenMethods, uri: str, **how: Any) -> str:
    answer = await it.ask("resources/read", {"uri": uri}, **how)
    return answer["contents"][0]["text"]


@proves("G8")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("modern", [False, True])
async def test_what_a_result_links_to_is_read_from_the_server_that_sent_it(
    tmp_path: Path, era: Era, modern: bool
) -> None:
    async with open_gateway_methods(
        tmp_path, library("one").spec(era=era), library("two").spec(era=era)
    ) as it:
        first = await it.call("one__look_up", modern=modern)
        assert first["content"] == FOUND
        second = await it.call("two__look_up", modern=modern)
        listed = [resource["uri"] for resource in (await it.ask("resources/list"))["resources"]]
        assert addresses(second)[0] in listed
        for result, server in ((first, "one"), (second, "two")):
            *theirs, web = addresses(result)
            assert web == "https://example.com/"
            read_there = [await read(it, uri, modern=modern) for uri in theirs]
            assert read_there == [f"{server}: {uri}" for uri in ("book://a", "book://a", "book://shelf/7")]
        # Nothing but the addresses is another.
        assert second["content"] == [
            TEXT,
            link("fingerpost://two/book://a"),
            embed_resource("fingerpost://two/book://a"),
            link("fingerpost://two/book://shelf/7"),
            link("https://example.com/"),
        ]


@proves("G8")
async def test_a_link_is_as_its_reader_sees_the_servers(tmp_path: Path) -> None:
    """Where only one of the two servers is to be seen, there is nothing to tell apart."""
    profiles = {"second": {"servers": ["two"]}}
    async with open_gateway_methods(
        tmp_path, library("one").spec(), library("two").spec(), profiles=profiles
    ) as it:
        alone = await it.call("two__look_up", at=profile("second"))
        assert alone["content"] == FOUND
        assert await read(it, "book://a", at=profile("second")) == "two: book://a"
        routed = await it.call("call_tool", {"name": "two__look_up", "arguments": {}}, at=ROUTE)
        assert addresses(routed)[0] == "fingerpost://two/book://a"


@proves("G8")
async def test_a_server_cannot_send_its_readers_to_another(tmp_path: Path) -> None:
    two = library("two", [link("fingerpost://one/book://a")])
    shop = FixedResultServer(
        "shop", {"look": {}}, {"look": {"content": [link("book://a"), link("book://new")]}}
    )
    async with open_gateway_methods(tmp_path, library("one").spec(), two.spec(), shop.spec()) as it:
        [uri] = addresses(await it.call("two__look_up"))
        assert await read(it, uri) == "two: fingerpost://one/book://a"
        # It has no resources: under its own name there is nothing, and that is what is said.
        assert addresses(await it.call("shop__look")) == ["fingerpost://shop/book://a", "book://new"]


@proves("G8")
async def test_links_to_what_we_keep_ourselves_stay_ours(tmp_path: Path) -> None:
    kept = "fingerpost://results/res_1/chart.png"
    async with open_gateway_methods(
        tmp_path, library("one").spec(), library("two", [link(kept)]).spec()
    ) as it:
        assert addresses(await it.call("two__look_up")) == [kept]


def shelves() -> ResourceCollection:
    def having(server: str) -> ServerResources:
        return ServerResources(
            server=server, capabilities={"resources": {}}, resources=({"uri": "book://a"},)
        )

    return collect_resources([(having("one"), True), (having("two"), True)])


@proves("G8")
async def test_what_a_prompt_links_to_is_read_from_the_server_that_sent_it(tmp_path: Path) -> None:
    one, two = library("one"), library("two")
    one.prompts = two.prompts = ["tour"]
    async with open_gateway_methods(tmp_path, one.spec(), two.spec()) as it:
        for server, name in (("one", "one__tour"), ("two", "two__tour")):
            messages = (await it.ask("prompts/get", {"name": name}))["messages"]
            result = {"content": [message["content"] for message in messages]}
            read_there = [await read(it, uri) for uri in addresses(result)[:-1]]
            assert read_there == [f"{server}: {uri}" for uri in ("book://a", "book://a", "book://shelf/7")]


@proves("G8")
async def test_links_in_the_messages_of_a_prompt_are_renamed_too() -> None:
    messages = [
        {"role": "user", "content": embed_resource("book://a")},
        {"role": "assistant", "content": [TEXT, link("book://a"), "odd"]},
        {"role": "user", "content": TEXT},
        "odd",
    ]
    given: JsonObject = {"description": "d", "messages": messages}
    assert await rewrite_prompt_links(given, shelves(), "one") is given
    ours = "fingerpost://two/book://a"
    assert await rewrite_prompt_links(given, shelves(), "two") == {
        "description": "d",
        "messages": [
            {"role": "user", "content": embed_resource(ours)},
            {"role": "assistant", "content": [TEXT, link(ours), "odd"]},
            {"role": "user", "content": TEXT},
            "odd",
        ],
    }


@proves("G8", "H1")
@table(
    "content",
    [
        None,
        "book://a",
        7,
        {"type": "resource_link"},
        ["book://a", None, 7, [link("book://a")]],
        [{"type": "resource_link"}, {"type": "resource_link", "uri": 7}, {"uri": "book://a"}],
        [{"type": "resource"}, {"type": "resource", "resource": "book://a"}, {"type": ["resource"]}],
    ],
)
async def test_a_result_that_is_not_what_it_should_be_passes_as_it_is(content: Json) -> None:
    tool: JsonObject = {"content": content}
    assert await rewrite_result_links(tool, shelves(), "two") is tool
    for prompt in ({"messages": content}, {"messages": [{"content": content}]}, {}):
        assert await rewrite_prompt_links(prompt, shelves(), "two") is prompt


@proves("G8")
async def test_of_very_many_links_each_leads_home() -> None:
    uris = ["book://a", *(f"book://{number}" for number in range(MAX_LINKS + MAX_LOOKUPS_INLINE))]
    result = await rewrite_result_links({"content": [link(uri) for uri in uris]}, shelves(), "two")
    collection = shelves()
    for uri, shown in zip(uris, addresses(result), strict=True):
        assert collection.find_resource(shown) in (None, ("two", uri))
    assert addresses(result)[:2] == ["fingerpost://two/book://a", "book://0"]
    assert addresses(result)[-1] == f"fingerpost://two/{uris[-1]}"
