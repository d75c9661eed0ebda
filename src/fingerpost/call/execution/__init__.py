"""Running a permitted call: deadlines, retries, breakers, fallback, loops, cache, duplicates, background."""

from fingerpost.call.execution.background import Background, BackgroundState, BackgroundStatus
from fingerpost.call.execution.breaker import BreakerState, BreakerStatus
from fingerpost.call.execution.dialogue import awaits_input
from fingerpost.call.execution.door import Alternatives, LatencyOf, Permitting, Progress, ToolDoor
from fingerpost.call.execution.parallel import Job, in_parallel
from fingerpost.call.execution.plan import Plan
from fingerpost.call.execution.runner import Runner

__all__ = [
    "Alternatives",
    "Background",
    "BackgroundState",
    "BackgroundStatus",
    "BreakerState",
    "BreakerStatus",
    "Job",
    "LatencyOf",
    "Permitting",
    "Plan",
    "Progress",
    "Runner",
    "ToolDoor",
    "awaits_input",
    "in_parallel",
]
