"""What starting costs: the CPU of `import fingerpost` and of `fingerpost --help`, against bare Python."""

from __future__ import annotations

import resource
import subprocess
import sys
from statistics import median

from rich.console import Console
from rich.table import Table

ROUNDS = 15
CASES = {
    "bare Python": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "import fingerpost": ["-c", "import fingerpost"],
    "fingerpost --version": ["-m", "fingerpost", "--version"],
    "fingerpost --help": ["-m", "fingerpost", "--help"],
    "fingerpost tools --help": ["-m", "fingerpost", "tools", "--help"],
    "import mcp (for comparison)": ["-c", "import mcp"],
}


def cpu_milliseconds(arguments: list[str]) -> float:
    """User and system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def run() -> None:
    samples: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(ROUNDS):  # in turns, so that a busy moment touches every case alike
        for name, arguments in CASES.items():
            samples[name].append(cpu_milliseconds(arguments))
    bare = min(samples["bare Python"])
    table = Table(title=f"Start-up, CPU of the whole process ({ROUNDS} rounds)")
    for column in ("what", "best ms", "median ms", "x bare Python"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, values in samples.items():
        table.add_row(name, f"{min(values):.0f}", f"{median(values):.0f}", f"{min(values) / bare:.1f}")
    Console().print(table)
