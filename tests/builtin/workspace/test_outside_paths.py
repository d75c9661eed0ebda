"""Files outside of the working directory: only where it is switched on, and only with a person's approval."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from fingerpost.errors import CallError
from fingerpost.records import Decision, ErrorKind, Json, Outcome
from tests.kit.workspace import OpenWorkspace, WorkspaceCaller, names_in
from tests.requirements import proves

EVERYTHING: Final = ({"verdict": "allow", "server": "workspace"},)  # a rule does not stand for a person here
CONVERSATION: Final = "talk"
HIDDEN: Final = "hidden-81"  # what keys outside say


@pytest.fixture
def beyond(folder: Path) -> Path:
    """A folder beside the working directory."""
    made = Path(os.path.realpath(folder.parent)) / "beyond"
    (made / ".ssh").mkdir(parents=True)
    (made / ".ssh" / "config").write_text(HIDDEN)
    (made / "id_rsa").write_text(HIDDEN)
    (made / "server.pem").write_text(HIDDEN)
    (made / "plan.txt").write_text("plan")
    (made / "link.txt").symlink_to("id_rsa")
    (made / "short").symlink_to(".ssh")
    (folder / "a.txt").write_text("inner")
    (folder / "out.txt").symlink_to(made / "plan.txt")
    return made


@asynccontextmanager
async def open_with_outside(open_workspace: OpenWorkspace, **more: Any) -> AsyncGenerator[WorkspaceCaller]:
    async with open_workspace(policy=EVERYTHING, outside=True, **more) as workspace:
        yield workspace


async def call(workspace: WorkspaceCaller, tool: str, **arguments: Json) -> Outcome:
    return await workspace.router.call(
        f"workspace/{tool}", arguments, caller="dana", conversation=CONVERSATION
    )


async def call_approved(workspace: WorkspaceCaller, tool: str, **arguments: Json) -> Outcome:
    """The call, once a person has approved it."""
    asked = await call(workspace, tool, **arguments)
    assert asked.error is ErrorKind.AUTHORIZATION_REQUIRED and asked.pending_id is not None, asked.content
    assert "outside of the working directory" in str(asked.metadata["reason"])
    await workspace.router.calls.decide(asked.pending_id, Decision.APPROVED, by="dana")
    return await call(workspace, tool, **arguments)


@pytest.mark.slow
@proves("C12", "C6")
async def test_a_file_outside_is_read_and_written_with_a_grant_for_that_very_call(
    open_workspace: OpenWorkspace, folder: Path, beyond: Path
):
    plan, new = str(beyond / "plan.txt"), str(beyond / "new" / "notes.txt")
    async with open_with_outside(open_workspace) as workspace:
        read = await call_approved(workspace, "file_operations", operation="read_file", path=plan)
        assert (read.success, read.content) == (True, "plan"), read
        again = await call(workspace, "file_operations", operation="read_file", path=plan)
        assert again.error is ErrorKind.AUTHORIZATION_REQUIRED  # it was for once
        short = await call_approved(workspace, "ai.read", path="../beyond/plan.txt")
        assert short.content == "plan"
        wrote = await call_approved(workspace, "ai.write", path=new, content="hello")
        assert wrote.success and new in wrote.content, wrote
        edit: dict[str, Json] = {"path": new, "old_string": "hello", "new_string": "goodbye"}
        assert (await call_approved(workspace, "file_operations", operation="replace_string", **edit)).success
        copy: dict[str, Json] = {"path": "a.txt", "new_path": str(beyond / "copy.txt")}
        assert (await call_approved(workspace, "file_operations", operation="copy_file", **copy)).success
        move: dict[str, Json] = {"path": new, "new_path": "notes.txt"}
        assert (await call_approved(workspace, "file_operations", operation="rename_file", **move)).success
        assert (await call_approved(workspace, "file_operations", operation="delete", path=plan)).success
        listed = await call_approved(workspace, "file_operations", operation="list_dir", path=str(beyond))
        assert "copy.txt" in listed.content
    assert "notes.txt" in names_in(folder)
    assert not {"plan.txt", "notes.txt"} & set(names_in(beyond)) and "copy.txt" in names_in(beyond)


@proves("C12", "C6")
async def test_a_grant_reaches_one_exact_call_and_cannot_be_widened(
    open_workspace: OpenWorkspace, beyond: Path
):
    async with open_with_outside(open_workspace) as workspace:
        plan: dict[str, Json] = {"operation": "read_file", "path": str(beyond / "plan.txt")}
        asked = await call(workspace, "file_operations", **plan)
        assert asked.pending_id is not None
        with pytest.raises(CallError, match="once"):
            await workspace.router.calls.decide(
                asked.pending_id, Decision.APPROVED, by="dana", for_conversation=True
            )
        # an operation that was approved for the conversation stays inside
        inside = await workspace.router.call(
            "workspace/file_operations",
            {"operation": "read_file", "path": "a.txt"},
            caller="dana",
            conversation=CONVERSATION,
            doubt="a person should look",
        )
        assert inside.pending_id is not None
        await workspace.router.calls.decide(
            inside.pending_id, Decision.APPROVED, by="dana", for_conversation=True
        )
        other = await call(workspace, "file_operations", **plan)
        assert other.error is ErrorKind.AUTHORIZATION_REQUIRED
        dry = await workspace.router.call("workspace/file_operations", plan, dry_run=True)
        assert dry.metadata["verdict"] == "ask"


@pytest.mark.slow
@proves("C12", "U3")
async def test_keys_links_and_whole_folders_outside_stay_out_of_reach(
    open_workspace: OpenWorkspace, folder: Path, beyond: Path
):
    reads = [".ssh/config", "id_rsa", "server.pem", "short/config", ".SSH/config", "../beyond/.ssh/config"]
    paths = [str(beyond / path) for path in reads] + ["/proc/self/environ", "/dev/null", "~/.ssh/config"]
    async with open_with_outside(open_workspace) as workspace:
        for path in (*paths, str(beyond / "link.txt"), "out.txt", "a/../../beyond/plan.txt"):
            outcome = await call(workspace, "file_operations", operation="read_file", path=path)
            if outcome.pending_id is not None:
                await workspace.router.calls.decide(outcome.pending_id, Decision.APPROVED, by="dana")
                outcome = await call(workspace, "file_operations", operation="read_file", path=path)
            assert not outcome.success and HIDDEN not in outcome.content and outcome.pending_id is None, (
                path,
                outcome,
            )
        for path in paths[:3]:  # refused before a person is asked
            outcome = await call(workspace, "ai.write", path=path, content="spoiled")
            assert outcome.error is ErrorKind.INVALID_PARAMETERS, outcome
        whole: dict[str, Json] = {"path": str(beyond), "new_path": "stolen"}
        for operation in ("copy_file", "rename_file"):
            assert not (
                await call_approved(workspace, "file_operations", operation=operation, **whole)
            ).success
        gone = await call_approved(
            workspace, "file_operations", operation="delete", path=str(beyond), recursive=True
        )
        assert not gone.success and HIDDEN not in gone.content
        for operation, more in (("grep_search", {"query": HIDDEN}), ("find_files", {"pattern": "*"})):
            outcome = await call(workspace, "file_operations", operation=operation, path=str(beyond), **more)
            assert not outcome.success and "leads out" in outcome.content
        assert not (await call(workspace, "ai.execute", command="ls", folder=str(beyond))).success
    assert "stolen" not in names_in(folder) and "id_rsa" in names_in(beyond)


@proves("C12", "U3")
async def test_nothing_outside_can_be_used_unless_it_is_switched_on(
    open_workspace: OpenWorkspace, beyond: Path
):
    async with open_workspace(policy=EVERYTHING) as workspace:
        for path in (str(beyond / "plan.txt"), "../beyond/plan.txt"):
            outcome = await call(workspace, "file_operations", operation="read_file", path=path)
            assert outcome.error is ErrorKind.INVALID_PARAMETERS and "leads out" in outcome.content, outcome
