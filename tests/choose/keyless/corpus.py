"""The corpus of certainty: tools as real servers define them and some of our own, and labelled requests.

`held_out.jsonl` was written before the first line of the code it judges; `hard.jsonl`
after it, to break it. A case names the arguments that are certain; every other
required parameter has to be asked for.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from fingerpost.catalog import Catalog, Snapshot
from fingerpost.choose.keyless.arguments import FilledArguments, fill_arguments
from fingerpost.events import MemorySink
from fingerpost.narrow.signals.reader import SignalReader
from fingerpost.records import Json, JsonObject, Listing, Signals, ToolCard

FOLDER = Path(__file__).parent
TODAY = date(2026, 11, 18)  # a Wednesday


@dataclass(frozen=True, slots=True)
class Case:
    request: str
    tool: str
    arguments: JsonObject
    zone: str | None = None


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def cases(name: str) -> list[Case]:
    return [Case(**line) for line in _lines(f"{name}.jsonl")]


def definitions(*names: str) -> dict[str, list[JsonObject]]:
    """Tool definitions by server."""
    found: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for name in names:
        for line in _lines(f"{name}_tools.jsonl"):
            found[line["server"]].append(line["definition"])
    return found


@cache
def snapshot(*names: str) -> Snapshot:
    catalog = Catalog(events=MemorySink())
    for server, known in definitions(*names).items():
        catalog.replace_server(Listing(server=server, definitions=tuple(known)))
    return catalog.snapshot


def every_card() -> dict[str, ToolCard]:
    return {card.key: card for card in snapshot("real", "own").cards}


@cache
def _reader() -> SignalReader:
    reader = SignalReader()
    reader.prepare(snapshot("real", "own").cards)
    return reader


def read(text: str) -> Signals:
    return _reader().read(text)


def fill(
    request: str, tool: ToolCard | str, *, zone: str | None = None, need: str | None = None
) -> FilledArguments:
    card = every_card()[tool] if isinstance(tool, str) else tool
    return fill_arguments(card, request, read(request), today=TODAY, zone=zone, need=need)


def list_required(card: ToolCard) -> list[str]:
    schema: Any = card.definition["inputSchema"]
    return list(schema.get("required", ()))


@dataclass(slots=True)
class Score:
    """How a set of cases came out."""

    wrong: list[str]
    unasked: list[str]  # neither filled nor asked for
    found: int = 0
    wanted: int = 0

    @property
    def recall(self) -> float:
        return self.found / self.wanted


def score_cases(name: str) -> Score:
    score = Score([], [])
    for case in cases(name):
        got = fill(case.request, case.tool, zone=case.zone)
        score.wanted += len(case.arguments)
        for parameter, argument in got.arguments.items():
            if same(argument, case.arguments.get(parameter)):
                score.found += 1
            else:
                score.wrong.append(f"{case.request!r}: {case.tool} {parameter}={argument!r}")
        open_ones = [one for one in list_required(every_card()[case.tool]) if one not in got.arguments]
        if open_ones != [one.name for one in got.missing]:
            score.unasked.append(f"{case.request!r}: {case.tool} asks for {got.missing}")
    return score


def same(one: Json, other: Json) -> bool:
    """Equal and of one type: `True` is not 1."""
    return one == other and type(one) is type(other)
