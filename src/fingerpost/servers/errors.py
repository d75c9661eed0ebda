"""From what went wrong to what a person reads: errors of servers, proxies and TLS, with reasons and hints."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import ceil
from typing import Final, cast
from urllib.request import getproxies

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
from fingerpost.frozen import frozen
from fingerpost.records import to_valid_text, utc_now
from fingerpost.redaction import scrub
from fingerpost.servers.connection_state import ConnectionFailure, RetryPace
from fingerpost.servers.wire import find_json_fault

MAX_RETRY_AFTER = 10 * 365 * 24 * 3600.0  # whoever says more means never


def parse_retry_after(retry_after: str | None) -> float | None:
    """Seconds from now on; None where nothing was asked that can be understood."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MAX_RETRY_AFTER)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max(0.0, _get_seconds_until(when)), MAX_RETRY_AFTER)


def _get_seconds_until(when: datetime) -> float:
    return (when - utc_now()).total_seconds()


class RouteBlocked(httpx2.ConnectError):
    """No connection, for a reason that lies around us and not with the server: `hint` says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@frozen
class ProxyVariable:
    """A proxy and the variable that names it."""

    variable: str
    place: str  # without what may be secret in its address

    def __str__(self) -> str:
        return f"the proxy {self.place} (from {self.variable})"


def find_unusable_proxy() -> RouteBlocked | None:
    """What is wrong with the first variable that names no proxy one could use."""
    for scheme, value in _read_proxy_variables():
        try:
            httpx2.Proxy(_format_proxy_address(value))
        except (httpx2.InvalidURL, ValueError):
            variable = _find_variable(scheme)
            message = f"the environment variable {variable} does not hold the address of a proxy"
            return RouteBlocked(message, hint=f"correct {variable}, or take it out of the environment")
    return None


def find_proxy(url: httpx2.URL) -> ProxyVariable | None:
    """The proxy a request to `url` takes, where it takes one."""
    named = dict(_read_proxy_variables())
    for scheme in (url.scheme, "all"):
        if scheme in named:
            parts = httpx2.URL(_format_proxy_address(named[scheme]))
            place = parts.host if parts.port is None else f"{parts.host}:{parts.port}"
            return ProxyVariable(variable=_find_variable(scheme), place=place)
    return None


def build_proxy_error(error: httpx2.TransportError, proxy: ProxyVariable) -> RouteBlocked:
    """Why a proxy led nowhere."""
    instead = f"correct {proxy.variable}, or name the server's host in NO_PROXY"
    if not isinstance(error, httpx2.ProxyError):
        return RouteBlocked(f"{proxy} cannot be reached", hint=f"is it running? Else {instead}")
    message = f"{proxy} refuses to lead there: {error}"
    if str(error).startswith("407"):
        return RouteBlocked(message, hint=f"it wants a user and a password: {instead}")
    return RouteBlocked(message, hint=f"the proxy's own rules decide that; or {instead}")


def _read_proxy_variables() -> list[tuple[str, str]]:
    named = getproxies()
    return [(scheme, named[scheme]) for scheme in ("http", "https", "all") if named.get(scheme)]


def _format_proxy_address(value: str) -> str:
    return value if "://" in value else f"http://{value}"


def _find_variable(scheme: str) -> str:
    return f"{scheme.upper()}_PROXY"


OWN_AUTHORITY_HINT: Final = (
    "if the certificate is of your own authority, set SSL_CERT_FILE to a file with that authority's "
    "certificate"
)
CLOCK_HINT: Final = (
    "renew the certificate on the server; if it is in order, correct the clock of this machine"
)
OTHER_HOST_HINT: Final = (
    "use a host that its certificate names in its url, or renew the certificate for this one"
)
NO_TLS_HINT: Final = "if the server has no TLS, use http:// in its url"

_UNTRUSTED: Final = "its certificate comes from an authority that is not trusted here"
_HOST_MISMATCH_CODES: Final = "its certificate is for another host"
# By the numbers OpenSSL gives them (X509_V_ERR_*), which Python has no names for.
_CERTIFICATES: Final = {
    2: (_UNTRUSTED, OWN_AUTHORITY_HINT),
    9: ("its certificate is not valid yet", CLOCK_HINT),
    10: ("its certificate has expired", CLOCK_HINT),
    18: ("its certificate is self-signed, and not trusted here", OWN_AUTHORITY_HINT),
    19: (_UNTRUSTED, OWN_AUTHORITY_HINT),
    20: (_UNTRUSTED, OWN_AUTHORITY_HINT),
    21: (_UNTRUSTED, OWN_AUTHORITY_HINT),
    62: (_HOST_MISMATCH_CODES, OTHER_HOST_HINT),
    64: (_HOST_MISMATCH_CODES, OTHER_HOST_HINT),
}
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})


@frozen
class TlsFault:
    """Why no connection with TLS was made."""

    reason: str
    hint: str


def find_tls_fault(error: BaseException) -> TlsFault | None:
    """The fault of TLS behind an error of whichever client; None where it was something else."""
    for cause in _iterate_causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason, hint = _CERTIFICATES.get(
                cause.verify_code,
                (f"its certificate is not accepted: {cause.verify_message}", OWN_AUTHORITY_HINT),
            )
            return TlsFault(reason=reason, hint=hint)
        # Waiting for more is how TLS is read, and stands behind every time-out.
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, ssl.SSLWantReadError | ssl.SSLWantWriteError
        ):
            if cause.reason in _NOT_TLS:
                return TlsFault(reason="what it answers is not TLS", hint=NO_TLS_HINT)
            said = (cause.reason or "no reason given").replace("_", " ").lower()
            reason = f"TLS could not be agreed on ({said})"
            return TlsFault(reason=reason, hint="the server's own log says more")
    return None


def _iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


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
