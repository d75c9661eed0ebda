"""Errors of transports, proxies, TLS and the MCP library, converted to ours with reasons and hints."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC
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
    ServerReplyInvalid,
    ServerUnavailable,
    ToolFailed,
    ToolTimeout,
)
from fingerpost.frozen import frozen
from fingerpost.records import utc_now
from fingerpost.records.json import find_json_fault
from fingerpost.servers.connection_state import ConnectionFailure, RetryPace
from fingerpost.servers.errors import (
    UNKNOWN_OUTCOME,
    ConnectionBroken,
    RateLimited,
    RequestInterrupted,
    RequestNotSent,
    ServerBusy,
    build_sign_in_required,
    clean_text,
)

MAX_RETRY_AFTER = 10 * 365 * 24 * 3600.0  # larger values are treated as this


def parse_retry_after(retry_after: str | None) -> float | None:
    """Return the seconds to wait, or None when the header is missing or invalid."""
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
    return min(max(0.0, (when - utc_now()).total_seconds()), MAX_RETRY_AFTER)


class RouteBlocked(httpx2.ConnectError):
    """A connection failure caused by the local environment, not the server. `hint` says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@frozen
class ProxyVariable:
    """A proxy and the environment variable that names it."""

    variable: str
    address: str  # without credentials

    def __str__(self) -> str:
        return f"the proxy {self.address} (from {self.variable})"


def find_unusable_proxy() -> RouteBlocked | None:
    """Return the error for the first proxy variable with an unusable value, or None."""
    for scheme, value in _read_proxy_variables():
        try:
            httpx2.Proxy(_format_proxy_address(value))
        except (httpx2.InvalidURL, ValueError):
            variable = _get_proxy_variable_name(scheme)
            message = f"the environment variable {variable} does not hold the address of a proxy"
            return RouteBlocked(message, hint=f"correct {variable}, or unset it")
    return None


def find_proxy(url: httpx2.URL) -> ProxyVariable | None:
    """Return the proxy that a request to `url` uses, or None."""
    named = dict(_read_proxy_variables())
    for scheme in (url.scheme, "all"):
        if scheme in named:
            parts = httpx2.URL(_format_proxy_address(named[scheme]))
            address = parts.host if parts.port is None else f"{parts.host}:{parts.port}"
            return ProxyVariable(variable=_get_proxy_variable_name(scheme), address=address)
    return None


def build_proxy_error(error: httpx2.TransportError, proxy: ProxyVariable) -> RouteBlocked:
    """Build the error for a failed connection through a proxy."""
    instead = f"correct {proxy.variable}, or name the server's host in NO_PROXY"
    if not isinstance(error, httpx2.ProxyError):
        return RouteBlocked(f"{proxy} cannot be reached", hint=f"is it running? Otherwise {instead}")
    message = f"{proxy} refuses the connection: {error}"
    if str(error).startswith("407"):
        return RouteBlocked(message, hint=f"it needs a user and a password: {instead}")
    return RouteBlocked(message, hint=f"the proxy's own rules decide that; or {instead}")


def _read_proxy_variables() -> list[tuple[str, str]]:
    named = getproxies()
    return [(scheme, named[scheme]) for scheme in ("http", "https", "all") if named.get(scheme)]


def _format_proxy_address(value: str) -> str:
    return value if "://" in value else f"http://{value}"


def _get_proxy_variable_name(scheme: str) -> str:
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

_UNTRUSTED_REASON: Final = "its certificate comes from an authority that is not trusted here"
_HOST_MISMATCH_REASON: Final = "its certificate is for another host"
# Error numbers of OpenSSL (X509_V_ERR_*). Python has no names for them.
_CERTIFICATE_FAULTS: Final = {
    2: (_UNTRUSTED_REASON, OWN_AUTHORITY_HINT),
    9: ("its certificate is not valid yet", CLOCK_HINT),
    10: ("its certificate has expired", CLOCK_HINT),
    18: ("its certificate is self-signed, and not trusted here", OWN_AUTHORITY_HINT),
    19: (_UNTRUSTED_REASON, OWN_AUTHORITY_HINT),
    20: (_UNTRUSTED_REASON, OWN_AUTHORITY_HINT),
    21: (_UNTRUSTED_REASON, OWN_AUTHORITY_HINT),
    62: (_HOST_MISMATCH_REASON, OTHER_HOST_HINT),
    64: (_HOST_MISMATCH_REASON, OTHER_HOST_HINT),
}
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})


@frozen
class TlsFault:
    """Why a TLS connection failed."""

    reason: str
    hint: str


def find_tls_fault(error: BaseException) -> TlsFault | None:
    """Return the TLS fault that caused an error of any HTTP client, or None."""
    for cause in _iterate_causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason, hint = _CERTIFICATE_FAULTS.get(
                cause.verify_code,
                (f"its certificate is not accepted: {cause.verify_message}", OWN_AUTHORITY_HINT),
            )
            return TlsFault(reason=reason, hint=hint)
        # TLS reads raise these while waiting for data, so they are behind every timeout.
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, ssl.SSLWantReadError | ssl.SSLWantWriteError
        ):
            if cause.reason in _NOT_TLS:
                return TlsFault(reason="what it answers is not TLS", hint=NO_TLS_HINT)
            detail = (cause.reason or "no reason given").replace("_", " ").lower()
            reason = f"TLS could not be agreed on ({detail})"
            return TlsFault(reason=reason, hint="the server's own log says more")
    return None


def _iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def to_reply(error: FingerpostError) -> ErrorData:
    """Wrap an error in a JSON-RPC error so that it can pass through the MCP library to its caller."""
    return ErrorData(code=INTERNAL_ERROR, message=str(error), data=error)


def from_reply(server: str, error: MCPError, *, failure: ConnectionFailure | None) -> FingerpostError:
    """Convert an error reply to the error for the caller of one request."""
    data: object = error.data
    if isinstance(data, FingerpostError):
        return data
    if error.code == REQUEST_TIMEOUT and data is None:
        return ToolTimeout(f"{server} did not answer in time", server=server)
    # Servers use this code for their own errors too, so the library's message decides.
    if error.code == CONNECTION_CLOSED and error.message.startswith(("Connection closed", "SSE stream")):
        reason = failure.reason if failure is not None else clean_text(error.message)
        message = f"{server} disconnected before it answered: {reason}"
        kind = (
            RequestInterrupted if failure is not None and failure.pace is RetryPace.NOW else ServerUnavailable
        )
        return kind(message, server=server, hint=UNKNOWN_OUTCOME)
    if find_json_fault(data) is not None:
        data = None  # the data cannot be forwarded; the error itself can
    return ToolFailed(
        clean_text(error.message) or "error without a message", server=server, code=error.code, data=data
    )


def from_exception(server: str, error: BaseException) -> FingerpostError:
    """Convert an exception of a transport or the MCP library to a `FingerpostError`."""
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
        message = f"{server} did not answer the handshake as MCP requires"
        return ServerReplyInvalid(message, server=server, hint="report this to the server's author")
    if isinstance(error, OAuthFlowError):
        return build_sign_in_required(server, clean_text(str(error)))
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL):
        return from_http(server, error)
    if isinstance(error, OSError):
        return _from_os(server, error)
    return None


def from_http(server: str, error: httpx2.HTTPError | httpx2.InvalidURL) -> FingerpostError:
    """Convert an HTTP error without a usable response to a `FingerpostError`."""
    if isinstance(error, httpx2.HTTPStatusError):
        return build_http_refusal(server, error.response.status_code)
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        message = f"the address of {server} is not usable: {clean_text(str(error))}"
        return ServerUnavailable(message, server=server, hint="correct its url in the configuration")
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return build_not_sent(server, error)
    return build_connection_broken(server, error)


def build_not_sent(server: str, error: BaseException) -> RequestNotSent:
    """Build the error for a connection that could not be made."""
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
    """Build the error for an open connection that was lost."""
    reason, no_valid_response = clean_text(str(error)) or type(error).__name__, False
    if isinstance(error, httpx2.RemoteProtocolError):
        # The library's message contains parts of the received bytes, so it is not shown.
        no_valid_response = True
        closed = "disconnected" in reason
        reason = "the server closed the connection" if closed else "what it answers is not valid HTTP"
    message = f"the connection to {server} broke: {reason}"
    return ConnectionBroken(message, server=server, hint=UNKNOWN_OUTCOME, no_valid_response=no_valid_response)


def build_http_refusal(server: str, status: int, retry_after: str | None = None) -> FingerpostError:
    """Build the error for an HTTP error status, with the delay from `retry_after`."""
    if status in (401, 403):
        return build_sign_in_required(server, f"HTTP {status}")
    if status == 404:
        message = f"{server} answered HTTP 404: there is no MCP server at this address"
        return ServerUnavailable(message, server=server, hint="check the path of its url, often /mcp or /sse")
    if status == 407:
        message = f"the proxy for {server} needs a user and a password (HTTP 407)"
        return RequestNotSent(
            message, server=server, hint="give them in HTTP_PROXY, or name its host in NO_PROXY"
        )
    wait = parse_retry_after(retry_after)
    when = None if wait is None else f"it asks to wait {ceil(wait)} s: try again then"
    if status == 429:
        message = f"{server} rejected this request because of too many requests (HTTP 429)"
        hint = when or "wait, and call it less often"
        return RateLimited(message, server=server, hint=hint, retry_after=wait)
    hint = when or "the server's own log says more"
    return ServerBusy(f"{server} answered HTTP {status}", server=server, hint=hint, retry_after=wait)


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
    """Yield the single errors of nested exception groups."""
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from iterate_leaves(part)
    else:
        yield error


def requires_user_action(cause: BaseException) -> bool:
    """Return whether a person must change something before a connection can succeed."""
    return any(
        isinstance(leaf, FileNotFoundError | PermissionError | httpx2.InvalidURL | RouteBlocked)
        for leaf in iterate_leaves(cause)
    )
