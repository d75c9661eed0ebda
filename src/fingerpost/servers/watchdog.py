"""The last resort against orphans: a tiny process that outlives us by a moment.

It reads lines from a pipe whose other end only Fingerpost holds: `+123` when
process group 123 was started, `-123` when it is gone. When Fingerpost ends,
however it ends, the kernel closes the pipe; whatever is still listed is killed.

Run as a bare program (`python -I -S watchdog.py`), so it imports nothing of ours.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable


def watch(lines: "Iterable[bytes]") -> set[int]:
    """Follow the lines to their end. Returns the groups that were never reported gone."""
    groups: set[int] = set()
    for line in lines:
        sign, number = line[:1], line[1:].strip()
        if number.isdigit() and int(number) > 1:
            (groups.add if sign == b"+" else groups.discard)(int(number))
    return groups


def kin(ancestor: int) -> "dict[int, str]":
    """Everything this process started that is still below it, each with its start time.

    Programs often put what they start into a group of its own, a browser for one. Where the system
    does not say who started whom, nobody is found.
    """
    parents: dict[int, int] = {}
    starts: dict[int, str] = {}
    for process in _processes():
        if (found := _origin(process)) is not None:
            parents[process], starts[process] = found
    below = {ancestor}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    return {process: starts[process] for process in below - {ancestor}}


def end_kin(known: "dict[int, str]") -> None:
    """Kill these, unless the number has gone to somebody else since."""
    for process, start in known.items():
        found = _origin(process)
        if found is not None and found[1] == start:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _processes() -> "list[int]":
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - starts quicker
    except OSError:
        return []


def _origin(process: int) -> "tuple[int, str] | None":
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
    for group in watch(sys.stdin.buffer):
        below = kin(group)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        end_kin(below)


if __name__ == "__main__":
    main()
