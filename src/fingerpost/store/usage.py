"""What past calls of each tool teach: how long it takes, how much it answers, how often it fails.

Nothing is kept of a single call. Durations and sizes are counted in log-spaced
buckets (see `quantiles`), so the median and the 95th percentile are right within
2 %, and any number of processes adds to the same counts. Failed calls count too:
how long a failure takes is part of how long the tool takes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Executable, Row, case, select

from fingerpost.records import UsageProfile, UsageSample
from fingerpost.store.backlog import LossPolicy
from fingerpost.store.database import Database
from fingerpost.store.quantiles import compute_quantile, get_bucket
from fingerpost.store.schema import usage, usage_buckets
from fingerpost.store.statements import build_upsert
from fingerpost.store.writer import StoreWriter

_MILLISECONDS, _TOKENS = "ms", "tokens"


class UsageStore:
    """Counts calls and reports profiles."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer
        self._loss = LossPolicy()

    async def record(self, sample: UsageSample) -> None:
        """Count one finished call. Returns when it is on disk."""
        await self._writer.write(_count_calls, sample)

    def record_soon(self, sample: UsageSample) -> None:
        """Count one finished call within about a second. Returns at once; may be lost with the process."""
        self._writer.write_late(_count_calls, sample, loss=self._loss)

    async def get_profiles(self) -> dict[str, UsageProfile]:
        """What is known of every tool ever called, by its key, in the order of the keys."""
        return await self._database.read(_read_profiles)


def _count_calls(connection: Connection, samples: Sequence[UsageSample]) -> list[None]:
    calls: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    last: dict[str, datetime] = {}
    buckets: Counter[tuple[str, str, int]] = Counter()
    for sample in samples:
        calls[sample.tool] += 1
        failures[sample.tool] += not sample.success
        last[sample.tool] = max(sample.at, last.get(sample.tool, sample.at))
        buckets[sample.tool, _MILLISECONDS, get_bucket(sample.milliseconds)] += 1
        buckets[sample.tool, _TOKENS, get_bucket(sample.tokens)] += 1
    connection.execute(
        _build_calls_upsert(connection.dialect.name),
        [{"tool": t, "calls": n, "failures": failures[t], "last_used": last[t]} for t, n in calls.items()],
    )
    connection.execute(
        _build_counts_upsert(connection.dialect.name),
        [{"tool": t, "measure": m, "bucket": b, "count": n} for (t, m, b), n in buckets.items()],
    )
    return [None] * len(samples)


def _add_calls(new: Mapping[str, ColumnElement[Any]]) -> Mapping[str, ColumnElement[Any]]:
    later = case((new["last_used"] > usage.c.last_used, new["last_used"]), else_=usage.c.last_used)
    return {
        "calls": usage.c.calls + new["calls"],
        "failures": usage.c.failures + new["failures"],
        "last_used": later,
    }


def _add_counts(new: Mapping[str, ColumnElement[Any]]) -> Mapping[str, ColumnElement[Any]]:
    return {"count": usage_buckets.c["count"] + new["count"]}


@cache
def _build_calls_upsert(dialect: str) -> Executable:
    return build_upsert(dialect, usage, _add_calls)


@cache
def _build_counts_upsert(dialect: str) -> Executable:
    return build_upsert(dialect, usage_buckets, _add_counts)


def _read_profiles(connection: Connection) -> dict[str, UsageProfile]:
    counts: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for tool, measure, bucket, count in connection.execute(select(usage_buckets)):
        counts[tool, measure][bucket] = count
    rows = sorted(connection.execute(select(usage)), key=lambda row: row.tool)
    return {row.tool: _build_profile(row, counts) for row in rows}


def _build_profile(row: Row[Any], counts: Mapping[tuple[str, str], Mapping[int, int]]) -> UsageProfile:
    milliseconds = counts[row.tool, _MILLISECONDS]
    tokens = counts[row.tool, _TOKENS]
    return UsageProfile(
        tool=row.tool,
        calls=row.calls,
        failures=row.failures,
        typical_ms=compute_quantile(milliseconds, 0.5),
        slow_ms=compute_quantile(milliseconds, 0.95),
        typical_tokens=round(compute_quantile(tokens, 0.5)),
        large_tokens=round(compute_quantile(tokens, 0.95)),
        last_used=row.last_used,
    )
