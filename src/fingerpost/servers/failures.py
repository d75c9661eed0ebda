"""From what went wrong to what a person reads: one place for every reason and hint.

Transports fail a single request by putting one of our errors into the `data`
of a JSON-RPC error they make up (`as_reply`). No server can forge that: what
comes over a wire is JSON, never one of our objects.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from fingerpost.records import as_valid_text
from fingerpost.redaction import scrub
from fingerpost.servers.lifeline import Pace, Setback

LONGEST_REASON = 500
UNKNOWN_OUTCOME = "whether the call took effect is unknown; check before you repeat it"


class SignInNeeded(ServerUnavailable):
    """The server wants a person to sign in first."""


class Forgotten(ServerUnavailable):
    """The server no longer knows our session. It is there, and answers: nothing is wrong with it."""


class SessionLost(Forgotten):
    """It turned a request away for that, which therefore did not run, and asks for a new handshake."""


class CutOff(Forgotten):
    """The request was under way when another one found that out. Whether it ran is unknown."""


def sign_in_needed(server: str, detail: str) -> SignInNeeded:
    message = f"{server} needs signing in ({detail})"
    return SignInNeeded(message, server=server, hint=f"run: fingerpost servers login {server}")


def too_large(server: str, limit: int) -> ResponseTooLarge:
    message = f"{server} sent more than {limit:,} bytes in one reply"
    return ResponseTooLarge(message, hint="ask the tool for less, or raise limits.response_bytes")


def as_reply(error: FingerpostError) -> ErrorData:
    """Our error, in the shape in which it can travel to the one caller it belongs to."""
    return ErrorData(code=INTERNAL_ERROR, message=str(error), data=error)


def readable(text: str) -> str:
    """Text from outside, made safe to show: no secrets, one paragraph, a bounded length."""
    text = " ".join(as_valid_text(scrub(text)).split())
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


def from_reply(server: str, error: MCPError, *, loss: Setback | None) -> FingerpostError:
    """What the answer `error` means for the caller of one request."""
    data: object = error.data
    if isinstance(data, FingerpostError):
        return data
    if error.code == REQUEST_TIMEOUT and data is None:
        return ToolTimeout(f"{server} did not answer in time", server=server)
    # Servers use this code for errors of their own, so the library's words decide.
    if error.code == CONNECTION_CLOSED and error.message.startswith(("Connection closed", "SSE stream")):
        reason = loss.reason if loss is not None else readable(error.message)
        message = f"{server} went away before it answered: {reason}"
        kind = CutOff if loss is not None and loss.pace is Pace.NOW else ServerUnavailable
        return kind(message, server=server, hint=UNKNOWN_OUTCOME)
    return ToolFailed(
        readable(error.message) or "error without a message", server=server, code=error.code, data=data
    )


def from_exception(server: str, error: BaseException) -> FingerpostError:
    """An error of ours for whatever came out of a transport or the MCP library."""
    for leaf in leaves(error):
        known = _known(server, leaf)
        if known is not None:
            return known
    detail = readable(f"{type(error).__name__}: {error}")
    return ServerUnavailable(f"{server} cannot be reached: {detail}", server=server)


def _known(server: str, error: BaseException) -> FingerpostError | None:
    if isinstance(error, FingerpostError):
        return error
    if isinstance(error, MCPError):
        return from_reply(server, error, loss=None)
    if isinstance(error, ValidationError):
        message = f"{server} answered the handshake with something that is not the protocol"
        return ServerReplyInvalid(message, server=server, hint="report this to the server's author")
    if isinstance(error, OAuthFlowError):
        return sign_in_needed(server, readable(str(error)))
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL):
        return from_http(server, error)
    if isinstance(error, OSError):
        return _from_os(server, error)
    return None


def from_http(server: str, error: httpx2.HTTPError | httpx2.InvalidURL) -> FingerpostError:
    """A request that got no usable HTTP answer."""
    if isinstance(error, httpx2.HTTPStatusError):
        return refusal(server, error.response.status_code)
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        message = f"the address of {server} is not usable: {readable(str(error))}"
        return ServerUnavailable(message, server=server, hint="correct its url in the configuration")
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return no_connection(server, error)
    return broken(server, error)


def no_connection(server: str, error: BaseException) -> ServerUnavailable:
    message = f"no connection to {server}: {readable(str(error)) or type(error).__name__}"
    return ServerUnavailable(message, server=server, hint="is the server running at this address?")


def broken(server: str, error: BaseException) -> ServerUnavailable:
    """The connection was there and is not any more."""
    message = f"the connection to {server} broke: {readable(str(error)) or type(error).__name__}"
    return ServerUnavailable(message, server=server, hint=UNKNOWN_OUTCOME)


def refusal(server: str, status: int) -> FingerpostError:
    """An HTTP status that is not a reply."""
    if status in (401, 403):
        return sign_in_needed(server, f"HTTP {status}")
    if status == 404:
        message = f"{server} answered HTTP 404: there is no MCP server at this address"
        return ServerUnavailable(message, server=server, hint="check the path of its url, often /mcp or /sse")
    message = f"{server} answered HTTP {status}"
    return ServerUnavailable(message, server=server, hint="the server's own log says more")


def _from_os(server: str, error: OSError) -> FingerpostError:
    if isinstance(error, FileNotFoundError):
        message = f"{server} cannot be started: {readable(str(error.filename))} was not found"
        return ServerUnavailable(message, server=server, hint="install it, or correct command and cwd")
    if isinstance(error, PermissionError):
        message = f"{server} cannot be started: no permission to run {readable(str(error.filename))}"
        return ServerUnavailable(
            message, server=server, hint="make the file executable, or correct the command"
        )
    return ServerUnavailable(f"{server} cannot be reached: {readable(str(error))}", server=server)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The single errors inside a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(part)
    else:
        yield error


def setback_of(error: FingerpostError, *, cause: BaseException | None = None) -> Setback:
    """What an error means for the connection as a whole."""
    pace = Pace.SOON
    if isinstance(error, SessionLost):
        pace = Pace.NOW
    elif isinstance(error, SignInNeeded) or (cause is not None and _needs_a_person(cause)):
        pace = Pace.SLOW
    return Setback(reason=str(error), pace=pace, hint=error.hint)


def _needs_a_person(cause: BaseException) -> bool:
    return any(
        isinstance(leaf, FileNotFoundError | PermissionError | httpx2.InvalidURL) for leaf in leaves(cause)
    )


def is_loss(error: FingerpostError) -> bool:
    """Whether the connection itself failed, not just one request on it."""
    return isinstance(error, ServerUnavailable | LimitReached)
