"""Runs a permitted call: deadlines, retries, breakers, fallback, loops, cache, duplicates, background."""

from fingerpost.call.execution.breaker import BreakerState as BreakerState
from fingerpost.call.execution.concurrency import BackgroundCalls as BackgroundCalls
from fingerpost.call.execution.concurrency import BackgroundState as BackgroundState
from fingerpost.call.execution.concurrency import ParallelJob as ParallelJob
from fingerpost.call.execution.concurrency import run_in_parallel as run_in_parallel
from fingerpost.call.execution.run import CallRun as CallRun
from fingerpost.call.execution.runner import CallRunner as CallRunner
from fingerpost.call.execution.upstream import ProgressReporter as ProgressReporter
from fingerpost.call.execution.upstream import ToolUpstream as ToolUpstream
from fingerpost.call.execution.upstream import is_input_required as is_input_required
