"""Errors of servers, as callers get them. `failures` makes them from the errors of the libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.errors import FingerpostError, LimitReached, ResponseTooLarge, ServerUnavailable
from fingerpost.records import to_valid_text
from fingerpost.redaction import scrub
from fingerpost.servers.connection_state import ConnectionFailure, RetryPace

# Codes of JSON-RPC as in `mcp_types.jsonrpc`, which is loaded with the first connection.
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

MAX_REASON_LENGTH = 500
UNKNOWN_OUTCOME = "whether the call took effect is unknown; check before you repeat it"
# Params of a request that answers questions.
CONTINUATION_KEYS = frozenset({"inputResponses", "requestState"})


class SignInRequired(ServerUnavailable):
    """The server requires authentication."""


class SessionForgotten(ServerUnavailable):
    """The server no longer knows our session. The server itself works."""


class SessionRejected(SessionForgotten):
    """The server does not know the session. The request did not run; a new handshake is needed."""


class RequestInterrupted(SessionForgotten):
    """Another request found that the session is unknown. Whether this one ran is unknown."""


class SubscriptionEnded(ServerUnavailable):
    """The server ended a subscription that it had accepted."""


class RequestNotExecuted(ServerUnavailable):
    """The request did not run."""


class RequestNotSent(RequestNotExecuted):
    """No connection could be made, so no part of the request was sent."""


class ServerBusy(ServerUnavailable):
    """The server cannot handle the request now. `retry_after` is the delay in seconds it asked for."""

    def __init__(
        self, message: str, *, server: str, hint: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, server=server, hint=hint)
        self.retry_after = retry_after


class RateLimited(ServerBusy, RequestNotExecuted):
    """The server rejected the request because of too many requests."""


class ConnectionBroken(ServerUnavailable):
    """An open connection was lost. `no_valid_response` is true when no valid HTTP response was received."""

    def __init__(
        self, message: str, *, server: str, hint: str | None = None, no_valid_response: bool = False
    ) -> None:
        super().__init__(message, server=server, hint=hint)
        self.no_valid_response = no_valid_response


def build_sign_in_required(server: str, detail: str) -> SignInRequired:
    message = f"{server} needs signing in ({detail})"
    return SignInRequired(message, server=server, hint=f"run: fingerpost servers login {server}")


def build_caller_key_required(server: str) -> SignInRequired:
    message = f"{server} needs the caller's own key"
    hint = "the caller sends it as `Authorization`, beside the `X-API-Key` of Fingerpost"
    return SignInRequired(message, server=server, hint=hint)


def build_user_sign_in_required(server: str, page: str | None) -> SignInRequired:
    message = f"{server} needs you to sign in with your own account"
    hint = f"open {page}" if page is not None else "sign in on the console page of your sign-ins"
    return SignInRequired(message, server=server, hint=f"{hint}, then try again")


def build_caller_token_required(server: str, issuer: str) -> SignInRequired:
    message = f"{server} needs your own token of {issuer}"
    hint = "send it to Fingerpost as `Authorization: Bearer …`"
    return SignInRequired(message, server=server, hint=hint)


def build_token_refused(server: str, detail: str) -> SignInRequired:
    message = f"your token could not be exchanged for one of {server}: {detail}"
    return SignInRequired(message, server=server, hint="sign in again where your token comes from")


def build_exchange_refused(server: str, detail: str) -> ServerUnavailable:
    message = f"tokens cannot be exchanged for those of {server}: {detail}"
    hint = "the operator checks the oauth entry of the server: client, issuer, audience and scopes"
    return ServerUnavailable(message, server=server, hint=hint)


def build_too_large(server: str, limit: int) -> ResponseTooLarge:
    message = f"{server} sent more than {limit:,} bytes in one reply"
    return ResponseTooLarge(message, hint="ask the tool for less, or raise limits.response_bytes")


def clean_text(text: str) -> str:
    """Return external text in a safe form: no secrets, one paragraph, limited length."""
    text = " ".join(to_valid_text(scrub(text)).split())
    return text if len(text) <= MAX_REASON_LENGTH else text[: MAX_REASON_LENGTH - 1] + "…"


def mark_continuation(error: FingerpostError, params: Mapping[str, object] | None) -> FingerpostError:
    """Return an error with unknown outcome if the request continues an earlier one, which did run."""
    if isinstance(error, RequestNotExecuted) and params and CONTINUATION_KEYS & params.keys():
        return ServerUnavailable(str(error), server=error.server, hint=UNKNOWN_OUTCOME)
    return error


def build_connection_failure(error: FingerpostError, *, needs_user: bool = False) -> ConnectionFailure:
    """Convert an error to the connection's failure. `needs_user`: trying again soon is of no use."""
    pace = RetryPace.SOON
    if isinstance(error, SessionRejected):
        pace = RetryPace.NOW
    elif isinstance(error, SignInRequired) or needs_user:
        pace = RetryPace.SLOW
    # This hint applies to calls only.
    hint = None if error.hint == UNKNOWN_OUTCOME else error.hint
    return ConnectionFailure(
        reason=str(error), pace=pace, hint=hint, refused=isinstance(error, SignInRequired)
    )


def is_connection_lost(error: FingerpostError) -> bool:
    """Return whether the whole connection failed, not only one request."""
    return isinstance(error, ServerUnavailable | LimitReached)
