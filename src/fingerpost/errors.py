"""Every error Fingerpost raises, split by who can act on it.

    FingerpostError
    ├── ConfigError              fix your file, environment or arguments
    ├── StoreError               the database:    StoreUnavailable, StoreTooNew
    ├── ServerError              a tool server:   ServerUnavailable, ServerReplyInvalid,
    │                                             ToolTimeout, ToolFailed
    ├── CallError                the call itself: UnknownServer, UnknownTool
    ├── ModelError               a language model: ModelUnavailable, ModelTimeout,
    │                                             ModelRefused, ModelReplyInvalid
    └── LimitReached             a bound we set:  ResponseTooLarge

"Not needed", "not confident" and "needs approval" are outcomes, not errors.
Each error carries a `hint`: the next step for the person who reads it.
"""

from __future__ import annotations


class FingerpostError(Exception):
    """The root. `str(error)` says what happened, `hint` what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(FingerpostError):
    """A setting is wrong. Carries every problem found, not only the first."""

    def __init__(self, message: str, *, hint: str | None = None, problems: tuple[object, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class StoreError(FingerpostError):
    """The database refused."""


class StoreUnavailable(StoreError):
    """The database cannot be opened, is locked for too long, is corrupt, or the disk is full."""


class StoreTooNew(StoreError):
    """The database was written by a newer Fingerpost."""


class ServerError(FingerpostError):
    """A tool server did something wrong. `server` names it."""

    def __init__(self, message: str, *, server: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.server = server


class ServerUnavailable(ServerError):
    """The server cannot be reached, or went away before it answered."""


class ServerReplyInvalid(ServerError):
    """The server answered with something that is not the protocol."""


class ToolTimeout(ServerError):
    """The deadline passed before the server answered."""


class ToolFailed(ServerError):
    """The server answered with an error. `code` and `data` are the server's own."""

    def __init__(
        self, message: str, *, server: str, code: int, data: object = None, hint: str | None = None
    ) -> None:
        super().__init__(message, server=server, hint=hint)
        self.code = code
        self.data = data


class CallError(FingerpostError):
    """The call names something that does not exist."""


class UnknownServer(CallError):
    """No server has this name."""


class UnknownTool(CallError):
    """No tool has this name."""


class ModelError(FingerpostError):
    """A language model did not do what was asked. `model` names it; `status` is its server's, where told."""

    def __init__(
        self, message: str, *, model: str, hint: str | None = None, status: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.model = model
        self.status = status


class ModelUnavailable(ModelError):
    """It cannot be reached, is overloaded, or failed on its own side."""


class ModelTimeout(ModelError):
    """The deadline passed before it answered."""


class ModelRefused(ModelError):
    """It will not take the request: a wrong key, an unknown model, a prompt that is too long."""


class ModelReplyInvalid(ModelError):
    """It answered with something that is not the protocol, or with far too much of it."""


class LimitReached(FingerpostError):
    """A limit of ours stopped the work."""


class ResponseTooLarge(LimitReached):
    """A server sent more bytes than we are willing to hold."""
