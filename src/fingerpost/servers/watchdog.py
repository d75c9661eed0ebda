"""A small process that kills our child processes if Fingerpost exits without cleaning up.

It reads lines from a pipe whose other end only Fingerpost holds: `+123` when process group 123 was started,
`-123` when it is gone; `?abc` when a process with the mark abc in its environment is about to be started,
`!abc` when all such processes are gone. When Fingerpost exits, the kernel closes the pipe, and the watchdog
kills everything still listed.

It runs as a standalone program (`python -I -S watchdog.py`), so it imports nothing from this package.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable

MARK_VARIABLE = (
    "FINGERPOST_COMMAND"  # environment variable of a server or command, inherited by its descendants
)


def read_reports(lines: "Iterable[bytes]") -> "tuple[set[int], set[str]]":
    """Read all lines. Return the groups and marks that were not reported as gone."""
    groups: set[int] = set()
    marks: set[str] = set()
    for line in lines:
        sign, value = line[:1], line[1:].strip()
        if sign in b"?!" and value.isalnum():
            (marks.add if sign == b"?" else marks.discard)(value.decode())
        elif sign in b"+-" and value.isdigit() and int(value) > 1:
            (groups.add if sign == b"+" else groups.discard)(int(value))
    return groups, marks


def find_descendants(ancestor: int) -> "dict[int, str]":
    """Return all descendants of this process with their start times.

    Programs often start children in separate process groups, for example browsers. Where the system has no
    parent information, the result is empty.
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
    """Kill these processes, except where the process id was reused."""
    for process, start in known.items():
        found = _read_parent(process)
        if found is not None and found[1] == start:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kill all processes with this mark, even those in their own sessions. Linux only."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    for _ in range(3):  # a process that was just being started is found in a later pass
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
    except OSError:  # gone, or owned by another user
        return False


def _list_processes() -> "list[int]":
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - starts quicker
    except OSError:
        return []


def _read_parent(process: int) -> "tuple[int, str] | None":
    """Return the parent process id and the start time."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123 - as above
            stat = file.read()
    except OSError:
        return None
    fields = stat[stat.rfind(b")") + 1 :].split()  # the name before it may contain any character
    return (int(fields[1]), fields[19].decode()) if len(fields) > 19 else None


def main() -> None:
    # Ctrl-C in the terminal reaches the whole foreground group, but this process must run after that.
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
