"""No path leads out of the working directory, whatever it is made of and whatever happens meanwhile."""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.builtin.workspace.context import (
    ActionSwitches,
    RunMode,
    ToolArguments,
    UnreviewedWrites,
    WorkspaceContext,
)
from fingerpost.builtin.workspace.paths import RootFolder
from fingerpost.builtin.workspace.search import MeaningIndex
from fingerpost.builtin.workspace.tools import OPERATIONS, FileContext
from fingerpost.records import Json
from fingerpost.settings import WorkspaceSettings
from tests.kit.workspace import OpenWorkspace
from tests.requirements import proves

SECRET: Final = "secret-7f31"  # what files outside say
MEMORY: Final = "/dev/shm"  # where writing through to the disk costs nothing
EXCHANGE: Final = 2  # RENAME_EXCHANGE
UNLISTED: Final = "unlisted-55.txt"  # a name outside that no path mentions


@contextmanager
def world() -> Generator[Path]:
    """A ground with all kinds of links in it, and an outside, the current folder, with something to find."""
    with TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as made:
        top = Path(made).resolve()
        outside, ground = top / "outside", top / "ground"
        (outside / "deep").mkdir(parents=True)
        for name in ("secret.txt", UNLISTED, "deep/secret.txt"):
            (outside / name).write_text(SECRET)
        build(ground, outside)
        with chdir(outside):
            yield ground


def build(ground: Path, outside: Path) -> None:
    (ground / "a" / "b").mkdir(parents=True)
    (ground / "secret.txt").write_text("inner")
    (ground / "a" / "secret.txt").write_text("inner")
    (ground / "a" / "b" / "file.txt").write_text("inner")
    for name, target in (
        ("out", "../outside"),
        ("out-absolute", str(outside)),
        ("out-file", "../outside/secret.txt"),
        ("in", "a/b"),
        ("in-absolute", str(ground / "a")),
        ("up", ".."),
        ("a/up", "../.."),
        ("a/b/out", "../../../outside/deep"),
        ("loop", "loop"),
        ("chain", "in/out"),
        ("dangling", "../outside/new-from-link.txt"),
        ("root", "/"),
        ("proc", "/proc/self/cwd"),
    ):
        (ground / name).symlink_to(target)


def outside_of(ground: Path) -> dict[str, tuple[bytes, int]]:
    """Everything beside the ground: content and time of change."""
    found: dict[str, tuple[bytes, int]] = {}
    for path in sorted((ground.parent).rglob("*")):
        if ground not in path.parents and path != ground:
            data = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (data, path.stat().st_mtime_ns)
    return found


def create_file_context(ground: Path) -> FileContext:
    work = WorkspaceContext(
        root_folder=RootFolder(ground),
        unreviewed=UnreviewedWrites(ground.parent, ground),
        settings=WorkspaceSettings(),
        switches=ActionSwitches(write=True, execute=True),
    )
    return FileContext(work, MeaningIndex(work, by_meaning=False, vector_folder=None))


def attempt(files: FileContext, operation: str, arguments: dict[str, Any]) -> str:
    """What the operation says, having done what it would; refusals are answers as well."""
    wanted = OPERATIONS[operation]
    own = {name: value for name, value in arguments.items() if name in (*wanted.needs, *wanted.takes)}
    given_to = ToolArguments(operation, {**own, "operation": operation})
    given_to.check(needs=wanted.needs, takes=wanted.takes)
    try:
        return wanted.action(files, given_to, RunMode())
    except ToolRefused as refused:
        return refused.text


def check(text: str) -> None:
    assert SECRET not in text
    assert UNLISTED not in text


likely = st.sampled_from(
    ["..", "a", "b", "secret.txt", "out", "out-absolute", "out-file", "in", "in-absolute", "up", "chain",
     "dangling", "outside", "deep"]
)  # fmt: skip
odd = st.sampled_from(
    [".", "", "file.txt", "loop", "root", "proc", "ground", "new", "A", "OUT", "..\u200b", "．．", "‥", "․․",
     "..\\", "%2e%2e", "~", "~root", "..;", ". .", "...", "a\u0301", "\u00e1", "etc", "passwd", "x" * 255,
     "a\0b"]
)  # fmt: skip
starts = st.sampled_from(
    ["", "", "", "/", "//", "./", "../", "~/", "{ground}/", "{ground}/../", "{outside}/", "/proc/self/root/"]
)
joined = st.lists(likely | odd, max_size=4).map("/".join)
paths = st.tuples(starts, joined).map("".join)
attempts = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATIONS)), paths, paths, st.booleans()), min_size=20, max_size=30
)


@pytest.mark.slow
@proves("U3", "C6")
@settings(max_examples=25)
@given(attempts)
def test_odd_paths_never_reach_what_lies_outside(
    tries: list[tuple[str, str, str, bool]],
) -> None:
    with world() as ground:
        before, files = outside_of(ground), create_file_context(ground)
        for operation, path, other, flag in tries:
            spelled, second = (
                each.replace("{ground}", str(ground)).replace("{outside}", str(ground.parent / "outside"))
                for each in (path, other)
            )
            arguments = {
                "path": spelled, "new_path": second, "content": "spoiled", "old_string": "inner",
                "new_string": "changed",
                "edits": [{"path": second, "old_string": "inner", "new_string": "x"}],
                "line": 1, "start_line": 1, "query": "secret", "pattern": "**", "recursive": flag,
                "include_ignored": flag, "depth": 5,
            }  # fmt: skip
            check(attempt(files, operation, arguments))
        assert outside_of(ground) == before


class Swapper:
    """Swaps the folder `d` for a link to the outside, and back. There always is a `d`."""

    def __init__(self, ground: Path) -> None:
        (ground / "d").mkdir()
        (ground / "link").symlink_to("../outside")
        self._swap = ctypes.CDLL(None).renameat2
        self._folder = os.open(ground, os.O_RDONLY)
        self.turns: Iterator[bool] = iter(())

    def swap(self) -> None:
        assert self._swap(self._folder, b"d", self._folder, b"link", EXCHANGE) == 0

    def on_audit_event(self, event: str, _: object) -> None:
        """Python is about to make a system call: after the look that said it may, before it is made."""
        if event in MOMENTS and next(self.turns, False):
            self.swap()

    def close(self) -> None:
        os.close(self._folder)


MOMENTS: Final = frozenset(
    {"open", "os.scandir", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.chmod"}
)
_listening: list[Swapper] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _listening:
        _listening[0].on_audit_event(event, arguments)


@pytest.fixture(scope="module")
def audited() -> None:
    """Nothing can take the hook away again: without a listener it does nothing."""
    sys.addaudithook(_hear)


@contextmanager
def swapper_in(ground: Path) -> Generator[Swapper]:
    swapper = Swapper(ground)
    try:
        yield swapper
    finally:
        _listening.clear()
        swapper.close()


def everything_with_d(number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that can be done in and around the folder that is swapped."""
    path, moved, copy = f"d/new-{number % 3}.txt", f"d/moved-{number % 2}.txt", f"d/copy-{number % 2}"
    yield "write_file", {"path": path, "content": str(number)}
    yield "create_file", {"path": f"d/deep/er/{number}.txt", "content": "spoiled"}
    yield "append_file", {"path": "d/secret.txt", "content": "spoiled"}
    yield "replace_string", {"path": "d/secret.txt", "old_string": SECRET, "new_string": "spoiled"}
    yield "read_file", {"path": "d/secret.txt"}
    yield "read_range", {"path": "d/secret.txt", "start_line": 1}
    yield "list_dir", {"path": "d", "depth": 3}
    yield "find_files", {"pattern": "**"}
    yield "grep_search", {"query": "secret", "path": "d"}
    yield "grep_search", {"query": "secret"}
    yield "semantic_search", {"query": "secret"}
    yield "rename_file", {"path": path, "new_path": moved}
    yield "rename_file", {"path": "d/secret.txt", "new_path": f"stolen-{number}.txt"}
    yield "copy_file", {"path": "d", "new_path": f"stolen-{number}"}
    yield "copy_file", {"path": "a", "new_path": copy}
    yield "delete", {"path": moved}
    yield "delete", {"path": "d/secret.txt"}
    yield "delete", {"path": copy, "recursive": True}
    yield "delete", {"path": "d/deep", "recursive": True}


@pytest.mark.slow
@pytest.mark.usefixtures("audited")
@proves("U3")
@settings(max_examples=30)
@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_folder_swapped_for_a_link_between_look_and_use_leads_nowhere(turns: list[bool]) -> None:
    with world() as ground, swapper_in(ground) as swapper:
        before, files = outside_of(ground), create_file_context(ground)
        swapper.turns = itertools.cycle(turns)
        _listening.append(swapper)
        for operation, arguments in everything_with_d(0):
            check(attempt(files, operation, arguments))
        _listening.clear()
        assert outside_of(ground) == before
        assert not any(SECRET in path.read_text() for path in ground.rglob("*.txt") if not path.is_symlink())


SWAPPING: Final = """
import ctypes, os, sys
os.chdir(sys.argv[1])
swap = ctypes.CDLL(None).renameat2
print("ready", flush=True)
while True:
    swap(-100, b"d", -100, b"link", 2)
"""


@pytest.mark.process
@proves("U3")
def test_a_folder_that_another_program_swaps_all_the_time_leads_nowhere() -> None:
    with world() as ground, swapper_in(ground):
        before, files = outside_of(ground), create_file_context(ground)
        command = [sys.executable, "-I", "-S", "-c", SWAPPING, str(ground)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None and process.stdout.readline()
                for number in range(20):
                    for operation, arguments in everything_with_d(number):
                        check(attempt(files, operation, arguments))
            finally:
                process.kill()
        assert outside_of(ground) == before


@pytest.mark.slow
@proves("U3", "A8")
async def test_every_tool_keeps_to_the_folder(open_workspace: OpenWorkspace, folder: Path):
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (folder / "out").symlink_to(outside)
    async with open_workspace(policy=({"verdict": "allow", "server": "workspace"},)) as workspace:
        for path in (
            "../outside/secret.txt",
            "out/secret.txt",
            f"{outside}/secret.txt",
            f"{folder}/../outside",
        ):
            for tool, arguments in (
                ("ai.read", {"path": path}),
                ("ai.write", {"path": path, "content": "spoiled"}),
                ("embedding.query", {"query": "secret", "path": path}),
                ("ai.execute", {"command": "ls", "folder": path}),
                ("terminal_operations", {"operation": "run_background", "command": "ls", "folder": path}),
                ("file_operations", {"operation": "grep_search", "query": "secret", "path": path}),
            ):
                outcome = await workspace.call(tool, **arguments)
                assert not outcome.success and "leads out of the working directory" in outcome.content, (
                    tool,
                    path,
                )
        assert "leads out" in (await workspace.expect_success("file_info", path="out"))
    assert (outside / "secret.txt").read_text() == SECRET


@proves("U3")
async def test_links_that_stay_inside_are_followed(open_workspace: OpenWorkspace, folder: Path):
    (folder / "docs").mkdir()
    (folder / "docs" / "a.txt").write_text("inner")
    (folder / "short").symlink_to("docs")
    (folder / "absolute").symlink_to(folder / "docs" / "a.txt")
    async with open_workspace() as workspace:
        assert await workspace.expect_success("read_file", path="short/a.txt") == "inner"
        assert await workspace.expect_success("read_file", path=f"{folder}/short/../docs/./a.txt") == "inner"
        text = await workspace.expect_success("write_file", path="absolute", content="changed")
        assert "docs/a.txt" in text
    assert (folder / "absolute").is_symlink() and (folder / "docs" / "a.txt").read_text() == "changed"


@proves("U3")
async def test_only_ordinary_files_are_opened(open_workspace: OpenWorkspace, folder: Path):
    os.mkfifo(folder / "pipe")
    (folder / "null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket"))
        async with open_workspace() as workspace:
            assert "a named pipe" in await workspace.expect_error("read_file", path="pipe")
            assert "a named pipe" in await workspace.expect_error("write_file", path="pipe", content="x")
            assert "pipe: a named pipe\n" in await workspace.expect_success("file_info", path="pipe")
            assert "a socket" in await workspace.expect_error("read_range", path="socket", start_line=1)
            assert "leads out" in await workspace.expect_error("read_file", path="null")
            assert "0 files were searched" in await workspace.expect_success("grep_search", query="x")


@proves("U3")
async def test_odd_names_are_refused_with_a_reason(open_workspace: OpenWorkspace, folder: Path):
    (folder / "Café.txt").write_text("inner")
    cases: dict[str, Json] = {
        " ": "empty", "a\0b": "zero byte", "~/x": "home directory", "x" * 256: "longer than 255",
        "a/" * 300: "300 parts",
        "é" * 4000: "8000 bytes long", "caf\u00e9.txt": "There is Caf",
    }  # fmt: skip
    async with open_workspace() as workspace:
        for path, reason in cases.items():
            assert str(reason) in await workspace.expect_error("read_file", path=path)
        assert "cannot be seen" in await workspace.expect_error(
            "create_file", path="a\u202eb.txt", content=""
        )
