"""The questions a server puts to the caller while their call runs.

Once something was asked, the call can no longer be begun anew: a person would be
asked twice, and a fallback would get answers meant for another tool. And while a
person thinks, the tool's time stands still: it is not the tool that is slow.
"""

from __future__ import annotations

from fingerpost.records import JsonObject
from fingerpost.servers.caller import CallerChannel, RequestContext
from fingerpost.servers.clock import RequestClock


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
