"""What a server says and asks while one request of ours runs.

Progress, log messages and questions belong to the caller of that one request.
Where a transport does not say which request that is, it is only guessed when
there is no choice: a question put to the wrong person is worse than none.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, cast

import anyio
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND, RequestId

from fingerpost.errors import FingerpostError, ToolFailed
from fingerpost.records import JsonObject
from fingerpost.servers.caller import CallerSide, Passage
from fingerpost.servers.clock import Clock

logger = logging.getLogger("fingerpost.servers")

PROGRESS = "notifications/progress"
LOG = "notifications/message"
# What concerns everybody, on whichever stream it comes; the rest of a request's own stream is its caller's.
EVERYBODYS = frozenset(
    {f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}
    | {"notifications/resources/updated", "notifications/cancelled"}
)
QUESTIONS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
WAITING_NOTICES = 1000  # for a caller who reads slower than the server writes; the oldest go first
FLUSH_SECONDS = 5.0  # for notices that came before the result

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


class Progress(Protocol):
    """Told how far a call has come."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class Talk:
    """The side talk of one request."""

    def __init__(
        self,
        server: str,
        request: RequestId,
        *,
        passage: Passage | None = None,
        on_progress: Progress | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.request = request
        self.scope: anyio.CancelScope | None = None  # cancelled when the connection is gone
        self.lost = False
        self._server = server
        self._caller = passage.caller if passage is not None else None
        self._on_progress = on_progress
        self._clock = clock or Clock()
        self._notices: deque[tuple[str, JsonObject]] = deque(maxlen=WAITING_NOTICES)
        self._pumping: anyio.CancelScope | None = None
        self._quiet: anyio.Event | None = None

    @property
    def caller_key(self) -> str | None:
        return None if self._caller is None else self._caller.key

    @property
    def wants_progress(self) -> bool:
        return self._on_progress is not None or self._caller is not None

    # -- what the server says -----------------------------------------------------------------------

    async def hear(self, method: str, params: JsonObject) -> None:
        """Pass a notification on. What the caller does with it never harms the request."""
        try:
            if method == PROGRESS:
                await self._progress(params)
            elif self._caller is not None:
                await self._caller.tell(method, params)
        except Exception:
            logger.exception("a notice of %s could not be passed on", self._server)

    async def _progress(self, params: JsonObject) -> None:
        if self._on_progress is not None:
            progress, total, message = params.get("progress"), params.get("total"), params.get("message")
            if isinstance(progress, int | float):
                await self._on_progress(
                    float(progress),
                    float(total) if isinstance(total, int | float) else None,
                    message if isinstance(message, str) else None,
                )
        if self._caller is not None:
            # The token is ours; the caller's own is put in where their request is known.
            rest = {key: value for key, value in params.items() if key != "progressToken"}
            await self._caller.tell(PROGRESS, rest)

    def push(self, method: str, params: JsonObject, spawn: Spawn) -> None:
        """Like `hear`, for those who must not wait. Order is kept."""
        self._notices.append((method, params))
        if self._pumping is None:
            self._pumping = anyio.CancelScope()
            self._quiet = anyio.Event()
            spawn(self._pump)

    async def _pump(self) -> None:
        assert self._pumping is not None
        try:
            with self._pumping:
                while self._notices:
                    await self.hear(*self._notices.popleft())
        finally:
            self._pumping = None
            if self._quiet is not None:
                self._quiet.set()

    async def flush(self) -> None:
        """Let everything that came before the result go out before it."""
        if self._pumping is not None and self._quiet is not None:
            with anyio.move_on_after(FLUSH_SECONDS):
                await self._quiet.wait()

    def abandon(self) -> None:
        """The connection is gone."""
        self.lost = True
        if self.scope is not None:
            self.scope.cancel()

    def close(self) -> None:
        """The request is over: nobody waits for what is left."""
        self._notices.clear()
        if self._pumping is not None:
            self._pumping.cancel()

    # -- what the server asks -----------------------------------------------------------------------

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        """The caller's answer to a question of the server. Raises `MCPError` for the server."""
        try:
            return await put_question(self._server, self._caller, method, params, self._clock)
        except ToolFailed as error:
            raise MCPError(error.code, str(error), error.data) from error
        except FingerpostError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error


async def put_question(
    server: str, caller: CallerSide | None, method: str, params: JsonObject, clock: Clock
) -> JsonObject:
    """Ask the caller, if there is one who can be asked this. Raises `ToolFailed`."""
    ability = QUESTIONS.get(method)
    if ability is None:
        raise ToolFailed(f"{method!r:.80} is not known here", server=server, code=METHOD_NOT_FOUND)
    if caller is None:
        message = f"{method} cannot be answered: nobody is there to be asked"
        raise ToolFailed(message, server=server, code=METHOD_NOT_FOUND)
    if ability not in caller.capabilities:
        message = f"{method} cannot be answered: the caller does not offer {ability}"
        raise ToolFailed(message, server=server, code=METHOD_NOT_FOUND)
    with clock.stopped():
        return await caller.ask(method, params)


class Talks:
    """The requests under way on one connection."""

    def __init__(self, server: str, outside: Callable[[str, JsonObject], None]) -> None:
        self._server = server
        self._outside = outside  # told of what belongs to no request
        self._open: dict[RequestId, Talk] = {}
        self._ours: dict[RequestId, Talk] = {}  # on our own behalf: what a server asks is not about them

    def __len__(self) -> int:
        return len(self._open)

    def open(self, talk: Talk, *, ours: bool = False) -> None:
        (self._ours if ours else self._open)[talk.request] = talk

    def close(self, talk: Talk) -> None:
        self._open.pop(talk.request, None)
        self._ours.pop(talk.request, None)
        talk.close()

    def abandon(self) -> None:
        """The connection is gone, and with it whatever was asked on it."""
        for talk in (*self._open.values(), *self._ours.values()):
            talk.abandon()

    def of(self, request: RequestId | None) -> Talk | None:
        """The talk of this request; without one, the only talk there is."""
        if request is not None:
            return self._open.get(coerce_request_id(request))
        return next(iter(self._open.values())) if len(self._open) == 1 else None

    def notice(
        self, method: str, params: Mapping[str, Any] | None, spawn: Spawn, *, of: RequestId | None
    ) -> None:
        """Bring a notification to whom it concerns, without waiting for them.

        A log message while several callers' requests run may be about any of them: told to all, it
        would tell each of the others' affairs. It is told to nobody.
        """
        talk = self._concerned(method, params or {}, of)
        if talk is not None:
            talk.push(method, params or {}, spawn)
        elif method == LOG and self._open:
            logger.debug("%s: a log message names none of %d requests", self._server, len(self._open))
        else:
            self.tell_outside(method, params or {})

    async def take_notice(self, method: str, params: JsonObject, talk: Talk) -> None:
        """A notification that came on the request's own stream: wait until its caller has it."""
        if method in EVERYBODYS:
            self.tell_outside(method, params)
        else:
            await talk.hear(method, params)

    def tell_outside(self, method: str, params: JsonObject) -> None:
        if method not in (PROGRESS, "notifications/cancelled"):
            self._outside(method, params)

    def _concerned(self, method: str, params: Mapping[str, Any], of: RequestId | None) -> Talk | None:
        if method == PROGRESS:
            token = as_request_id(params.get("progressToken"))
            return None if token is None else self._open.get(coerce_request_id(token))
        if method == LOG:
            return self.of(of) or (self._of_the_only_caller() if of is None else None)
        return self.of(of) if of is not None and method not in EVERYBODYS else None

    def _of_the_only_caller(self) -> Talk | None:
        """The latest request, where all are of one caller."""
        callers = {talk.caller_key for talk in self._open.values()}
        return next(reversed(self._open.values())) if len(callers) == 1 and None not in callers else None

    async def question(
        self, method: str, params: Mapping[str, Any] | None, *, of: RequestId | None
    ) -> dict[str, Any]:
        """Answer a request of the server. Raises `MCPError`."""
        if method == "ping":
            return {}
        talk = self.of(of)
        if talk is None and method in QUESTIONS and self._open:
            message = (
                f"{method} cannot be answered: {len(self._open)} requests run, and it names none of them"
            )
            raise MCPError(METHOD_NOT_FOUND, message)
        talk = talk or Talk(self._server, 0)
        return cast("dict[str, Any]", await talk.answer(method, params or {}))
