"""Small holes that an attacker found: who is answered, what is left behind, what others can read."""

from __future__ import annotations

import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2

from fingerpost import Router
from fingerpost.store import Store
from fingerpost.surfaces.serve import serve
from fingerpost.surfaces.web.access import open_gate
from tests.api.kit import PATIENCE_S, settings
from tests.requirements import proves


@asynccontextmanager
async def everything(folder: Path, *servers: Any, **more: Any) -> AsyncGenerator[tuple[Router, str]]:
    """All surfaces at a real port, in this process."""
    async with (
        Router(servers, settings=settings(folder, **more)) as router,
        anyio.create_task_group() as tasks,
    ):
        if servers:
            await router.connect()
        up, address = anyio.Event(), ""

        def started(at: str) -> None:
            nonlocal address
            address = at
            up.set()

        def gate(bound: str) -> Any:
            chosen = router.settings
            return open_gate(chosen.gateway, keys=router.store.keys, events=router.events, bound=bound)

        async def run() -> None:
            await serve(router, host="127.0.0.1", port=0, gate=gate, started=started, signals=False)

        tasks.start_soon(run)
        with anyio.fail_after(PATIENCE_S):
            await up.wait()
        yield router, address
        tasks.cancel_scope.cancel()


FOREIGN_PAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
OTHER_PORT = {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}


@proves("X14")
async def test_foreign_names_and_pages_are_answered_nowhere(tmp_path: Path) -> None:
    refused = [{"host": "evil.example"}, {"origin": "https://evil.example"}, FOREIGN_PAGE, OTHER_PORT]
    answered: list[tuple[str, dict[str, str]]] = []
    async with (
        everything(tmp_path) as (_, address),
        httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S) as client,
    ):
        for path in ("/healthz", "/readyz", "/metrics", "/v1/models", "/api/packets", "/mcp"):
            for headers in refused:
                got = await client.get(path, headers=headers)
                if got.status_code != 403:
                    answered.append((path, headers))
        assert answered == []
        for path in ("/healthz", "/readyz"):  # as an orchestrator asks: by the address of the pod
            for host in ("10.1.2.3:8000", "[fd00::7]:8000", "localhost"):
                got = await client.get(path, headers={"host": host})
                assert got.status_code == 200, (path, host)
                assert got.headers["cross-origin-resource-policy"] == "same-origin"
        for path in ("/metrics", "/v1/models"):
            assert (await client.get(path)).status_code == 200


@proves("X14")
async def test_what_others_may_do_with_the_files_of_the_store_is_taken_from_them(tmp_path: Path) -> None:
    async with Store.open(f"sqlite:///{tmp_path}/store.db"):
        pass
    files = [tmp_path / "store.db", tmp_path / "store.audit.anchor"]
    for file in files:
        file.touch()
        file.chmod(0o666)
    async with Store.open(f"sqlite:///{tmp_path}/store.db"):
        files += [file for end in ("-wal", "-shm") if (file := tmp_path / f"store.db{end}").exists()]
        assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in files} == dict.fromkeys(
            (file.name for file in files), 0o600
        )
