"""`python -m benchmarks.gateway.profiled FILE serve …`: our command under cProfile, which writes FILE.

Counting begins with SIGUSR1, so that starting up is not in it.
"""

from __future__ import annotations

import cProfile
import signal
import sys
import time

from fingerpost.surfaces.cli.main import main


def run() -> None:
    file, *arguments = sys.argv[1:]
    sys.argv = ["fingerpost", *arguments]
    profile = cProfile.Profile(time.thread_time)  # others have the processor, too

    def begin(*_: object) -> None:
        profile.enable()

    signal.signal(signal.SIGUSR1, begin)
    try:
        main()
    finally:
        profile.disable()
        profile.dump_stats(file)


if __name__ == "__main__":
    run()
