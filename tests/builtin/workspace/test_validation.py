"""A call that cannot work is refused before a person is asked about it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from fingerpost.errors import CallError
from fingerpost.records import Decision, ErrorKind, Json, Outcome, ParameterFault
from tests.kit.workspace import OpenWorkspace, WorkspaceCaller
from tests.requirements import proves

MISSING, BAD = ParameterFault.MISSING, ParameterFault.BAD_VALUE

# Each asked a person, and failed once the person had agreed.
INVALID: Final[tuple[tuple[str, dict[str, Json], ParameterFault, str], ...]] = (
    ("file_operations", {"operation": "delete"}, MISSING, "path"),
    ("file_operations", {"operation": "delete", "path": "../outside.txt"}, BAD, "path"),
    ("file_operations", {"operation": "delete", "path": "out/outside.txt"}, BAD, "path"),
    ("file_operations", {"operation": "delete", "path": "~/notes.txt"}, BAD, "path"),
    ("file_operations", {"operation": "delete", "path": ".git/config"}, BAD, "path"),
    ("file_operations", {"operation": "delete", "path": "a.txt", "depth": 2}, BAD, "depth"),
    ("terminal_operations", {"operation": "run_command"}, MISSING, "command"),
    ("terminal_operations", {"operation": "run_command", "command": "ls | wc"}, BAD, "command"),
    ("terminal_operations", {"operation": "run_command", "command": "sudo ls"}, BAD, "command"),
    ("terminal_operations", {"operation": "run_background", "command": "echo $HOME"}, BAD, "command"),
    ("terminal_operations", {"operation": "run_elevated", "command": "su", "folder": "../x"}, BAD, "folder"),
    ("ai.execute", {"command": "sudo ls"}, BAD, "command"),
    ("ai.execute", {"command": "ls", "folder": "/etc"}, BAD, "folder"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def ground(folder: Path) -> None:
    (folder.parent / "outside.txt").write_text("outside")
    (folder / "out").symlink_to("..")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("")
    (folder / "a.txt").write_text("inner")


async def nobody_was_asked(workspace: WorkspaceCaller) -> bool:
    return await workspace.router.calls.approvals.list_waiting() == []


def fault_of(outcome: Outcome) -> tuple[ParameterFault, str]:
    assert outcome.error is ErrorKind.INVALID_PARAMETERS, outcome.content
    (error,) = outcome.parameter_errors
    assert error.parameter in outcome.content and error.message in outcome.content
    return error.fault, error.parameter


@proves("C4", "C9")
@pytest.mark.parametrize(("tool", "arguments", "fault", "parameter"), INVALID)
async def test_an_invalid_call_is_refused_before_a_person_is_asked(
    open_workspace: OpenWorkspace,
    tool: str,
    arguments: dict[str, Json],
    fault: ParameterFault,
    parameter: str,
):
    async with open_workspace() as workspace:
        assert fault_of(await workspace.call(tool, **arguments)) == (fault, parameter)
        rehearsed = await workspace.router.call(f"workspace/{tool}", arguments, dry_run=True)
        assert fault_of(rehearsed) == (fault, parameter)
        assert await nobody_was_asked(workspace)


@proves("C4")
async def test_what_would_fail_is_not_asked_about_either(open_workspace: OpenWorkspace, folder: Path):
    (folder / "full").mkdir()
    (folder / "full" / "b.txt").write_text("inner")
    asking = ({"verdict": "ask", "server": "workspace"},)
    async with open_workspace(policy=asking) as workspace:
        for operation, arguments, error_type in (
            ("delete", {"path": "missing.txt"}, "FileNotFound"),
            ("delete", {"path": "full"}, "FolderNotEmpty"),
            ("create_file", {"path": "a.txt"}, "FileExists"),
            ("replace_string", {"path": "a.txt", "old_string": "x", "new_string": "y"}, "execution_failed"),
            ("read_file", {"path": "missing.txt"}, "FileNotFound"),
        ):
            refused = await workspace.files(operation, **arguments)
            assert refused.error is ErrorKind.EXECUTION_FAILED, refused.content
            assert refused.metadata["error_type"] == error_type
        assert await nobody_was_asked(workspace)
        assert (folder / "a.txt").read_text() == "inner"
        assert (await workspace.files("delete", path="a.txt")).error is ErrorKind.AUTHORIZATION_REQUIRED


@proves("C4", "C6")
async def test_arguments_that_a_person_edits_are_checked_the_same_way(
    open_workspace: OpenWorkspace, folder: Path
):
    async with open_workspace() as workspace:
        asked = await workspace.files("delete", path="a.txt")
        assert asked.pending_id is not None
        for path in ("../outside.txt", "out/outside.txt", "missing.txt"):
            with pytest.raises(CallError, match=path):
                await workspace.router.calls.decide(
                    asked.pending_id,
                    Decision.APPROVED,
                    by="dana",
                    edited_arguments={"operation": "delete", "path": path},
                )
        standing = await workspace.router.calls.approvals.get(asked.pending_id)
        assert standing is not None and standing.decision is Decision.WAITING
    assert (folder.parent / "outside.txt").exists()
