"""Commands: what runs, within which limits, and what is left of it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.builtin.workspace.command_rules import explain_elevated, split_command
from fingerpost.records import ErrorKind
from tests.kit import warm
from tests.kit.tables import table
from tests.kit.workspace import COMMANDS_ALLOWED, OpenWorkspace, names_in
from tests.requirements import proves

ALLOWED: Final = (COMMANDS_ALLOWED, {"verdict": "allow", "tool": "workspace/ai.execute"})
LONG: Final = 50.0  # seconds; only a defect waits so long
PYTHON: Final = shlex.quote(sys.executable)

# A program with a child in its own group and one that left it, both of which would outlive it.
FAMILY: Final = """
import subprocess, sys, time
one = subprocess.Popen(["sleep", "TAG"])
two = subprocess.Popen(["sleep", "TAG"], start_new_session=True)
open("tag.tmp", "w").write("TAG")
import os; os.rename("tag.tmp", "tag")
print("started", flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def family(folder: Path) -> Path:
    (folder / "family.py").write_text(FAMILY.replace("TAG", f"1000.{uuid4().int}"))
    return folder / "tag"


def count_living(tag: Path) -> int:
    """How many of the family live. In a sandbox they have other numbers than outside."""
    wanted = tag.read_bytes()
    return sum(wanted in arguments for arguments in map(_arguments, Path("/proc").iterdir()))


def _arguments(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:  # gone, or no process at all
        return []


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(LONG):
        while not holds():  # noqa: ASYNC110 - other processes set no event
            await anyio.sleep(0.02)


async def nothing_left(tag: Path) -> None:
    await until(lambda: count_living(tag) == 0)


@pytest.mark.process
@proves("U4", "A8")
async def test_a_command_runs_in_the_folder_with_a_small_environment(
    open_workspace: OpenWorkspace, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_API_KEY", "hidden-value")
    (folder / "sub").mkdir()
    (folder / "show.py").write_text("import os, sys; print(os.getcwd(), sorted(os.environ)); sys.exit(3)")
    async with open_workspace(policy=ALLOWED) as workspace:
        outcome = await workspace.terminal("run_command", command=f"{PYTHON} ../show.py", folder="sub")
        assert outcome.success and "exited with status 3" in outcome.content
        assert f"{folder}/sub" in outcome.content and "PATH" in outcome.content
        assert "MY_API_KEY" not in outcome.content
        outcome = await workspace.call("ai.execute", command="echo 'two  words' \"*\" \\;")
        assert outcome.success and "two  words * ;" in outcome.content
        missing = await workspace.call("ai.execute", command="no-such-program-here")
        assert not missing.success and "There is no program no-such-program-here" in missing.content


@proves("U4", "C6")
async def test_a_command_asks_first(open_workspace: OpenWorkspace, folder: Path):
    async with open_workspace() as workspace:
        for outcome in (
            await workspace.terminal("run_command", command="touch x"),
            await workspace.terminal("run_background", command="touch x"),
            await workspace.terminal("run_elevated", command="sh -c 'touch x'"),
            await workspace.call("ai.execute", command="touch x"),
        ):
            assert outcome.error is ErrorKind.AUTHORIZATION_REQUIRED
        assert (await workspace.terminal("list")).success
    assert not (folder / "x").exists()


@pytest.mark.process
@proves("U4")
async def test_a_list_of_commands_is_all_that_runs_and_needs_no_asking(
    open_workspace: OpenWorkspace, folder: Path
):
    async with open_workspace(commands=("touch", "git status*", "sh **")) as workspace:
        assert (await workspace.terminal("run_command", command="touch a b")).success
        assert (await workspace.call("ai.execute", command="touch c")).success
        for command in ("echo hi", "./touch x", "git push", "/usr/bin/touch x"):
            outcome = await workspace.terminal("run_command", command=command)
            assert not outcome.success and "not among the commands" in outcome.content
        outcome = await workspace.terminal("run_command", command="sh -c 'touch x'")
        assert not outcome.success and "run_elevated" in outcome.content
        outcome = await workspace.terminal("run_elevated", command="sh -c 'touch x'")
        assert outcome.error is ErrorKind.AUTHORIZATION_REQUIRED
    assert names_in(folder) == ["a", "b", "c"]


@pytest.mark.process
@proves("U4", "C6")
async def test_what_a_person_approved_as_elevated_runs_with_a_shell(
    open_workspace: OpenWorkspace, folder: Path
):
    async with open_workspace(policy=ALLOWED) as workspace:
        outcome = await workspace.terminal("run_elevated", command="sh -c 'echo one two | wc -w > count'")
        assert outcome.success, outcome.content
    assert (folder / "count").read_text().strip() == "2"


@pytest.mark.process
@proves("U4")
async def test_time_is_limited_and_nothing_is_left_running(open_workspace: OpenWorkspace, family: Path):
    async with open_workspace(policy=ALLOWED, command_seconds=2) as workspace:
        outcome = await workspace.terminal("run_command", command=f"{PYTHON} family.py 1000")
        assert (
            not outcome.success
            and "stopped after 2 seconds" in outcome.content
            and "started" in outcome.content
        )
        await nothing_left(family)


@pytest.mark.process
@proves("U4")
async def test_what_a_finished_command_left_behind_is_ended(open_workspace: OpenWorkspace, family: Path):
    async with open_workspace(policy=ALLOWED) as workspace:
        outcome = await workspace.terminal("run_command", command=f"{PYTHON} family.py 0")
        assert outcome.success and "exited with status 0" in outcome.content
        await nothing_left(family)


@pytest.mark.process
@proves("U4")
async def test_a_caller_who_gives_up_leaves_nothing_running(open_workspace: OpenWorkspace, family: Path):
    async with open_workspace(policy=ALLOWED) as workspace, anyio.create_task_group() as tasks:
        arguments = {"operation": "run_command", "command": f"{PYTHON} family.py 1000"}
        tasks.start_soon(workspace.router.call, "workspace/terminal_operations", arguments)
        await until(family.exists)
        tasks.cancel_scope.cancel()
    await nothing_left(family)


@pytest.mark.process
@proves("U4")
async def test_output_is_kept_within_its_bound(open_workspace: OpenWorkspace, folder: Path):
    (folder / "much.py").write_text("for number in range(100_000): print('line', number)")
    async with open_workspace(policy=ALLOWED, output_bytes=2048) as workspace:
        outcome = await workspace.terminal("run_command", command=f"{PYTHON} much.py")
        assert "were not kept" in outcome.content and outcome.content.endswith("line 99999")
        assert len(outcome.content) < 3000


@pytest.mark.process
@proves("U4")
async def test_a_background_command_is_watched_and_stopped_by_its_caller(
    open_workspace: OpenWorkspace, family: Path
):
    async with open_workspace(policy=ALLOWED, background=1) as workspace:
        outcome = await workspace.terminal(
            "run_background", caller="dana", command=f"{PYTHON} family.py 1000"
        )
        assert outcome.success and outcome.content.startswith("job-1 runs")
        await until(family.exists)

        async def output() -> str:
            return (await workspace.terminal("get_output", caller="dana", job="job-1")).content

        with anyio.fail_after(LONG):
            while "started" not in await output():  # noqa: ASYNC110 - another process says it
                await anyio.sleep(0.02)
        assert "next offset 8" in await output()
        later = await workspace.terminal("get_output", caller="dana", job="job-1", offset=8)
        assert "started" not in later.content
        assert "job-1: running" in (await workspace.terminal("list", caller="dana")).content
        assert "Nothing runs" in (await workspace.terminal("list", caller="kim")).content
        for operation in ("get_output", "stop"):
            stranger = await workspace.terminal(operation, caller="kim", job="job-1")
            assert not stranger.success and "no background command" in stranger.content
        crowded = await workspace.terminal("run_background", caller="kim", command="sleep 1")
        assert not crowded.success and "1 is the most" in crowded.content
        assert "job-1: stopped" in (await workspace.terminal("stop", caller="dana", job="job-1")).content
        await nothing_left(family)


@pytest.mark.process
@proves("U4")
async def test_closing_ends_what_runs_in_the_background(open_workspace: OpenWorkspace, family: Path):
    async with open_workspace(policy=ALLOWED) as workspace:
        await workspace.terminal("run_background", command=f"{PYTHON} family.py 1000")
        await until(family.exists)
    await nothing_left(family)


HOLDING: Final = """
import sys
from pathlib import Path
import anyio
from fingerpost.builtin import open_router
from fingerpost.settings import Settings

async def main():
    settings = Settings.model_validate({
        "builtin": {"enabled": ["workspace"]}, "tool_routing": {"allow_execute": True},
        "store": {"url": "sqlite:///" + sys.argv[1] + "/../held.db"},
        "policy": [{"verdict": "allow", "server": "workspace"}],
    })
    async with open_router(settings=settings, folder=Path(sys.argv[1])) as router:
        await router.connect()
        arguments = {"operation": "run_background", "command": sys.argv[2]}
        print((await router.call("workspace/terminal_operations", arguments)).content, flush=True)
        await anyio.sleep(1000)

anyio.run(main)
"""


@pytest.mark.process
@proves("U4")
async def test_killing_fingerpost_ends_its_commands_and_what_left_them(folder: Path, family: Path):
    program = folder.parent / "holding.py"
    program.write_text(HOLDING)
    command = [*warm.python(), str(program), str(folder), f"{PYTHON} family.py 1000"]
    holder = await anyio.open_process(command, stdout=subprocess.DEVNULL)
    try:
        await until(family.exists)
        assert count_living(family) == 2
        os.kill(holder.pid, signal.SIGKILL)
        await nothing_left(family)
    finally:
        if holder.returncode is None:
            holder.kill()
        await holder.wait()


SAFE: Final = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\n|&;<>()$`*?[#~\\'\"="), max_size=20
)
QUOTED: Final = st.text(st.characters(codec="utf-8", exclude_characters="\0'"), max_size=20)


@proves("U4")
@given(st.lists(st.one_of(SAFE, QUOTED.map(lambda text: f"'{text}'")), min_size=1, max_size=6))
def test_a_line_without_shell_signs_is_split_as_a_shell_would(pieces: list[str]) -> None:
    line = " ".join(pieces)
    try:
        words = split_command(line)
    except ToolRefused:
        assert not shlex.split(line) or "=" in line or "\r" in line
        return
    assert list(words) == shlex.split(line)


@proves("U4")
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), min_size=1, max_size=6
    )
)
def test_what_was_quoted_comes_back_as_it_was(words: list[str]) -> None:
    if "=" in words[0]:
        return
    assert split_command(shlex.join(words)) == tuple(words)


SHELL = """a | b
a; b
a && b
a > b
a $HOME
a "$(b)"
a `b`
a *.py
X=1 a
~/a
(a)
a 'b
a \\"""


@proves("U4")
@table("line", [*SHELL.splitlines(), "", "a\nb"])
def test_what_needs_a_shell_is_refused(line: str) -> None:
    with pytest.raises(ToolRefused):
        split_command(line)


ELEVATED = """
sudo ls; /usr/bin/sudo ls; doas x; su -; sh -c x; bash -lc x; python -c x; python3.12 -m pip install
x; perl -e x; node --eval x; env sudo x; xargs rm; nohup x; timeout 5 x; rm -rf x; rm -r x; chmod -R
777 .; chown -R x .; dd if=/dev/zero; mkfs.ext4 x; kill 1; pkill x; apt-get install x; pip install
x; npm install; git push; git -q reset --hard; find . -exec rm {} +; find . -delete; cp a /etc/x; mv
a ../b; rm ~/x; tee --output=/x
"""

ORDINARY = """
ls -la; pytest -q; python -m pytest; python script.py -c x; git status; git diff; make test; npm
test; rm a.txt; cp a b; cp /home/dana/project/a b; bash script.sh; grep -r x .; cargo test; uv run
pytest
"""


@proves("U4", "C6")
def test_elevated_commands_are_told_from_ordinary_ones() -> None:
    for lines, is_elevated in ((ELEVATED, True), (ORDINARY, False)):
        for line in lines.split(";"):
            assert (explain_elevated(shlex.split(line), "/home/dana/project") is not None) is is_elevated, (
                line
            )


@pytest.mark.process
@proves("C12", "C9")
async def test_is_background_answers_at_once_with_a_handle_to_poll_read_and_stop(
    open_workspace: OpenWorkspace, family: Path
):
    command = f"{PYTHON} family.py 1000"
    async with open_workspace(policy=ALLOWED) as workspace:
        for tool, arguments in (
            ("terminal_operations", {"operation": "run_command", "command": command}),
            ("ai.execute", {"command": command}),
        ):
            begun = await workspace.call(tool, **arguments, isBackground=True, seconds=500)
            assert begun.success and begun.result is not None, begun.content
            handle: Any = begun.result["structuredContent"]
            assert handle["state"] == "running" and handle["job"] in begun.content
            job = handle["job"]
            with anyio.fail_after(LONG):
                while "started" not in (outcome := await workspace.terminal("get_output", job=job)).content:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            assert outcome.result is not None and outcome.result["structuredContent"]["state"] == "running"  # pyright: ignore
            ended = await workspace.terminal("stop", job=job)
            assert ended.success and f"{job}: stopped" in ended.content
            await nothing_left(family)
        assert (await workspace.terminal("run_command", command="touch x", isBackground=False)).success
        dry = await workspace.call("ai.execute", command=command, isBackground=True, dry_run=True)
        assert "Would run" in dry.content


@pytest.mark.process
@proves("C12", "C10")
async def test_run_command_and_run_subagent_have_figures(open_workspace: OpenWorkspace):
    async with open_workspace(policy=ALLOWED, beside=("specialists",)) as workspace:
        assert (await workspace.terminal("run_command", command="true")).success
        assert (await workspace.router.call("specialists/run_subagent", {"task": "list the files"})).attempts
        tools = {"workspace/terminal_operations", "specialists/run_subagent"}
        with anyio.fail_after(LONG):
            while not tools <= (figures := await workspace.router.store.usage.get_profiles()).keys():  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert all(figures[tool].calls == 1 and figures[tool].typical_ms > 0 for tool in tools), figures
