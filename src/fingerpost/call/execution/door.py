"""What execution needs from the outside, said as types: the servers, the policy and the hierarchy.

Execution knows none of the three. It is handed a door to the tools, a function
that names what could stand in for a call, and one that says whether it may.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from fingerpost.events import Event
from fingerpost.records import Call, Json, JsonObject, LatencyProfile, Permit
from fingerpost.servers.caller import RequestContext


class ProgressReporter(Protocol):
    """Told how far a call has come."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class ToolUpstream(Protocol):
    """The way to the tools. `Servers` is one."""

    async def ensure(self, name: str, *, timeout: float) -> None:
        """Have the server connected. What fails here was never sent."""
        ...

    async def call(
        self,
        name: str,
        tool: str,
        arguments: JsonObject,
        *,
        timeout: float,
        on_progress: ProgressReporter | None = None,
        meta: Mapping[str, Json] | None = None,
        context: RequestContext | None = None,
    ) -> JsonObject:
        """Call the tool. What fails here may have taken effect."""
        ...


Alternatives: TypeAlias = Callable[[Call], Iterable[Call]]
PermitFallback: TypeAlias = Callable[[Call], Awaitable[Permit | None]]
GetLatency: TypeAlias = Callable[[Call], LatencyProfile | None]
BeforeFallback: TypeAlias = Callable[[Call], Awaitable[None]]
DurableAppend: TypeAlias = Callable[[Event], Awaitable[None]]
TimeSource: TypeAlias = Callable[[], float]


def find_no_alternatives(_: Call) -> Iterable[Call]:
    """For a tool that nothing can stand in for."""
    return ()


async def do_nothing_before_fallback(_: Call) -> None:
    """For a caller whose tools are all there already."""


async def permit_no_fallback(_: Call) -> Permit | None:
    """For a caller that allows no fallback."""
    return None
