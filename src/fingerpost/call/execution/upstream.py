"""What execution needs from outside as types: servers, policy and fallbacks; and the caller a server may ask
during a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from fingerpost.events import Event
from fingerpost.records import Call, Json, JsonObject, LatencyProfile, Permit
from fingerpost.servers.requests import CallerChannel, RequestClock, RequestContext


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


class WatchedCaller:
    """The caller's side of one call, with a note of whether anything was asked of them."""

    def __init__(self, caller: CallerChannel, request_context: RequestContext) -> None:
        self._caller = caller
        self._passage = request_context
        self._clock = RequestClock()  # of the attempt under way
        self.begun = False

    def build_context(self, clock: RequestClock) -> RequestContext:
        """What goes along in one attempt: with the caller watched, and its time kept by us alone."""
        self._clock = clock
        return self._passage.replace_caller(self, clock)

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
        self.begun = True
        with self._clock.paused():
            return await self._caller.ask(method, params)

    async def tell(self, method: str, params: JsonObject) -> None:
        await self._caller.tell(method, params)


def watch_caller(request_context: RequestContext | None) -> WatchedCaller | None:
    """The watch over the passage's caller; no caller, nothing to watch."""
    return (
        None
        if request_context is None or request_context.caller is None
        else WatchedCaller(request_context.caller, request_context)
    )


def is_input_required(result: JsonObject) -> bool:
    """Whether the server asks for more before it answers (2026-07-28); nothing has come of the call yet."""
    return result.get("resultType") == "input_required"
