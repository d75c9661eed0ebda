"""Anchors of the audit trail outside the database: lines of "seq hash", or "chain:seq hash"."""

from __future__ import annotations

import fcntl
import http.client
import logging
import os
import re
import socket
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen

logger = logging.getLogger("fingerpost.store")

_MAX_NEWEST_BYTES = 48 * 1024  # bytes: about 200 lines for rows and as many for the journal
_LINE = re.compile(r"(?:(\d{1,9}):)?(\d{1,18}) ([0-9a-f]{64})")
_JOURNAL_LINE = re.compile(r"journal (\d{1,18}) (\d{1,18}) ([0-9a-f]{64})")
# Matches anywhere in a line, because logs add a prefix.
_REMOTE_LINE = re.compile(
    r"fingerpost-audit ([0-9a-f]{16}) "
    r"(?:(?:(\d{1,9}):)?(\d{1,18})|journal (\d{1,18}) (\d{1,18})) ([0-9a-f]{64})"
)
SEND_SECONDS: Final = 10.0  # for one attempt to reach a remote anchor
CLOSE_SECONDS: Final = 3.0  # for the remaining lines at the end
MAX_OBJECTS: Final = 1_000_000
_SYSLOG_PRIORITY: Final = 13 * 8 + 6  # facility "log audit", severity informational


AnchorLines = dict[tuple[int, int], frozenset[str]]  # recorded hashes by chain and row


def format_row(chain: int, seq: int, digest: str) -> str:
    """Return the line about a row."""
    return f"{seq} {digest}" if chain == 1 else f"{chain}:{seq} {digest}"


@frozen(kw_only=False)
class JournalRange:
    """Journal rows from `first` to `last`, and the hash over them."""

    first: int
    last: int
    digest: str

    def __str__(self) -> str:
        return f"journal {self.first} {self.last} {self.digest}"


@frozen
class RemoteAnchorLines:
    """Lines of a remote anchor, for this store and for stores at other locations."""

    rows: AnchorLines
    journal: tuple[JournalRange, ...]
    # Rows (chain, number, hash) of a store at another location, for example this one before it was moved.
    elsewhere: tuple[tuple[int, int, str], ...]


class Anchor:
    """The local anchor file of one database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: dict[int, str] = {}

    def append_row(self, chain: int, seq: int, digest: str) -> None:
        """Append one line, unless it equals the last one. Blocks; raises `OSError`."""
        line = format_row(chain, seq, digest)
        if seq == 0 or line == self._last.get(chain):
            return
        # A power failure may have left the previous line incomplete; a line feed first keeps this line
        # intact.
        append_line(self.path, line, separate=not self._last, sync=False)
        self._last[chain] = line

    def remove_lines(self, lines: Collection[str]) -> None:
        """Remove these lines from the file. Blocks; raises `OSError`."""
        with _open_locked(self.path, fcntl.LOCK_EX) as handle, os.fdopen(os.dup(handle), "rb") as file:
            file.seek(0)
            kept = [line for line in file if line.strip().decode("ascii", "replace") not in lines]
            new = self.path.with_name(f"{self.path.name}.new")
            written = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
            try:
                os.write(written, b"".join(kept))
                os.fsync(written)
            finally:
                os.close(written)
            new.replace(self.path)

    def append_journal_range(self, rows: JournalRange) -> None:
        """Append one line about the journal. Blocks; raises `OSError`."""
        append_line(self.path, str(rows))

    def read_journal_ranges(self) -> tuple[JournalRange, ...]:
        """Return all recorded journal ranges."""
        try:
            with self.path.open(encoding="ascii", errors="replace") as file:
                found = [match for line in file if (match := _JOURNAL_LINE.fullmatch(line.strip()))]
        except FileNotFoundError:
            return ()
        return tuple(JournalRange(int(match[1]), int(match[2]), match[3]) for match in found)

    def read_newest(self) -> AnchorLines:
        """Like `read_lines`, for the last lines only."""
        return self.read_lines(last=_MAX_NEWEST_BYTES)

    def read_lines(self, *, last: int | None = None) -> AnchorLines:
        """Return all recorded hashes by row. More than one hash for a row indicates tampering.

        `last` limits reading to this number of bytes at the end. A line cut off at the start is skipped.
        """
        found: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        try:
            with self.path.open(encoding="ascii", errors="replace") as file:
                if last is not None and (size := os.fstat(file.fileno()).st_size) > last:
                    file.seek(size - last)
                    file.readline()
                for line in file:
                    if (match := _LINE.fullmatch(line.strip())) is not None:
                        found[int(match[1] or 1), int(match[2])].add(match[3])
        except FileNotFoundError:
            return {}
        return {row: frozenset(hashes) for row, hashes in found.items()}


@contextmanager
def _open_locked(path: Path, kind: int) -> Generator[int]:
    """Open the file for appending and lock it. Opened again if it was replaced while waiting for the lock."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, kind)
            if os.fstat(handle).st_ino == path.stat().st_ino:
                yield handle
                return
        finally:
            os.close(handle)


def append_line(path: Path, line: str, *, separate: bool = False, sync: bool = True) -> None:
    """Append a line with one write, so that lines of several processes do not mix. `separate` puts a line
    feed before it, `sync` waits for the disk.
    """
    if str(path) == os.devnull:  # of a database in memory
        return
    with _open_locked(path, fcntl.LOCK_SH) as handle:
        start = "\n" if separate and os.fstat(handle).st_size > 0 else ""
        os.write(handle, f"{start}{line}\n".encode("ascii"))
        if sync:
            os.fsync(handle)


class AnchorTarget(Protocol):
    """A remote destination for anchor lines. It accepts lines and need not be readable."""

    def send(self, lines: Sequence[str], timeout: float) -> None:
        """Send the lines. Blocks; raises `OSError`."""


@frozen(kw_only=False)
class FileTarget:
    """A file on another disk, or an append-only file (`chattr +a`)."""

    path: Path

    def send(self, lines: Sequence[str], timeout: float) -> None:
        del timeout
        for line in lines:
            append_line(self.path, line)


@frozen(kw_only=False)
class SyslogTarget:
    """RFC 5424 over UDP, TCP or a local socket."""

    kind: str  # udp, tcp, unix
    host: str
    port: int

    def send(self, lines: Sequence[str], timeout: float) -> None:
        messages = [self._format_message(line) for line in lines]
        if self.kind == "tcp":
            with socket.create_connection((self.host, self.port), timeout=timeout) as stream:
                stream.sendall(b"".join(b"%d %b" % (len(message), message) for message in messages))
            return
        family: Any = socket.AF_UNIX
        address: Any = self.host
        if self.kind == "udp":
            family, *_, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.settimeout(timeout)
            for message in messages:
                sender.sendto(message, address)

    def _format_message(self, line: str) -> bytes:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        host = re.sub(r"[^!-~]", "-", socket.gethostname())[:255] or "-"
        return f"<{_SYSLOG_PRIORITY}>1 {at} {host} fingerpost {os.getpid()} audit - {line}".encode("ascii")


class HttpTarget:
    """Objects 1, 2, 3 … below one URL, created with `PUT` and `If-None-Match: *` and never overwritten.

    With a retention rule at the object store they cannot be changed or deleted, even by their creator.
    """

    def __init__(self, url: str, label: str) -> None:
        self._url = f"{url.rstrip('/')}/{label}"
        self._next: int | None = None

    def send(self, lines: Sequence[str], timeout: float) -> None:
        body = "".join(f"{line}\n" for line in lines).encode("ascii")
        number = self._next or self._find_first_free(timeout)
        while True:
            status, _ = _send_request("PUT", f"{self._url}/{number}", timeout, body)
            if status in (200, 201, 204):
                self._next = number + 1
                return
            if status not in (409, 412):  # another process created it first
                raise ConnectionError(f"{_format_url(self._url)} answered {status}")
            number += 1

    def _find_first_free(self, timeout: float) -> int:
        """Find the first free number by doubling and bisection. There are no gaps."""
        free = 1
        while self._exists(free, timeout):
            free *= 2
        taken = free // 2
        while free - taken > 1:
            middle = (taken + free) // 2
            if self._exists(middle, timeout):
                taken = middle
            else:
                free = middle
        return free

    def _exists(self, number: int, timeout: float) -> bool:
        status, _ = _send_request("GET", f"{self._url}/{number}", timeout)
        if status not in (200, 403, 404):
            raise ConnectionError(f"{_format_url(self._url)} answered {status}")
        return status == 200


def _send_request(method: str, url: str, timeout: float, body: bytes | None = None) -> tuple[int, bytes]:
    """Send one request without following redirects. Raises `OSError`."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"content-type": "text/plain", "if-none-match": "*"} if body is not None else {}
    connection = kind(parts.hostname or "", parts.port, timeout=timeout)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        message = f"{_format_url(url)} does not answer as HTTP ({type(error).__name__})"
        raise ConnectionError(message) from error
    finally:
        connection.close()


def _format_url(url: str) -> str:
    return f"{urlsplit(url).scheme}://{urlsplit(url).hostname}"


def parse_target(text: str, label: str) -> AnchorTarget:
    """Parse an entry of `audit.anchors`. Raises `ConfigError`."""
    parts = urlsplit(text)
    match parts.scheme:
        case "http" | "https" if parts.hostname and not parts.query:
            return HttpTarget(text, label)
        case "syslog" | "syslog+tcp" if parts.hostname:
            return SyslogTarget("tcp" if "tcp" in parts.scheme else "udp", parts.hostname, parts.port or 514)
        case "syslog+unix" if parts.path:
            return SyslogTarget("unix", parts.path, 0)
        case "" | "file" if Path(parts.path).is_absolute():
            return FileTarget(Path(parts.path))
        case _:
            message = "an entry of audit.anchors cannot be used"
            hint = "write /a/file, syslog://host:514, syslog+tcp://host, syslog+unix:///dev/log or https://…"
            raise ConfigError(message, hint=hint)


class RemoteAnchors:
    """Sends anchor lines to remote targets in a separate thread, so that no write waits for them."""

    def __init__(self, targets: Iterable[str], label: str, *, interval: float) -> None:
        self._targets = [(text, parse_target(text, label)) for text in targets]
        self._label = label
        self._interval = interval
        self._lock = Lock()
        self._waiting: dict[str, list[str]] = {text: [] for text, _ in self._targets}
        self._over = Event()
        self._thread = Thread(target=self._run, name="fingerpost-anchors", daemon=True)
        if self._targets:
            self._thread.start()

    def queue(self, heads: Sequence[tuple[int, int, str]], journal: JournalRange | None) -> None:
        """Queue lines for the next round. Returns at once. Of each chain only the newest head is sent."""
        with self._lock:
            for lines in self._waiting.values():
                for chain, seq, digest in heads:
                    old = re.compile(rf"{'' if chain == 1 else f'{chain}:'}\d+ ")
                    lines[:] = [line for line in lines if old.match(line) is None]
                    lines.append(format_row(chain, seq, digest))
                if journal is not None:
                    lines.append(str(journal))

    def close(self) -> None:
        """Send the remaining lines within a few seconds. Blocks."""
        if self._targets:
            self._over.set()
            self._thread.join(CLOSE_SECONDS * len(self._targets) + 1)

    def _run(self) -> None:
        while not self._over.wait(self._interval):
            self._send_round(SEND_SECONDS)
        self._send_round(CLOSE_SECONDS)

    def _send_round(self, seconds: float) -> None:
        for text, target in self._targets:
            with self._lock:
                lines = list(self._waiting[text])
            if not lines:
                continue
            try:
                target.send([f"fingerpost-audit {self._label} {line}" for line in lines], seconds)
            except OSError as error:
                logger.warning("an audit anchor outside was not written: %s", error)
            else:
                with self._lock:
                    sent = set(lines)
                    self._waiting[text][:] = [line for line in self._waiting[text] if line not in sent]


def read_remote_lines(location: str, label: str) -> RemoteAnchorLines:
    """Read the anchor lines in a file (also a log) or below a URL. Blocks; raises `OSError`."""
    texts = (
        _read_objects(location, label)
        if location.startswith(("http://", "https://"))
        else _read_lines_at(location)
    )
    rows: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
    journal: list[JournalRange] = []
    elsewhere: list[tuple[int, int, str]] = []
    for found in (match for text in texts for match in _REMOTE_LINE.finditer(text)):
        line_label, chain, seq, first, last, digest = found.groups()
        if line_label != label:
            elsewhere += [(int(chain or 1), int(seq), digest)] if seq is not None else []
        elif seq is not None:
            rows[int(chain or 1), int(seq)].add(digest)
        else:
            journal.append(JournalRange(int(first), int(last), digest))
    return RemoteAnchorLines(
        rows={row: frozenset(hashes) for row, hashes in rows.items()},
        journal=tuple(journal),
        elsewhere=tuple(elsewhere),
    )


def _read_lines_at(location: str) -> Iterable[str]:
    with Path(location.removeprefix("file://")).open(encoding="utf-8", errors="replace") as file:
        yield from file


def _read_objects(url: str, label: str) -> Iterable[str]:
    for number in range(1, MAX_OBJECTS):
        status, body = _send_request("GET", f"{url.rstrip('/')}/{label}/{number}", SEND_SECONDS)
        if status in (403, 404):
            return
        if status != 200:
            raise ConnectionError(f"{_format_url(url)} answered {status}")
        yield from body.decode("ascii", "replace").splitlines()
