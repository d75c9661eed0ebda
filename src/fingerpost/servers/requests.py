"""One request to a server: its context, its caller and its deadline."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import field
from types import TracebackType
from typing import Final, Protocol, Self

import anyio

from fingerpost.errors import FingerpostError, ToolTimeout
from fingerpost.frozen import frozen
from fingerpost.records import CallerAuthorization, Json, JsonObject, SubjectToken
from fingerpost.servers.errors import UNKNOWN_OUTCOME
from fingerpost.tasks import create_cancel_scope

MAX_EXTENSION_FACTOR: Final = 10  # factor by which progress can extend the timeout


class RequestClock:
    """The deadline of one request, a context manager around it. Without a scope there is no deadline.

    `timeout` is the number of seconds allowed without progress. `deadline` is the latest time in any case.
    When the block was cancelled, raise what `build_error` returns: the reason may be another than a timeout.
    """

    def __init__(
        self, scope: anyio.CancelScope | None = None, *, timeout: float = 0.0, deadline: float = math.inf
    ) -> None:
        self.scope = scope
        self.max_progress = -math.inf  # last progress reported by the server
        self._timeout = timeout
        self._extension_left = (MAX_EXTENSION_FACTOR - 1) * timeout  # seconds that progress may still add
        self._deadline = deadline
        self.loss: FingerpostError | None = None  # why the request ended, if not by timeout
        self.was_paused = False  # the caller was asked, so the request cannot be repeated
        self._waiting = 0
        self._seconds_left = math.inf

    @classmethod
    def start(cls, timeout: float, *, began: float | None = None) -> RequestClock:
        """Return a clock of its own for one request."""
        began = anyio.current_time() if began is None else began
        return cls(create_cancel_scope(began + timeout), timeout=timeout)

    def __enter__(self) -> Self:
        assert self.scope is not None
        self.scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self.scope is not None
        return self.scope.__exit__(kind, error, trace)

    @property
    def remaining(self) -> float:
        """The seconds that are left. Infinite without a deadline, and while the clock is paused."""
        return math.inf if self.scope is None else max(0.0, self.scope.deadline - anyio.current_time())

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause the deadline during a question. With several open questions it resumes after the last one."""
        if self.scope is None:
            yield
            return
        if self._waiting == 0:
            self.pause()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self.resume()

    def pause(self) -> None:
        """Stop the clock. Called by `paused` for the first open question."""
        assert self.scope is not None
        self.was_paused = True
        self._seconds_left = self.scope.deadline - anyio.current_time()
        self.scope.deadline = math.inf

    def resume(self) -> None:
        """Restart the clock with the remaining time."""
        assert self.scope is not None
        self.scope.deadline = anyio.current_time() + self._seconds_left

    def note_progress(self, progress: float) -> None:
        """Extend the deadline if the reported progress increased."""
        if self.scope is None or not progress > self.max_progress:
            return
        self.max_progress = progress
        if self._waiting:
            return  # the clock is paused
        now = anyio.current_time()
        left = self.scope.deadline - now
        more = min(self._timeout - left, self._extension_left, self._deadline - now - left)
        if more > 0:
            self._extension_left -= more
            self.scope.deadline += more

    def build_error(self, subject: str, *, server: str) -> FingerpostError:
        """Return why the request ended, if its block was cancelled."""
        message = self.format_timeout(subject, self._timeout)
        return self.loss or ToolTimeout(message, server=server, hint=UNKNOWN_OUTCOME)

    def format_timeout(self, subject: str, seconds: float) -> str:
        """Return the timeout message. `seconds` is the original timeout."""
        if self.max_progress == -math.inf or anyio.current_time() >= self._deadline:
            return f"{subject} did not answer within {round(seconds, 2):g} s"
        if self._extension_left > 0:
            return f"{subject} reported no further progress for {round(seconds, 2):g} s, and did not answer"
        longest = round(seconds * MAX_EXTENSION_FACTOR, 2)
        return f"{subject} reported progress, but did not answer within {longest:g} s"


# Sent only to in-process servers: the id of the current call, with which they can look up its caller.
CALL_ID_META_KEY: Final = "fingerpost/call"
# In `_meta` of a failed result of a built-in server: the fields of `CallFault` except the message.
FAULT_META_KEY: Final = "fingerpost/fault"
# In `_meta` of a result of a built-in server: the pending call that needs approval.
PENDING_META_KEY: Final = "fingerpost/awaits"


class CallerChannel(Protocol):
    """The connection back to a caller while their request runs."""

    @property
    def key(self) -> str:
        """Identifies one caller in one session. Two callers never share a key."""
        ...

    @property
    def capabilities(self) -> JsonObject:
        """The MCP client capabilities that the caller declared."""
        ...

    @property
    def accepts_input_required(self) -> bool:
        """Whether the caller accepts `input_required` results (protocol 2026-07-28)."""
        ...

    @property
    def authorization(self) -> CallerAuthorization | None:
        """The caller's `Authorization` header, for servers configured to get it, or the token to exchange."""
        ...

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send a server's question (`elicitation/create`, `sampling/createMessage`, `roots/list`) to the
        caller.

        Raises `ToolFailed` with the caller's error code when the caller refuses or cannot answer.
        """
        ...

    async def tell(self, method: str, params: JsonObject) -> None:
        """Forward a notification (`notifications/progress`, `notifications/message`)."""
        ...


@frozen
class RequestContext:
    """Properties of one request besides its arguments. They are forwarded unchanged."""

    caller: CallerChannel | None = None
    meta: JsonObject = field(default_factory=dict[str, Json])  # `_meta` without protocol keys
    input_responses: JsonObject | None = None  # answers to an earlier `input_required`
    request_state: str | None = None  # the server's state for these answers, unchanged
    log_level: str | None = None  # minimum level of log messages for the caller
    is_default_log_level: bool = False  # whether `log_level` is only a default that the caller did not set
    # Instead of what the caller brought.
    authorization: CallerAuthorization | None = field(default=None, repr=False)
    user: str | None = None  # whose sign-in is used, for servers with `auth = "per_user"`

    @property
    def credentials(self) -> str | None:
        """The `Authorization` header for a server that identifies callers."""
        given = self._given_authorization
        return given if isinstance(given, str) else None

    @property
    def subject_token(self) -> str | None:
        """The caller's token, for servers with `auth = "exchange"`."""
        given = self._given_authorization
        return given.value if isinstance(given, SubjectToken) else parse_bearer(given or "")

    @property
    def _given_authorization(self) -> CallerAuthorization | None:
        if self.authorization is not None or self.caller is None:
            return self.authorization
        return self.caller.authorization

    def replace_caller(self, caller: CallerChannel) -> RequestContext:
        """Return a copy for this caller. `dataclasses.replace` is slower, and every call uses this."""
        return RequestContext(
            caller=caller,
            meta=self.meta,
            input_responses=self.input_responses,
            request_state=self.request_state,
            log_level=self.log_level,
            is_default_log_level=self.is_default_log_level,
            user=self.user,
        )

    @property
    def is_continuation(self) -> bool:
        """Whether this continues a call that was already started."""
        return self.input_responses is not None or self.request_state is not None


def parse_bearer(header: str) -> str | None:
    """Return the token of an `Authorization` header, or None if it has another scheme."""
    scheme, _, value = header.strip().partition(" ")
    return value.strip() or None if scheme.lower() == "bearer" else None


LOG_METHOD = "notifications/message"
QUESTION_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}

NotificationCallback = Callable[[str, JsonObject, str | None], None]


class ProgressCallback(Protocol):
    """Receives the progress of a call."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...
