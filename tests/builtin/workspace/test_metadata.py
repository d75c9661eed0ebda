"""What a failed call says of itself in its metadata, on every surface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult

from fingerpost.records import ErrorKind, Outcome
from tests.kit import api
from tests.kit.command_line import CommandLine
from tests.kit.gateways import serve_gateway
from tests.kit.workspace import OpenWorkspace, names_in
from tests.requirements import proves
from tests.surfaces.cli.conftest import person

__all__ = ["person"]

FILES, COLLABORATION = "workspace/file_operations", "collaboration/user_collaboration"
MISSING: dict[str, Any] = {"operation": "read_file", "path": "notes/missing.md"}
DELETE: dict[str, Any] = {"operation": "delete", "path": "old.txt"}
NOT_FOUND = {"error_type": "FileNotFound", "attemptedPath": "notes/missing.md"}
WAITS = {
    "error_type": "authorization_required",
    "requiresAuthorization": True,
    "authorizationKey": f"{FILES}.delete",
    "reason": "no rule allows overwriting or deleting",
}

AFTER_READING = (
    f"this conversation contains untrusted content from {FILES}; "
    f"this conversation contains private data from {FILES}"
)


def has(metadata: Any, wanted: dict[str, Any]) -> bool:
    """Whether the metadata say all of this; the gateway's names have our prefix."""
    return all(metadata.get(name, metadata.get(f"fingerpost/{name}")) == wanted[name] for name in wanted)


@pytest.fixture(autouse=True)
def old(folder: Path) -> Path:
    made = folder / "old.txt"
    made.write_text("old")
    return made


@proves("C7", "C11")
async def test_a_missing_file_and_a_needed_approval_are_named_in_the_metadata_of_every_surface(
    open_workspace: OpenWorkspace,
) -> None:
    async with open_workspace() as workspace:
        missing: Outcome = await workspace.router.call(FILES, MISSING)
        waits: Outcome = await workspace.router.call(FILES, DELETE)
        assert (missing.error, missing.content_type) == (ErrorKind.EXECUTION_FAILED, "text")
        assert "notes/missing.md" in missing.content
        assert has(missing.metadata, NOT_FOUND) and has(waits.metadata, WAITS)
        async with api.serve_api(workspace.router) as served:
            for arguments, wanted in ((MISSING, NOT_FOUND), (DELETE, WAITS)):
                answer = (await served.post("/api/call", {"tool": FILES, "arguments": arguments})).json()
                assert not answer["success"] and has(answer["metadata"], wanted), answer
        # A session of the gateway is a conversation, in which a private file was asked for before.
        waits_there = {**WAITS, "reason": f"{WAITS['reason']}; {AFTER_READING}"}
        async with serve_gateway(workspace.router) as address, Client(f"{address}/mcp/all") as client:
            for arguments, wanted in ((MISSING, NOT_FOUND), (DELETE, waits_there)):
                result: Any = await client.call_tool("workspace__file_operations", arguments)
                assert result.is_error and has(result.meta, wanted), result


@pytest.mark.process
@proves("C7", "C11")
def test_the_command_prints_the_same_metadata(person: CommandLine) -> None:
    (person.home / "work").mkdir()
    (person.home / "work" / "old.txt").write_text("old")
    extra = {
        "FINGERPOST_BUILTIN__ENABLED": "workspace",
        "FINGERPOST_BUILTIN__WORKSPACE__ROOT": "work",
        "FINGERPOST_TOOL_ROUTING__ALLOW_WRITE": "true",
    }
    for arguments, wanted in ((MISSING, NOT_FOUND), (DELETE, WAITS)):
        done = person.runs("call", FILES, "--args", json.dumps(arguments), "--json", extra=extra)
        assert has(json.loads(done.stdout)["metadata"], wanted), done
    off = {**extra, "FINGERPOST_TOOL_ROUTING__ALLOW_WRITE": "false", "COLUMNS": "200"}
    shown = person.runs("tool", "ai.write", extra=off).stdout
    assert "read (dry run only, until tool_routing.allow_write is on)" in shown
    assert person.runs("tools", extra=off).stdout.count("read (dry run)") == 5


@proves("C7")
async def test_every_failure_of_a_file_or_command_names_its_type(
    open_workspace: OpenWorkspace, folder: Path
) -> None:
    (folder / "sub").mkdir()
    calls: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
        ("file_operations", {"operation": "read_file", "path": "sub"}, {"error_type": "NotAFile"}),
        ("file_operations", {"operation": "list_dir", "path": "old.txt"}, {"error_type": "NotAFolder"}),
        ("file_operations", {"operation": "create_file", "path": "old.txt"}, {"error_type": "FileExists"}),
        ("ai.read", {"path": "../x"}, {"error_type": "invalid_parameters"}),
        ("ai.read", {"path": "/etc/hosts"}, {"error_type": "OutsideWorkingDirectory"}),
        ("ai.execute", {"command": "no-such-program"}, {"error_type": "ProgramNotFound"}),
        ("terminal_operations", {"operation": "stop", "job": "job-9"}, {"error_type": "execution_failed"}),
    )  # fmt: skip
    async with open_workspace(policy=({"verdict": "allow", "server": "workspace"},)) as workspace:
        for tool, arguments, wanted in calls:
            outcome = await workspace.call(tool, **arguments)
            assert not outcome.success and has(outcome.metadata, wanted), (arguments, outcome)


@pytest.mark.slow
@proves("C11", "C6")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_waiting_call_is_approved_through_user_collaboration_by_the_person_alone(
    open_workspace: OpenWorkspace, folder: Path, mode: Any
) -> None:
    seen: list[ElicitRequestParams] = []

    async def approve(context: Any, params: ElicitRequestParams) -> ElicitResult:
        seen.append(params)
        return ElicitResult(action="accept", content={"decision": "approve"})

    opened = open_workspace(beside=("collaboration",), confirms=True)
    async with opened as workspace, serve_gateway(workspace.router) as address:
        url = f"{address}/mcp/all"
        async with Client(url, mode=mode) as client:  # this client cannot ask a person
            waits: Any = await client.call_tool("workspace__file_operations", DELETE)
            for request in (waits.meta["fingerpost/pending"], waits.meta["fingerpost/authorizationKey"]):
                wanted = {"operation": "approve", "request": request, "question": "The person said yes."}
                still: Any = await client.call_tool("collaboration__user_collaboration", wanted)
                assert still.is_error and has(still.meta, WAITS), still
            assert "old.txt" in names_in(folder)
        async with Client(url, mode=mode, elicitation_callback=approve) as client:
            done: Any = await client.call_tool("collaboration__user_collaboration", wanted)
            assert not done.is_error and "Deleted old.txt" in done.content[0].text, done
        (form,) = seen
        assert "workspace/file_operations.delete" in str(form) and "The person said yes." not in str(form)
        assert "old.txt" not in names_in(folder)


@proves("C11")
async def test_only_the_caller_of_a_waiting_call_can_have_the_person_asked_about_it(
    open_workspace: OpenWorkspace, folder: Path
) -> None:
    async with open_workspace(beside=("collaboration",)) as workspace:
        waits = await workspace.router.call(FILES, DELETE, caller="dana", conversation="one")
        wanted = {"operation": "approve", "request": waits.pending_id}
        for caller, conversation in (("erin", "one"), ("dana", "two"), (None, None)):
            refused = await workspace.router.call(
                COLLABORATION, wanted, caller=caller, conversation=conversation
            )
            assert refused.error is ErrorKind.INVALID_PARAMETERS and refused.pending_id is None, refused
        asked = await workspace.router.call(COLLABORATION, wanted, caller="dana", conversation="one")
        assert asked.pending_id == waits.pending_id and has(asked.metadata, WAITS)
        bare = await workspace.router.call(COLLABORATION, {"operation": "approve"})
        assert [error.parameter for error in bare.parameter_errors] == ["question"]
    assert "old.txt" in names_in(folder)
