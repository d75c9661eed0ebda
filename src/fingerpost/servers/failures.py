"""From what went wrong to what a person reads: one place for every reason and hint.

Transports fail a single request by putting one of our errors into the `data`
of a JSON-RPC error they make up (`to_reply`). No server can forge that: what
comes over a wire is JSON, never one of our objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import cast

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT, ErrorData
from pydantic import ValidationError

from fingerpost.errors import (
    FingerpostError,
    LimitReached,
    ResponseTooLarge,
    ServerReplyInvalid,
    ServerUnavailable,
    ToolFailed,
    ToolTimeout,
)
from fingerpost.records import to_valid_text
from fingerpost.redaction import scrub
from fingerpost.servers.later import parse_retry_after
from fingerpost.servers.lifeline import ConnectionFailure, RetryPace
from fingerpost.servers.proxies import RouteBlocked
from fingerpost.servers.soundness import find_json_fault
from fingerpost.servers.tls import find_tls_fault

MAX_REASON_LENGTH = 500
UNKNOWN_OUTCOME = "whether the call took effect is unknown; check before you repeat it"
CONTINUATION_KEYS = frozenset({"inputResponses", "requestState"})  # of a request that answers questions


class SignInRequired(ServerUnavailable):
    """The server wants a person to sign in first."""


class SessionForgotten(ServerUnavailable):
    """The server no longer knows our session. It is there, and answers: nothing is wrong with it."""


class SessionRejected(SessionForgotten):
    """It turned a request away for that, which therefore did not run, and asks for a new handshake."""


class RequestInterrupted(SessionForgotten):
    """The request was under way when another one found that out. Whether it ran is unknown."""


class RequestNotExecuted(ServerUnavailable):
    """The request surely did not run."""


class RequestNotSent(RequestNotExecuted):
    """No connection could be made, so nothing of the request was sent."""


class ServerBusy(ServerUnavailable):
    """It cannot do it now. `retry_after` is for how many seconds it asks to be left alone, where it says."""

    def __init__(
        self, message: str, *, server: str, hint: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, server=server, hint=hint)
        self.retry_after = retry_after


class RateLimited(ServerBusy, RequestNotExecuted):
    """It was asked too often, and turned this request away."""


class ConnectionBroken(ServerUnavailable):
    """The connection was there and is not any more. `mute`: without a word of HTTP having been heard."""

    def __init__(self, message: str, *, server: str, hint: str | None = None, mute: bool = False) -> None:
        super().__init__(message, server=server, hint=hint)
        self.mute = mute


def build_sign_in_required(server: str, detail: str) -> SignInRequired:
    message = f"{server} needs signing in ({detail})"
    return SignInRequired(message, server=server, hint=f"run: fingerpost servers login {server}")


def build_caller_key_required(server: str) -> SignInRequired:
    message = f"{server} needs the caller's own key"
    hint = "the caller sends it as `Authorization`, beside the `X-API-Key` of Fingerpost"
    return SignInRequired(message, server=server, hint=hint)


def build_too_large(server: str, limit: int) -> ResponseTooLarge:
    message = f"{server} sent more than {limit:,} bytes in one reply"
    return ResponseTooLarge(message, hint="ask the tool for less, or raise limits.response_bytes")


def to_reply(error: FingerpostError) -> ErrorData:
    """Our error, in the shape in which it can travel to the one caller it belongs to."""
    return ErrorData(code=INTERNAL_ERROR, message=str(error), data=error)


def clean_text(text: str) -> str:
    """Text from outside, made safe to show: no secrets, one paragraph, a bounded length."""
    text = " ".join(to_valid_text(scrub(text)).split())
    return text if len(text) <= MAX_REASON_LENGTH else text[: MAX_REASON_LENGTH - 1] + "…"


def from_reply(server: str, error: MCPError, *, failure: ConnectionFailure | None) -> FingerpostError:
    """What the answer `error` means for the caller of one request."""
    data: object = error.data
    if isinstance(data, FingerpostError):
        return data
    if error.code == REQUEST_TIMEOUT and data is None:
        return ToolTimeout(f"{server} did not answer in time", server=server)
    # Servers use this code for errors of their own, so the library's words decide.
    if error.code == CONNECTION_CLOSED and error.message.startswith(("Connection closed", "SSE stream")):
        reason = failure.reason if failure is not None else clean_text(error.message)
        message = f"{server} went away before it answered: {reason}"
        kind = (
            RequestInterrupted if failure is not None and failure.pace is RetryPace.NOW else ServerUnavailable
        )
        return kind(message, server=server, hint=UNKNOWN_OUTCOME)
    if find_json_fault(data) is not None:
        data = None  # the error itself is told; what goes with it cannot be passed on
    return ToolFailed(
        clean_text(error.message) or "error without a message", server=server, code=error.code, data=data
    )


def from_exception(server: str, error: BaseException) -> FingerpostError:
    """An error of ours for whatever came out of a transport or the MCP library."""
    for leaf in iterate_leaves(error):
        known = _translate_known(server, leaf)
        if known is not None:
            return known
    detail = clean_text(f"{type(error).__name__}: {error}")
    return ServerUnavailable(f"{server} cannot be reached: {detail}", server=server)


def _translate_known(server: str, error: BaseException) -> FingerpostError | None:
    if isinstance(error, FingerpostError):
        return error
    if isinstance(error, MCPError):
        return from_reply(server, error, failure=None)
    if isinstance(error, ValidationError):
        message = f"{server} answered the handshake with something that is not the protocol"
        return ServerReplyInvalid(message, server=server, hint="report this to the server's author")
    if isinstance(error, OAuthFlowError):
        return build_sign_in_required(server, clean_text(str(error)))
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL):
        return from_http(server, error)
    if isinstance(error, OSError):
        return _from_os(server, error)
    return None


def from_http(server: str, error: httpx2.HTTPError | httpx2.InvalidURL) -> FingerpostError:
    """A request that got no usable HTTP answer."""
    if isinstance(error, httpx2.HTTPStatusError):
        return build_http_refusal(server, error.response.status_code)
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        message = f"the address of {server} is not usable: {clean_text(str(error))}"
        return ServerUnavailable(message, server=server, hint="correct its url in the configuration")
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return build_not_sent(server, error)
    return build_connection_broken(server, error)


def build_not_sent(server: str, error: BaseException) -> RequestNotSent:
    """None could be made."""
    reason, hint = clean_text(str(error)), "is the server running at this address?"
    if isinstance(error, RouteBlocked):
        hint = error.hint
    elif (fault := find_tls_fault(error)) is not None:
        reason, hint = clean_text(fault.reason), fault.hint
    elif isinstance(error, httpx2.ConnectTimeout):
        reason = "it did not answer in time"
    return RequestNotSent(
        f"no connection to {server}: {reason or type(error).__name__}", server=server, hint=hint
    )


def build_connection_broken(server: str, error: BaseException) -> ConnectionBroken:
    """The connection was there and is not any more."""
    reason, mute = clean_text(str(error)) or type(error).__name__, False
    if isinstance(error, httpx2.RemoteProtocolError):
        # The library's words show pieces of what came, as Python writes them.
        mute = True
        closed = "disconnected" in reason
        reason = "the server closed the connection" if closed else "what it answers is not valid HTTP"
    message = f"the connection to {server} broke: {reason}"
    return ConnectionBroken(message, server=server, hint=UNKNOWN_OUTCOME, mute=mute)


def build_http_refusal(server: str, status: int, retry_after: str | None = None) -> FingerpostError:
    """An HTTP status that is not a reply, and what was said with it of when to come again."""
    if status in (401, 403):
        return build_sign_in_required(server, f"HTTP {status}")
    if status == 404:
        message = f"{server} answered HTTP 404: there is no MCP server at this address"
        return ServerUnavailable(message, server=server, hint="check the path of its url, often /mcp or /sse")
    if status == 407:
        message = f"the proxy on the way to {server} wants a user and a password (HTTP 407)"
        return RequestNotSent(
            message, server=server, hint="give them in HTTP_PROXY, or name its host in NO_PROXY"
        )
    wait = parse_retry_after(retry_after)
    when = None if wait is None else f"it asks to be left alone for {ceil(wait)} s: try again then"
    if status == 429:
        message = f"{server} was asked too often and turned this request away (HTTP 429)"
        hint = when or "wait a while, and ask it less often"
        return RateLimited(message, server=server, hint=hint, retry_after=wait)
    hint = when or "the server's own log says more"
    return ServerBusy(f"{server} answered HTTP {status}", server=server, hint=hint, retry_after=wait)


def mark_continuation(error: FingerpostError, params: Mapping[str, object] | None) -> FingerpostError:
    """The same error where the request goes on with one that the server was at work on: that did run."""
    if isinstance(error, RequestNotExecuted) and params and CONTINUATION_KEYS & params.keys():
        return ServerUnavailable(str(error), server=error.server, hint=UNKNOWN_OUTCOME)
    return error


def _from_os(server: str, error: OSError) -> FingerpostError:
    if isinstance(error, FileNotFoundError):
        message = f"{server} cannot be started: {clean_text(str(error.filename))} was not found"
        return ServerUnavailable(message, server=server, hint="install it, or correct command and cwd")
    if isinstance(error, PermissionError):
        message = f"{server} cannot be started: no permission to run {clean_text(str(error.filename))}"
        return ServerUnavailable(
            message, server=server, hint="make the file executable, or correct the command"
        )
    return ServerUnavailable(f"{server} cannot be reached: {clean_text(str(error))}", server=server)


def iterate_leaves(error: BaseException) -> Iterator[BaseException]:
    """The single errors inside a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from iterate_leaves(part)
    else:
        yield error


def build_connection_failure(
    error: FingerpostError, *, cause: BaseException | None = None
) -> ConnectionFailure:
    """What an error means for the connection as a whole."""
    pace = RetryPace.SOON
    if isinstance(error, SessionRejected):
        pace = RetryPace.NOW
    elif isinstance(error, SignInRequired) or (cause is not None and _needs_a_person(cause)):
        pace = RetryPace.SLOW
    # Of a connection nothing can have taken effect: that is said of calls.
    hint = None if error.hint == UNKNOWN_OUTCOME else error.hint
    return ConnectionFailure(
        reason=str(error), pace=pace, hint=hint, refused=isinstance(error, SignInRequired)
    )


def _needs_a_person(cause: BaseException) -> bool:
    return any(
        isinstance(leaf, FileNotFoundError | PermissionError | httpx2.InvalidURL | RouteBlocked)
        for leaf in iterate_leaves(cause)
    )


def is_connection_lost(error: FingerpostError) -> bool:
    """Whether the connection itself failed, not just one request on it."""
    return isinstance(error, ServerUnavailable | LimitReached)
