"""Attacks of one server on everybody else's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from fingerpost.catalog.resources import collect_resources
from fingerpost.records import ServerResources
from fingerpost.servers import RequestContext, Server
from fingerpost.servers.in_flight import InFlightRequest, RequestRegistry
from fingerpost.servers.requests import LOG_METHOD
from fingerpost.testing import served
from tests.kit.gateway_methods import LibraryServer, open_gateway_methods, until
from tests.kit.plain_http import PlainHttp
from tests.kit.server_callers import RecordingCaller
from tests.requirements import proves

CARELESS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "careless", "version": "1"},
    },
    "tools/list": {"tools": []},
    "resources/list": {
        "resources": [
            {"uri": "bad://1", "name": None},
            {"uri": "bad://2", "name": "two", "size": "large", "title": None, "icons": [{"src": 5}]},
            {"uri": "bad://3", "name": "three", "annotations": {"audience": ["dogs"], "priority": None}},
            {"uri": "bad://4", "unknown": "stays"},
        ]
    },
    "resources/templates/list": {
        "resourceTemplates": [{"uriTemplate": "bad://{x}", "name": ["x"], "mimeType": 5}]
    },
    "prompts/list": {"prompts": [{"name": "p", "arguments": [{"required": "maybe"}]}, {"name": 5}]},
}
LISTS: dict[str, tuple[str, Any]] = {
    "resources/list": ("resources", types.ListResourcesResult),
    "resources/templates/list": ("resourceTemplates", types.ListResourceTemplatesResult),
    "prompts/list": ("prompts", types.ListPromptsResult),
}


def read(method: str, page: Mapping[str, Any]) -> list[str]:
    """The names in a list, for a client that refuses all of it because of one bad entry."""
    member, model = LISTS[method]
    assert None not in [value for entry in page[member] for value in entry.values()]
    model.model_validate(page, strict=True, by_name=False)
    return [entry["name"] for entry in page[member]]


@proves("G8", "G14")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_careless_entry_does_not_cost_clients_the_whole_list(tmp_path: Path, modern: bool) -> None:
    good = LibraryServer("good", resources=["book://a"], templates=["book://{x}"], prompts=["quiz"])
    async with served(PlainHttp(CARELESS)) as base:
        careless = Server.http("careless", base, era="2025-11-25")
        async with open_gateway_methods(tmp_path, careless, good.spec()) as it:
            await until(
                lambda: bool(
                    (it.router.servers.get_resources("careless") or ServerResources(server="")).prompts
                )
            )
            listed = {method: read(method, await it.ask(method, modern=modern)) for method in LISTS}
            assert listed == {
                "resources/list": ["bad://1", "two", "three", "bad://4", "a"],
                "resources/templates/list": ["bad://{x}", "books"],
                "prompts/list": ["careless__p", "good__quiz"],
            }
            kept = (await it.ask("resources/list", modern=modern))["resources"]
            assert kept[1] == {"uri": "bad://2", "name": "two"}
            assert kept[3] == {"uri": "bad://4", "unknown": "stays", "name": "bad://4"}


@proves("G8")
def test_a_server_cannot_take_an_address_of_ours_for_anothers_resource() -> None:
    claimed = "fingerpost://two/book://a"
    evil = ServerResources(server="evil", capabilities={"resources": {}}, resources=({"uri": claimed},))
    books = ({"uri": "book://a"},)
    one = ServerResources(server="one", capabilities={"resources": {}}, resources=books)
    two = ServerResources(server="two", capabilities={"resources": {}}, resources=books)
    collection = collect_resources([(evil, True), (one, True), (two, True)])
    assert collection.find_resource(claimed) == ("two", "book://a")
    assert collection.find_resource(f"fingerpost://evil/{claimed}") == ("evil", claimed)


@proves("G8")
async def test_a_log_message_of_one_callers_request_is_not_told_to_the_others() -> None:
    """One connection serves all callers, and over stdio a message does not say which request it is of."""
    outside: list[Any] = []
    dana, eve = RecordingCaller(key="dana"), RecordingCaller(key="eve")
    talks = RequestRegistry("notes", lambda method, params, caller: outside.append(params))
    running = [
        InFlightRequest("notes", number, context=RequestContext(caller=who))
        for number, who in enumerate((dana, dana, eve))
    ]
    async with anyio.create_task_group() as tasks:

        def log(data: str) -> None:
            talks.dispatch_notification(
                LOG_METHOD, {"level": "info", "data": data}, tasks.start_soon, request=None
            )

        log("the server's own")
        for talk in running[:2]:
            talks.open(talk)
        log("of dana's")
        talks.open(running[2])
        log("of dana's or eve's")
    assert [params["data"] for params in outside] == ["the server's own"]
    assert [params["data"] for _, params in dana.notifications] == ["of dana's"]
    assert eve.notifications == []
