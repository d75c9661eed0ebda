"""What one event counts as. Figures, metrics, agent statistics and smart routing add up these amounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fingerpost.events.base import Event
from fingerpost.events.call import AttemptFinished, BreakerMoved, CallFinished, ResultDigested
from fingerpost.events.route import ModelAnswered, RequestNarrowed, SmartRoutingEnd, SyntaxStopped
from fingerpost.events.servers import AccessRefused
from fingerpost.records import ErrorKind, NeedVerdict

Counts = Mapping[str, int]

# The tool or its connection failed. All other errors mean that the call was refused before it ran.
_FAILURES: Final = frozenset(
    {ErrorKind.EXECUTION_FAILED, ErrorKind.TIMEOUT, ErrorKind.UNAVAILABLE, ErrorKind.UNKNOWN}
)


def count_event(event: Event) -> Counts:
    """Return the amounts that this event adds, by name."""
    counter = _COUNTERS.get(type(event))
    return {} if counter is None else counter(event)


def _count_narrowed(event: RequestNarrowed) -> Counts:
    verdict, shortlist = event.narrowing.need.verdict, event.narrowing.shortlist
    return {
        "judged": 1,
        "no_tool": int(verdict is NeedVerdict.NONE),
        "unclear": int(verdict is NeedVerdict.UNCLEAR),
        "narrowed": int(shortlist.considered > 0),
        "considered": shortlist.considered,
        "offered": len(shortlist.offered) if shortlist.considered else 0,
        "tokens_saved": event.saved_tokens or 0,
    }


def _count_servers_chosen(event: SmartRoutingEnd) -> Counts:
    if event.widened:
        return {"server_choices_widened": 1}
    return {
        "server_choices": 1,
        "server_choices_by_model": int(event.by == "model"),
        "server_choices_failed": int(not event.success),
        "server_choices_all_stayed": int(event.kept_all),
        "server_tools": event.total_tools,
        "server_tools_kept": event.filtered_tools,
        "server_tokens_saved": event.tokens_saved,
    }


def _count_model_answered(event: ModelAnswered) -> Counts:
    if event.error is not None:
        return {"model_calls": 1, "model_errors": 1}
    return {
        "model_calls": 1,
        "prompt_tokens": event.prompt_tokens or 0,
        "completion_tokens": event.completion_tokens or 0,
    }


def _count_attempt(event: AttemptFinished) -> Counts:
    made = event.attempt
    if made.cached:
        return {"cached": 1}
    if made.error is ErrorKind.DENIED:  # a fallback that was not tried
        return {}
    return {"attempts": 1, "failed_attempts": int(made.error is not None)}


def _count_call(event: CallFinished) -> Counts:
    if event.error is ErrorKind.AUTHORIZATION_REQUIRED:  # the call waits for approval and is not finished
        return {}
    return {
        "calls": 1,
        "failed_calls": int(event.error in _FAILURES),
        "unsuccessful_calls": int(not event.success),  # refused ones, too
    }


_COUNTERS: Final[Mapping[type[Event], Callable[[Any], Counts]]] = {
    RequestNarrowed: _count_narrowed,
    SmartRoutingEnd: _count_servers_chosen,
    ModelAnswered: _count_model_answered,
    SyntaxStopped: lambda event: {"syntax_stopped": event.count},
    AttemptFinished: _count_attempt,
    ResultDigested: lambda event: {"digested": 1, "truncated": int(bool(event.dropped))},
    CallFinished: _count_call,
    BreakerMoved: lambda event: {"breaker_openings": int(event.state == "open")},
    AccessRefused: lambda _: {"refused_access": 1},
}
