"""Learning data: choices, confidence samples, feedback, thresholds, eval reports and tool usage."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Row,
    Table,
    case,
    delete,
    func,
    insert,
    select,
)

from fingerpost.frozen import frozen
from fingerpost.records import (
    Choice,
    ConfidenceSample,
    Feedback,
    FeedbackVerdict,
    JsonObject,
    LearningMark,
    Threshold,
    ToolFollower,
    UsageProfile,
    UsageSample,
    utc_now,
)
from fingerpost.redaction import scrub
from fingerpost.store.database import build_upsert, upsert
from fingerpost.store.schema import (
    choices,
    confidences,
    evals,
    feedback,
    learned_marks,
    thresholds,
    usage,
    usage_buckets,
)
from fingerpost.store.writer import StorePart


def _build_row(record: object, table: Table) -> dict[str, Any]:
    """Build the row whose columns have the names of the record's fields."""
    names = (column.name for column in table.columns)
    return {name: getattr(record, name) for name in names if name != "seq"}


def _append_rows(connection: Connection, table: Table, rows: list[dict[str, Any]], limit: int) -> list[None]:
    """Add rows to a table and delete the oldest beyond the limit."""
    connection.execute(insert(table), rows)
    newest = select(func.max(table.c.seq)).scalar_subquery()
    connection.execute(delete(table).where(table.c.seq <= newest - limit))
    return [None] * len(rows)


MAX_CHOICE_REQUEST_LENGTH: Final = 500
MAX_CHOICES: Final = 20_000
# Redaction needs the whole secret, so the text is shortened only afterwards. This limits the input.
_MAX_CHOICE_INPUT_LENGTH: Final = 20 * MAX_CHOICE_REQUEST_LENGTH


class ChoiceStore(StorePart):
    """Stores choices."""

    async def record(self, choice: Choice) -> None:
        """Store one choice. Returns when it is on disk."""
        await self._writer.write(_add_choices, choice)

    def record_soon(self, choice: Choice) -> None:
        """Store one choice soon. Returns at once. It may be lost while the disk is blocked."""
        self._writer.write_soon(_add_choices, choice, loss=self._loss)

    async def list_recent(self, limit: int = 2_000) -> list[Choice]:
        """Return the newest choices, newest first."""
        columns = [column for column in choices.c if column is not choices.c.seq]
        newest = select(*columns).order_by(choices.c.seq.desc()).limit(limit)
        return [Choice(**values) for values in await self._read_mappings(newest)]

    async def list_followers(self, limit: int = 1_000) -> list[ToolFollower]:
        """Return which tool succeeded right after which in one conversation, most frequent pairs first."""
        return [ToolFollower(**values) for values in await self._read_mappings(_select_followers(limit))]

    async def clear(self) -> int:
        """Delete all choices and return their number."""
        return await self._execute(delete(choices))


def _add_choices(connection: Connection, new: Sequence[Choice]) -> list[None]:
    rows = [_build_row(choice, choices) for choice in new]
    for row in rows:
        row["request"] = scrub(row["request"][:_MAX_CHOICE_INPUT_LENGTH])[:MAX_CHOICE_REQUEST_LENGTH]
    return _append_rows(connection, choices, rows, MAX_CHOICES)


def _select_followers(limit: int) -> Executable:
    before = func.lag(choices.c.tool).over(partition_by=choices.c.conversation, order_by=choices.c.seq)
    steps = (
        select(before.label("tool"), choices.c.tool.label("following"))
        .where(choices.c.conversation.is_not(None), choices.c.worked)
        .subquery()
    )
    times = func.count().label("times")
    return (
        select(steps.c.tool, steps.c.following.label("then"), times)
        .where(steps.c.tool.is_not(None))
        .group_by(steps.c.tool, steps.c.following)
        .order_by(times.desc(), steps.c.tool, steps.c.following)
        .limit(limit)
    )


MAX_CONFIDENCES: Final = 10_000
MAX_SAMPLE_TOOL_LENGTH: Final = 1_000

_TimedSample = tuple[ConfidenceSample, datetime]


class ConfidenceStore(StorePart):
    """Stores confidence samples."""

    async def record(self, sample: ConfidenceSample, at: datetime) -> None:
        """Store one sample. Returns when it is on disk."""
        _check_sample(sample)
        await self._writer.write(_add_samples, (sample, at))

    def record_soon(self, sample: ConfidenceSample, at: datetime) -> None:
        """Store one sample soon. Returns at once. It may be lost while the disk is blocked."""
        _check_sample(sample)
        self._writer.write_soon(_add_samples, (sample, at), loss=self._loss)

    async def list_recent(
        self, limit: int = 2_000, *, since: datetime | None = None
    ) -> list[ConfidenceSample]:
        """Return the newest samples, newest first, none older than `since`."""
        columns = confidences.c
        sample = select(columns.raw, columns.was_right.label("right"), columns.tool)
        newest = sample.order_by(columns.seq.desc()).limit(limit)
        if since is not None:
            newest = newest.where(columns.at > since)
        return [ConfidenceSample(**values) for values in await self._read_mappings(newest)]

    async def clear(self) -> int:
        """Delete all samples and return their number."""
        return await self._execute(delete(confidences))


def _check_sample(sample: ConfidenceSample) -> None:
    """Raise for an invalid sample. It is checked here, because in the writer it would fail a whole batch."""
    if not (math.isfinite(sample.raw) and 0.0 <= sample.raw <= 1.0):
        raise ValueError(f"a confidence is between 0 and 1, not {sample.raw}")


def _add_samples(connection: Connection, new: Sequence[_TimedSample]) -> list[None]:
    rows = [
        {"at": at, "raw": float(one.raw), "was_right": one.right, "tool": one.tool[:MAX_SAMPLE_TOOL_LENGTH]}
        for one, at in new
    ]
    return _append_rows(connection, confidences, rows, MAX_CONFIDENCES)


MAX_FEEDBACK_REQUEST_LENGTH: Final = 500
MAX_COMMENT_LENGTH: Final = 1_000
MAX_ID_LENGTH: Final = 200
MAX_FEEDBACK_TOOL_LENGTH: Final = 1_000
MAX_FEEDBACK: Final = 20_000
# Redaction needs the whole secret, so the text is shortened only afterwards. This limits the input.
_MAX_FEEDBACK_INPUT_LENGTH: Final = 10_000
_FEEDBACK_FIELDS: Final = ("packet_id", "at", "request", "tool", "should_have", "comment")  # and columns


class FeedbackStore(StorePart):
    """Stores feedback."""

    async def record(self, feedback: Feedback) -> Feedback:
        """Store feedback, replacing earlier feedback of this person on the request. Return it as stored."""
        kept = _bound_feedback(feedback)
        await self._write(_put_feedback, kept)
        return kept

    async def list_recent(self, limit: int = 2_000) -> list[Feedback]:
        """Return the newest feedback, newest first."""
        return await self._find(limit)

    async def list_about(self, packet_id: str) -> list[Feedback]:
        """Return all feedback on one request, newest first."""
        return await self._find(MAX_FEEDBACK, feedback.c.packet_id == packet_id)

    async def clear(self, *, by: str | None = None) -> int:
        """Delete all feedback, or that of one person, and return its number."""
        conditions = () if by is None else (feedback.c.by_whom == by,)
        return await self._execute(delete(feedback).where(*conditions))

    async def _find(self, limit: int, *conditions: ColumnElement[bool]) -> list[Feedback]:
        newest = select(feedback).where(*conditions)
        newest = newest.order_by(feedback.c.at.desc(), feedback.c.packet_id, feedback.c.by_whom).limit(limit)
        return await self._read_records(newest, _build_feedback)


def _bound_feedback(feedback: Feedback) -> Feedback:
    return replace(
        feedback,
        packet_id=feedback.packet_id[:MAX_ID_LENGTH],
        by=feedback.by[:MAX_ID_LENGTH],
        request=_mask_text(feedback.request, MAX_FEEDBACK_REQUEST_LENGTH),
        tool=None if feedback.tool is None else feedback.tool[:MAX_FEEDBACK_TOOL_LENGTH],
        should_have=None if feedback.should_have is None else feedback.should_have[:MAX_FEEDBACK_TOOL_LENGTH],
        comment=_mask_text(feedback.comment, MAX_COMMENT_LENGTH),
    )


def _mask_text(text: str, max_length: int) -> str:
    return scrub(text[:_MAX_FEEDBACK_INPUT_LENGTH])[:max_length]


def _put_feedback(connection: Connection, entry: Feedback) -> None:
    connection.execute(upsert(connection, feedback), _feedback_to_row(entry))
    beyond = (
        select(feedback.c.at).order_by(feedback.c.at.desc()).offset(MAX_FEEDBACK).limit(1).scalar_subquery()
    )
    connection.execute(delete(feedback).where(feedback.c.at <= beyond))


def _feedback_to_row(entry: Feedback) -> dict[str, Any]:
    same = {name: getattr(entry, name) for name in _FEEDBACK_FIELDS}
    return {**same, "by_whom": entry.by, "verdict": entry.verdict.value}


def _build_feedback(row: Row[Any]) -> Feedback:
    same = {name: getattr(row, name) for name in _FEEDBACK_FIELDS}
    return Feedback(**same, by=row.by_whom, verdict=FeedbackVerdict(row.verdict))


MAX_REASON_LENGTH: Final = 500


class LearnedStore(StorePart):
    """Stores learning marks and thresholds."""

    async def set_mark(self, mark: LearningMark) -> None:
        """Set a mark. Older data no longer counts."""
        await self._execute(self._upsert(learned_marks), _build_row(mark, learned_marks))

    async def get_marks(self, what: str) -> Mapping[str, datetime]:
        """Return the marks of this kind by person; `EVERYBODY` is the mark for all."""
        query = select(learned_marks).where(learned_marks.c.what == what)
        return {row.person: row.at for row in await self._read_rows(query)}

    async def get_version(self) -> tuple[object, ...]:
        """Return a value that changes whenever learning data changes in any process."""
        query = select(
            select(func.count()).select_from(feedback).scalar_subquery(),
            select(func.max(feedback.c.at)).scalar_subquery(),
            select(func.max(choices.c.seq)).scalar_subquery(),
            select(func.max(learned_marks.c.at)).scalar_subquery(),
        )
        [row] = await self._read_rows(query)
        return tuple(row)

    async def list_thresholds(self) -> list[Threshold]:
        """Return the changed thresholds, by name."""
        query = select(thresholds).order_by(thresholds.c.name)
        return [Threshold(**values) for values in await self._read_mappings(query)]

    async def set_threshold(self, threshold: Threshold) -> None:
        row = {**_build_row(threshold, thresholds), "reason": threshold.reason[:MAX_REASON_LENGTH]}
        await self._execute(self._upsert(thresholds), row)

    async def clear_thresholds(self) -> int:
        """Reset all thresholds to the settings and return how many were changed."""
        return await self._execute(delete(thresholds))


@frozen
class StoredEval:
    """A named report, as printed by `fingerpost eval report --json`."""

    seq: int
    at: datetime
    name: str
    report: JsonObject


class EvalStore(StorePart):
    """Stores eval reports."""

    async def add(self, name: str, report: JsonObject) -> None:
        """Store a report. Using a name again stores another run."""
        text = json.dumps(report, ensure_ascii=True, allow_nan=False, default=dict)
        await self._execute(insert(evals), {"at": utc_now(), "name": name, "report": text})

    async def list_newest(self, *, limit: int = 50, before: int | None = None) -> list[StoredEval]:
        """Return the newest reports, newest first. `before` (a `seq`) continues after an older one."""
        query = select(evals).order_by(evals.c.seq.desc()).limit(limit)
        if before is not None:
            query = query.where(evals.c.seq < before)
        return [
            StoredEval(seq=row.seq, at=row.at, name=row.name, report=json.loads(row.report))
            for row in await self._read_rows(query)
        ]


RELATIVE_ERROR = 0.02
_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GROWTH = math.log(_GROWTH)

# Valid range of durations and sizes. It gives at most 864 buckets.
MIN_VALUE, MAX_VALUE = 1e-3, 1e12
ZERO_BUCKET = -1_000_000


def get_bucket(value: float) -> int:
    """Return the bucket of `value`. Values below 0.001 count as zero."""
    if not value >= MIN_VALUE:  # also true for NaN
        return ZERO_BUCKET
    return math.ceil(math.log(min(value, MAX_VALUE)) / _LOG_GROWTH)


def get_bucket_value(bucket: int) -> float:
    """Return the representative value of the bucket."""
    return 0.0 if bucket == ZERO_BUCKET else 2 * _GROWTH**bucket / (_GROWTH + 1)


def compute_quantile(counts: Mapping[int, int], share: float) -> float:
    """Return the value at the quantile `share`, or 0 if there are no values."""
    rank = math.ceil(share * sum(counts.values()))
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= max(rank, 1):
            return get_bucket_value(bucket)
    return 0.0


_MILLISECONDS, _TOKENS = "ms", "tokens"


class UsageStore(StorePart):
    """Counts calls and returns usage profiles."""

    async def record(self, sample: UsageSample) -> None:
        """Count one finished call. Returns when it is on disk."""
        await self._writer.write(_count_calls, sample)

    def record_soon(self, sample: UsageSample) -> None:
        """Count one finished call within about a second. Returns at once. A crash loses it."""
        self._writer.write_late(_count_calls, sample, loss=self._loss)

    async def get_profiles(self) -> dict[str, UsageProfile]:
        """Return the profile of every tool ever called, sorted by key."""
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


def _build_call_sums(new: Mapping[str, ColumnElement[Any]]) -> Mapping[str, ColumnElement[Any]]:
    later = case((new["last_used"] > usage.c.last_used, new["last_used"]), else_=usage.c.last_used)
    return {
        "calls": usage.c.calls + new["calls"],
        "failures": usage.c.failures + new["failures"],
        "last_used": later,
    }


def _build_count_sums(new: Mapping[str, ColumnElement[Any]]) -> Mapping[str, ColumnElement[Any]]:
    return {"count": usage_buckets.c["count"] + new["count"]}


@cache
def _build_calls_upsert(dialect: str) -> Executable:
    return build_upsert(dialect, usage, _build_call_sums)


@cache
def _build_counts_upsert(dialect: str) -> Executable:
    return build_upsert(dialect, usage_buckets, _build_count_sums)


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
