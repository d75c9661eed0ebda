"""Runs a permitted call: deadlines, retries, breakers, fallback, loops, cache, duplicates, background
calls.
"""

from fingerpost.call.execution.breaker import BreakerState, BreakerStatus
from fingerpost.call.execution.concurrency import (
    BackgroundCalls,
    BackgroundState,
    BackgroundStatus,
    ParallelJob,
    run_in_parallel,
)
from fingerpost.call.execution.run import CallRun
from fingerpost.call.execution.runner import CallRunner
from fingerpost.call.execution.upstream import (
    FallbackSource,
    ProgressReporter,
    ToolUpstream,
    is_input_required,
)

__all__ = [
    "BackgroundCalls",
    "BackgroundState",
    "BackgroundStatus",
    "BreakerState",
    "BreakerStatus",
    "CallRun",
    "CallRunner",
    "FallbackSource",
    "ParallelJob",
    "ProgressReporter",
    "ToolUpstream",
    "is_input_required",
    "run_in_parallel",
]
