"""Models that get tools as text, and models that one reply must not turn into such."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fingerpost.llm import ModelRequest
from fingerpost.records import RouteOutcome
from fingerpost.router.options import RouteKeywords
from fingerpost.testing import ScriptedModel
from tests.kit.caller_tools import (
    NO_TOOLS,
    OWN,
    REQUEST,
    SEARCH,
    call,
    names_in,
    open_recorder,
    reply_with_calls,
)
from tests.requirements import proves

PAINT = json.dumps({"calls": [{"tool": "paint_wall", "arguments": {"what": "red"}}], "answer": None})


@proves("O3")
@pytest.mark.parametrize("name", [None, "another"])
async def test_a_callers_required_call_that_does_not_come_takes_no_tools_from_others(
    tmp_path: Path, name: str | None
) -> None:
    model = ScriptedModel(
        ["I would rather talk."] * 5 + [reply_with_calls(call(SEARCH, query="budget")), "4,200."]
    )
    usual: RouteKeywords = {"mode": "simple", "caller_tools": OWN}
    if name is not None:
        usual["model"] = name
    required = usual.copy()
    required["tool_choice"] = "required"
    async with open_recorder(tmp_path, model) as (router, server):
        for _ in range(5):
            await router.route(REQUEST, **required)
        route = await router.route(REQUEST, **usual)
    assert all(SEARCH in names_in(request) for request in model.asked)
    assert route.outcome is RouteOutcome.ANSWERED
    assert len(server.calls) == 1


@proves("O3")
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("mode", ["simple", "staged"])
async def test_without_tools_a_caller_who_wants_text_gets_text(
    tmp_path: Path, mode: str, streamed: bool
) -> None:
    def play(request: ModelRequest) -> str:
        """A model that does as it is told: a call where it is asked for JSON, words where it is not."""
        if request.tools:
            raise NO_TOOLS
        asked = "\n".join(message.text for message in request.messages)
        return PAINT if "Reply with one JSON object" in asked else "A tale of bears."

    model = ScriptedModel(play)
    pieces: list[str] = []
    async with open_recorder(tmp_path, model) as (router, _):
        await router.route(REQUEST, mode="simple", caller_tools=OWN)
        more: RouteKeywords = {"mode": mode, "caller_tools": OWN, "tool_choice": "none"}
        if streamed:
            more["on_text"] = pieces.append
        route = await router.route("Tell me a tale", **more)
    assert (route.answer, route.tool_calls) == ("A tale of bears.", ())
    assert "".join(pieces) == (route.answer if streamed else "")


@proves("O1")
async def test_the_last_turn_of_a_model_without_tools_is_never_streamed_in_json(tmp_path: Path) -> None:
    search = json.dumps({"calls": [{"tool": SEARCH, "arguments": {"query": "budget"}}], "answer": None})
    model = ScriptedModel([NO_TOOLS, search, '{"calls": [], "answer": "4,200, by notes/search_notes."}'])
    pieces: list[str] = []
    async with open_recorder(tmp_path, model) as (router, server):
        await router.route(REQUEST, mode="simple")
        route = await router.route(REQUEST, mode="simple", max_turns=1, on_text=pieces.append)
    assert server.calls[-1] == ("search_notes", {"query": "budget"})
    assert "".join(pieces) == route.answer == "4,200, by notes/search_notes."
