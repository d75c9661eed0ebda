"""The last resort against orphans: a tiny process that outlives us by a moment.

It reads lines from a pipe whose other end only Fingerpost holds: `+123` when
process group 123 was started, `-123` when it is gone; `?abc` when something with
the mark abc in its environment is about to be started, `!abc` when all of that is
gone. When Fingerpost ends, however it ends, the kernel closes the pipe; whatever
is still listed is killed.

Run as a bare program (`python -I -S watchdog.py`), so it imports nothing of ours.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable

MARK = "FINGERPOST_COMMAND"  # in the environment of a server or command, and so of whatever it starts


def read_reports(lines: "Iterable[bytes]") -> "tuple[set[int], set[str]]":
    """Follow the lines to their end. Returns the groups and marks that were never reported gone."""
    groups: set[int] = set()
    marks: set[str] = set()
    for line in lines:
        sign, told = line[:1], line[1:].strip()
        if sign in b"?!" and told.isalnum():
            (marks.add if sign == b"?" else marks.discard)(told.decode())
        elif sign in b"+-" and told.isdigit() and int(told) > 1:
            (groups.add if sign == b"+" else groups.discard)(int(told))
    return groups, marks


def find_descendants(ancestor: int) -> "dict[int, str]":
    """Everything this process started that is still below it, each with its start time.

    Programs often put what they start into a group of its own, a browser for one. Where the system
    does not say who started whom, nobody is found.
    """
    parents: dict[int, int] = {}
    starts: dict[int, str] = {}
    for process in _list_processes():
        if (found := _read_parent(process)) is not None:
            parents[process], starts[process] = found
    below = {ancestor}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    return {process: starts[process] for process in below - {ancestor}}


def kill_descendants(known: "dict[int, str]") -> None:
    """Kill these, unless the number has gone to somebody else since."""
    for process, start in known.items():
        found = _read_parent(process)
        if found is not None and found[1] == start:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kill what has this mark, wherever it went: also what made itself a session of its own. Linux only."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(3):  # one that was just being started is seen the next time
        marked = [
            process
            for process in _list_processes()
            if process != os.getpid() and _has_environment_entry(process, wanted)
        ]
        if not marked:
            return
        for process in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _has_environment_entry(process: int, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:  # noqa: PTH123 - starts quicker
            return wanted in file.read().split(b"\0")
    except OSError:  # gone, or somebody else's
        return False


def _list_processes() -> "list[int]":
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - starts quicker
    except OSError:
        return []


def _read_parent(process: int) -> "tuple[int, str] | None":
    """Its parent, and when it was started."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123 - as above
            told = file.read()
    except OSError:
        return None
    fields = told[told.rfind(b")") + 1 :].split()  # its name, before that, may hold anything
    return (int(fields[1]), fields[19].decode()) if len(fields) > 19 else None


def main() -> None:
    # Ctrl-C in the terminal reaches the whole foreground group; our work comes after that, not at it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups, marks = read_reports(sys.stdin.buffer)
    for group in groups:
        below = find_descendants(group)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        kill_descendants(below)
    for mark in marks:
        kill_marked(mark)


if __name__ == "__main__":
    main()
