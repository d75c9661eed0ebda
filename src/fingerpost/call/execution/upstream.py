"""Interfaces that execution needs: servers, policy, fallbacks, and the caller whom a server may ask during a
call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from fingerpost.events import Event
from fingerpost.records import Call, CallContext, Json, JsonObject, LatencyProfile, Permit
from fingerpost.servers.requests import CallerChannel, RequestClock, RequestContext


class ProgressReporter(Protocol):
    """A callback for the progress of a call."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class ToolUpstream(Protocol):
    """The interface through which tools are called. `ServerPool` implements it."""

    async def ensure(self, name: str, *, timeout: float) -> None:
        """Connect the server if necessary. If this fails, the call was not sent."""
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
        """Call the tool. If this fails, the call may have taken effect."""
        ...


Alternatives: TypeAlias = Callable[[Call], Iterable[Call]]
PermitFallback: TypeAlias = Callable[[Call], Awaitable[Permit | None]]
GetLatency: TypeAlias = Callable[[Call], LatencyProfile | None]
BeforeFallback: TypeAlias = Callable[[Call], Awaitable[None]]
WriteAnnouncer: TypeAlias = Callable[[Call, CallContext], Awaitable[None]]
DurableAppend: TypeAlias = Callable[[Event], Awaitable[None]]
TimeSource: TypeAlias = Callable[[], float]


def find_no_alternatives(_: Call) -> Iterable[Call]:
    """Return no alternatives."""
    return ()


async def do_nothing_before_fallback(_: Call) -> None:
    """Do nothing, because all tools are available already."""


async def announce_to_nobody(_: Call, __: CallContext) -> None:
    """Tell nobody about the write."""


async def permit_no_fallback(_: Call) -> Permit | None:
    """Permit no fallback."""
    return None


class WatchedCaller:
    """The caller's side of one call. Records whether the server asked the caller anything."""

    def __init__(self, caller: CallerChannel, request_context: RequestContext) -> None:
        self._caller = caller
        self._request_context = request_context
        self._clock = RequestClock()  # of the current attempt
        self.was_asked = False

    def build_context(self, clock: RequestClock) -> RequestContext:
        """Build the context of one attempt, with the watched caller and this clock."""
        self._clock = clock
        return self._request_context.replace_caller(self, clock)

    @property
    def key(self) -> str:
        return self._caller.key

    @property
    def capabilities(self) -> JsonObject:
        return self._caller.capabilities

    @property
    def accepts_input_required(self) -> bool:
        return self._caller.accepts_input_required

    @property
    def authorization(self) -> str | None:
        return self._caller.authorization

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        self.was_asked = True
        with self._clock.paused():
            return await self._caller.ask(method, params)

    async def tell(self, method: str, params: JsonObject) -> None:
        await self._caller.tell(method, params)


def watch_caller(request_context: RequestContext | None) -> WatchedCaller | None:
    """Return a watch on the context's caller, or None if there is no caller."""
    return (
        None
        if request_context is None or request_context.caller is None
        else WatchedCaller(request_context.caller, request_context)
    )


def is_input_required(result: JsonObject) -> bool:
    """Return whether the server asks for more input before it answers (protocol 2026-07-28)."""
    return result.get("resultType") == "input_required"
