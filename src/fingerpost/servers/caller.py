"""What goes between a caller and a server while a call runs, and is theirs alone.

A router that only forwards must carry more than arguments and a result: trace
context, progress, log messages, and the questions a server has for the person
or the model at the other end. None of it is ours to read.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, Protocol

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject
from fingerpost.servers.clock import RequestClock

# Goes to servers in this process alone: the call under way, for which they may ask who makes it.
CALL_ID: Final = "fingerpost/call"
# In the `_meta` of a failed result of our own servers: the fields of `CallFault` but for the message.
FAULT: Final = "fingerpost/fault"
# In the `_meta` of a result of our own servers: the waiting call that the person is to be asked about.
AWAITS: Final = "fingerpost/awaits"


class CallerChannel(Protocol):
    """The caller, as far as a server may talk back to them while their request runs."""

    @property
    def key(self) -> str:
        """The same for everything one caller asks in one session; two callers never share it."""
        ...

    @property
    def capabilities(self) -> JsonObject:
        """What the caller declared they can do (MCP client capabilities)."""
        ...

    @property
    def accepts_input_required(self) -> bool:
        """Whether they take an `input_required` result and come back with the answers (2026-07-28)."""
        ...

    @property
    def authorization(self) -> str | None:
        """Their own `Authorization` header; for servers configured to get it, and for nobody else."""
        ...

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Put a server's question (`elicitation/create`, `sampling/createMessage`, `roots/list`) to them.

        Raises `ToolFailed` with the caller's own code when they refuse or cannot.
        """
        ...

    async def tell(self, method: str, params: JsonObject) -> None:
        """Pass a notification on (`notifications/progress`, `notifications/message`)."""
        ...


@frozen
class RequestContext:
    """What belongs to one request beyond its arguments, carried through untouched."""

    caller: CallerChannel | None = None
    meta: JsonObject = field(
        default_factory=dict[str, Json]
    )  # `_meta` without the keys of the protocol itself
    input_responses: JsonObject | None = None  # answers to an earlier `input_required` …
    request_state: str | None = None  # … and the server's own state of it, byte for byte
    log_level: str | None = None  # from which the caller hears log messages …
    usual_level: bool = False  # … where they never said, as a session may: nothing of theirs depends on it
    authorization: str | None = field(default=None, repr=False)  # the caller's own, where no `caller` stands
    clock: RequestClock | None = None  # of whoever keeps the time already: then nobody else does

    def replace_caller(self, caller: CallerChannel, clock: RequestClock | None = None) -> RequestContext:
        """The same on behalf of this caller. (`replace` takes much longer, and every call comes by here.)"""
        return RequestContext(
            caller=caller,
            meta=self.meta,
            input_responses=self.input_responses,
            request_state=self.request_state,
            log_level=self.log_level,
            usual_level=self.usual_level,
            clock=clock,
        )

    @property
    def is_continuation(self) -> bool:
        """Whether this is a further round of a call already begun."""
        return self.input_responses is not None or self.request_state is not None
