"""Switched off, writes and commands show what they would do."""

from __future__ import annotations

from pathlib import Path

from fingerpost.records import CallContext, Decision, ErrorKind, create_id
from tests.kit.workspace import OpenWorkspace, names_in
from tests.requirements import proves


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@proves("A9", "U5")
async def test_writes_show_a_diff_and_how_to_switch_them_on(open_workspace: OpenWorkspace, folder: Path):
    (folder / "a.txt").write_text("one\ntwo\n")
    before = everything(folder)
    async with open_workspace(write=False) as workspace:
        for outcome in (
            await workspace.expect_success("replace_string", path="a.txt", old_string="two", new_string="2"),
            (await workspace.call("ai.write", path="a.txt", content="one\n2\n")).content,
        ):
            assert outcome.startswith("Dry run, nothing was changed. `[tool_routing] allow_write = true`")
            assert "FINGERPOST_TOOL_ROUTING__ALLOW_WRITE=true" in outcome
            assert "and overwrite, without asking inside its folder" in outcome
            assert "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2" in outcome
        assert "Would create x/y/new.txt" in await workspace.expect_success(
            "create_file", path="x/y/new.txt", content="x"
        )
        assert "Would rename" in await workspace.expect_success(
            "rename_file", path="a.txt", new_path="deep/b.txt"
        )
        assert "Would copy" in await workspace.expect_success("copy_file", path="a.txt", new_path="b.txt")
        assert "-two" in await workspace.expect_success("delete", path="a.txt")
        assert "Would change" in await workspace.expect_success("append_file", path="a.txt", content="three")
        assert "does not contain" in await workspace.expect_error(
            "replace_string", path="a.txt", old_string="no", new_string="x"
        )
    assert everything(folder) == before
    assert names_in(folder) == ["a.txt"]


@proves("A9", "U5")
async def test_commands_show_what_would_run_where_and_within_which_limits(
    open_workspace: OpenWorkspace, folder: Path
):
    (folder / "sub").mkdir()
    async with open_workspace(execute=False) as workspace:
        for outcome in (
            await workspace.terminal("run_command", command="touch 'a b'", folder="sub", seconds=5),
            await workspace.terminal("run_background", command="touch 'a b'", folder="sub", seconds=5),
            await workspace.terminal("run_elevated", command="sh -c 'touch x'", folder="sub", seconds=5),
            await workspace.call("ai.execute", command="touch 'a b'", folder="sub", seconds=5),
        ):
            assert outcome.success and "`[tool_routing] allow_execute = true`" in outcome.content
            assert (
                "Would run: touch 'a b'" in outcome.content or "Would run: sh -c 'touch x'" in outcome.content
            )
            assert f"folder: {folder}/sub" in outcome.content and "limits: 5 seconds" in outcome.content
    assert list((folder / "sub").iterdir()) == []


@proves("A9", "U5")
async def test_the_tests_are_run_as_the_projects_files_say(open_workspace: OpenWorkspace, folder: Path):
    async with open_workspace(execute=False) as workspace:
        outcome = await workspace.call("run_tests")
        assert not outcome.success and "says how its tests are run" in outcome.content
        (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
        assert "Would run: python -m pytest" in (await workspace.call("run_tests")).content
        (folder / "Makefile").write_text("test: build\n")
        assert "Would run: make test" in (await workspace.call("run_tests")).content
    async with open_workspace() as workspace:
        assert (await workspace.call("run_tests")).error is ErrorKind.AUTHORIZATION_REQUIRED


@proves("A9", "U5")
async def test_a_dry_run_can_be_requested_and_needs_no_approval(open_workspace: OpenWorkspace, folder: Path):
    (folder / "a.txt").write_text("kept")
    async with open_workspace() as workspace:
        assert "`dry_run` was requested" in await workspace.expect_success(
            "delete", path="a.txt", dry_run=True
        )
        assert "Would change" in await workspace.expect_success(
            "write_file", path="a.txt", content="x", dry_run=True
        )
        outcome = await workspace.terminal("run_command", command="rm a.txt", dry_run=True)
        assert outcome.success and "Would run: rm a.txt" in outcome.content
        refused = await workspace.terminal("run_command", command="rm a.txt", dry_run=False)
        assert refused.error is ErrorKind.AUTHORIZATION_REQUIRED
    assert (folder / "a.txt").read_text() == "kept"


@proves("A9")
async def test_an_operators_rule_can_still_ask_about_writes(open_workspace: OpenWorkspace, folder: Path):
    rule = {"verdict": "ask", "server": "workspace", "effect": "write"}
    async with open_workspace(policy=(rule,)) as workspace:
        asked = await workspace.call("ai.write", path="a.txt", content="hello")
        assert asked.error is ErrorKind.AUTHORIZATION_REQUIRED and asked.pending_id
        assert not (folder / "a.txt").exists()
        decided = await workspace.router.calls.decide(asked.pending_id, Decision.APPROVED, by="dana")
        assert decided.arguments == {"path": "a.txt", "content": "hello"}
        done = await workspace.router.calls.resume(asked.pending_id, CallContext(call_id=create_id("cal")))
        assert done.success and (folder / "a.txt").read_text() == "hello"
        assert (await workspace.files("read_file", path="a.txt")).success  # what reads is not asked about


@proves("A9")
async def test_the_definitions_do_not_depend_on_the_switches(open_workspace: OpenWorkspace):
    seen: list[set[str]] = []
    for on in (True, False):
        async with open_workspace(write=on, execute=on) as workspace:
            seen.append({card.fingerprint for card in workspace.router.tools.cards})
    assert seen[0] == seen[1]
