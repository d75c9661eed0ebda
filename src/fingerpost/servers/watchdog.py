"""The last resort against orphans: a tiny process that outlives us by a moment.

It reads lines from a pipe whose other end only Fingerpost holds: `+123` when
process group 123 was started, `-123` when it is gone. When Fingerpost ends,
however it ends, the kernel closes the pipe; whatever is still listed is killed.

Run as a bare program (`python -I -S watchdog.py`), so it imports nothing of ours.
"""

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


def main() -> None:
    # Ctrl-C in the terminal reaches the whole foreground group; our work comes after that, not at it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for group in watch(sys.stdin.buffer):
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


if __name__ == "__main__":
    main()
