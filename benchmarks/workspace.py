"""What the workspace's file operations cost, through the whole call path, beside a plain loop and `grep -r`.

CPU time, children included, the median and the worst of some runs: on a machine that does nothing else it is
also the time one waits. The ratio is to a plain Python loop that opens each file
by its path and does nothing else of what we do (no boundary, no encodings, no .gitignore, no call path).
The tree is written here: 5,000 files, 50 MB; the installed packages are a second one, if they are there.
Commands and subagents are waited for, so theirs is the time on the clock. The subagent's model is scripted
and answers at once: what is measured is our own share of a subagent that calls one tool.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.llm import ModelRequest
from fingerpost.records import Outcome
from fingerpost.settings import Settings
from fingerpost.testing import ScriptedModel, calls
from fingerpost.testing.models import ScriptLine

TERMINAL = "workspace/terminal_operations"

FILES = 5_000
BYTES = 10_000  # of a file, on average
RUNS = 9
SEED = 7
NEEDLE = "the needle in the haystack"
WORDS = """
    alpha beta gamma delta retry timeout router server client packet index vector answer model config token
    buffer stream value result error state event queue
""".split()  # noqa: SIM905 - as a list it would be a page


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds of some runs."""

    runs: tuple[float, ...]

    @property
    def usual(self) -> float:
        return median(self.runs)

    def __str__(self) -> str:
        return f"{self.usual:.1f} ({max(self.runs):.1f})"


def write_tree(folder: Path) -> None:
    """Lines of words in folders of folders; the needle in every 500th file."""
    rnd = random.Random(SEED)
    lines = [" ".join(rnd.choices(WORDS, k=10)) for _ in range(500)]
    for number in range(FILES):
        where = folder / f"d{number % 50}" / f"s{number % 7}"
        where.mkdir(parents=True, exist_ok=True)
        text = [rnd.choice(lines) for _ in range(rnd.randrange(20, 2 * BYTES // 62))]
        if not number % 500:
            text[len(text) // 2] = NEEDLE.title()
        (where / f"f{number}.txt").write_text("\n".join(text))
    (folder / "small.txt").write_text("\n".join(lines[:100]))
    (folder / "large.txt").write_text("\n".join(lines[number % 500] for number in range(2_000)))


def read_cpu_seconds() -> float:
    """Seconds of CPU so far, of this process and those it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def measure_time(do: Callable[[], Awaitable[object]]) -> Took:
    await do()
    runs: list[float] = []
    for _ in range(RUNS):
        started = read_cpu_seconds()
        await do()
        runs.append((read_cpu_seconds() - started) * 1000)
    return Took(tuple(runs))


async def measure_plain(do: Callable[[], object]) -> Took:
    async def once() -> None:
        do()

    return await measure_time(once)


def plain_search(folder: Path, needle: bytes) -> int:
    """The loop everybody would write first."""
    found = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                found += needle in (Path(above) / name).read_bytes().lower()
            except OSError:
                continue
    return found


def plain_find(folder: Path) -> int:
    return sum(name.endswith("99.txt") for _, _, names in os.walk(folder) for name in names)


def grep(folder: Path) -> None:
    subprocess.run(["grep", "-rIi", NEEDLE, str(folder)], capture_output=True, check=False)


class WorkspaceBench:
    """One folder behind a router."""

    def __init__(self, router: Router, folder: Path, table: Table) -> None:
        self._router = router
        self._folder = folder
        self._table = table

    async def row(self, name: str, goal: str, plain: Took | None, **arguments: Any) -> None:
        async def call() -> None:
            outcome = await self._router.call("workspace/file_operations", arguments)
            assert outcome.success, outcome.content

        took = await measure_time(call)
        ratio = "" if plain is None else f"{took.usual / plain.usual:.1f} ×"
        self._table.add_row(name, str(took), goal, "" if plain is None else str(plain), ratio)

    async def reads(self) -> None:
        for name, goal in (("small.txt", "1–5"), ("large.txt", "10–50")):
            plain = await measure_plain((self._folder / name).read_text)
            size = (self._folder / name).stat().st_size // 1000
            await self.row(f"read {name} ({size} kB)", goal, plain, operation="read_file", path=name)
        await self.row(
            "read 20 lines far down", "", None, operation="read_range", path="large.txt", start_line=1_900,
            end_line=1_920,
        )  # fmt: skip

    async def searches(self, what: str) -> None:
        plain = await measure_plain(lambda: plain_search(self._folder, NEEDLE.encode()))
        files = sum(len(names) for _, _, names in os.walk(self._folder))
        about = f"{what}, {files} files"
        search = {"operation": "grep_search", "include_ignored": True}
        await self.row(f"text search: {about}", "50–200", plain, **search, query=NEEDLE)
        await self.row(f"  case matters: {about}", "50–200", plain, **search, query=NEEDLE, match_case=True)
        pattern = r"needle in \w+ haystack"
        await self.row(f"  pattern: {about}", "50–200", plain, **search, query=pattern, regex=True)
        if shutil.which("grep"):
            took = await measure_plain(lambda: grep(self._folder))
            self._table.add_row(
                f"  grep -rIi: {about}", str(took), "", str(plain), f"{took.usual / plain.usual:.1f} ×"
            )
        listed = await measure_plain(lambda: plain_find(self._folder))
        await self.row(
            f"find *99.txt: {about}",
            "",
            listed,
            operation="find_files",
            pattern="*99.txt",
            include_ignored=True,
        )


async def on_the_clock(do: Callable[[], Awaitable[Outcome]]) -> Took:
    runs: list[float] = []
    for number in range(RUNS + 1):
        started = time.perf_counter()
        outcome = await do()
        assert outcome.success, outcome.content
        if number:  # the first warms up
            runs.append((time.perf_counter() - started) * 1000)
    return Took(tuple(runs))


def _one_call(request: ModelRequest) -> ScriptLine:
    if any(message.role == "tool" for message in request.messages):
        return "It says hello."
    return calls(("workspace__file_operations", {"operation": "read_file", "path": "note.txt"}))


async def measure_commands(table: Table) -> None:
    """`run_command` to its end and in the background, and `run_subagent`."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "note.txt").write_text("hello")
        settings = Settings.model_validate(
            {
                "builtin": {
                    "enabled": ["workspace", "specialists"],
                    "workspace": {"commands": ["true", "sleep"], "background": 100},
                },
                "tool_routing": {"allow_write": True, "allow_execute": True},
                "store": {"url": f"sqlite:///{folder}/store.db"},
                "flags": {"loop_guard": False, "dense_scores": False},
            }
        )
        async with open_router(settings=settings, folder=folder, model=ScriptedModel(_one_call)) as router:
            await router.connect()
            rows: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
                ("run_command true", "100–5,000", TERMINAL, {"operation": "run_command", "command": "true"}),
                (
                    "run_command sleep 60, isBackground", "", TERMINAL,
                    {"operation": "run_command", "command": "sleep 60", "isBackground": True},
                ),
                (
                    "run_subagent, one tool call", "5,000–60,000", "specialists/run_subagent",
                    {"task": "Read the file note.txt and say what it says"},
                ),
            )  # fmt: skip
            for name, goal, tool, arguments in rows:
                took = await on_the_clock(partial(router.call, tool, arguments))
                table.add_row(name, str(took), goal, "", "")


async def measure(table: Table) -> None:
    await measure_commands(table)
    with TemporaryDirectory() as made:
        top = Path(made)
        tree = top / "tree"
        write_tree(tree)
        for folder, what in (
            (tree, "50 MB written here"),
            (Path(sysconfig.get_path("purelib")), "installed packages"),
        ):
            if not folder.is_dir():
                continue
            settings = Settings.model_validate(
                {
                    "builtin": {"enabled": ["workspace"]},
                    "store": {"url": f"sqlite:///{top}/store.db"},
                    "flags": {"loop_guard": False},
                }
            )
            async with open_router(settings=settings, folder=folder) as router:
                await router.connect()
                bench = WorkspaceBench(router, folder, table)
                if folder == tree:
                    await bench.reads()
                await bench.searches(what)


def run() -> None:
    table = Table(title="workspace: milliseconds of CPU through the whole call path, median (worst)")
    for name in ("operation", "ms", "goal (C10)", "plain loop", "ratio"):
        table.add_column(name, justify="left" if name == "operation" else "right")
    anyio.run(measure, table)
    Console().print(table)
