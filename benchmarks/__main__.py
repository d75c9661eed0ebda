"""`python -m benchmarks [--data FOLDER] [NAME …]`: run all benchmarks, or the named ones.

`--data` names a folder of public routing sets (bfcl, toolalpaca_eval, nestful) for those that can use
more than our own small set. `gateway` takes `--quick`; `gateway-soak`, `gateway-large` and `live` take
`--seconds`, `store-soak` takes `--minutes` and `--kills`, `gateway-instances` takes `--minutes`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    agentdojo,
    answering,
    arguments,
    callpath,
    catalog,
    conversations,
    digest,
    fallback,
    faults,
    grants,
    journeys,
    knowledge,
    labels,
    languages,
    memory,
    on_demand,
    poison,
    prefix,
    retention,
    routing,
    search_speed,
    smart,
    startup,
    store,
    workspace,
)
from benchmarks.completions import run as completions
from benchmarks.gateway import large, scaling, soaking
from benchmarks.gateway import run as gateway
from benchmarks.live import run as live

BENCHMARKS: dict[str, Callable[[Path | None], None]] = {
    "startup": lambda _: startup.run(),
    "catalog": lambda _: catalog.run(),
    "store": lambda _: store.run(),
    "store-soak": lambda _: retention.run(),
    "callpath": lambda _: callpath.run(),
    "arguments": arguments.run,
    "fallback": lambda _: fallback.run(),
    "routing": routing.run,
    "conversations": lambda _: conversations.run(),
    "search": lambda _: search_speed.run(),
    "digest": lambda _: digest.run(),
    "smart": lambda _: smart.run(),
    "prefix": lambda _: prefix.run(),
    "answering": lambda _: answering.run(),
    "grants": lambda _: grants.run(),
    "faults": lambda _: faults.run(),
    "knowledge": lambda _: knowledge.run(),
    "memory": lambda _: memory.run(),
    "workspace": lambda _: workspace.run(),
    "completions": lambda _: completions.run(),
    "gateway": lambda _: gateway.run(),
    "gateway-soak": lambda _: soaking.run(),
    "gateway-large": lambda _: large.run(),
    "gateway-instances": lambda _: scaling.run(),
    "live": lambda _: live.run(),
    "on-demand": lambda _: on_demand.run(),
    "journeys": lambda _: journeys.run(),
    "languages": lambda _: languages.run(),
    "agentdojo": lambda _: agentdojo.run(),
    "labels": lambda _: labels.run(),
    "poison": poison.run,
}
SLOW = (
    "store-soak",
    "grants",
    "faults",
    "gateway",
    "gateway-soak",
    "gateway-large",
    "gateway-instances",
    "live",
    "on-demand",
    "agentdojo",
)  # minutes: only when named


def main() -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    reader.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    reader.add_argument("--data", type=Path, help="a folder of public routing sets")
    reader.add_argument("--untrained", type=Path, help="MiniLM as it was (.onnx), as a baseline of routing")
    reader.add_argument("--encoders", type=Path, help="encoders that have not seen a family (A.onnx …)")
    reader.add_argument("--quick", action="store_true", help="gateway: two minutes instead of ten")
    reader.add_argument(
        "--seconds", type=float, help="how long: gateway-soak [600], gateway-large [5], live [60]"
    )
    reader.add_argument("--minutes", type=float, help="how long: store-soak [60], gateway-instances [10]")
    reader.add_argument(
        "--kills", type=int, default=200, help="how often a process is killed: store-soak [200]"
    )
    asked = reader.parse_args()
    if unknown := [name for name in asked.names if name not in BENCHMARKS]:
        reader.error(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")

    def measure_routing(data: Path | None) -> None:
        routing.run(data, encoder=asked.untrained, families=asked.encoders)

    chosen: dict[str, Callable[[Path | None], None]] = {
        **BENCHMARKS,
        "routing": measure_routing,
        "store-soak": lambda _: retention.run(minutes=asked.minutes or 60.0, kills=asked.kills),
        "gateway": lambda _: gateway.run(quick=asked.quick),
        "gateway-soak": lambda _: soaking.run(seconds=asked.seconds or 600.0),
        "gateway-large": lambda _: large.run(seconds=asked.seconds or 5.0),
        "gateway-instances": lambda _: scaling.run(minutes=asked.minutes or 10.0),
        "live": lambda _: live.run(seconds=asked.seconds or 60.0),
    }
    for name in asked.names or [name for name in BENCHMARKS if name not in SLOW]:
        chosen[name](asked.data)


if __name__ == "__main__":
    main()
