"""Tool sets by API version, by persona, by plan: the ready profiles in front of all our own servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fingerpost import Router
from fingerpost.llm import ModelRequest
from fingerpost.records import Scope
from fingerpost.testing import ScriptedModel, calls
from fingerpost.testing.models import ScriptLine
from tests.kit.api import serve_api as api_served
from tests.kit.chat_completions import serve_completions as v1_served
from tests.kit.profiles import own, sees, servers_seen, small, until
from tests.requirements import proves

READY = ("kb", "v1", "v0.3", "researcher", "developer")


@proves("B7", "B8")
async def test_each_ready_profile_has_the_tools_it_says(tmp_path: Path):
    async with own(tmp_path, *READY) as router:
        kb, v1, v03 = sees(router, "kb"), sees(router, "v1"), sees(router, "v0.3")
        assert len(kb) == 6
        assert all(key.startswith("knowledge/") for key in kb)
        uses = ["use_asset_service", "use_mcp_agent", "use_multiagent_orchestration"]
        assert sorted(set(v1) - set(kb)) == [f"specialists/{name}" for name in uses]
        assert {key.partition("/")[0] for key in set(v03) - set(v1)} == {"directives"}
        assert len(set(v03) - set(v1)) == 8
        assert servers_seen(router, "researcher") == ["knowledge", "memory", "specialists"]
        assert servers_seen(router, "developer") == ["collaboration", "knowledge", "specialists", "workspace"]
        assert servers_seen(router, "researcher") != servers_seen(router, None)


@asynccontextmanager
async def surfaces(router: Router) -> AsyncGenerator[tuple[httpx2.AsyncClient, httpx2.AsyncClient]]:
    """/v1 and /api of this router."""
    async with AsyncExitStack() as stack:
        address, _ = await stack.enter_async_context(v1_served(router))
        api = await stack.enter_async_context(api_served(router))
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=20))
        yield client, api.client


def chat(**more: Any) -> dict[str, Any]:
    asked = {"role": "user", "content": "find my notes about the pump"}
    return {"model": "fingerpost", "messages": [asked], **more}


VERSIONS = (("v0.3", "v0.3", 17), ("v1", "v1", 9), ("v7", "kb", 6), (None, "kb", 6))


@pytest.mark.slow
@proves("B7", "U14")
async def test_a_client_gets_the_tools_of_the_api_version_it_names(tmp_path: Path):
    model = ScriptedModel(lambda request: "Red.")
    async with own(tmp_path, *READY, model=model) as router, surfaces(router) as (v1, api):
        for version, profile, tools in VERSIONS:
            headers = {} if version is None else {"X-API-Version": version}
            response = (await v1.post("/v1/chat/completions", json=chat(), headers=headers)).json()[
                "fingerpost"
            ]
            assert (response["profile"], response["tools_considered"]) == (profile, tools)
            body = {"request": "find my notes about the pump", "api_version": version}
            routed = (await api.post("/api/route", json=body)).json()
            assert routed["shortlist"]["considered"] == tools
            asked = (await api.post("/api/ask", json={"request": "hello"}, headers=headers)).json()
            assert asked["profile"] == profile
            library = await router.route("find my notes about the pump", api_version=version)
            assert library.packet.context.profile == profile
        in_body = await v1.post("/v1/chat/completions", json=chat(fingerpost={"api_version": "v1"}))
        assert in_body.json()["fingerpost"]["profile"] == "v1"
        named = {"X-API-Version": "v0.3", "X-Fingerpost-Profile": "researcher"}
        by_name = await v1.post("/v1/chat/completions", json=chat(), headers=named)
        assert by_name.json()["fingerpost"]["profile"] == "researcher"


PLANS: dict[str, Any] = {
    "plans": {"dana": "pro"},
    "profiles": {
        "free": {"default": True, "servers": ["tickets"]},
        "pro": {"default": True, "plans": ["pro"]},
        "desk": {"servers": ["tickets"]},
    },
}


@proves("B10", "U14")
async def test_tools_go_by_plan_and_tools_of_other_plans_are_not_named(tmp_path: Path):
    model = ScriptedModel(lambda request: "Sunny.")
    async with small(tmp_path, model, **PLANS) as (router, _, _), surfaces(router) as (v1, api):
        keys = {name: (await router.store.keys.add(name))[1] for name in ("dana", "eve")}
        _, bound = await router.store.keys.add("bound", profiles=("desk", "free"))

        async def send_chat(key: str, path: str = "/v1", **more: Any) -> httpx2.Response:
            headers = {"authorization": f"Bearer {key}"}
            return await v1.post(f"{path}/chat/completions", json=chat(**more), headers=headers)

        assert (await send_chat(keys["dana"])).json()["fingerpost"]["tools_considered"] == 2
        assert (await send_chat(keys["eve"])).json()["fingerpost"]["tools_considered"] == 1
        hidden = await send_chat(keys["eve"], fingerpost={"profile": "pro"})
        assert hidden.status_code == 400
        assert "There are desk, free." in hidden.json()["error"]["message"]
        assert (await send_chat(keys["eve"], "/v1/p/pro")).status_code == 404
        # a key for certain profiles opens no other, by name or by default
        assert (await send_chat(bound)).json()["fingerpost"]["profile"] == "free"
        assert (await send_chat(bound, "/v1/p/desk")).json()["fingerpost"]["profile"] == "desk"
        assert (await send_chat(bound, "/v1/p/pro")).status_code == 403
        me = (await api.get("/api/me", headers={"x-api-key": keys["eve"]})).json()
        assert (me["profiles"], me["default_profile"]) == (["desk", "free"], "free")
        called: dict[str, Any] = {"tool": "weather/get_forecast", "arguments": {}}
        for profile in ("pro", "free"):
            answer = await api.post(
                "/api/call", json={**called, "profile": profile}, headers={"x-api-key": keys["eve"]}
            )
            assert answer.status_code == 404
        dana = await api.post("/api/call", json=called, headers={"x-api-key": keys["dana"]})
        assert dana.json()["success"]


@proves("B10")
async def test_figures_are_told_by_profile(tmp_path: Path):
    model = ScriptedModel(lambda request: "Sunny.")
    async with small(tmp_path, model, **PLANS) as (router, _, _), api_served(router) as api:
        for profile in ("free", "desk", "desk"):
            await router.route("find a ticket", profile=profile, caller="eve")
        await router.store.journal.flush()
        figures = (await api.get("/api/insight")).json()
    found = {one["name"]: one["requests"] for one in figures["profiles"]}
    assert found == {"free": 1, "desk": 2}


@pytest.mark.parametrize("preferred", ["desk", "pro"])
async def test_serve_may_say_what_everybody_gets(tmp_path: Path, preferred: str):
    async with small(tmp_path, **PLANS) as (router, _, _):
        router.profiles.set_default(preferred)
        assert router.profiles.resolve_profile(caller="eve") == {"desk": "desk", "pro": "free"}[preferred]


AGENT = "specialists/use_mcp_agent"
COLOUR: dict[str, Any] = {"tool": AGENT, "arguments": {"task": "Read the file colour.txt"}}


def list_offered(request: ModelRequest) -> set[str]:
    return {str(tool["function"]["name"]) for tool in request.tools}  # pyright: ignore


def agent(tool: str, arguments: dict[str, Any]) -> ScriptedModel:
    """A model that calls the tool where it is offered, and answers then."""

    def play(request: ModelRequest) -> ScriptLine:
        name = next((name for name in list_offered(request) if tool in name), None)
        if name is None or any(message.role == "tool" for message in request.messages):
            return "That is all."
        return calls((name, arguments))

    return ScriptedModel(play)


@pytest.mark.slow
@proves("B3", "B7")
@pytest.mark.parametrize("profile", ["v1", "v0.3"])
async def test_the_agent_of_a_ready_profile_reaches_what_the_profile_does_not_offer(
    tmp_path: Path, profile: str
):
    (tmp_path / "colour.txt").write_text("blue")
    model = agent("ai_read", {"path": "colour.txt"})
    async with own(tmp_path, *READY, model=model) as router, api_served(router) as api:
        assert "workspace" not in servers_seen(router, profile)
        answer = (await api.post("/api/call", {**COLOUR, "profile": profile})).json()
        assert "used workspace/ai.read" in answer["content"], answer
        run = {"tool": AGENT, "arguments": {"task": "Run the command git status in the terminal"}}
        model.asked.clear()
        await api.post("/api/call", {**run, "profile": profile})
        assert any("execute" in name for request in model.asked for name in list_offered(request))
        assert not any("specialists" in name for request in model.asked for name in list_offered(request))
        # what the agent may use, its caller may not use for that
        direct = {"tool": "workspace/ai.read", "arguments": {"path": "colour.txt"}, "profile": profile}
        assert (await api.post("/api/call", direct)).status_code == 404


@pytest.mark.slow
@proves("B3")
async def test_the_agent_reaches_nothing_that_its_callers_key_or_a_rule_keeps_from_them(tmp_path: Path):
    (tmp_path / "colour.txt").write_text("blue")
    model = agent("ai_read", {"path": "colour.txt"})
    denied = {"verdict": "deny", "server": "workspace", "profile": "strict"}
    tools = ("knowledge/*", "specialists/use_*")
    more: dict[str, Any] = {
        "profiles": {
            "strict": {"tools": tools, "agent_tools": ["*"]},
            "reading": {"tools": tools, "agent_tools": ["*"], "effects": ["write"]},
            "plain": {"tools": tools},
        },
        "policy": [denied],
    }
    async with own(tmp_path, *READY, model=model, **more) as router, api_served(router) as api:
        bound = await api.key("bound", scope=Scope(servers=("knowledge", "specialists")))
        named = await api.key("named", scope=Scope(tools=tools))  # word for word as the profile has it
        for profile, headers in (
            ("v1", bound),
            ("v1", named),
            ("strict", {}),
            ("reading", {}),
            ("plain", {}),
        ):
            called = await api.post("/api/call", {**COLOUR, "profile": profile}, headers=headers)
            assert "used no tool" in called.json()["content"], (profile, called.json())
        seen = {name for request in model.asked for name in list_offered(request)}
        assert not any("workspace" in name for name in seen), seen


@pytest.mark.slow
@proves("B3", "C6")
async def test_what_the_agent_asks_for_runs_within_the_same_bounds_once_it_is_approved(tmp_path: Path):
    (tmp_path / "colour.txt").write_text("blue")
    delete = {"operation": "delete", "path": "colour.txt"}
    model = agent("file_operations", delete)
    task = {"tool": AGENT, "arguments": {"task": "Delete the file colour.txt"}, "profile": "v1"}
    switched = {"tool_routing": {"allow_write": True}}
    async with own(tmp_path, *READY, model=model, **switched) as router, api_served(router) as api:
        key = await api.key("dana", "use", "approve")
        waits = (await api.post("/api/call", task, headers=key)).json()
        (pending,) = await router.calls.approvals.list_waiting()
        assert pending.pending_id in waits["content"]
        address = f"/api/approvals/{pending.pending_id}/approve"
        await api.post(address, {}, headers=await api.key("erin", "approve"))
        await until(lambda: not (tmp_path / "colour.txt").exists())
