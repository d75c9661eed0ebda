"""A person's word about one call, where the same caller comes back in other sessions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.records import CallContext, Decision, Principal
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from fingerpost.testing import tool_server
from tests.kit.elicitation import DELETE, NOTE, READ
from tests.kit.gateway_methods import OpenMethods, open_gateway_methods, profile, text_of
from tests.requirements import proves

TOOL = "notes__delete_note"
DANA = Principal(name="dana", kind="key")


async def get_pending_id(it: OpenMethods, result: Any) -> str:
    """The id under which this one waits, the only one that does."""
    [pending] = await it.router.calls.approvals.list_waiting()
    assert result["isError"]
    assert pending.pending_id in text_of(result)
    return pending.pending_id


@proves("G6")
async def test_the_same_call_from_another_session_finds_what_waits_and_hears_a_no(tmp_path: Path) -> None:
    notes = tool_server("notes", [DELETE])
    async with open_gateway_methods(tmp_path, notes.spec()) as it:
        call = partial(it.call, TOOL, NOTE)
        first = await get_pending_id(it, await call(session="one"))
        assert await get_pending_id(it, await call(session="two")) == first
        await it.router.calls.decide(first, Decision.REJECTED, by="kim", reason="use staging")
        assert "kim: use staging" in text_of(await call(session="three"))
        assert await get_pending_id(it, await call(session="four")) != first
        assert notes.calls == []


@pytest.mark.slow
@proves("G6", "F33")
async def test_two_gateways_run_what_was_approved_once_whatever_the_session(tmp_path: Path) -> None:
    notes = tool_server("notes", [DELETE])
    async with (
        open_gateway_methods(tmp_path, notes.spec()) as one,
        open_gateway_methods(tmp_path, notes.spec()) as other,
    ):
        pending_id = await get_pending_id(one, await one.call(TOOL, NOTE, session="asked"))
        await other.router.calls.decide(pending_id, Decision.APPROVED, by="kim")
        failed: list[bool] = []

        async def call(it: OpenMethods, session: str) -> None:
            failed.append((await it.call(TOOL, NOTE, session=session)).get("isError", False))

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(call, (one, other)[number % 2], f"session {number}")
        assert sorted(failed) == [False] + [True] * 5
        assert notes.calls == [("delete_note", dict(NOTE))]


@proves("G6")
async def test_no_other_caller_uses_an_approval_and_no_bound_is_crossed_with_it(tmp_path: Path) -> None:
    notes = tool_server("notes", [DELETE, READ])
    profiles = {"look": {"servers": ["notes"], "effects": ["read"]}}
    async with open_gateway_methods(tmp_path, notes.spec(), profiles=profiles) as it:
        pending_id = await get_pending_id(it, await it.call(TOOL, NOTE, by=DANA, session="one"))
        await it.router.calls.decide(pending_id, Decision.APPROVED, by="kim")
        for other in (Principal(name="eve", kind="key"), Principal(name="dana", kind="token")):
            assert (await it.call(TOOL, NOTE, by=other, session="one"))["isError"]
        with pytest.raises(JsonRpcError, match="Unknown tool"):
            await it.call(TOOL, NOTE, by=DANA, at=profile("look"), session="two")
        assert (await it.call(TOOL, {"path": "b"}, by=DANA, session="two"))["isError"]
        assert notes.calls == []
        assert not (await it.call(TOOL, NOTE, by=DANA, session="two")).get("isError")


@proves("G6")
async def test_a_program_may_go_on_with_what_a_client_asked_for(tmp_path: Path) -> None:
    notes = tool_server("notes", [DELETE])
    async with open_gateway_methods(tmp_path, notes.spec()) as it:
        pending_id = await get_pending_id(it, await it.call(TOOL, NOTE, session="one"))
        await it.router.calls.decide(pending_id, Decision.APPROVED, by="kim")
        assert (await it.router.calls.resume(pending_id, CallContext(call_id="cal_1"))).success
        assert (await it.call(TOOL, NOTE, session="one"))["isError"]


@proves("G6")
async def test_an_approval_for_the_conversation_is_for_its_session(tmp_path: Path) -> None:
    notes = tool_server("notes", [DELETE])
    async with open_gateway_methods(tmp_path, notes.spec()) as it:
        pending_id = await get_pending_id(it, await it.call(TOOL, NOTE, session="one"))
        await it.router.calls.decide(pending_id, Decision.APPROVED, by="kim", for_conversation=True)
        # What the person was asked about they said yes to, and its client may have a session for each call.
        assert not (await it.call(TOOL, NOTE, session="two")).get("isError")
        assert (await it.call(TOOL, NOTE, session="two"))["isError"]
        for _ in range(2):
            assert not (await it.call(TOOL, NOTE, session="one")).get("isError")
        assert (await it.call(TOOL, {"path": "b"}, session="one"))["isError"]
