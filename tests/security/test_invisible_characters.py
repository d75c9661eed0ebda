"""Characters that draw nothing, in what servers say: written out wherever a model or a person reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fingerpost.catalog.cards import build_model_definition
from fingerpost.choose.instructions import build_tool_instructions
from fingerpost.choose.prompts import format_tools
from fingerpost.records import Era, Json, JsonObject, Outcome, ServerResources, ToolCard
from fingerpost.servers import Server
from fingerpost.surfaces.cli.screen import clean_text, cut_sentence
from fingerpost.surfaces.gateway.listing.pages import build_definition
from fingerpost.surfaces.gateway.listing.search import render_description
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from fingerpost.surfaces.gateway.tool_results import render_result
from fingerpost.testing import served
from tests.kit.catalogs import card, tool
from tests.kit.gateway_methods import open_gateway_methods, reading_tool, until
from tests.kit.plain_http import PlainHttp, PlainRequest
from tests.kit.tables import table
from tests.requirements import proves

# Zero width, direction, tags, selectors, terminal escapes, C0, C1, blank letters.
UNSEEN = (
    "\u200b\u200d\u2060\ufeff\u202e\u2066\u061c\U000e0041\U000e007f\ufe0f\U000e0100\x1b\x07\x08\x00\x9b\u3164"
)
ASTRONAUT = "👩\u200d🚀"  # the joiner belongs to the picture
TEXT = f"Get a thing.{UNSEEN} Quickly.\nSecond line\tof it {ASTRONAUT}"
_HIDDEN = re.compile(f"[{UNSEEN}]")


def create_card() -> ToolCard:
    schema: JsonObject = {
        "type": "object",
        "description": TEXT,
        "properties": {
            "description": {"type": "string", "description": TEXT, "title": TEXT},
            "kind": {"anyOf": [{"type": "string", "description": TEXT, "enum": [f"a{UNSEEN}b"]}]},
        },
    }
    return card(tool("get_thing", TEXT, title=TEXT, inputSchema=schema, annotations={"title": TEXT}))


def list_texts(part: Json) -> list[str]:
    """All texts of a definition, but for values that a call must give exactly."""
    if isinstance(part, dict):
        return [text for key, value in part.items() if key != "enum" for text in list_texts(value)]
    if isinstance(part, list | tuple):
        return [text for item in part for text in list_texts(item)]
    return [part] if isinstance(part, str) else []


SURFACES: dict[str, Callable[[ToolCard], list[str]]] = {
    "tools/list": lambda it: list_texts(build_definition(it, modern=True)),
    "tools/list of 2025": lambda it: list_texts(build_definition(it, modern=False)),
    "describe_tool": lambda it: [render_description(it, budget=2000)],
    "functions": lambda it: list_texts(build_model_definition(it)),
    "lines": lambda it: [format_tools([it])],
    "instructions": lambda it: [build_tool_instructions([it])],
    "command": lambda it: [clean_text(it.description), cut_sentence(it.description)],
}


@proves("X15")
@table("surface", SURFACES.values(), ids=SURFACES)
def test_no_surface_passes_on_what_cannot_be_seen_in_a_definition(
    surface: Callable[[ToolCard], list[str]],
) -> None:
    texts = surface(create_card())
    assert texts
    for text in texts:
        assert not _HIDDEN.search(text.replace(ASTRONAUT, "")), text


@proves("X15")
def test_values_that_a_call_must_give_exactly_stay_as_they_are() -> None:
    listed = json.dumps(build_definition(create_card(), modern=True))
    assert json.dumps([f"a{UNSEEN}b"]) in listed


@proves("X15")
async def test_no_result_of_the_gateway_hides_anything() -> None:
    result: JsonObject = {
        "content": [
            {"type": "text", "text": TEXT},
            {"type": "resource", "resource": {"uri": "x://y", "text": TEXT}},
        ],
        "structuredContent": {"rows": [{"name": TEXT, "data": TEXT}]},
    }
    outcome = Outcome(call_id="cal_1", tool="a/b", success=True, content="", result=result)
    for modern in (True, False):
        given = await render_result(outcome, None, modern=modern)
        texts = list_texts(given)
        assert len(texts) >= 4
        for text in texts:
            assert not _HIDDEN.search(text.replace(ASTRONAUT, "")), text
        assert any(text.endswith(ASTRONAUT) for text in texts)


def sly_server(era: Era) -> PlainHttp:
    """A server that hides something in every text besides the definitions of its tools."""
    about: dict[str, Any] = {"capabilities": {"tools": {}, "resources": {}, "prompts": {}}}
    who = {"name": "sly", "version": "1"}
    kept = {"ttlMs": 0, "cacheScope": "private"} if era == "2026-07-28" else {}
    results: dict[str, dict[str, Any]] = {
        "initialize": {**about, "protocolVersion": "2025-11-25", "serverInfo": who},
        "server/discover": {**about, **kept, "supportedVersions": ["2026-07-28"], "serverInfo": who},
        "tools/list": {**kept, "tools": [reading_tool("fail")]},
        "resources/list": {
            **kept,
            "resources": [{"uri": "sly://a", "name": TEXT, "title": TEXT, "description": TEXT}],
        },
        "resources/templates/list": {
            **kept,
            "resourceTemplates": [{"uriTemplate": "sly://{x}", "name": TEXT, "description": TEXT}],
        },
        "prompts/list": {
            **kept,
            "prompts": [
                {
                    "name": "p",
                    "title": TEXT,
                    "description": TEXT,
                    "arguments": [{"name": "of", "title": TEXT, "description": TEXT}],
                }
            ],
        },
        "resources/read": {
            **kept,
            "contents": [{"uri": "sly://a", "text": TEXT}, {"uri": "sly://b", "blob": "AAAA"}],
        },
        "prompts/get": {
            "description": TEXT,
            "messages": [
                {"role": "user", "content": {"type": "text", "text": TEXT}},
                {
                    "role": "assistant",
                    "content": {"type": "resource", "resource": {"uri": "sly://a", "text": TEXT}},
                },
            ],
        },
    }

    async def fail(asked: PlainRequest) -> None:
        error = {"code": -32000, "message": TEXT}
        await asked.answer({"jsonrpc": "2.0", "id": asked.message["id"], "error": error})

    async def read(asked: PlainRequest) -> None:
        if asked.message["params"]["uri"] == "sly://a":
            await asked.result(results["resources/read"])
        else:
            await fail(asked)

    return PlainHttp(results, {"tools/call": fail, "resources/read": read})


REQUESTS: dict[str, JsonObject] = {
    "resources/list": {},
    "resources/templates/list": {},
    "prompts/list": {},
    "resources/read": {"uri": "sly://a"},
    "prompts/get": {"name": "sly__p"},
}


@proves("X15")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("modern", [False, True])
async def test_prompts_resources_and_errors_hide_nothing(tmp_path: Path, era: Era, modern: bool) -> None:
    async with (
        served(sly_server(era)) as base,
        open_gateway_methods(tmp_path, Server.http("sly", base, era=era)) as it,
    ):
        await until(
            lambda: bool((it.router.servers.get_resources("sly") or ServerResources(server="")).prompts)
        )
        given = {method: await it.ask(method, asked, modern=modern) for method, asked in REQUESTS.items()}
        for method, result in given.items():
            texts = list_texts(result)
            assert any("\\u200b" in text and text.endswith(ASTRONAUT) for text in texts), method
            for text in texts:
                assert not _HIDDEN.search(text.replace(ASTRONAUT, "")), (method, text)
        assert given["resources/read"]["contents"][1] == {"uri": "sly://b", "blob": "AAAA"}
        for method, asked in (("resources/read", {"uri": "sly://c"}), ("tools/call", {"name": "sly__fail"})):
            with pytest.raises(JsonRpcError) as refused:
                await it.ask(method, asked, modern=modern)
            assert "\\u200b" in refused.value.message
            assert not _HIDDEN.search(refused.value.message.replace(ASTRONAUT, "")), method
