"""Running a permitted call: deadlines, retries, breakers, fallback, loops, cache, duplicates, background."""

from fingerpost.call.execution.background import BackgroundCalls, BackgroundState, BackgroundStatus
from fingerpost.call.execution.breaker import BreakerState, BreakerStatus
from fingerpost.call.execution.dialogue import is_input_required
from fingerpost.call.execution.door import (
    Alternatives,
    GetLatency,
    PermitFallback,
    ProgressReporter,
    ToolUpstream,
)
from fingerpost.call.execution.parallel import ParallelJob, run_in_parallel
from fingerpost.call.execution.plan import CallPlan
from fingerpost.call.execution.runner import CallRunner

__all__ = [
    "Alternatives",
    "BackgroundCalls",
    "BackgroundState",
    "BackgroundStatus",
    "BreakerState",
    "BreakerStatus",
    "CallPlan",
    "CallRunner",
    "GetLatency",
    "ParallelJob",
    "PermitFallback",
    "ProgressReporter",
    "ToolUpstream",
    "is_input_required",
    "run_in_parallel",
]
