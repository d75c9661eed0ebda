"""Directive tools: checked data for a client to act on, in order, for its own client only."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp import Client

from fingerpost import Router
from fingerpost.builtin import BuiltinHost, make_server
from fingerpost.builtin.directives import DIRECTIVE_KINDS, build_directive, build_output_schema
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.records import ErrorKind
from fingerpost.testing import ScriptedModel, calls
from tests.kit.api import serve_api as api_served
from tests.kit.chat_completions import serve_completions as v1_served
from tests.kit.profiles import LAMP, own
from tests.kit.routers import build_settings
from tests.kit.tables import table
from tests.requirements import proves

MOVE: dict[str, Any] = {"target": "lamp-1", "position": {"x": 1, "y": 1.5, "z": -2}, "seconds": 2}
ONLY: dict[str, Any] = {"builtin": {"enabled": ["directives"]}}
SCENE = "Place a lamp object in my scene, then move the lamp object"


def places_and_moves() -> ScriptedModel:
    """Asks for two directives at once, then says so; again and again."""

    def script(request: Any) -> Any:
        if any(message.role == "tool" for message in request.messages):
            return "The lamp moves."
        return calls(("directives__place_object", LAMP), ("directives__move_object", MOVE))

    return ScriptedModel(script)


@pytest.mark.slow
@proves("U15")
async def test_directives_come_with_the_answer_in_the_order_they_were_given(tmp_path: Path):
    async with own(tmp_path, "v0.3", model=places_and_moves(), **ONLY) as router:
        route = await router.route(SCENE, profile="v0.3", mode="simple", caller="dana")
        assert route.answer.startswith("The lamp moves.")
        assert [one["directive"] for one in route.directives] == ["place_object", "move_object"]
        place, move = route.directives
        assert (place["version"], place["target"]) == ("1", "lamp-1")
        assert place["parameters"] == {"asset": "lamp", "position": LAMP["position"]}
        assert move["parameters"] == {"position": MOVE["position"], "seconds": 2}
        assert place["id"] != move["id"]
        assert route.as_json()["directives"] == list(route.directives)
        async with api_served(router) as api, v1_served(router) as (address, _):
            body = {"request": SCENE, "mode": "simple", "profile": "v0.3"}
            response = (await api.post("/api/ask", body)).json()
            assert [one["directive"] for one in response["directives"]] == ["place_object", "move_object"]
            chat = {"model": "fingerpost", "messages": [{"role": "user", "content": SCENE}]}
            answer = await api.client.post(
                f"{address}/v1/chat/completions", json=chat, headers={"X-API-Version": "v0.3"}
            )
            response = answer.json()["fingerpost"]["directives"]
            assert [one["directive"] for one in response] == ["place_object", "move_object"]


@proves("U15")
async def test_directives_need_no_approval_and_say_what_is_wrong(tmp_path: Path):
    async with own(tmp_path, **ONLY) as router:
        assert (await router.call("directives/place_object", LAMP)).success
        for name, arguments, words in (
            ("place_object", {**LAMP, "asset": "javascript:alert(1)"}, "asset"),
            ("place_object", {**LAMP, "target": "a b"}, "target"),
            ("place_object", {**LAMP, "target": "lamp\n"}, "target"),
            ("place_object", {**LAMP, "position": {"x": 1e9, "y": 0, "z": 0}}, "10000"),
            ("move_object", {"target": "lamp-1"}, "position, rotation, scale"),
            ("show_panel", {"target": "p", "text": "evil \u202e txt"}, "U+202E"),
            ("set_environment", {"time_of_day": "25:00"}, "time_of_day"),
        ):
            outcome = await router.call(f"directives/{name}", arguments)
            assert outcome.error in (ErrorKind.INVALID_PARAMETERS, ErrorKind.EXECUTION_FAILED)
            assert words in outcome.content


@proves("U15")
async def test_an_mcp_client_gets_structured_directives_from_the_server_alone():
    async with Client(make_server("directives", BuiltinHost()).mcp) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {kind.name for kind in DIRECTIVE_KINDS}
        result = await client.call_tool("place_object", LAMP)
        schema = tools["place_object"].output_schema
        assert schema is not None
        Draft202012Validator(schema).validate(result.structured_content)  # pyright: ignore[reportUnknownMemberType]
        assert all(tool.annotations and tool.annotations.destructive_hint is False for tool in tools.values())


@proves("U15")
async def test_another_servers_orders_are_not_passed_on_as_directives(tmp_path: Path):
    """A user's own server may have the same name as ours and return the same results."""
    theirs = make_server("directives", BuiltinHost()).build_spec()
    model = ScriptedModel([calls(("directives__move_object", MOVE)), "The lamp moves."])
    rules = [{"verdict": "allow", "server": "directives"}]
    allowed = build_settings(tmp_path, policy=rules, flags={"dense_scores": False, "need_gate": False})
    async with Router([theirs], settings=allowed, model=model) as router:
        await router.connect()
        route = await router.route(SCENE, mode="simple")
    assert route.packet.tool_routing.steps[0].success
    assert route.directives == ()


@table("kind", DIRECTIVE_KINDS, ids=lambda kind: kind.name)
def test_no_kind_is_about_nothing(kind: Any):
    assert kind.parameters
    assert set(kind.required) <= set(kind.parameters)
    assert kind.keywords and kind.examples


odd = st.floats() | st.text() | st.integers() | st.none() | st.booleans()
vectors = st.dictionaries(st.sampled_from("xyzw"), odd)
values = (
    odd | vectors | st.sampled_from(["lamp", "#ff0000", "https://example.com/a.glb", "glow", "walk", "12:30"])
)


@proves("U15")
@given(st.sampled_from(DIRECTIVE_KINDS), st.data())
def test_whatever_is_asked_for_a_directive_is_valid_json_or_refused(kind: Any, data: st.DataObject):
    names = ["target", *kind.parameters, "else"]
    arguments = data.draw(st.dictionaries(st.sampled_from(names), values))
    tool = make_server("directives", BuiltinHost()).tools[kind.name]
    checked = Draft202012Validator(tool.definition["inputSchema"])  # pyright: ignore[reportArgumentType]
    if list(checked.iter_errors(arguments)):  # pyright: ignore[reportUnknownMemberType]
        return
    try:
        directive = build_directive(kind, arguments)
    except ToolRefused:
        return
    Draft202012Validator(build_output_schema(kind)).validate(directive)  # pyright: ignore[reportUnknownMemberType]
    json.dumps(directive, allow_nan=False)
    assert "else" not in str(directive["parameters"])


@proves("U15")
@given(st.floats(), st.floats(), st.floats())
def test_coordinates_are_finite_and_near(x: float, y: float, z: float):
    tool = make_server("directives", BuiltinHost()).tools["place_object"]
    arguments = {**LAMP, "position": {"x": x, "y": y, "z": z}}
    checked = Draft202012Validator(tool.definition["inputSchema"])  # pyright: ignore[reportArgumentType]
    fine = all(math.isfinite(value) and abs(value) <= 10_000 for value in (x, y, z))
    try:
        wrong = list(checked.iter_errors(arguments))  # pyright: ignore[reportUnknownMemberType]
        accepted = not wrong and bool(build_directive(DIRECTIVE_KINDS[0], arguments))
    except ToolRefused:
        accepted = False
    assert accepted is fine


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"target": "lamp-1\n"}, "target: "),
        ({"asset": "javascript:alert(1)"}, "asset: "),
        ({"else": 1}, "'else' was unexpected"),
    ],
)
async def test_a_client_without_a_router_is_told_what_is_wrong(changed: dict[str, Any], text: str):
    async with Client(make_server("directives", BuiltinHost()).mcp) as client:
        result = await client.call_tool("place_object", {**LAMP, **changed})
    assert result.is_error and text in result.model_dump_json()
