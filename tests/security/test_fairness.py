"""One caller's many calls and questions are that caller's own to wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost import Router
from fingerpost.call.approvals import MAX_WAITING
from fingerpost.records import ErrorKind
from fingerpost.testing import tool_server
from tests.kit.call_recorder import DESTROYS, READS, tool
from tests.kit.routers import build_settings, open_router
from tests.kit.server_pools import all_blocked
from tests.requirements import proves

pytestmark = pytest.mark.anyio


@proves("X11")
@pytest.mark.parametrize(
    ("many", "few"),
    [
        ({"caller": "alice"}, {"caller": "bob"}),
        ({"caller": "alice", "conversation": "a"}, {"caller": "bob", "conversation": "b"}),
        ({"caller": "local", "conversation": "one"}, {"caller": "local", "conversation": "two"}),
    ],
)
async def test_a_slot_goes_to_the_caller_who_has_the_fewest(
    tmp_path: Path, many: dict[str, Any], few: dict[str, Any]
) -> None:
    order: list[str] = []
    turns = {f"{who}{number}": anyio.Event() for who in "mf" for number in range(8)}

    async def look(_: str, arguments: dict[str, Any]) -> str:
        order.append(arguments["name"])
        await turns[arguments["name"]].wait()
        return "done"

    server = tool_server("files", [tool("look", "Look something up.", "name", **READS)], call=look)
    chosen = build_settings(tmp_path, call={"concurrency": 2}, flags={"loop_guard": False})
    async with Router([server.spec()], settings=chosen) as router, anyio.create_task_group() as tasks:
        await router.connect()

        async def call(name: str, context: dict[str, Any]) -> None:
            assert (await router.call("files/look", {"name": name}, **context)).success

        for number in range(6):
            tasks.start_soon(call, f"m{number}", many)
            await all_blocked()
        for number in range(3):
            tasks.start_soon(call, f"f{number}", few)
            await all_blocked()
        done: list[str] = []
        while len(done) < 9:  # each time the one that has run longest ends
            done.append(next(name for name in order if name not in done))
            turns[done[-1]].set()
            await all_blocked()
    assert order == ["m0", "m1", "f0", "m2", "f1", "m3", "f2", "m4", "m5"]


@pytest.mark.slow
@proves("X11")
async def test_waiting_approvals_of_one_local_program_do_not_block_another(tmp_path: Path) -> None:
    server = tool_server("files", [tool("delete_file", "Delete a file for good.", "path", **DESTROYS)])
    async with open_router(tmp_path, [server.spec()]) as router:

        async def ask(path: str, session: str | None) -> tuple[ErrorKind | None, str]:
            outcome = await router.call(
                "files/delete_file", {"path": path}, caller="local", conversation=session
            )
            return outcome.error, outcome.content

        for number in range(MAX_WAITING):
            assert (await ask(f"{number}.txt", "one"))[0] is ErrorKind.AUTHORIZATION_REQUIRED
        refused, why = await ask("more.txt", "one")
        assert refused is ErrorKind.UNAVAILABLE
        assert "too many calls of this caller wait already" in why
        for other in ("two", None):
            assert (await ask("more.txt", other))[0] is ErrorKind.AUTHORIZATION_REQUIRED
