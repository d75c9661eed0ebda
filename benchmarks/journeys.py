"""Everyday requests without a model: how many end with the right call or the right question.

The requests (`data/journeys.jsonl`) go to the servers of `examples/servers.json` and to our own of
`examples/own.toml`, as dry runs. They were written before the rules that they judge; a third is held out:
its single results are printed only with `FINGERPOST_SHOW_HELD_OUT`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import anyio
from rich.console import Console
from rich.table import Table

from fingerpost import Route, RouteOutcome, Router
from fingerpost.records import Effect
from fingerpost.settings import load
from fingerpost.surfaces.cli.common import open_any_router

DATA = Path(__file__).parent / "data" / "journeys.jsonl"
ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PLACES = {"{R}": str(ROOT), "{F}": str(EXAMPLES / "workspace")}
RESULTS = ("done", "asked rightly", "asked too much", "left", "wrong read", "wrong write")


def run() -> None:
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    outcomes = anyio.run(_judge_all, rows)
    table = Table(title="Requests without a model")
    for column in ("requests", "number", "right", *RESULTS):
        table.add_column(column, justify="left" if column == "requests" else "right")
    groups = {
        "open": [row for row in rows if not row["held_out"]],
        "held out": [row for row in rows if row["held_out"]],
    }
    for name, members in groups.items():
        counts = Counter(outcomes[row["request"], row["servers"]][0] for row in members)
        right = counts["done"] + counts["asked rightly"]
        figures = (f"{100 * counts[one] / len(members):.1f} %" for one in RESULTS)
        table.add_row(name, str(len(members)), f"{100 * right / len(members):.1f} %", *figures)
    shown = rows if os.environ.get("FINGERPOST_SHOW_HELD_OUT") else groups["open"]
    for row in shown:
        result, detail = outcomes[row["request"], row["servers"]]
        if result not in ("done", "asked rightly"):
            print(f"{result}: {row['request']} -> {detail} (expected {row['expected']} {row['tools']})")
    Console(width=120).print(table)


async def _judge_all(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[str, str]]:
    found: dict[tuple[str, str], tuple[str, str]] = {}
    with TemporaryDirectory() as folder:
        for servers in ("example", "own"):
            files = (
                (None, EXAMPLES / "servers.json") if servers == "example" else (EXAMPLES / "own.toml", None)
            )
            # Models and settings of this machine are left out.
            loaded = load(
                *files,
                {"store": {"url": f"sqlite:///{folder}/{servers}.db"}},
                {"PATH": os.environ["PATH"]},
                ROOT,
            )
            async with open_any_router(loaded, standalone=True) as router:
                await router.connect(timeout=60)
                await router.warm_up(60)
                for row in rows:
                    if row["servers"] == servers:
                        route = await router.route(row["request"], dry_run=True)
                        found[row["request"], servers] = _judge(row, route, router)
    return found


def _judge(row: dict[str, Any], route: Route, router: Router) -> tuple[str, str]:
    expected, tools = row["expected"], row["tools"]
    steps = [(step.tool, dict(step.arguments)) for step in route.packet.tool_routing.steps]
    if route.pending is not None:
        steps.append((route.pending.tool, dict(route.pending.arguments)))
    if route.question is not None:
        asked = route.question
        named = [asked.tool] if asked.tool else list(asked.missing[0].options if asked.missing else ())
        detail = f"asked {named} {[one.name for one in asked.missing]}"
        if expected == "ask":
            right = set(named) & set(tools)
        else:
            right = expected == "confirm" and len(named) == 1 and named[0] in tools
        return ("asked rightly" if right else "asked too much"), detail
    if not steps:
        rightly = expected == "none" and route.outcome is not RouteOutcome.FAILED
        return ("done" if rightly else "left"), route.answer[:80].replace("\n", " ")
    detail = "; ".join(f"{tool} {arguments}" for tool, arguments in steps)
    right = expected in ("call", "confirm") and len(steps) == 1 and steps[0][0] in tools
    if right and _match(row["arguments"], steps[0][1]):
        return "done", detail
    cards = {card.key: card for card in router.tools.cards}
    writes = any(cards[tool].effect.value is not Effect.READ for tool, _ in steps)
    return ("wrong write" if writes else "wrong read"), detail


def _match(wanted: dict[str, Any], given: dict[str, Any]) -> bool:
    """Every expected argument is there; a list for a single value means either."""
    for name, value in wanted.items():
        actual = given.get(name)
        either = isinstance(value, list) and not isinstance(actual, list)
        options = cast("list[object]", value if either else [value])
        if not any(_to_comparable(one) == _to_comparable(cast("object", actual)) for one in options):
            return False
    return True


def _to_comparable(value: object) -> object:
    return PLACES.get(value, value).rstrip("/;") if isinstance(value, str) else value
