"""Small holes that an attacker found: who is answered, what is left behind, what others can read."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from fingerpost import Router, Server
from fingerpost.errors import ConfigError, ServerUnavailable
from fingerpost.records.codec import to_plain
from fingerpost.settings import load
from fingerpost.store import Store
from tests.kit.api import PATIENCE_S
from tests.kit.gateways import serve_gateway
from tests.kit.raw_http import raw_server, with_length
from tests.kit.routers import open_router
from tests.kit.server_pools import eventually, is_running, open_pool
from tests.requirements import proves
from tests.security.test_large_results import PROGRAM as SOUND_SERVER


@asynccontextmanager
async def open_all_surfaces(folder: Path, *servers: Any, **more: Any) -> AsyncGenerator[tuple[Router, str]]:
    """All surfaces at a real port, in this process."""
    async with (
        open_router(folder, servers, connect=bool(servers), **more) as router,
        serve_gateway(router) as address,
    ):
        yield router, address


FOREIGN_PAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
OTHER_PORT = {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}


@proves("X14")
async def test_foreign_names_and_pages_are_answered_nowhere(tmp_path: Path) -> None:
    refused = [{"host": "evil.example"}, {"origin": "https://evil.example"}, FOREIGN_PAGE, OTHER_PORT]
    answered: list[tuple[str, dict[str, str]]] = []
    async with (
        open_all_surfaces(tmp_path) as (_, address),
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


TOKEN = "tok-7f3a9c1e5b2d4f68"
BASIC = base64.b64encode(b"robot:correct-horse-9").decode()


@proves("X14")
async def test_a_secret_that_its_server_echoes_is_masked_everywhere(tmp_path: Path) -> None:
    """In a result, its structured content, an error and its data; as it is, encoded, or only the password."""
    heads: list[str] = []

    def answer(reply: bytes) -> list[bytes]:
        sent = heads[-1] = server.calls[-1]
        text = f"{sent} {base64.b64encode(TOKEN.encode()).decode()} password: correct-horse-9"
        message = json.loads(reply)
        if len(server.calls) > 1:
            message = {"jsonrpc": "2.0", "id": message["id"]}
            message["error"] = {"code": -32000, "message": text, "data": {text: [text]}}
        else:
            message["result"] = {
                "content": [{"type": "text", "text": text}],
                "structuredContent": {text: text},
            }
        return [with_length(json.dumps(message).encode())]

    heads.append("")
    async with raw_server(answer) as (server, url):
        headers = {"X-Api-Key": TOKEN, "Authorization": f"Basic {BASIC}"}
        spec = Server.http("raw", url, headers=headers, era="2025-11-25")
        rules = [{"verdict": "allow"}]
        async with open_all_surfaces(tmp_path, spec, policy=rules) as (router, _):
            good = await router.call("raw/echo", {})
            bad = await router.call("raw/echo", {"again": True})
    assert TOKEN in heads[-1] and BASIC in heads[-1]  # it was sent, and so it was echoed
    assert good.success and not bad.success
    for notification in (good, bad):
        for secret in (TOKEN, BASIC, "correct-horse-9", base64.b64encode(TOKEN.encode()).decode()[:22]):
            assert secret not in str(to_plain(notification))


@proves("X14")
async def test_a_secret_echoed_in_the_middle_of_a_call_is_masked_everywhere() -> None:
    def answer(reply: bytes) -> list[bytes]:
        message = json.loads(reply)
        about = {"progressToken": message["id"], "progress": 1, "message": f"sent {TOKEN}"}
        notification = {"jsonrpc": "2.0", "method": "notifications/progress", "params": about}
        events = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in (notification, message))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        return [head % len(events) + events]

    received: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        received.append(message)

    async with raw_server(answer) as (_, url):
        spec = Server.http("raw", url, headers={"X-Api-Key": TOKEN}, era="2025-11-25")
        async with open_pool(spec) as servers:
            await servers.call("raw", "echo", {}, timeout=PATIENCE_S, on_progress=hear)
    assert received == ["sent [redacted]"]


@proves("X14", "F50")
@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "metadata.google.internal"),
        *("[64:ff9b::a9fe:a9fe]", "[fd00:ec2::254]", "2852039166"),  # the last is the first as one number
    ],
)
def test_a_server_at_a_metadata_address_is_refused_unless_it_is_wanted(tmp_path: Path, host: str) -> None:
    entry: dict[str, Any] = {"url": f"http://{host}/latest", "connect_timeout": 1}
    written = tmp_path / "fingerpost.toml"
    for allowed in (True, False):
        lines = ["[servers.cloud]", f'url = "{entry["url"]}"', f"allow_link_local = {str(allowed).lower()}"]
        written.write_text("\n".join(lines))
        loaded = load(written, environ={}, cwd=tmp_path)
        by_name = host != "2852039166"  # only looking it up tells what that is
        assert bool(loaded.warnings) is (by_name and not allowed), loaded.warnings
        assert all("link-local" in problem.message for problem in loaded.warnings)

    async def connect() -> None:
        async with open_pool(Server.http("cloud", entry["url"], connect_timeout=1)) as servers:
            with pytest.raises(ServerUnavailable, match="link-local"):
                await servers.call("cloud", "look", {}, timeout=5)

    anyio.run(connect)


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for stream in (0, 1, 2):
            os.close(stream)
        with open(sys.argv[1], "w") as note:
            note.write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
"""

PARENT = """
import sys, anyio
from fingerpost.events import MemorySink
from fingerpost.servers import Server, ServerPool
from fingerpost.settings.model import LimitSettings

async def main():
    spec = Server.stdio("daemon", [sys.executable, sys.argv[1], sys.argv[2]], era="2025-11-25")
    async with ServerPool([spec], events=MemorySink(), limits=LimitSettings()) as servers:
        await servers.ensure("daemon", timeout=30)
        print("ready", flush=True)
        await anyio.sleep(600)

anyio.run(main)
"""


@pytest.mark.process
@proves("X14")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which process has which mark")
@pytest.mark.parametrize("ending", ["closed", "SIGKILL"])
async def test_a_daemon_that_a_server_left_behind_ends_with_us(tmp_path: Path, ending: str) -> None:
    program, note = tmp_path / "server.py", tmp_path / "pid"
    program.write_text(DAEMON + SOUND_SERVER)
    if ending == "closed":
        command = [sys.executable, str(program), str(note)]
        async with open_pool(Server.stdio("daemon", command, era="2025-11-25")):
            await eventually(lambda: note.exists() and note.read_text() != "")
            assert is_running(int(note.read_text()))
    else:
        command = [sys.executable, "-c", PARENT, str(program), str(note)]
        async with await anyio.open_process(command, stderr=None) as parent:
            assert parent.stdout is not None
            assert (await parent.stdout.receive()).startswith(b"ready")
            parent.kill()
    daemon = int(note.read_text())
    await eventually(lambda: not is_running(daemon))


@proves("X14")
def test_the_installation_secret_is_not_in_the_database(tmp_path: Path) -> None:
    at = f"sqlite:///{tmp_path}/store.db"

    async def open_twice() -> bytes:
        async with Store.open(at) as store, Store.open(at) as another:
            secret = await store.secret.load()
            assert await another.secret.load() == secret
        return secret

    secret = anyio.run(open_twice)
    files = {file.name: file for file in tmp_path.iterdir()}
    assert [name for name, file in files.items() if secret in file.read_bytes()] == ["store.secret"]
    assert stat.S_IMODE(files["store.secret"].stat().st_mode) == 0o600


@proves("X14")
async def test_a_key_under_an_old_name_is_made_for_the_same_holder_alone(tmp_path: Path) -> None:
    async with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        await store.keys.add("anna")
        await store.keys.revoke("anna")
        with pytest.raises(ConfigError, match="belong to that name") as refused:
            await store.keys.add("anna")
        assert "--same-holder" in (refused.value.hint or "")
        made, _ = await store.keys.add("anna", same_holder=True)
        assert made.name == "anna"


@pytest.mark.process
@proves("X14")
def test_the_lock_holds_every_version_with_hashes() -> None:
    checked = subprocess.run([sys.executable, "tools/lock.py", "--check"], capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")
    pins = Path("requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()[1:]
    assert all("--hash=sha256:" in pin for pin in pins)
