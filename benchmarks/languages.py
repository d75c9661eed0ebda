"""The same requests in thirteen languages: how well each finds the tools, and the loss against English.

The requests (`data/languages.jsonl`, see `data/CARD-languages.md`) go to the servers of
`examples/servers.json` and our own of `examples/own.toml` together, whose texts are English. Half of the
meanings are held out: their single mistakes are printed only with `FINGERPOST_SHOW_HELD_OUT`, those of the
others with `FINGERPOST_SHOW_OPEN`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table

from fingerpost.records import Narrowing, NeedVerdict
from fingerpost.settings import load
from fingerpost.surfaces.cli.common import open_any_router

DATA = Path(__file__).parent / "data" / "languages.jsonl"
ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
ENGLISH = "en"
FIGURES = ("R@1", "R@5", "need", "mood")
MIN_NEED_SCORE = 0.5  # an unclear need counts by its score


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one request came to. `found` is None where no tool is needed."""

    found: int | None  # place of the first suitable tool, from 1; 0: not among the candidates
    need: bool
    mood: bool | None  # None: the request neither only asks nor wishes a change
    detail: str


def run() -> None:
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    judged = anyio.run(_judge_all, rows)
    console = Console(width=120)
    for title, held_out in (("open half", False), ("held-out half", True)):
        members = [row["id"] for row in rows if row["held_out"] is held_out]
        console.print(_build_table(title, members, judged))
        if os.environ.get("FINGERPOST_SHOW_HELD_OUT" if held_out else "FINGERPOST_SHOW_OPEN"):
            _print_mistakes(members, judged)


async def _judge_all(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, Judgement]]:
    with TemporaryDirectory() as folder:
        # Models and settings of this machine are left out.
        loaded = load(
            EXAMPLES / "own.toml",
            EXAMPLES / "servers.json",
            {"store": {"url": f"sqlite:///{folder}/languages.db"}, "narrow": {"candidates": 60}},
            {"PATH": os.environ["PATH"]},
            ROOT,
        )
        async with open_any_router(loaded, standalone=True) as router:
            await router.connect(timeout=60)
            await router.settle(60)
            return {
                language: {
                    row["id"]: _judge(
                        row, row["texts"][language], await router.narrow(row["texts"][language])
                    )
                    for row in rows
                }
                for language in rows[0]["texts"]
            }


def _judge(row: Mapping[str, Any], text: str, narrowing: Narrowing) -> Judgement:
    ranking = [candidate.tool for candidate in narrowing.shortlist.candidates]
    need = narrowing.need
    needs = need.verdict is NeedVerdict.TOOL or (
        need.verdict is NeedVerdict.UNCLEAR and need.score >= MIN_NEED_SCORE
    )
    places = [place for place, tool in enumerate(ranking, 1) if tool in row["tools"]]
    return Judgement(
        found=(places[0] if places else 0) if row["tools"] else None,
        need=needs is bool(row["tools"]),
        mood=None if row["mood"] == "any" else narrowing.signals.asks is (row["mood"] == "asks"),
        detail=f"{text} [{narrowing.signals.language}: {narrowing.signals.gloss}] "
        f"need {need.score:.2f}, first {ranking[:2]}",
    )


def _compute_figures(judgements: Sequence[Judgement]) -> dict[str, float]:
    places = [one.found for one in judgements if one.found is not None]
    moods = [one.mood for one in judgements if one.mood is not None]
    return {
        "R@1": sum(place == 1 for place in places) / len(places),
        "R@5": sum(0 < place <= 5 for place in places) / len(places),
        "need": sum(one.need for one in judgements) / len(judgements),
        "mood": sum(moods) / len(moods),
    }


def _build_table(title: str, members: Sequence[int], judged: Mapping[str, Mapping[int, Judgement]]) -> Table:
    table = Table(title=f"{title}, {len(members)} requests a language (%; loss against English in points)")
    table.add_column("language")
    for figure in FIGURES:
        table.add_column(figure, justify="right")
        table.add_column("loss", justify="right", style="dim")
    figures = {
        language: _compute_figures([found[member] for member in members])
        for language, found in judged.items()
    }
    others = [found for language, found in figures.items() if language != ENGLISH]
    figures["mean of others"] = {name: sum(found[name] for found in others) / len(others) for name in FIGURES}
    for language, found in figures.items():
        cells = (
            (f"{100 * found[name]:.1f}", f"{100 * (figures[ENGLISH][name] - found[name]):.1f}")
            for name in FIGURES
        )
        table.add_row(language, *(cell for pair in cells for cell in pair))
    return table


def _print_mistakes(members: Sequence[int], judged: Mapping[str, Mapping[int, Judgement]]) -> None:
    for language, found in judged.items():
        for member in members:
            one = found[member]
            wrong = [
                name
                for name, is_wrong in (
                    (f"place {one.found}", one.found is not None and one.found != 1),
                    ("need", not one.need),
                    ("mood", one.mood is False),
                )
                if is_wrong
            ]
            if wrong:
                print(f"{language} {member} ({', '.join(wrong)}): {one.detail}")
