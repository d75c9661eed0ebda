"""Who comes in: by key or token as everywhere, or by the cookie of a session of the console.

A cookie is sent by the browser, not by the page, so what comes with one must show that a
page of ours sent it: it repeats a text only our own pages can read. Where nobody needs a
key, the same is shown by what browsers do not let foreign pages do: send JSON unasked, or
another Origin than their own.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from fingerpost.errors import StoreError
from fingerpost.events import EventSink
from fingerpost.frozen import frozen
from fingerpost.records import DECIDING_RIGHTS, Principal
from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem
from fingerpost.surfaces.api.sessions import SESSION_COOKIE, ActiveSession, ConsoleSessions
from fingerpost.surfaces.web.access.addresses import DEFAULT_PORTS, is_loopback, parse_authority, parse_origin
from fingerpost.surfaces.web.access.refusals import RefusalLog
from fingerpost.surfaces.web.asgi import Header, HttpError
from fingerpost.surfaces.web.gate import Authenticator, Endpoint
from fingerpost.surfaces.web.pages import build_cors_headers
from fingerpost.surfaces.web.peers import Peer, is_tool_peer

CSRF_HEADER: Final = "x-csrf-token"
ANONYMOUS: Final = Principal(name="", rights=())

_ALLOWED_METHODS: Final = (b"access-control-allow-methods", b"GET, POST, DELETE")
_ALLOWED_HEADERS: Final = (
    b"access-control-allow-headers",
    b"Authorization, X-API-Key, X-API-Version, Content-Type, Accept, Last-Event-ID",
)
_PREFLIGHT_MAX_AGE: Final = (b"access-control-max-age", b"600")
_EXPOSED_HEADERS: Final = b"Retry-After, WWW-Authenticate"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})

_TOOL_DECISION_MESSAGE = (
    "A program that Fingerpost started sent this: tools do not decide about calls, tools or servers."
)
_FOREIGN_PAGE_MESSAGE = (
    "This was sent by a page that may not call this gateway, or was not meant for it. "
    "If it should, look at gateway.allowed_hosts and gateway.allowed_origins."
)


@frozen(kw_only=False)
class AuthenticatedCaller:
    """Who was let in, and the session they came with."""

    principal: Principal
    session: ActiveSession | None = None


@frozen(kw_only=False)
class AccessAttempt:
    """What is looked at to decide whether somebody is let in."""

    method: str
    headers: Mapping[str, str]
    remote: str
    peer: Peer | None = None


class ApiAuth:
    """Asks the gate about every request, except for those who come with a session."""

    def __init__(self, authenticator: Authenticator, sessions: ConsoleSessions, events: EventSink) -> None:
        self._gate = authenticator
        self._sessions = sessions
        self._refusal_log = RefusalLog(events)

    async def authenticate(self, attempt: AccessAttempt, operation: ApiOperation) -> AuthenticatedCaller:
        """Who this is. Raises `Fault` and `ApiProblem` for those who may not come in."""
        _refuse_cross_site_embed(attempt)
        if operation.public or operation.opens:
            if not self._gate.allows_origin(attempt.headers):
                raise ApiProblem(403, "Not from here", _FOREIGN_PAGE_MESSAGE)
            return AuthenticatedCaller(ANONYMOUS)
        if operation.right in DECIDING_RIGHTS and await is_tool_peer(attempt.peer):
            self._log_refusal(attempt, operation, "a program that we started wants to decide", ANONYMOUS)
            raise ApiProblem(403, "Not for tools", _TOOL_DECISION_MESSAGE)
        held = await self._find_session(attempt)
        if held is not None:
            return self._authenticate_session(attempt, operation, held)
        endpoint = _build_endpoint(operation)
        admitted = await self._gate.authenticate(attempt.headers, endpoint, remote=attempt.remote)
        if isinstance(admitted, Principal):
            _check_origin(attempt, admitted)
            return AuthenticatedCaller(admitted)
        headers = tuple((name.encode(), value.encode()) for name, value in admitted.headers)
        raise HttpError(admitted.status, admitted.message, headers=headers)

    async def is_still_authenticated(
        self, attempt: AccessAttempt, operation: ApiOperation, principal: Principal
    ) -> bool:
        """Whether who was let in would be again, as the same. Where nobody can tell, they stay."""
        try:
            return (await self.authenticate(attempt, operation)).principal == principal
        except StoreError:
            return True
        except HttpError as fault:
            return fault.status == 503
        except ApiProblem:
            return False

    async def authenticate_key(self, attempt: AccessAttempt, key: str) -> Principal:
        """Whose key this is, as the gate says, which counts wrong ones. Raises `Fault`."""
        headers = {name: attempt.headers[name] for name in ("host", "origin") if name in attempt.headers}
        endpoint = Endpoint(path="/api/session", right=None, any_profile=True)
        admitted = await self._gate.authenticate(
            {**headers, "x-api-key": key}, endpoint, remote=attempt.remote
        )
        if isinstance(admitted, Principal):
            return admitted
        kept = tuple(
            (name.encode(), value.encode()) for name, value in admitted.headers if name == "retry-after"
        )
        raise HttpError(admitted.status, admitted.message, headers=kept)

    async def _find_session(self, attempt: AccessAttempt) -> ActiveSession | None:
        """The session they came with, unless they brought a key or token of their own."""
        if "authorization" in attempt.headers or "x-api-key" in attempt.headers:
            return None
        token = get_cookie(attempt.headers)
        if token is None:
            return None
        # However many wrong ones came from there: behind a proxy everybody has one address. There is nothing
        # to guess in 256 random bits, and who brings a wrong one goes on as somebody without.
        return self._sessions.get_cached(token) or await self._sessions.find_session(token)

    def _authenticate_session(
        self, attempt: AccessAttempt, operation: ApiOperation, session: ActiveSession
    ) -> AuthenticatedCaller:
        principal = session.principal
        if not self._gate.allows_origin(attempt.headers):
            self._log_refusal(attempt, operation, "a foreign page came with a session", principal)
            raise ApiProblem(403, "Not from here", _FOREIGN_PAGE_MESSAGE)
        given = attempt.headers.get(CSRF_HEADER, "").encode()
        if attempt.method not in _SAFE_METHODS and not hmac.compare_digest(
            given, session.session.csrf.encode()
        ):
            self._log_refusal(attempt, operation, "the CSRF token is missing or wrong", principal)
            detail = "With a session, send the `csrf` of GET /api/me as X-CSRF-Token. Reload the page."
            raise ApiProblem(403, "The CSRF token is missing or wrong", detail)
        if operation.right is not None and not principal.may(operation.right):
            self._log_refusal(attempt, operation, f"may not {operation.right}", principal)
            detail = f"Your key does not give you the right `{operation.right}`, which this needs."
            raise ApiProblem(403, "You may not do this", detail)
        return AuthenticatedCaller(principal, session)

    def _log_refusal(
        self, attempt: AccessAttempt, operation: ApiOperation, reason: str, principal: Principal
    ) -> None:
        self._refusal_log.record(
            attempt.remote, endpoint=operation.path, reason=reason, principal=principal.name
        )

    def build_cors_headers(self, headers: Mapping[str, str]) -> tuple[Header, ...]:
        """What goes with every answer to a web page that may read it."""
        return build_cors_headers(self._gate, headers, _EXPOSED_HEADERS)

    def build_preflight(self, headers: Mapping[str, str]) -> tuple[int, tuple[Header, ...]]:
        """Browsers ask without a key, so this says only what every page may know."""
        if "origin" not in headers:
            return 204, ()
        allowed = self.build_cors_headers(headers)
        return (
            (204, (*allowed, _ALLOWED_METHODS, _ALLOWED_HEADERS, _PREFLIGHT_MAX_AGE))
            if allowed
            else (403, ())
        )


def get_cookie(headers: Mapping[str, str]) -> str | None:
    """The text of our cookie."""
    for part in headers.get("cookie", "").split(";"):
        name, separator, value = part.strip().partition("=")
        if separator and name == SESSION_COOKIE:
            return value
    return None


def _build_endpoint(operation: ApiOperation) -> Endpoint:
    return Endpoint(path=operation.path, right=operation.right, any_profile=True)


def _refuse_cross_site_embed(attempt: AccessAttempt) -> None:
    """A foreign page that embeds us sends no Origin, but its browser says so."""
    headers = attempt.headers
    embeds = headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
    if embeds and "origin" not in headers:
        raise ApiProblem(403, "Not from here", _FOREIGN_PAGE_MESSAGE)


def _check_origin(attempt: AccessAttempt, principal: Principal) -> None:
    """Where nobody needs a key: what a browser lets any page send must come from a page of ours."""
    origin = attempt.headers.get("origin")
    if (
        principal.kind != "local"
        or attempt.method in _SAFE_METHODS
        or origin is None
        or is_json_body(attempt.headers)
    ):
        return
    if not _is_same_origin(origin, attempt.headers.get("host", "")):
        raise ApiProblem(403, "Not from here", _FOREIGN_PAGE_MESSAGE)


def is_json_body(headers: Mapping[str, str]) -> bool:
    """Whether the body says that it is JSON: a foreign page cannot say so without asking first."""
    return headers.get("content-type", "").split(";")[0].strip().lower() == "application/json"


def _is_same_origin(origin_text: str, host: str) -> bool:
    origin, asked = parse_origin(origin_text), parse_authority(host)
    if origin is None or asked is None:
        return False
    same_name = origin.host == asked.host or (is_loopback(origin.host) and is_loopback(asked.host))
    return same_name and origin.port == (asked.port or DEFAULT_PORTS.get(origin.scheme))
