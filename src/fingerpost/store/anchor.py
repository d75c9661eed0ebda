"""The audit trail's memory outside the database: lines of "seq hash", only ever appended.

It is worth as much as its distance from the database: put it where whoever can
write the database cannot write (another owner, another disk, a log shipper).
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

_NEWEST = 16 * 1024  # bytes: some 200 lines
_LINE = re.compile(r"(\d{1,18}) ([0-9a-f]{64})")


class Anchor:
    """The anchor file of one database on this host."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: tuple[int, str] | None = None

    def remember(self, seq: int, digest: str) -> None:
        """Append one line, unless it is the one written last. Blocks; raises `OSError`."""
        if seq == 0 or (seq, digest) == self._last:
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            # One write with O_APPEND: lines of several processes do not mix. The line before ours may have
            # been torn by a power cut; a line feed first keeps it from spoiling this one.
            start = "\n" if self._last is None and os.fstat(handle).st_size > 0 else ""
            os.write(handle, f"{start}{seq} {digest}\n".encode("ascii"))
        finally:
            os.close(handle)
        self._last = (seq, digest)

    def newest(self) -> dict[int, frozenset[str]]:
        """The same of its last lines."""
        return self.lines(last=_NEWEST)

    def lines(self, *, last: int | None = None) -> dict[int, frozenset[str]]:
        """Every hash remembered for a row. More than one for the same row is itself a finding.

        `last` reads only so many bytes at the end; a line that begins before them is passed over.
        """
        found: defaultdict[int, set[str]] = defaultdict(set)
        try:
            with self.path.open(encoding="ascii", errors="replace") as file:
                if last is not None and (size := os.fstat(file.fileno()).st_size) > last:
                    file.seek(size - last)
                    file.readline()
                for line in file:
                    if (match := _LINE.fullmatch(line.strip())) is not None:
                        found[int(match[1])].add(match[2])
        except FileNotFoundError:
            return {}
        return {seq: frozenset(hashes) for seq, hashes in found.items()}
