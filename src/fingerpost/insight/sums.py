"""Sums that add up: what is counted for one step, and several steps together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from fingerpost.insight.figures import ArmFigures, Counted, Spread, ToolCount, UserCount
from fingerpost.store.quantiles import compute_quantile, get_bucket

MAX_NAMES: Final = 500  # tools, callers, profiles kept for one step; the rest is not told apart
MAX_ARMS: Final = 100
TIMED_STAGES: Final = ("narrow", "servers", "model", "approval", "call", "attempt", "whole")


@dataclass(slots=True)
class Aggregate:
    """Counts by the names of `Counted`, sketches of durations, and who did how much."""

    counts: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    durations: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter[int]))
    tools: Counter[str] = field(default_factory=Counter[str])
    tool_failures: Counter[str] = field(default_factory=Counter[str])
    requests_by: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    calls_by: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    arms: dict[tuple[str, str], Aggregate] = field(
        default_factory=dict[tuple[str, str], "Aggregate"]
    )  # of rollouts

    def add_duration(self, stage: str, milliseconds: float) -> None:
        self.durations[stage][get_bucket(milliseconds)] += 1

    def add(self, other: Aggregate) -> None:
        self.counts.update(other.counts)
        self.outcomes.update(other.outcomes)
        self.errors.update(other.errors)
        self.tools.update(other.tools)
        self.tool_failures.update(other.tool_failures)
        for stage, sketch in other.durations.items():
            self.durations[stage].update(sketch)
        for ours, theirs in ((self.requests_by, other.requests_by), (self.calls_by, other.calls_by)):
            for kind, names in theirs.items():
                ours[kind].update(names)
        for arm, sums in other.arms.items():
            self.get_arm(arm).add(sums)

    def get_arm(self, arm: tuple[str, str]) -> Aggregate:
        """The sums of one arm (rollout and arm), as far as there is room for more of them."""
        if arm not in self.arms and len(self.arms) < MAX_ARMS:
            self.arms[arm] = Aggregate()
        return self.arms.get(arm) or Aggregate()


def add_name(names: Counter[str], name: str) -> None:
    """One more of this name, unless there are too many names already."""
    if name in names or len(names) < MAX_NAMES:
        names[name] += 1


def combine_aggregates(aggregates: Iterable[Aggregate]) -> Aggregate:
    whole = Aggregate()
    for part in aggregates:
        whole.add(part)
    return whole


def build_counted_fields(aggregate: Aggregate) -> dict[str, Any]:
    """The fields of a `Counted`."""
    counts = aggregate.counts
    return {
        **{name: counts[name] for name in _PLAIN_COUNTS},
        "no_tool_share": _compute_share(counts["no_tool"], counts["judged"]),
        "reduction": _compute_spared_share(counts["offered"], counts["considered"]),
        "failed_share": _compute_share(counts["failed_calls"], counts["calls"]),
        "recovered_share": _compute_share(counts["recovered"], counts["fallbacks"]),
        "truncated_share": _compute_share(counts["truncated"], counts["digested"]),
        "good_estimates_share": _compute_share(counts["good_estimates"], counts["estimates"]),
        "server_choices_success": _compute_spared_share(
            counts["server_choices_failed"], counts["server_choices"]
        ),
        "server_fallback_rate": _compute_share(counts["server_choices_all_stayed"], counts["server_choices"]),
        "server_reduction": _compute_spared_share(counts["server_tools_kept"], counts["server_tools"]),
        "outcomes": dict(sorted(aggregate.outcomes.items())),
        "errors": dict(sorted(aggregate.errors.items())),
        "stages": {
            stage: _build_spread(aggregate.durations[stage])
            for stage in TIMED_STAGES
            if stage in aggregate.durations
        },
    }


def build_arm_figures(aggregate: Aggregate) -> tuple[ArmFigures, ...]:
    return tuple(
        ArmFigures(rollout=rollout, arm=arm, figures=Counted(**build_counted_fields(found)))
        for (rollout, arm), found in sorted(aggregate.arms.items())
    )


def get_most_used(aggregate: Aggregate, limit: int) -> tuple[ToolCount, ...]:
    ranked = sorted(aggregate.tools.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return tuple(
        ToolCount(tool=tool, calls=calls, failures=aggregate.tool_failures[tool]) for tool, calls in ranked
    )


def get_user_counts(aggregate: Aggregate, kind: str, limit: int) -> tuple[UserCount, ...]:
    requests, calls = aggregate.requests_by[kind], aggregate.calls_by[kind]
    ranked = sorted(requests.keys() | calls.keys(), key=lambda name: (-requests[name] - calls[name], name))
    return tuple(UserCount(name=name, requests=requests[name], calls=calls[name]) for name in ranked[:limit])


def _build_spread(sketch: Counter[int]) -> Spread:
    return Spread(count=sketch.total(), p50=compute_quantile(sketch, 0.5), p95=compute_quantile(sketch, 0.95))


def _compute_share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _compute_spared_share(part: int, whole: int) -> float | None:
    return 1 - part / whole if whole else None


_PLAIN_COUNTS: Final = tuple(
    name for name, hint in Counted.__annotations__.items() if hint == "int"
)  # as they are counted
