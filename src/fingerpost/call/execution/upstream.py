"""Interfaces that execution needs: servers, fallbacks, the journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeAlias

from fingerpost.events import Event
from fingerpost.records import Call, CallContext, Json, JsonObject, LatencyProfile, Permit
from fingerpost.servers.requests import RequestClock, RequestContext


class ProgressReporter(Protocol):
    """A callback for the progress of a call."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class ToolUpstream(Protocol):
    """The interface through which tools are called. `ServerPool` implements it."""

    def hold(self, name: str) -> AbstractContextManager[object]:
        """Keep the server running while the context is open, once it runs."""
        ...

    async def ensure(self, name: str, *, timeout: float) -> None:
        """Connect the server if necessary. If this fails, the call was not sent."""
        ...

    async def call(
        self,
        name: str,
        tool: str,
        arguments: JsonObject,
        *,
        clock: RequestClock,
        on_progress: ProgressReporter | None = None,
        meta: Mapping[str, Json] | None = None,
        context: RequestContext | None = None,
    ) -> JsonObject:
        """Call the tool within the deadline `clock`. If this fails, the call may have taken effect."""
        ...


class FallbackSource(Protocol):
    """The tools that may be tried when a tool fails. `CallPipeline` implements it."""

    def find_alternatives(self, call: Call) -> Iterable[Call]:
        """Return the call translated for other tools, best first."""
        ...

    async def prepare_fallback(self, call: Call) -> None:
        """Connect servers that may have a fallback."""
        ...

    async def permit_fallback(self, call: Call, context: CallContext) -> Permit | None: ...

    def get_latency(self, call: Call) -> LatencyProfile | None: ...


class _NoFallbacks:
    def find_alternatives(self, call: Call) -> Iterable[Call]:
        return ()

    async def prepare_fallback(self, call: Call) -> None:
        pass

    async def permit_fallback(self, call: Call, context: CallContext) -> Permit | None:
        return None

    def get_latency(self, call: Call) -> LatencyProfile | None:
        return None


NO_FALLBACKS: Final[FallbackSource] = _NoFallbacks()

WriteAnnouncer: TypeAlias = Callable[[Call, CallContext], Awaitable[None]]
DurableAppend: TypeAlias = Callable[[Event], Awaitable[None]]
TimeSource: TypeAlias = Callable[[], float]


async def skip_announcement(_: Call, __: CallContext) -> None:
    """Announce nothing: no other program follows this call."""


def is_input_required(result: JsonObject) -> bool:
    """Return whether the server asks for more input before it answers (protocol 2026-07-28)."""
    return result.get("resultType") == "input_required"
