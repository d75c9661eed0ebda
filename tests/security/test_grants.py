"""A grant "for this conversation" against callers, conversations and targets that it was not given for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fingerpost import Router
from fingerpost.errors import CallError
from fingerpost.records import Decision, Principal
from fingerpost.surfaces.http.access import build_conversation_id
from fingerpost.surfaces.http.tokens import build_principal
from fingerpost.testing import ToolServer, tool_server
from tests.kit.api import open_served_api as api_house
from tests.kit.call_recorder import DESTROYS, tool
from tests.kit.gateway_methods import open_gateway_methods as gateway_house
from tests.kit.routers import open_router as router_house
from tests.requirements import proves

WRITE = tool("write_note", "Write a note.", "path", "text")
DELETE = tool("delete_note", "Delete a note for good.", "path", **DESTROYS)
RUN = tool("run", "Run a command in a folder.", "cwd", "command", **DESTROYS)
POST = tool("post", "Send a web request.", "url", "body", **DESTROYS)
SAY = tool("say", "Say something.", "text", **DESTROYS)


def notes() -> ToolServer:
    return tool_server("notes", [WRITE, DELETE, RUN, POST, SAY])


@pytest.mark.slow
@proves("X4")
async def test_without_a_session_a_decision_covers_one_call_whichever_caller_is_next(tmp_path: Path) -> None:
    server = notes()
    async with gateway_house(tmp_path, server.spec()) as it:
        how: dict[str, Any] = {"modern": True, "session": None}
        for by in (Principal(name="local"), Principal(name="dana", kind="key")):
            server.calls.clear()
            waits = await it.call("notes__write_note", {"path": "a", "text": "x"}, by=by, **how)
            assert waits["isError"]
            [pending] = await it.router.calls.approvals.list_waiting()
            with pytest.raises(CallError, match="no conversation"):
                await it.router.calls.decide(
                    pending.pending_id, Decision.APPROVED, by="kim", for_conversation=True
                )
            await it.router.calls.decide(pending.pending_id, Decision.APPROVED, by="kim")
            for number in range(5):
                other = {"path": "a", "text": f"other {number}"}
                assert (await it.call("notes__write_note", other, by=by, **how))["isError"]
            assert server.calls == []
            assert not (await it.call("notes__write_note", {"path": "a", "text": "x"}, by=by, **how)).get(
                "isError"
            )
            for waiting in await it.router.calls.approvals.list_waiting():
                await it.router.calls.decide(waiting.pending_id, Decision.REJECTED, by="kim")


@pytest.mark.slow
@proves("X4")
async def test_asked_for_without_a_conversation_the_wider_word_is_one_for_this_call(tmp_path: Path) -> None:
    server = notes()
    call: dict[str, Any] = {"tool": "notes/write_note", "arguments": {"path": "a", "text": "x"}}
    async with api_house(tmp_path, server.spec(), operator=True) as opened:
        waiting = (await opened.post("/api/call", call)).json()["pending_id"]
        view = (await opened.get(f"/api/approvals/{waiting}")).json()
        assert view["conversation_target"] is None
        done = (await opened.post(f"/api/approvals/{waiting}/approve", {"for_conversation": True})).json()
        assert (done["stood"], "this one call" in done["note"]) == (True, True)
        for number in range(5):
            other = {**call, "arguments": {"path": f"b{number}", "text": "2"}}
            assert (await opened.post("/api/call", other)).json()["success"] is False
        assert (await opened.post("/api/call", call)).json()["success"] is True
    assert server.calls == [("write_note", {"path": "a", "text": "x"})]


@proves("X4")
@pytest.mark.parametrize(
    ("name", "first", "covered", "asked_again"),
    [
        ("write_note", {"path": "a", "text": ""}, [{"path": "a", "text": "2"}], [{"path": "b", "text": ""}]),
        ("delete_note", {"path": "a"}, [{"path": "a"}], [{"path": "b"}]),
        # what is run or sent is no content: a grant for one command says nothing of another
        ("run", {"cwd": "a", "command": "ls"}, [], [{"cwd": "a", "command": "rm"}]),
        ("post", {"url": "http://a", "body": "1"}, [], [{"url": "http://a", "body": "2"}]),
        # nothing names a target: all arguments have to be the same
        ("say", {"text": "yes"}, [{"text": "yes"}], [{"text": "no"}]),
    ],
    ids=["content", "path", "command", "request", "nothing named"],
)  # fmt: skip
async def test_a_grant_is_for_its_target(
    tmp_path: Path,
    name: str,
    first: Mapping[str, Any],
    covered: list[Mapping[str, Any]],
    asked_again: list[Mapping[str, Any]],
) -> None:
    async with router_house(tmp_path, [notes().spec()], None) as router:
        await _allow(router, name, first, caller="dana", conversation="c")
        for arguments in covered:
            assert (await router.call(name, arguments, caller="dana", conversation="c")).success
        for arguments in asked_again:
            outcome = await router.call(name, arguments, caller="dana", conversation="c")
            assert outcome.pending_id is not None, arguments


@proves("X4")
async def test_a_grant_is_for_its_caller_and_its_tool(tmp_path: Path) -> None:
    """In a channel of a chat several people ask in the same conversation."""
    async with router_house(tmp_path, [notes().spec()], None) as router:
        await _allow(router, "delete_note", {"path": "a"}, caller="dana", conversation="c")
        for caller, conversation, name in (
            ("eve", "c", "delete_note"),
            (None, "c", "delete_note"),
            ("dana", "d", "delete_note"),
            ("dana", None, "delete_note"),
            ("dana", "c", "write_note"),
        ):
            arguments = {"path": "a"} if name == "delete_note" else {"path": "a", "text": ""}
            outcome = await router.call(name, arguments, caller=caller, conversation=conversation)
            assert outcome.pending_id is not None, (caller, conversation, name)
        assert (await router.call("delete_note", {"path": "a"}, caller="dana", conversation="c")).success


@proves("X4")
def test_no_two_callers_and_conversations_have_one_name() -> None:
    """Whatever stands in a token's subject or in the name that a caller gives a conversation."""
    parts = ["a", "a/b", "a%2Fb", "a%252Fb", "%2F", "/", "a@b", "b", "@", "a:b", ""]
    subjects = {(sub, None): {"sub": sub} for sub in parts if sub}
    subjects |= {
        (sub, client): {"sub": sub, "client_id": client}
        for sub in parts
        for client in parts
        if sub and client not in ("", sub)
    }
    names = {who: build_principal(claims, ()).name for who, claims in subjects.items()}
    assert len(set(names.values())) == len(names)
    callers = [Principal(name=name, kind="token") for name in names.values()]
    callers += [Principal(name=part, kind="key") for part in ("a", "b")] + [Principal(name="local")]
    made = {
        build_conversation_id(caller, given): (caller.name, given)
        for caller in callers
        for given in parts
        if given
    }
    assert len(made) == len(callers) * len([part for part in parts if part])


async def _allow(router: Router, name: str, arguments: Mapping[str, Any], **where: Any) -> None:
    """Have a person allow this call for its conversation, and make it."""
    asked = await router.call(name, arguments, **where)
    assert asked.pending_id is not None
    await router.calls.decide(asked.pending_id, Decision.APPROVED, by="kim", for_conversation=True)
    assert (await router.call(name, arguments, **where)).success
