"""What holds in every mode: routing that is switched off, results that were cut, loops, tasks, the packet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fingerpost.events import IntentDetected
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import RouteOutcome
from fingerpost.testing import ScriptedModel, calls, tool_server
from tests.journeys.world import house, select
from tests.requirements import proves

MODES = ("staged", "single", "simple", "react")
CLOCK = {
    "name": "get_current_time",
    "description": "Get the current time in a time zone",
    "inputSchema": {
        "type": "object",
        "properties": {"timezone": {"type": "string", "examples": ["Asia/Tokyo"]}},
        "required": ["timezone"],
    },
    "annotations": {"readOnlyHint": True},
}
TIME = "What time is it in Tokyo right now?"
TOKYO = {"timezone": "Asia/Tokyo"}


def wants(tool: str, **arguments: Any) -> ScriptedModel:
    """A model that wants this call whatever it is asked, in the form the question is in."""

    def play(request: ModelRequest) -> str | ModelReply:
        form = "" if request.schema is None else request.schema.name
        if form == "selection":
            return select(tool, arguments)
        if form == "review":
            return json.dumps({"approved": True, "confidence": 0.9, "reasoning": "right"})
        if form == "step":
            action = {"tool": tool, "arguments": arguments}
            return json.dumps({"thought": "once more", "action": action, "answer": None})
        return calls((tool, arguments))

    return ScriptedModel(play)


@proves("A13")
@pytest.mark.parametrize("mode", MODES)
async def test_with_tool_routing_off_a_model_is_sent_no_tools_and_answers(tmp_path: Path, mode: str) -> None:
    clock = tool_server("time", [CLOCK])
    model = ScriptedModel(["I cannot look that up."])
    async with house(tmp_path, [clock.spec()], model, tool_routing={"enabled": False}) as router:
        route = await router.route(TIME, mode=mode)
    assert (route.outcome, route.answer) == (RouteOutcome.ANSWERED, "I cannot look that up.")
    (asked,) = model.asked
    assert (asked.tools, asked.tool_choice, asked.schema) == ((), None, None)
    assert "get_current_time" not in str(asked.messages)
    assert not route.packet.context.available_tools
    (intent,) = (event for event in route.events if isinstance(event, IntentDetected))
    assert "tool routing is switched off" in intent.intent.reasons


@proves("A13")
@pytest.mark.parametrize("mode", [*MODES, "keyless"])
async def test_with_tool_routing_off_no_answer_speaks_of_rounds_or_of_a_missing_model(
    tmp_path: Path, mode: str
) -> None:
    clock = tool_server("time", [CLOCK])
    model = wants("time__get_current_time", **TOKYO)
    async with house(tmp_path, [clock.spec()], model, tool_routing={"enabled": False}) as router:
        route = await router.route(TIME, mode=mode)
        greeting = await router.route("Hello!", mode="keyless")
    assert clock.calls == []
    assert not {"round", "turn", "configured", "limit"} & set(route.answer.lower().replace("s", " ").split())
    assert route.outcome is (RouteOutcome.ANSWERED if mode == "keyless" else RouteOutcome.DECLINED)
    assert "tool_routing.enabled" in route.answer or mode != "keyless"
    assert greeting.answer == "Hello!"
