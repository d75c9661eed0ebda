"""Attacks of one caller on another, and on what is hidden from them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fingerpost.records import Principal, Scope, ServerResources
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from fingerpost.testing import tool_server
from tests.kit.gateway_methods import (
    ALL,
    LOCAL,
    FixedResultServer,
    LibraryServer,
    OpenMethods,
    SilentClient,
    open_gateway_methods,
    profile,
    request,
    text_of,
    until,
)
from tests.requirements import proves

DELETE: dict[str, Any] = {
    "name": "delete",
    "description": "Delete a note",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "annotations": {"destructiveHint": True},
}


def clerk(**scope: Any) -> Principal:
    return Principal(name="clerk", kind="key", scope=Scope(**scope))


@pytest.mark.slow
@proves("G3")
@pytest.mark.parametrize("taken", [False, True])
async def test_a_handle_opens_a_result_for_its_own_caller_alone(tmp_path: Path, taken: bool) -> None:
    """A handle is made from the id of the call, and ids are no secrets: they stand in every result."""
    secret = "\n".join(f"salary of employee {number}: {number * 1000}" for number in range(20_000))
    tools: dict[str, dict[str, Any]] = {name: {} for name in ("salaries", "read_result")[: 1 + taken]}
    files = FixedResultServer("files", tools, {"salaries": {"content": [{"type": "text", "text": secret}]}})
    async with open_gateway_methods(tmp_path, files.spec(prefix=not taken)) as it:
        cut = await it.call("salaries" if taken else "files__salaries")
        handle = {"handle": cut["_meta"]["fingerpost/handle"]}
        assert "salary of employee" in text_of(await it.call("read_result", handle))
        stolen = await it.call("read_result", handle, by=clerk(), session="another")
        assert stolen["isError"]
        assert "salary" not in text_of(stolen)


async def _call_modern(it: OpenMethods, path: str, **more: Any) -> Any:
    """What a 2026-07-28 client with forms gets for this call."""
    params = {"name": "notes__delete", "arguments": {"path": path}, **more}
    asking = replace(request("tools/call", params, at=ALL, by=LOCAL, modern=True, session=None),
                     capabilities={"elicitation": {"form": {}}})  # fmt: skip
    return await it.methods.answer(asking, SilentClient())


@proves("G6")
async def test_one_client_without_a_session_cannot_approve_for_all_others(tmp_path: Path) -> None:
    """All such clients of one principal look alike: what one person allows must not reach the rest."""
    notes = tool_server("notes", [DELETE])
    async with open_gateway_methods(tmp_path, notes.spec()) as it:
        first = await _call_modern(it, "a")
        [question] = first["inputRequests"].values()
        assert "conversation" not in str(question)
        answer = {"action": "accept", "content": {"decision": "approve for this conversation"}}
        more = {"inputResponses": {"fingerpost-approval": answer}, "requestState": first["requestState"]}
        await _call_modern(it, "a", **more)
        assert (await _call_modern(it, "b"))["resultType"] == "input_required"
        assert notes.calls == []


@proves("G3")
async def test_a_near_name_is_one_that_can_be_called(tmp_path: Path) -> None:
    """And only of a tool this caller may see."""
    notes = tool_server("notes", [DELETE, {**DELETE, "name": "delete_all"}])
    rules = [{"verdict": "deny", "tool": "notes/delete_all"}]
    async with open_gateway_methods(tmp_path, notes.spec(), policy=rules) as it:
        with pytest.raises(JsonRpcError, match=r"'notes__delte'; similar: notes__delete$"):
            await it.call("notes__delte")


@proves("G3", "G5")
@pytest.mark.parametrize("rule", [{"server": "secret"}, {"tool": "secret/*"}])
async def test_a_server_whose_tools_are_all_denied_gives_nothing_else_away(
    tmp_path: Path, rule: dict[str, str]
) -> None:
    """By no method, and by none of the names its things have."""
    open_one = LibraryServer("open", resources=["book://a"], prompts=["quiz"])
    secret = LibraryServer("secret", resources=["map://z"], templates=["map://{x}"], prompts=["plan"])
    rules = {"desk": {"policy": [{"verdict": "deny", **rule}]}}
    tries: list[tuple[str, dict[str, Any]]] = [
        ("resources/read", {"uri": "map://z"}),
        ("resources/read", {"uri": "map://y"}),
        ("resources/read", {"uri": "fingerpost://secret/map://z"}),
        ("resources/subscribe", {"uri": "fingerpost://secret/map://z"}),
        ("prompts/get", {"name": "secret__plan"}),
        ("prompts/get", {"name": "plan"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "plan"}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "fingerpost://secret/map://{x}"}}),
        ("tools/call", {"name": "secret/look_up"}),
        ("tools/call", {"name": "look_up_secret"}),
    ]
    async with open_gateway_methods(tmp_path, open_one.spec(), secret.spec(), profiles=rules) as it:
        await until(lambda: all((it.router.servers.get_resources(name) or ServerResources(server="")).prompts
                                for name in ("open", "secret")))  # fmt: skip
        desk = profile("desk")
        listed = [
            await it.ask(method, at=desk)
            for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
        ]
        assert "secret" not in str(listed)
        assert "map:" not in str(listed)
        for method, params in tries:
            with suppress(JsonRpcError):
                assert "secret" not in str(await it.ask(method, params, at=desk))
        assert secret.asked == []
        assert "secret" not in str(it.methods.describe(desk, LOCAL, "2025-11-25"))
