"""The sets routing is measured on: public ones in a folder, or our own held-out requests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from training.sets import JUDGED as EIGHT
from training.sets import is_held_out

from fingerpost.evals.datasets import QueryRecord, ToolRecord, read_queries, read_tools

OWN = Path(__file__).parent.parent / "training" / "data"
OTHERS = ("ultratool_zh", "hebrew_dev", "metatool_awareness_dev", "when2call_judge300")  # one thing each
SEED = 0

__all__ = ["EIGHT", "Set", "sets_in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """One set, sampled: the queries that show recall, and those that show need and fit."""

    name: str
    tools: list[ToolRecord]
    found: list[QueryRecord]
    judged: list[QueryRecord]


def sets_in(data: Path | None, sample: int) -> list[Set]:
    """The sets to measure on, at most `sample` queries of each."""
    if data is None:
        return _own_sets(sample)
    files = {name: (data / name / "tools.jsonl", data / name / "queries.jsonl") for name in (*EIGHT, *OTHERS)}
    return [
        _read(name, [pair], sample) for name, pair in files.items() if all(path.is_file() for path in pair)
    ]


def _read(name: str, files: Sequence[tuple[Path, Path]], sample: int) -> Set:
    queries = [query for _, path in files for query in read_queries(path)]
    labels = {query.needs_tool for query in queries}
    return Set(
        name=name,
        tools=[tool for path, _ in files for tool in read_tools(path)],
        found=_sample([query for query in queries if query.has_recall_labels], sample),
        judged=_sample(queries, sample) if {True, False} <= labels else [],
    )


def _sample(queries: list[QueryRecord], sample: int) -> list[QueryRecord]:
    return random.Random(SEED).sample(queries, sample) if len(queries) > sample else queries


def _own_sets(sample: int) -> list[Set]:
    """Our own requests, over all our own tools together; what training has seen is left out."""
    requests = sorted(OWN.glob("requests-*.jsonl"))
    files = [(path.with_name(path.name.replace("requests-", "tools-")), path) for path in requests]
    whole = _read("own", [pair for pair in files if pair[0].is_file()], 10**9)
    kept = [query for query in whole.found if is_held_out(query.id)]
    return [
        replace(whole, name=name, found=_sample(queries, sample))
        for name, queries in (
            ("own, English", [query for query in kept if query.lang != "he"]),
            ("own, Hebrew", [query for query in kept if query.lang == "he"]),
        )
        if queries
    ]
