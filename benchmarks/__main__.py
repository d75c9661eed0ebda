"""`python -m benchmarks [NAME …]`: run all benchmarks, or the named ones."""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks import catalog, startup, store

BENCHMARKS: dict[str, Callable[[], None]] = {
    "startup": startup.run,
    "catalog": catalog.run,
    "store": store.run,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
