"""Child processes: start, stop, registration with the watchdog, their last output and log files."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import re
import signal
import subprocess
import sys
from collections import Counter, deque
from datetime import UTC, datetime
from pathlib import Path
from queue import Full, Queue
from threading import Lock, Thread
from typing import IO, Final, cast

import anyio
import anyio.to_thread
from anyio.abc import Process

from fingerpost.errors import ServerUnavailable
from fingerpost.records import ServerSpec
from fingerpost.redaction import scrub
from fingerpost.servers.watchdog import MARK_VARIABLE, find_descendants, kill_descendants

INHERITED_VARIABLES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")

EOF_GRACE = 1.0  # after closing stdin, the regular way to stop a server
TERM_GRACE = 1.0  # after SIGTERM to the whole group
KILL_GRACE = 2.0  # after SIGKILL; only the kernel can take longer
EXIT_POLL = 0.02


async def spawn(spec: ServerSpec, mark: str) -> Process:
    """Start the program in its own session, with `mark` in the environment of all its processes. Raises
    `ServerUnavailable` or `OSError`.
    """
    if not spec.command:
        message = f"{spec.name} has no command to start"
        raise ServerUnavailable(message, server=spec.name, hint="give it a command, or a url")
    # Starting takes milliseconds; if it were cancelled here, an unknown child would remain.
    process: Process | None = None
    with anyio.CancelScope(shield=True):
        try:
            process = await anyio.open_process(
                [spec.command, *spec.args],
                env=_build_environment() | dict(spec.env) | {MARK_VARIABLE: mark},
                cwd=spec.cwd,
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError) as error:
            no_folder = spec.cwd is not None and not await anyio.Path(spec.cwd).is_dir()
            if no_folder or error.filename is None:  # not every event loop sets it
                error.filename = f"the folder {spec.cwd}" if no_folder else spec.command
            raise
    assert process is not None
    return process


def _build_environment() -> dict[str, str]:
    inherited = {name: os.environ.get(name, "") for name in INHERITED_VARIABLES}
    # Such a value is an exported shell function, which a shell would execute.
    return {name: value for name, value in inherited.items() if value and not value.startswith("()")}


async def wait_for_exit(process: Process, seconds: float) -> bool:
    """Return whether the process exited within the time."""
    # `Process.wait` also waits for the pipes to close, and a grandchild can hold them open.
    deadline = anyio.current_time() + seconds
    while process.returncode is None:
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(EXIT_POLL)
    return True


async def terminate(process: Process) -> None:
    """Stop the child and its descendants: close stdin, SIGTERM, SIGKILL, each with a time limit."""
    assert process.stdin is not None
    below = await anyio.to_thread.run_sync(find_descendants, process.pid)
    with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    if not await wait_for_exit(process, EOF_GRACE):
        _send_signal(process, signal.SIGTERM)
        await wait_for_exit(process, TERM_GRACE)
    # Also when the child has exited: its children are in the same group.
    _send_signal(process, signal.SIGKILL)
    await wait_for_exit(process, KILL_GRACE)
    await anyio.to_thread.run_sync(kill_descendants, below)  # including those in other process groups


def _send_signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def close_pipes(process: Process) -> None:
    """Close our ends of the pipes."""
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await pipe.aclose()
    # asyncio keeps the transport open and warns later if another process holds an end of the pipe.
    transport: object = getattr(getattr(process, "_process", None), "_transport", None)
    close = getattr(transport, "close", None)
    if callable(close):
        with contextlib.suppress(PermissionError, ProcessLookupError):
            close()


def describe_exit(process: Process) -> str:
    """Return why the child's output ended, as text."""
    status = process.returncode
    if status is None:
        return "it closed its output"
    if status < 0:
        return f"its process was ended by {_get_signal_name(-status)}"
    return f"its process exited with status {status}"


def _get_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_PROGRAM = Path(__file__).with_name("watchdog.py")


class WatchdogClient:
    """Registers process groups with the watchdog. Its methods block briefly, so call them in a thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner = 0
        self._groups: set[int] = set()
        self._marks: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the watchdog. It must run before the first child, or that child could outlive us."""
        with self._lock:
            self._send(b"")

    def add_mark(self, mark: str) -> None:
        """Register a mark. Processes with it are killed when we exit, even before their id is known."""
        with self._lock:
            self._marks.add(mark)
            self._send(b"?%s\n" % mark.encode())

    def remove_mark(self, mark: str) -> None:
        """Unregister a mark that no process has any more."""
        with self._lock:
            self._marks.discard(mark)
            self._send(b"!%s\n" % mark.encode())

    def add_group(self, group: int) -> None:
        """Register a process group to be killed when we exit."""
        with self._lock:
            self._groups.add(group)
            self._send(b"+%d\n" % group)

    def remove_group(self, group: int) -> None:
        """Unregister a process group that has exited. Its number may be reused."""
        with self._lock:
            self._groups.discard(group)
            self._send(b"-%d\n" % group)

    def _send(self, line: bytes) -> None:
        # After a fork the pipe is shared with the parent, whose groups must not be killed.
        if self._owner != os.getpid():
            self._process = None
        if self._process is not None:
            try:
                cast("IO[bytes]", self._process.stdin).write(line)
            except (BrokenPipeError, ValueError):
                self._process = None  # the watchdog was killed; the next one receives the whole list
        if self._process is None:
            self._process = self._start()
            self._owner = os.getpid()
            atexit.register(_detach, self._process)
            everything = b"".join(
                [b"+%d\n" % group for group in sorted(self._groups)]
                + [b"?%s\n" % mark.encode() for mark in sorted(self._marks)]
            )
            cast("IO[bytes]", self._process.stdin).write(everything)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )


def _detach(process: subprocess.Popen[bytes]) -> None:
    """Suppress the warnings about a running process and an open pipe: the watchdog outlives us."""
    process.returncode = 0
    cast("IO[bytes]", process.stdin).close()


watchdog_client = WatchdogClient()


class RingBuffer:
    """The last `limit` bytes written. Used for a child's stderr."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        if self._limit == 0:
            return
        data = data[-self._limit :]
        self._chunks.append(data)
        self._size += len(data)
        while self._size - len(self._chunks[0]) >= self._limit:
            self._size -= len(self._chunks.popleft())

    def read_tail(self, limit: int | None = None) -> bytes:
        """Return the newest bytes, at most `limit`."""
        kept = b"".join(self._chunks)[-self._limit :] if self._limit else b""
        return kept if limit is None else kept[len(kept) - min(limit, len(kept)) :]

    def read_text(self, limit: int | None = None) -> str:
        """Return the newest bytes as text. Invalid UTF-8 becomes replacement characters."""
        return self.read_tail(limit).decode("utf-8", "replace")


LOG_FILE_BYTES: Final = 1024 * 1024  # of one file; the file before it is kept, too
MAX_LOG_LINE_LENGTH: Final = 2_000
MAX_LOG_CHUNK_BYTES: Final = 64 * 1024  # of what a server writes at once, the newest
MAX_QUEUED_CHUNKS: Final = 200
LOG_CLOSE_SECONDS: Final = 2.0
OWN_LOG_NAME: Final = "fingerpost"
_CONTROL_CHARACTERS: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


def get_log_file(folder: Path, server: str | None) -> Path:
    """Return the log file of a server, or our own for None."""
    if server is None:
        return folder / f"{OWN_LOG_NAME}.log"
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", server)[:80]
    if plain != server:
        plain += f"-{hashlib.sha256(server.encode(errors='replace')).hexdigest()[:8]}"
    return folder / "servers" / f"{plain}.log"


class LogFolder:
    """Log files: what each server writes to stderr, and our own log. Only their owner can read them.

    `write` never waits: a thread masks secrets and writes. What is too much is left out, and counted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._queue: Queue[tuple[str | None, bytes, datetime] | None] = Queue(MAX_QUEUED_CHUNKS)
        self._thread: Thread | None = None
        self._partial: dict[str | None, bytes] = {}
        self._left_out: Counter[str | None] = Counter()  # bytes, by server

    def write(self, server: str | None, data: bytes) -> None:
        """Add what a server wrote, or a line of our own (None). Returns at once."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="fingerpost logs", daemon=True)
            self._thread.start()
        kept = data[-MAX_LOG_CHUNK_BYTES:]
        self._left_out[server] += len(data) - len(kept)
        try:
            self._queue.put_nowait((server, kept, datetime.now(UTC)))
        except Full:
            self._left_out[server] += len(kept)

    def close(self) -> None:
        """Write what is queued, within a time limit."""
        if self._thread is not None:
            with contextlib.suppress(Full):
                self._queue.put(None, timeout=LOG_CLOSE_SECONDS)
            self._thread.join(LOG_CLOSE_SECONDS)
            self._thread = None

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            server, data, at = item
            *lines, self._partial[server] = (self._partial.get(server, b"") + data).split(b"\n")
            if len(self._partial[server]) > MAX_LOG_LINE_LENGTH:
                lines.append(self._partial.pop(server))
            self._append(server, lines, at)
        for server, rest in self._partial.items():
            self._append(server, [rest], datetime.now(UTC))

    def _append(self, server: str | None, lines: list[bytes], at: datetime) -> None:
        texts = [text for line in lines if (text := _clean_log_line(line))]
        if left_out := self._left_out.pop(server, 0):
            texts.append(f"… {left_out:,} bytes were left out of this log")
        if texts:
            data = "".join(f"{at:%Y-%m-%dT%H:%M:%SZ} {text}\n" for text in texts).encode()
            with contextlib.suppress(OSError):  # a full disk must not stop a server
                _append_bounded(get_log_file(self._folder, server), data)


def _clean_log_line(line: bytes) -> str:
    text = scrub(line[:MAX_LOG_LINE_LENGTH].decode("utf-8", "replace")).rstrip()
    return _CONTROL_CHARACTERS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _append_bounded(file: Path, data: bytes) -> None:
    """Append to a file that several processes may write. A file that is too large becomes `NAME.log.1`."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        descriptor = os.open(file, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "ab", buffering=0) as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_ino != file.stat().st_ino:
                continue  # another process replaced it meanwhile
            if os.fstat(descriptor).st_size + len(data) <= LOG_FILE_BYTES:
                opened.write(data)
                return
            file.replace(file.with_name(f"{file.name}.1"))
