"""kill -9 between approval, call and result: nothing runs twice silently, and the outcome reads unknown."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from fingerpost import Router, Settings
from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.analytics.records import PacketQuery
from fingerpost.records import CallContext, ErrorKind, ServerSpec, create_id
from tests.kit import warm
from tests.requirements import proves

pytestmark = pytest.mark.process

SERVER = """
import json, os, sys, time
from pathlib import Path
mode, marks = sys.argv[1], Path(sys.argv[2])
TOOL = {"name": "write_note", "description": "Write one note.", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method = request["method"]
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "n", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        with marks.open("a") as file:
            file.write("ran\\n")
        signal = os.open(str(marks) + ".pipe", os.O_RDWR)
        os.write(signal, b"ran\\n")  # lost unless a test waits for it
        os.close(signal)
        if mode == "silent":
            time.sleep(3600)
        result = {"content": [{"type": "text", "text": "done"}]}
    else:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"],
                                     "error": {"code": -32601, "message": "no"}}) + "\\n")
        sys.stdout.flush()
        continue
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\\n")
    sys.stdout.flush()
"""

VICTIM = """
import sys, anyio
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.call.test_crashes import create_router
from fingerpost.records import CallContext, Decision, create_id

async def main():
    folder, stop, url = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    async with create_router(url, folder, "silent") as router:
        await router.connect()
        if stop == "routed":
            print("routed", flush=True)
            await router.route("Use notes/write_note", caller="trusted")
        asked = await router.call("notes/write_note", {{"text": "x"}})
        print(asked.pending_id, flush=True)
        if stop == "asked":
            await anyio.sleep(3600)
        await router.calls.decide(asked.pending_id, Decision.APPROVED, by="dana")
        print("approved", flush=True)
        if stop == "approved":
            await anyio.sleep(3600)
        await router.calls.resume(asked.pending_id, CallContext(call_id=create_id("cal")))

anyio.run(main)
"""


def create_router(url: str, folder: Path, mode: str) -> Router:
    script = folder / "server.py"
    script.write_text(SERVER, encoding="utf-8")
    create_pipe(folder)
    notes = ServerSpec(
        name="notes",
        transport="stdio",
        command=sys.executable,
        args=(str(script), mode, str(folder / "marks.txt")),
    )
    settings = {
        "store": {"url": url, "lease_seconds": 1},
        "flags": {"dense_scores": False},
        "policy": [{"tool": "notes/write_note", "caller": "trusted", "verdict": "allow"}],
    }
    return Router([notes], settings=Settings.model_validate(settings))


def create_pipe(folder: Path) -> Path:
    pipe = folder / "marks.txt.pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
    return pipe


@contextmanager
def open_pipe(folder: Path) -> Generator[int]:
    """The pipe that becomes readable when the server's tool has been called."""
    opened = os.open(create_pipe(folder), os.O_RDWR)
    try:
        yield opened
    finally:
        os.close(opened)


def count_runs(folder: Path) -> int:
    marks = folder / "marks.txt"
    return len(marks.read_text(encoding="utf-8").splitlines()) if marks.exists() else 0


def kill_at(url: str, folder: Path, moment: str) -> str:
    """Start the victim, kill it at this moment, and return the id of the call that waited."""
    root = str(Path(__file__).parents[2])
    with (
        open_pipe(folder) as called,
        subprocess.Popen(
            [*warm.python(), "-c", VICTIM.format(root=root), str(folder), moment, url],
            stdout=subprocess.PIPE,
            text=True,
        ) as victim,
    ):
        assert victim.stdout is not None
        pending = victim.stdout.readline().strip()
        if moment not in ("asked", "routed"):
            assert victim.stdout.readline().strip() == "approved"
        if moment in ("called", "routed"):
            select.select([called, victim.stdout], [], [])  # a victim that ends by itself ends the wait, too
        victim.send_signal(signal.SIGKILL)
        victim.stdout.read()  # to its end, which is that of the process
    assert pending
    return pending


@proves("F35", "F1")
@pytest.mark.parametrize(
    ("moment", "error", "runs_before", "runs_after"),
    [
        ("asked", ErrorKind.AUTHORIZATION_REQUIRED, 0, 0),
        ("approved", None, 0, 1),
        ("called", ErrorKind.UNKNOWN, 1, 1),
    ],
)
async def test_after_a_sudden_death_nothing_runs_twice_silently(
    sqlite_url: str, tmp_path: Path, moment: str, error: ErrorKind | None, runs_before: int, runs_after: int
) -> None:
    pending = kill_at(sqlite_url, tmp_path, moment)
    assert count_runs(tmp_path) == runs_before
    async with create_router(sqlite_url, tmp_path, "answering") as router:
        await router.connect()
        outcome = await router.calls.resume(pending, CallContext(call_id=create_id("cal")))
        assert outcome.error == error, json.dumps(outcome.content)
        assert count_runs(tmp_path) == runs_after


@proves("F35", "F1", "W2")
async def test_a_request_of_a_killed_process_is_interrupted_and_one_of_a_living_process_is_not(
    url: str, tmp_path: Path
) -> None:
    assert kill_at(url, tmp_path, "routed") == "routed"
    packet_id = ""
    async with create_router(url, tmp_path, "silent") as router, anyio.create_task_group() as tasks:
        await router.connect()
        with open_pipe(tmp_path) as called:
            tasks.start_soon(partial(router.route, "Use notes/write_note", caller="trusted"))
            await anyio.wait_readable(called)
        async with (
            JournalReader.open(router.store, router.live) as ledger,
            create_router(url, tmp_path, "silent"),
        ):
            with ledger.follow_lines() as frames:
                async for lines in frames:
                    if any(line.state == "ended" for line in lines):
                        break
            living, killed = (await ledger.get_page(PacketQuery())).items
        assert (living.state, living.next_step) == ("running", "")
        assert (killed.state, killed.outcome) == ("ended", "interrupted")
        assert "ask again" in killed.next_step
        packet_id = killed.packet_id
        tasks.cancel_scope.cancel()
    (tmp_path / "fingerpost.toml").write_text(f'[store]\nurl = "{url}"\n', encoding="utf-8")
    command = [*warm.command(), "trace", packet_id]
    shown = await anyio.run_process(command, cwd=tmp_path)
    assert "interrupted" in shown.stdout.decode()
