"""All errors that Fingerpost raises, grouped by who can act on them.

    FingerpostError
    ├── ConfigError              fix your file, environment or arguments
    ├── StoreError               the database:    StoreUnavailable, StoreTooNew
    ├── ServerError              a tool server:   ServerUnavailable, ServerReplyInvalid,
    │                                             ToolTimeout, ToolFailed
    ├── CallError                the call itself: UnknownServer, UnknownTool
    ├── ModelError               a language model: ModelUnavailable, ModelTimeout,
    │                                             ModelRefused, ModelReplyInvalid
    └── LimitReached             a limit we set:  ResponseTooLarge, QuotaReached

"Not needed", "not confident" and "needs approval" are outcomes, not errors. Each error has a `hint`: the next
step for the reader.
"""

from __future__ import annotations


class FingerpostError(Exception):
    """The base class. `str(error)` says what happened, `hint` what to do about it. Tracebacks show both."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(hint)


class ConfigError(FingerpostError):
    """A setting is invalid. Contains all problems found, not only the first."""

    def __init__(self, message: str, *, hint: str | None = None, problems: tuple[object, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class StoreError(FingerpostError):
    """A database error."""


class StoreUnavailable(StoreError):
    """The database cannot be opened, is locked for too long, is corrupt, or the disk is full."""


class StoreTooNew(StoreError):
    """The database was written by a newer Fingerpost."""


class ServerError(FingerpostError):
    """An error of a tool server. `server` names it."""

    def __init__(self, message: str, *, server: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.server = server


class ServerUnavailable(ServerError):
    """The server cannot be reached, or disconnected before it responded."""


class ServerReplyInvalid(ServerError):
    """The server's response violates the protocol."""


class ToolTimeout(ServerError):
    """The deadline passed before the server responded."""


class ToolFailed(ServerError):
    """The server responded with an error. `code` and `data` are the server's."""

    def __init__(
        self, message: str, *, server: str, code: int, data: object = None, hint: str | None = None
    ) -> None:
        super().__init__(message, server=server, hint=hint)
        self.code = code
        self.data = data


class CallError(FingerpostError):
    """The call, or the decision about it, is not possible: an unknown name, invalid arguments, or a tool that
    changed.
    """


class UnknownServer(CallError):
    """No server has this name."""


class UnknownTool(CallError):
    """No tool has this name."""


class ModelError(FingerpostError):
    """An error of a language model. `model` names it; `status` is the HTTP status of its server, if known."""

    def __init__(
        self, message: str, *, model: str, hint: str | None = None, status: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.model = model
        self.status = status


class ModelUnavailable(ModelError):
    """The model cannot be reached, is overloaded, or failed internally."""


class ModelTimeout(ModelError):
    """The deadline passed before the model responded."""


class ModelRefused(ModelError):
    """The model's server refuses the request: wrong key, unknown model, or prompt too long."""


class ModelReplyInvalid(ModelError):
    """The response violates the protocol or is far too long."""


class LimitReached(FingerpostError):
    """One of our limits was exceeded."""


class QuotaReached(LimitReached):
    """A caller used up a quota. `limit` names it, `seconds` is when to try again."""

    def __init__(self, message: str, *, limit: str, seconds: int) -> None:
        super().__init__(message, hint=f"Try again in {seconds} s.")
        self.limit = limit
        self.seconds = seconds


class ResponseTooLarge(LimitReached):
    """A server sent more bytes than allowed."""
