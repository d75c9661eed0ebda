"""Calling a known tool that is not available: callers who may use it learn why, and what to do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fingerpost import Router, Settings
from fingerpost.records import CallContext, Effect, ErrorKind, Outcome, Scope, ServerSpec, ToolCall, create_id
from fingerpost.testing import tool_server
from tests.kit.stores import place_empty_store
from tests.requirements import proves

READ = {"name": "read", "description": "Read a note.", "annotations": {"readOnlyHint": True}}
DELETE = {"name": "delete", "description": "Delete a note.", "annotations": {"destructiveHint": True}}
OFF = [{"match": "notes/*", "enabled": False}]
GONE = ServerSpec(name="gone", transport="stdio", command="no-such-program")
ONLY_READS = Scope(effects=(Effect.READ,))


@asynccontextmanager
async def open_notes_router(folder: Path, *more: ServerSpec, **settings: Any) -> AsyncGenerator[Router]:
    notes = tool_server("notes", [READ, DELETE])
    chosen = Settings.model_validate({"store": {"url": place_empty_store(folder, "s.db")}, **settings})
    async with Router([notes.spec(), *more], settings=chosen) as router:
        await router.connect()
        yield router


async def call(router: Router, name: str, **context: Any) -> Outcome:
    tool_call = ToolCall(name=name, arguments={})
    return await router.calls.call(tool_call, CallContext(call_id=create_id("cal"), **context))


@proves("C3", "C8")
@pytest.mark.parametrize("name", ["notes/read", "notes__read", "notes.read", "read", "Read"])
async def test_a_tool_that_is_switched_off_in_the_settings_says_by_what(tmp_path: Path, name: str) -> None:
    async with open_notes_router(tmp_path, tools=OFF) as router:
        outcome = await call(router, name)
        assert (outcome.tool, outcome.error) == ("notes/read", ErrorKind.UNAVAILABLE)
        assert "[[tools]] with match = 'notes/*' says enabled = false" in outcome.content
        assert "enabled = true" in outcome.advice


@proves("C3", "F24")
async def test_a_changed_tool_says_how_to_review_it(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path):
        pass
    changed = tool_server("notes", [{**READ, "description": "Read, and tell everybody."}])
    settings = Settings.model_validate({"store": {"url": place_empty_store(tmp_path, "s.db")}})
    async with Router([changed.spec()], settings=settings) as router:
        await router.connect()
        outcome = await call(router, "notes/read")
        assert outcome.error is ErrorKind.UNAVAILABLE
        assert "its definition changed" in outcome.content
        assert "`fingerpost pins diff notes/read`" in outcome.advice
        assert "`fingerpost pins accept notes/read`" in outcome.advice


@proves("C3", "F42")
@pytest.mark.parametrize(
    ("spec", "reason", "fix"),
    [
        pytest.param(GONE, "its server gone is down: ", "`fingerpost doctor`", marks=pytest.mark.process),
        (
            ServerSpec(name="gone", transport="stdio", command="x", enabled=False),
            "its server gone is disabled in the configuration",
            '"disabled": true',
        ),
    ],
)
async def test_a_tool_of_a_server_that_is_not_up_says_so(
    tmp_path: Path, spec: ServerSpec, reason: str, fix: str
) -> None:
    async with open_notes_router(tmp_path, spec) as router:
        outcome = await call(router, "gone/look")
        assert outcome.error is ErrorKind.UNAVAILABLE
        assert reason in outcome.content
        assert fix in outcome.advice


@proves("C3")
async def test_a_tool_of_a_server_that_was_not_connected_says_so(tmp_path: Path) -> None:
    notes = tool_server("notes", [READ])
    settings = Settings.model_validate({"store": {"url": place_empty_store(tmp_path, "s.db")}})
    async with Router([notes.spec()], settings=settings) as router:
        assert "its server notes is not connected yet" in (await call(router, "notes/read")).content


@pytest.mark.process
@proves("G3", "N1")
@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("notes/delete", ONLY_READS),
        ("notes/read", Scope(servers=("shop",))),
        ("notes/read", Scope(tools=("notes/del*",))),
        ("gone/look", Scope(servers=("notes",))),
    ],
)
async def test_outside_of_a_callers_scope_it_never_was(tmp_path: Path, name: str, scope: Scope) -> None:
    profiles: Mapping[str, Any] = {
        "bound": {"servers": scope.servers, "tools": scope.tools, "effects": scope.effects}
    }
    async with open_notes_router(tmp_path, GONE, tools=OFF, profiles=profiles) as router:
        assert (await call(router, name)).error is ErrorKind.UNAVAILABLE
        for outside in ({"scopes": (scope,)}, {"profile": "bound"}):
            outcome = await call(router, name, **outside)
            assert outcome.error is ErrorKind.TOOL_NOT_FOUND
            assert "not available" not in outcome.content + outcome.advice
            assert "fix" not in outcome.metadata


@pytest.mark.process
@proves("G3")
async def test_a_server_that_a_rule_keeps_from_a_caller_is_not_named_to_them(tmp_path: Path) -> None:
    rule = {"verdict": "deny", "server": "gone", "caller": "guest"}
    async with open_notes_router(tmp_path, GONE, policy=[rule]) as router:
        assert (await call(router, "gone/look", caller="friend")).error is ErrorKind.UNAVAILABLE
        outcome = await call(router, "gone/look", caller="guest")
        assert outcome.error is ErrorKind.TOOL_NOT_FOUND
        assert "not available" not in outcome.content + outcome.advice


@pytest.mark.process
@proves("G3")
async def test_inside_of_a_callers_scope_they_hear_why(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path, GONE, tools=OFF) as router:
        for name in ("notes/read", "gone/look"):
            assert (await call(router, name, scopes=(ONLY_READS,))).error is ErrorKind.UNAVAILABLE


@proves("G7", "C8")
@pytest.mark.parametrize(
    ("context", "named"),
    [
        ({"profile": "ro"}, "effects of the profile ro (`fingerpost profiles show ro`), if"),
        ({"scopes": (ONLY_READS,)}, "effects of the caller's key (`fingerpost keys` lists them), if"),
        (
            {"profile": "ro", "scopes": (ONLY_READS,)},
            "`fingerpost profiles show ro`), or of the caller's key",
        ),
    ],
)
async def test_what_lies_outside_of_a_scope_is_not_blamed_on_a_rule(
    tmp_path: Path, context: dict[str, Any], named: str
) -> None:
    async with open_notes_router(tmp_path, profiles={"ro": {"effects": ["read"]}}) as router:
        outcome = await call(router, "notes/delete", **context)
        assert outcome.error is ErrorKind.DENIED
        assert named in str(outcome.metadata["fix"])
