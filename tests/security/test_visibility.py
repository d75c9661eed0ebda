"""Answers that would name what lies outside of the caller's bounds: tools, servers, rules and settings."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fingerpost.llm import ModelRequest
from fingerpost.records import Principal, Scope
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from fingerpost.testing import ScriptedModel, calls, tool_server
from tests.kit.api import ServedApi, open_served_api, open_stream
from tests.kit.call_recorder import DESTROYS, READS, tool
from tests.kit.chat_completions import serve_completions, user
from tests.kit.gateway_methods import ROUTE
from tests.kit.gateway_methods import open_gateway_methods as gateway
from tests.kit.routers import open_router
from tests.requirements import proves

FILES = (
    tool("read_file", "Read a text file.", "path", **READS),
    tool("write_file", "Write a text file.", "path", "content", **DESTROYS),
    tool("shred_file", "Read a text file and shred it.", "path", **DESTROYS),
)
PAYROLL = (
    tool("pay_wombat", "Pay a wombat from a text file.", "path", **DESTROYS),
    tool("read_wombat", "Read the wombat from a text file.", "path", **READS),
)
RULE = {"verdict": "deny", "tool": "files/shred_file", "reason": "until the merger with Acme is over"}
PROFILES = {"desk": {"servers": ["files"]}, "wages": {"servers": ["quokka"]}}
OUTSIDE = ("quokka", "read_wombat", "merger", "Acme", "shred_file")
WISH = "read the text file a.txt with pay_wombat"
TYPO = "quokka/pay_womba"


def _model(*names: str) -> ScriptedModel:
    """Calls these tools one after another, whatever it was offered, then answers."""
    left = list(names)

    def answer(request: ModelRequest) -> Any:
        return calls((left.pop(0), {"path": "a.txt"})) if left else "Done."

    return ScriptedModel(answer)


@asynccontextmanager
async def _open_api(folder: Path, model: ScriptedModel | None = None) -> AsyncGenerator[ServedApi]:
    servers = (tool_server("files", FILES).spec(), tool_server("quokka", PAYROLL).spec())
    more: dict[str, Any] = {"gateway": {"require_key": True}, "policy": [RULE], "profiles": PROFILES}
    async with open_served_api(folder, *servers, model=model, **more) as opened:
        yield opened


def _find_leaked(answer: str, *text: str) -> list[str]:
    """What of the outside stands in the answer beyond what the caller said."""
    for words in text:
        answer = answer.replace(json.dumps(words)[1:-1], "")
    return [word for word in OUTSIDE if word.lower() in answer.lower()]


BOUND = [{"scope": Scope(servers=("files",))}, {"profiles": ("desk",)}, {}]


@pytest.mark.slow
@proves("X9")
@pytest.mark.parametrize("bound", BOUND, ids=["scope", "profile", "rule alone"])
async def test_a_caller_hears_of_no_tool_outside(tmp_path: Path, bound: dict[str, Any]) -> None:
    names = ("quokka__pay_wombat", TYPO, "files__shred_file", "shred_fil", "read_file")
    async with _open_api(tmp_path, _model(*names)) as opened:
        who = await opened.key("agent", **bound)
        outside = OUTSIDE if bound else ("merger", "Acme", "shred_file")
        own_words = (WISH, "quokka/pay_wombat", "files/shred_file", *names)

        def check(answer: str) -> None:
            assert not [word for word in _find_leaked(answer, *own_words) if word in outside], answer

        for about in ("quokka/pay_wombat", "files/shred_file", "quokka/nothing"):
            routed = await opened.post("/api/route", {"request": WISH, "about": about}, headers=who)
            assert routed.status_code == 200, routed.text
            check(routed.text)
        for wanted in ("quokka/pay_womba", "shred_file", "files/shred"):
            tried = await opened.post("/api/call", {"tool": wanted, "arguments": {}}, headers=who)
            if bound or "shred" in wanted:
                assert tried.status_code == 404
                check(tried.text.replace(wanted, ""))
        asked = await opened.post("/api/ask", {"request": WISH, "mode": "simple"}, headers=who)
        check(asked.text)
        async with open_stream(
            opened, "/api/ask", headers=who, body={"request": WISH, "mode": "keyless"}
        ) as stream:
            while (frame := await stream.next()).event != "route":
                check(json.dumps(frame.data))
            check(json.dumps(frame.data))
        packet = asked.json()["packet_id"]
        check((await opened.get(f"/api/packets/{packet}", headers=who)).text)
        check((await opened.get("/api/packets", headers=who)).text)
        async with open_stream(opened, f"/api/events?packet_id={packet}&after=0", headers=who) as stream:
            while (frame := await stream.next()).data["kind"] != "route_ended":
                check(json.dumps(frame.data))


@pytest.mark.slow
@proves("X9")
@pytest.mark.parametrize("bound", BOUND[:2], ids=["scope", "profile"])
async def test_no_right_shows_a_bound_key_what_lies_outside(tmp_path: Path, bound: dict[str, Any]) -> None:
    async with _open_api(tmp_path) as opened:
        who = await opened.key("bound", "use", "watch", "approve", "manage", **bound)
        other = await opened.key("other")
        call = {"tool": "quokka/pay_wombat", "arguments": {"path": "a.txt"}}
        await opened.post("/api/call", call, headers=other)
        await opened.post("/api/call", {**call, "tool": "quokka/read_wombat"}, headers=other)
        theirs = (await opened.get("/api/packets", headers=other)).json()["items"]
        assert len(theirs) == 2
        described: Any = (await opened.get("/api/openapi.json", headers=who)).json()
        pages = [path for path, how in described["paths"].items() if "get" in how and "{" not in path]
        assert {"/api/settings", "/api/packets", "/api/tools", "/api/audit"} <= set(pages)
        for path in pages:
            if path in ("/api/live", "/api/events", "/api/openapi.json"):
                continue
            got = await opened.get(path, headers=who)
            assert not [
                word for word in _find_leaked(got.text) if word not in ("merger", "Acme", "shred_file")
            ], path
        for line in theirs:
            assert (await opened.get(f"/api/packets/{line['packet_id']}", headers=who)).status_code == 404
        async with open_stream(opened, "/api/live", headers=who) as stream:
            assert (await stream.next("lines")).data == []
        assert (await opened.get("/api/events", headers=who)).status_code == 403
        settings = await opened.get("/api/settings", headers=who)
        assert (settings.status_code, "limited" in settings.json()["detail"]) == (403, True)
        watcher = await opened.key("watcher", "watch")
        assert (await opened.get("/api/settings", headers=watcher)).status_code == 200
        routed = await opened.key("operator", "use", "watch")
        whole = (await opened.post("/api/route", {"request": WISH}, headers=routed)).json()
        assert [one["tool"] for one in whole["shortlist"]["hidden"]] == ["files/shred_file"]


@proves("X9")
async def test_the_gateway_names_nothing_outside(tmp_path: Path) -> None:
    servers = (tool_server("files", FILES).spec(), tool_server("quokka", PAYROLL).spec())
    clerk = Principal(name="clerk", kind="key", scope=Scope(servers=("files",)))
    async with gateway(tmp_path, *servers, policy=[RULE], flags={"dense_scores": False}) as it:
        how: dict[str, Any] = {"by": clerk, "at": ROUTE}
        found = await it.call("find_tools", {"request": WISH}, **how)
        assert not _find_leaked(json.dumps(found), WISH)
        answers: list[str] = []
        for name in ("quokka__pay_wombat", "quokka__pay_womba", "files__shred_file"):
            for own, arguments in (
                ("describe_tool", {"name": name}),
                ("call_tool", {"name": name, "arguments": {"path": "a"}}),
            ):
                try:
                    answer = json.dumps(await it.call(own, arguments, **how))
                except JsonRpcError as refused:
                    answer = refused.message
                answers.append(answer.replace(name, ""))
        assert not [named for answer in answers if (named := _find_leaked(answer))], answers


@proves("X9")
async def test_the_endpoint_names_nothing_outside(tmp_path: Path) -> None:
    model = _model("quokka__pay_wombat", "quokka__pay_womba", "read_file")
    servers = (tool_server("files", FILES).spec(), tool_server("quokka", PAYROLL).spec())
    more: dict[str, Any] = {"gateway": {"require_key": True}, "profiles": PROFILES}
    async with open_router(tmp_path, servers, model, **more) as router:
        _, key = await router.store.keys.add("agent", profiles=("desk",))
        body = {"model": "fingerpost", "messages": [user("Read the text file a.txt")]}
        async with serve_completions(router) as (address, _), httpx2.AsyncClient(base_url=address) as client:
            headers = {"authorization": f"Bearer {key}"}
            got = await client.post("/v1/chat/completions", json=body, headers=headers)
        assert got.status_code == 200, got.text
        content_text = got.text
        assert not _find_leaked(content_text, "quokka__pay_wombat", "quokka__pay_womba"), content_text
        for request in model.asked:
            text = json.dumps([message.text for message in request.messages])
            assert not _find_leaked(text, "quokka__pay_wombat", "quokka__pay_womba", "quokka/pay_wombat"), (
                text
            )


@proves("X9")
async def test_what_one_caller_was_offered_in_a_conversation_is_not_offered_to_another(
    tmp_path: Path,
) -> None:
    """Several people write in one thread of a chat, and one key may have several profiles."""
    model = ScriptedModel(lambda request: "Done.")
    servers = (tool_server("files", FILES).spec(), tool_server("quokka", PAYROLL).spec())
    more: dict[str, Any] = {"profiles": PROFILES, "narrow": {"vectors": str(tmp_path), "max_tools": 10}}
    async with open_router(tmp_path, servers, model, **more) as router:
        callers: list[dict[str, Any]] = [{"caller": "boss"}, {"caller": "clerk", "profile": "desk"}]
        for who in (*callers, callers[0]):
            model.asked.clear()
            text = "Read the wombat from a text file" if who["caller"] == "boss" else "Read a text file"
            await router.route(text, conversation="thread", mode="simple", **who)
            offered = json.dumps([request.tools for request in model.asked], default=str)
            assert ("quokka" in offered) == (who["caller"] != "clerk"), offered
