"""Who can rewrite the database and the anchor file beside it is still found out by an anchor elsewhere."""

from __future__ import annotations

import shutil
import socket
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest

from fingerpost.errors import ConfigError
from fingerpost.settings import AuditSettings
from fingerpost.store import AuditReport, Store
from fingerpost.store.audit import GENESIS, hash_parts
from tests.kit.store_samples import create_audited_event, ordinary
from tests.requirements import proves


@contextmanager
def object_store() -> Generator[tuple[str, dict[str, bytes]]]:
    """Takes what is new, changes nothing."""
    kept: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken = self.path in kept
            assert self.headers["if-none-match"] == "*"
            kept.setdefault(self.path, body)
            self._answer(412 if taken else 201, b"")

        def do_GET(self) -> None:
            self._answer(200 if self.path in kept else 404, kept.get(self.path, b""))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/bucket", kept
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def syslog(kind: str, folder: Path) -> Generator[tuple[str, Path]]:
    """A log host that writes what comes into a file, as it comes."""
    log = folder / "audit.log"
    family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(folder / "log") if kind == "unix" else ("127.0.0.1", 0))
        address = f"{folder}/log" if kind == "unix" else f"127.0.0.1:{receiver.getsockname()[1]}"
        if kind == "tcp":
            receiver.listen()

        def receive() -> None:
            while True:
                try:
                    if kind == "tcp":
                        stream, _ = receiver.accept()
                        with stream, stream.makefile("rb") as file:
                            data = file.read()
                    else:
                        data = receiver.recv(65_536)
                except OSError:
                    return
                with log.open("ab") as written:
                    written.write(data + b"\n")

        thread = Thread(target=receive, daemon=True)
        thread.start()
        yield f"syslog{'' if kind == 'udp' else f'+{kind}'}://{address}", log
        receiver.shutdown(socket.SHUT_RDWR) if kind == "tcp" else None


def write(folder: Path, anchor: str, *, rows: int = 3) -> None:
    async def work() -> None:
        async with Store.open(f"sqlite:///{folder}/store.db", anchors=[anchor], anchor_seconds=600) as store:
            await store.journal.append(
                ordinary(), *(create_audited_event(str(number)) for number in range(rows))
            )

    anyio.run(work)


def verify(folder: Path, *places: str) -> AuditReport:
    async def work() -> AuditReport:
        async with Store.open(f"sqlite:///{folder}/store.db", audit=False) as store:
            return await store.audit.verify(*places)

    return anyio.run(work)


def forge(folder: Path) -> None:
    """Change a row, recompute every hash behind it, and write an anchor file that says the same."""
    (folder / "store.audit.anchor").unlink()
    with closing(sqlite3.connect(folder / "store.db")) as database:
        database.execute("UPDATE audit SET payload = replace(payload, '1', '7') WHERE seq = 2")
        head = GENESIS
        for row in database.execute("SELECT * FROM audit ORDER BY seq").fetchall():
            before, head = head, hash_parts(head, *row[:6])
            database.execute("UPDATE audit SET prev_hash = ?, hash = ? WHERE seq = ?", (before, head, row[0]))
        database.execute("UPDATE audit_head SET hash = ?", (head,))
        database.commit()
    with (folder / "store.audit.anchor").open("w") as file:
        file.write(f"3 {head}\n")


@proves("X13", "H6")
@pytest.mark.parametrize("kind", ["file", "udp", "tcp", "unix", "http"])
def test_a_forged_store_is_found_out_by_an_anchor_elsewhere(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if kind == "http":
        with object_store() as (url, kept):
            write(home, url)
            write(home, url, rows=0)
            assert [path.rpartition("/")[2] for path in kept] == ["1", "2"]
            _check_forgery(home, url)
    elif kind == "file":
        write(home, f"{tmp_path}/elsewhere/anchor")
        _check_forgery(home, f"{tmp_path}/elsewhere/anchor")
    else:
        with syslog(kind, tmp_path) as (address, log):
            write(home, address)
            with anyio.from_thread.start_blocking_portal() as portal:
                portal.call(_until_written, log)
        assert log.read_text().count("fingerpost-audit") == 2
        assert "<110>1 " in log.read_text()
        _check_forgery(home, str(log))


async def _until_written(log: Path) -> None:
    with anyio.fail_after(30):
        while not log.exists() or log.read_text().count("fingerpost-audit") < 2:  # noqa: ASYNC110, ASYNC240
            await anyio.sleep(0.02)


def _check_forgery(home: Path, place: str) -> None:
    honest = verify(home, place)
    assert (honest.intact, honest.journal >= 1, honest.anchors >= 1) == (True, True, True), honest.reason
    moved = home.with_name("moved")
    moved.mkdir()
    shutil.copy(home / "store.db", moved / "store.db")
    shutil.copy(home / "store.audit.anchor", moved / "store.audit.anchor")
    copied = verify(moved, place) if not place.startswith("http") else honest
    assert copied.intact, copied.reason
    forge(home)
    assert verify(home).intact  # beside the database nothing tells
    forged = verify(home, place)
    assert not forged.intact and "row 3 is not the one" in (forged.reason or "")


@proves("X13")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE journal SET payload = replace(payload, 'a', 'b') WHERE seq = 2",
        "DELETE FROM journal WHERE seq = 1",
        "DELETE FROM journal WHERE seq >= 3",
    ],
)
def test_a_changed_journal_is_found_out(tmp_path: Path, change: str) -> None:
    write(tmp_path, f"{tmp_path}/anchor")
    assert verify(tmp_path).journal == 1
    with closing(sqlite3.connect(tmp_path / "store.db")) as database:
        database.execute(change)
        database.commit()
    for places in ((), (f"{tmp_path}/anchor",)):
        found = verify(tmp_path, *places)
        assert not found.intact and "the journal's rows 1 to 4" in (found.reason or "")


def test_an_anchor_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    assert AuditSettings().anchors == ()
    with pytest.raises(ConfigError, match="cannot be used"):
        write(tmp_path, "ftp://example.org/anchor")
