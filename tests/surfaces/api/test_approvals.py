"""Approvals over the API: what is asked, whose word counts, and what goes on after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost import Router
from fingerpost.records import Effect, Scope
from fingerpost.testing import ScriptedModel, ToolServer, tool_server
from tests.kit.api import ServedApi, open_served_api
from tests.kit.call_recorder import DESTROYS, READS, tool
from tests.kit.routers import create_file_server, script_model, write_review, write_selection
from tests.requirements import proves

WISH = "Delete the file a.txt for good"
SECRET = "sk-abcdefghijklmnop1234"
TOOLS = (
    tool("delete_file", "Delete a file for good.", "path", title="Delete a file", **DESTROYS),
    tool("read_file", "Read a text file.", "path", **READS),
    tool("send", "Send a message.", "text", "api_key"),
)
KEYED = {"require_key": True}


def _files() -> ToolServer:
    return tool_server("files", TOOLS)


def _chooser() -> ScriptedModel:
    return script_model(
        selection=lambda request: write_selection("files__delete_file", {"path": "a.txt"}),
        review=lambda request: write_review(),
        answer=lambda request: (
            "It stays, as you wish."
            if 'Their reason: "not this one"' in request.messages[-1].text
            else "It is deleted, says files/delete_file."
        ),
    )


async def _wait_for_end(opened: ServedApi, packet_id: str, **more: Any) -> dict[str, Any]:
    """The request, once it has come to its end."""
    with anyio.fail_after(30):
        while True:
            found = (await opened.get(f"/api/packets/{packet_id}", **more)).json()
            if found["line"]["state"] == "ended" and found["packet"]["status"]["state"] == "answered":
                return found
            await anyio.sleep(0.02)


@pytest.mark.slow
@proves("I4", "O7")
async def test_an_approved_request_goes_on_also_after_a_restart(tmp_path: Path) -> None:
    server = _files()
    async with open_served_api(tmp_path, server.spec(), model=_chooser(), operator=True) as opened:
        asked = (await opened.post("/api/ask", {"request": WISH})).json()
        assert asked["outcome"] == "waiting"
    async with open_served_api(tmp_path, server.spec(), model=_chooser(), operator=True) as opened:
        page = (await opened.get("/api/approvals")).json()
        (view,) = page["items"]
        assert view["packet"] == {"packet_id": asked["packet_id"], "prompt": WISH}
        assert (view["title"], view["effect"], view["arguments"]) == (
            "Delete a file", "destroy", {"path": "a.txt"},
        )  # fmt: skip
        assert view["arguments_schema"]["required"] == ["path"]
        assert view["rule"] == "default for destroy"
        assert 0 < view["expires_in_seconds"] <= 3600
        path = f"/api/approvals/{view['pending_id']}/approve"
        decided = (await opened.post(path, {"reason": "go ahead"})).json()
        assert (decided["stood"], decided["resumed"], decided["note"]) == (True, True, None)
        assert decided["approval"]["decided_by"] == "local"
        ended = await _wait_for_end(opened, asked["packet_id"])
        assert ended["line"]["outcome"] == "answered"
        again = (await opened.post(path)).json()
        assert (again["stood"], again["resumed"]) == (False, False)
        assert "decided first" in again["note"]
        assert (await opened.get("/api/approvals")).json()["items"] == []
        for state in ("decided", "all"):
            kept = (await opened.get("/api/approvals", params={"state": state})).json()["items"]
            assert [one["decision"] for one in kept] == ["approved"]
    assert server.calls == [("delete_file", {"path": "a.txt"})]


@pytest.mark.slow
@proves("I4", "C6", "C8")
async def test_a_rejected_request_hears_of_it(tmp_path: Path) -> None:
    server = _files()
    async with open_served_api(tmp_path, server.spec(), model=_chooser(), operator=True) as opened:
        asked = (await opened.post("/api/ask", {"request": WISH})).json()
        path = f"/api/approvals/{asked['pending']['pending_id']}/reject"
        decided = (await opened.post(path, {"reason": "not this one"})).json()
        assert (decided["stood"], decided["approval"]["decision_reason"]) == (True, "not this one")
        ended = await _wait_for_end(opened, asked["packet_id"])
        assert ended["line"]["outcome"] == "declined"
        answer = next(
            field for field in ended["packet"]["content"]["data_fields"] if field["key"] == "answer"
        )
        assert answer["value"] == "It stays, as you wish."
        assert "not this one" in ended["packet"]["tool_routing"]["steps"][0]["text"]
    assert server.calls == []


@pytest.mark.slow
@proves("I4", "C6")
@pytest.mark.parametrize("word", ["approve", "expire"])
async def test_two_requests_that_wait_for_one_call_both_come_to_their_end(tmp_path: Path, word: str) -> None:
    server = _files()
    seconds = {"call": {"pending_seconds": 2}} if word == "expire" else {}
    async with open_served_api(tmp_path, server.spec(), model=_chooser(), **seconds, operator=True) as opened:
        ask = {"request": WISH, "conversation": "one"}
        asked = [(await opened.post("/api/ask", ask)).json() for _ in range(2)]
        (pending_id,) = {one["pending"]["pending_id"] for one in asked}
        if word == "approve":
            assert (await opened.post(f"/api/approvals/{pending_id}/approve")).json()["resumed"]
        ended = [await _wait_for_end(opened, one["packet_id"]) for one in asked]
        outcome = "answered" if word == "approve" else "declined"
        assert [one["line"]["outcome"] for one in ended] == [outcome] * 2
        assert (await opened.get("/api/approvals")).json()["items"] == []
    assert len(server.calls) == (1 if word == "approve" else 0)


@proves("I4", "F32")
async def test_of_many_deciders_one_stands(tmp_path: Path) -> None:
    server = _files()
    async with open_served_api(tmp_path, server.spec(), gateway=KEYED) as opened:
        agent, anna = await opened.key("agent"), await opened.key("anna", "approve")
        bert = await opened.key("bert", "approve")
        call = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}}
        waiting = (await opened.post("/api/call", call, headers=agent)).json()["pending_id"]
        answers: list[dict[str, Any]] = []

        async def decide(word: str, who: dict[str, str]) -> None:
            answers.append((await opened.post(f"/api/approvals/{waiting}/{word}", headers=who)).json())

        async with anyio.create_task_group() as tasks:
            for word, who in (("approve", anna), ("reject", bert), ("approve", anna), ("approve", bert)):
                tasks.start_soon(decide, word, who)
        assert [answer["stood"] for answer in answers].count(True) == 1
        assert len({answer["approval"]["decided_by"] for answer in answers}) == 1
        assert len({answer["approval"]["decision"] for answer in answers}) == 1
        await opened.router.store.journal.flush()
        events = await opened.router.store.journal.list_events(kinds=("approval_decided",))
        assert len(events) == 1


@pytest.mark.slow
@proves("I4", "F32")
async def test_of_two_decisions_of_one_name_at_two_gateways_one_stands(tmp_path: Path) -> None:
    async with (
        open_served_api(tmp_path, _files().spec(), operator=True) as api,
        open_served_api(tmp_path, _files().spec(), operator=True) as there,
    ):
        for number in range(10):
            call = {"tool": "files/delete_file", "arguments": {"path": f"{number}.txt"}}
            waiting = (await api.post("/api/call", call)).json()["pending_id"]
            received: dict[str, dict[str, Any]] = {}

            async def edit(
                opened: ServedApi, path: str, waiting: str, received: dict[str, dict[str, Any]]
            ) -> None:
                wanted = {"arguments": {"path": path}}
                received[path] = (await opened.post(f"/api/approvals/{waiting}/approve", wanted)).json()

            async with anyio.create_task_group() as tasks:
                for opened, path in ((api, "a.txt"), (there, "b.txt"))[:: 1 if number % 2 else -1]:
                    tasks.start_soon(edit, opened, path, waiting, received)
            stands = {answer["approval"]["edited_arguments"]["path"] for answer in received.values()}
            assert {path for path, answer in received.items() if answer["stood"]} == stands
            (lost,) = (answer for answer in received.values() if not answer["stood"])
            assert "decided first" in lost["note"]


@proves("I3", "I4")
async def test_an_edit_stays_within_the_bounds_of_who_approves(tmp_path: Path) -> None:
    """Of a tool with operations, one may read and another destroy."""
    schema = {
        "type": "object",
        "properties": {"operation": {"enum": ["list_files", "delete_file"]}, "path": {"type": "string"}},
        "required": ["operation"],
    }
    server = tool_server("files", [{"name": "manage", "description": "Files.", "inputSchema": schema}])
    written = {"match": "files/manage", "effect": "read", "operations": {"delete_file": "destroy"}}
    rules = [{"tool": "files/manage", "verdict": "ask"}]
    async with open_served_api(
        tmp_path, server.spec(), gateway=KEYED, policy=rules, tools=[written]
    ) as opened:
        agent = await opened.key("agent")
        reads = await opened.key("reads", "approve", scope=Scope(effects=(Effect.READ,)))
        call = {"tool": "files/manage", "arguments": {"operation": "list_files", "path": "a"}}
        waiting = (await opened.post("/api/call", call, headers=agent)).json()["pending_id"]
        path = f"/api/approvals/{waiting}"
        assert (await opened.get(path, headers=reads)).json()["effect"] == "read"
        edited = {"arguments": {"operation": "delete_file", "path": "a"}}
        refused = await opened.post(f"{path}/approve", edited, headers=reads)
        assert (refused.status_code, "outside the limits" in refused.json()["detail"]) == (403, True)
        elsewhere = {"arguments": {"operation": "list_files", "path": "b"}}
        assert (await opened.post(f"{path}/approve", elsewhere, headers=reads)).json()["stood"] is True


@proves("I4")
async def test_a_caller_cannot_approve_its_own_request(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, _files().spec(), gateway=KEYED) as opened:
        both = await opened.key("both", "use", "approve", "watch")
        call = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}}
        waiting = (await opened.post("/api/call", call, headers=both)).json()["pending_id"]
        view = (await opened.get(f"/api/approvals/{waiting}", headers=both)).json()
        assert (view["may_decide"], "yourself" in view["why_not"]) == (False, True)
        refused = await opened.post(f"/api/approvals/{waiting}/approve", headers=both)
        assert (refused.status_code, "yourself" in refused.json()["detail"]) == (403, True)
        scoped = await opened.key("scoped", "approve", scope=Scope(servers=("other",)))
        assert (await opened.post(f"/api/approvals/{waiting}/approve", headers=scoped)).status_code == 404
        withdrawn = await opened.post(f"/api/approvals/{waiting}/reject", headers=both)
        assert withdrawn.json()["stood"] is True


@proves("I4")
async def test_an_edited_call_runs_as_edited_and_its_secret_stays(tmp_path: Path) -> None:
    server = _files()
    async with open_served_api(tmp_path, server.spec(), operator=True) as opened:
        call = {"tool": "files/send", "arguments": {"text": "hi", "api_key": SECRET}, "conversation": "c"}
        waiting = (await opened.post("/api/call", call)).json()["pending_id"]
        view = (await opened.get(f"/api/approvals/{waiting}")).json()
        assert (view["arguments"], view["looks_secret"]) == (call["arguments"], ["/api_key"])
        path = f"/api/approvals/{waiting}/approve"
        listed = (await opened.get("/api/approvals")).json()["items"][0]
        assert SECRET not in str(listed)
        moved = await opened.post(path, {"arguments": {"text": listed["arguments"]["api_key"]}})
        assert (moved.status_code, "mask" in moved.json()["detail"]) == (422, True)
        unfit = await opened.post(path, {"arguments": {"text": {"a": 1}}})
        assert (unfit.status_code, "hint" in unfit.json()) == (422, True)
        slip = await opened.post(path, {"arguments": {**view["arguments"], "txet": "hello"}})
        assert (slip.status_code, "takes no 'txet'; it takes: text" in slip.json()["detail"]) == (422, True)
        edited = {**view["arguments"], "text": "hello"}
        done = (await opened.post(path, {"arguments": edited})).json()
        assert (done["stood"], done["resumed"], "repeats it" in done["note"]) == (True, False, True)
        assert done["approval"]["edited_arguments"]["text"] == "hello"
        assert SECRET not in str(done)
        wanted = {"text": "hello", "api_key": SECRET}
        assert (await opened.post("/api/call", {**call, "arguments": wanted})).json()["success"] is True
    assert server.calls == [("send", wanted)]


async def test_only_a_conversation_can_be_widened_to(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, _files().spec(), operator=True) as opened:
        call = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}}
        waiting = (await opened.post("/api/call", call)).json()["pending_id"]
        path = f"/api/approvals/{waiting}/approve"
        assert "for this one call" in (await opened.post(path, {"for_conversation": True})).json()["note"]
        assert (await opened.post("/api/approvals/apr_none/approve")).status_code == 404


async def test_a_definition_that_changed_is_shown_beside_the_call(tmp_path: Path) -> None:
    server = _files()
    async with open_served_api(tmp_path, server.spec(), operator=True) as opened:
        call = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}}
        waiting = (await opened.post("/api/call", call)).json()["pending_id"]
        await server.replace([{**TOOLS[0], "description": "Delete everything."}, *TOOLS[1:]])
        with anyio.fail_after(30):
            while not opened.router.catalog.quarantined:  # noqa: ASYNC110 - nothing to wait on tells of it
                await anyio.sleep(0.01)
        change = (await opened.get(f"/api/approvals/{waiting}")).json()["definition_change"]
        assert any(line.startswith("+") and "everything" in line for line in change["diff"])


@pytest.mark.slow
@proves("I3")
async def test_a_resumed_request_stays_within_its_callers_bounds(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, _files().spec(), model=_chooser(), gateway=KEYED) as opened:
        only = Scope(tools=("files/delete_file",))
        agent, anna = await opened.key("agent", scope=only), await opened.key("anna", "approve", "watch")
        asked = (await opened.post("/api/ask", {"request": WISH}, headers=agent)).json()
        path = f"/api/approvals/{asked['pending']['pending_id']}/approve"
        assert (await opened.post(path, headers=anna)).json()["resumed"] is True
        await _wait_for_end(opened, asked["packet_id"], headers=anna)
        second = (await opened.post("/api/ask", {"request": f"{WISH}!"}, headers=agent)).json()
        await opened.router.store.keys.revoke("agent")
        path = f"/api/approvals/{second['pending']['pending_id']}/approve"
        decided = (await opened.post(path, headers=anna)).json()
        assert (decided["stood"], decided["resumed"], "key" in decided["note"]) == (True, False, True)


@pytest.mark.slow
async def test_resuming_twice_at_once_is_harmless(tmp_path: Path) -> None:
    """A program that holds the request goes on by itself while the console does, too."""
    server = _files()
    async with open_served_api(tmp_path, server.spec(), model=_chooser(), operator=True) as opened:
        router: Router = opened.router
        asked = await router.route(WISH, caller="local")
        assert asked.pending is not None
        path = f"/api/approvals/{asked.pending.pending_id}/approve"
        assert (await opened.post(path)).json()["resumed"] is True
        held = await router.resume(asked)
        assert held.outcome == "answered"
        await _wait_for_end(opened, asked.packet_id)
    assert server.calls == [("delete_file", {"path": "a.txt"})]


@pytest.mark.process
async def test_with_the_real_file_server(tmp_path: Path) -> None:
    folder = tmp_path / "desk"
    folder.mkdir()
    async with open_served_api(tmp_path, create_file_server(folder), operator=True) as opened:
        target = folder / "a.txt"
        call = {"tool": "files/write_file", "arguments": {"path": str(target), "content": "hello"}}
        waiting = (await opened.post("/api/call", call)).json()["pending_id"]
        assert not target.exists()
        await opened.post(f"/api/approvals/{waiting}/approve")
        assert (await opened.post("/api/call", call)).json()["success"] is True
        assert target.read_text() == "hello"
