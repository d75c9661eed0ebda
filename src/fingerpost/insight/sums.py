"""Sums that add up: what is counted for one step, and several steps together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from fingerpost.insight.figures import ArmFigures, Counted, Spread, ToolCount, UserCount
from fingerpost.store.quantiles import bucket_of, quantile

MOST_NAMES: Final = 500  # tools, callers, profiles kept for one step; the rest is not told apart
MOST_ARMS: Final = 100
STAGES: Final = ("narrow", "servers", "model", "approval", "call", "attempt", "whole")


@dataclass(slots=True)
class Sums:
    """Counts by the names of `Counted`, sketches of durations, and who did how much."""

    counts: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    durations: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter[int]))
    tools: Counter[str] = field(default_factory=Counter[str])
    tool_failures: Counter[str] = field(default_factory=Counter[str])
    requests_by: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    calls_by: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    arms: dict[tuple[str, str], Sums] = field(default_factory=dict[tuple[str, str], "Sums"])  # of rollouts

    def took(self, stage: str, milliseconds: float) -> None:
        self.durations[stage][bucket_of(milliseconds)] += 1

    def add(self, other: Sums) -> None:
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
            self.of_arm(arm).add(sums)

    def of_arm(self, arm: tuple[str, str]) -> Sums:
        """The sums of one arm (rollout and arm), as far as there is room for more of them."""
        if arm not in self.arms and len(self.arms) < MOST_ARMS:
            self.arms[arm] = Sums()
        return self.arms.get(arm) or Sums()


def count_name(names: Counter[str], name: str) -> None:
    """One more of this name, unless there are too many names already."""
    if name in names or len(names) < MOST_NAMES:
        names[name] += 1


def together(parts: Iterable[Sums]) -> Sums:
    whole = Sums()
    for part in parts:
        whole.add(part)
    return whole


def counted(sums: Sums) -> dict[str, Any]:
    """The fields of a `Counted`."""
    counts = sums.counts
    return {
        **{name: counts[name] for name in _PLAIN},
        "no_tool_share": _share(counts["no_tool"], counts["judged"]),
        "reduction": _spared(counts["offered"], counts["considered"]),
        "failed_share": _share(counts["failed_calls"], counts["calls"]),
        "recovered_share": _share(counts["recovered"], counts["fallbacks"]),
        "truncated_share": _share(counts["truncated"], counts["digested"]),
        "good_estimates_share": _share(counts["good_estimates"], counts["estimates"]),
        "server_choices_success": _spared(counts["server_choices_failed"], counts["server_choices"]),
        "server_fallback_rate": _share(counts["server_choices_all_stayed"], counts["server_choices"]),
        "server_reduction": _spared(counts["server_tools_kept"], counts["server_tools"]),
        "outcomes": dict(sorted(sums.outcomes.items())),
        "errors": dict(sorted(sums.errors.items())),
        "stages": {stage: _spread(sums.durations[stage]) for stage in STAGES if stage in sums.durations},
    }


def arms_of(sums: Sums) -> tuple[ArmFigures, ...]:
    return tuple(
        ArmFigures(rollout=rollout, arm=arm, figures=Counted(**counted(found)))
        for (rollout, arm), found in sorted(sums.arms.items())
    )


def most_used(sums: Sums, most: int) -> tuple[ToolCount, ...]:
    ranked = sorted(sums.tools.items(), key=lambda item: (-item[1], item[0]))[:most]
    return tuple(
        ToolCount(tool=tool, calls=calls, failures=sums.tool_failures[tool]) for tool, calls in ranked
    )


def users(sums: Sums, kind: str, most: int) -> tuple[UserCount, ...]:
    requests, calls = sums.requests_by[kind], sums.calls_by[kind]
    ranked = sorted(requests.keys() | calls.keys(), key=lambda name: (-requests[name] - calls[name], name))
    return tuple(UserCount(name=name, requests=requests[name], calls=calls[name]) for name in ranked[:most])


def _spread(sketch: Counter[int]) -> Spread:
    return Spread(count=sketch.total(), p50=quantile(sketch, 0.5), p95=quantile(sketch, 0.95))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _spared(part: int, whole: int) -> float | None:
    return 1 - part / whole if whole else None


_PLAIN: Final = tuple(
    name for name, hint in Counted.__annotations__.items() if hint == "int"
)  # as they are counted
