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
from fingerpost.records import DECIDING, Principal
from fingerpost.surfaces.api.operation import Operation, Problem
from fingerpost.surfaces.api.sessions import COOKIE, Held, Sessions
from fingerpost.surfaces.web.access.addresses import DEFAULT_PORTS, is_loopback, read_authority, read_origin
from fingerpost.surfaces.web.access.refusals import Refusals
from fingerpost.surfaces.web.asgi import Fault, Header
from fingerpost.surfaces.web.gate import Endpoint, Gate
from fingerpost.surfaces.web.pages import page_headers
from fingerpost.surfaces.web.peers import Peer, is_tool_peer

CSRF_HEADER: Final = "x-csrf-token"
NOBODY: Final = Principal(name="", rights=())

_METHODS: Final = (b"access-control-allow-methods", b"GET, POST, DELETE")
_HEADERS: Final = (
    b"access-control-allow-headers",
    b"Authorization, X-API-Key, X-API-Version, Content-Type, Accept, Last-Event-ID",
)
_KEPT: Final = (b"access-control-max-age", b"600")
_EXPOSED: Final = b"Retry-After, WWW-Authenticate"
_SAFE: Final = frozenset({"GET", "HEAD"})

_FOR_PEOPLE = (
    "A program that Fingerpost started sent this: tools do not decide about calls, tools or servers."
)
_FOREIGN_PAGE = (
    "This was sent by a page that may not call this gateway, or was not meant for it. "
    "If it should, look at gateway.allowed_hosts and gateway.allowed_origins."
)


@frozen(kw_only=False)
class Admitted:
    """Who was let in, and the session they came with."""

    principal: Principal
    held: Held | None = None


@frozen(kw_only=False)
class Knock:
    """What is looked at to decide whether somebody is let in."""

    method: str
    headers: Mapping[str, str]
    remote: str
    peer: Peer | None = None


class Doors:
    """Asks the gate about every request, except for those who come with a session."""

    def __init__(self, gate: Gate, sessions: Sessions, events: EventSink) -> None:
        self._gate = gate
        self._sessions = sessions
        self._refusals = Refusals(events)

    async def admit(self, knock: Knock, operation: Operation) -> Admitted:
        """Who this is. Raises `Fault` and `Problem` for those who may not come in."""
        _refuse_foreign_embedding(knock)
        if operation.public or operation.opens:
            if not self._gate.allows_page(knock.headers):
                raise Problem(403, "Not from here", _FOREIGN_PAGE)
            return Admitted(NOBODY)
        if operation.right in DECIDING and await is_tool_peer(knock.peer):
            self._tell(knock, operation, "a program that we started wants to decide", NOBODY)
            raise Problem(403, "Not for tools", _FOR_PEOPLE)
        held = await self._session(knock)
        if held is not None:
            return self._by_session(knock, operation, held)
        endpoint = _endpoint(operation)
        admitted = await self._gate.admit(knock.headers, endpoint, remote=knock.remote)
        if isinstance(admitted, Principal):
            _check_origin(knock, admitted)
            return Admitted(admitted)
        headers = tuple((name.encode(), value.encode()) for name, value in admitted.headers)
        raise Fault(admitted.status, admitted.message, headers=headers)

    async def still_knows(self, knock: Knock, operation: Operation, principal: Principal) -> bool:
        """Whether who was let in would be again, as the same. Where nobody can tell, they stay."""
        try:
            return (await self.admit(knock, operation)).principal == principal
        except StoreError:
            return True
        except Fault as fault:
            return fault.status == 503
        except Problem:
            return False

    async def recognise(self, knock: Knock, key: str) -> Principal:
        """Whose key this is, as the gate says, which counts wrong ones. Raises `Fault`."""
        headers = {name: knock.headers[name] for name in ("host", "origin") if name in knock.headers}
        endpoint = Endpoint(path="/api/session", right=None, any_profile=True)
        admitted = await self._gate.admit({**headers, "x-api-key": key}, endpoint, remote=knock.remote)
        if isinstance(admitted, Principal):
            return admitted
        kept = tuple(
            (name.encode(), value.encode()) for name, value in admitted.headers if name == "retry-after"
        )
        raise Fault(admitted.status, admitted.message, headers=kept)

    async def _session(self, knock: Knock) -> Held | None:
        """The session they came with, unless they brought a key or token of their own."""
        if "authorization" in knock.headers or "x-api-key" in knock.headers:
            return None
        token = cookie_of(knock.headers)
        if token is None:
            return None
        # However many wrong ones came from there: behind a proxy everybody has one address. There is nothing
        # to guess in 256 random bits, and who brings a wrong one goes on as somebody without.
        return self._sessions.remembered(token) or await self._sessions.find(token)

    def _by_session(self, knock: Knock, operation: Operation, held: Held) -> Admitted:
        principal = held.principal
        if not self._gate.allows_page(knock.headers):
            self._tell(knock, operation, "a foreign page came with a session", principal)
            raise Problem(403, "Not from here", _FOREIGN_PAGE)
        given = knock.headers.get(CSRF_HEADER, "").encode()
        if knock.method not in _SAFE and not hmac.compare_digest(given, held.session.csrf.encode()):
            self._tell(knock, operation, "the CSRF token is missing or wrong", principal)
            detail = "With a session, send the `csrf` of GET /api/me as X-CSRF-Token. Reload the page."
            raise Problem(403, "The CSRF token is missing or wrong", detail)
        if operation.right is not None and not principal.may(operation.right):
            self._tell(knock, operation, f"may not {operation.right}", principal)
            detail = f"Your key does not give you the right `{operation.right}`, which this needs."
            raise Problem(403, "You may not do this", detail)
        return Admitted(principal, held)

    def _tell(self, knock: Knock, operation: Operation, reason: str, principal: Principal) -> None:
        self._refusals.tell(knock.remote, endpoint=operation.path, reason=reason, principal=principal.name)

    def headers_for(self, headers: Mapping[str, str]) -> tuple[Header, ...]:
        """What goes with every answer to a web page that may read it."""
        return page_headers(self._gate, headers, _EXPOSED)

    def preflight(self, headers: Mapping[str, str]) -> tuple[int, tuple[Header, ...]]:
        """Browsers ask without a key, so this says only what every page may know."""
        if "origin" not in headers:
            return 204, ()
        allowed = self.headers_for(headers)
        return (204, (*allowed, _METHODS, _HEADERS, _KEPT)) if allowed else (403, ())


def cookie_of(headers: Mapping[str, str]) -> str | None:
    """The text of our cookie."""
    for part in headers.get("cookie", "").split(";"):
        name, separator, value = part.strip().partition("=")
        if separator and name == COOKIE:
            return value
    return None


def _endpoint(operation: Operation) -> Endpoint:
    return Endpoint(path=operation.path, right=operation.right, any_profile=True)


def _refuse_foreign_embedding(knock: Knock) -> None:
    """A foreign page that embeds us sends no Origin, but its browser says so."""
    headers = knock.headers
    embeds = headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
    if embeds and "origin" not in headers:
        raise Problem(403, "Not from here", _FOREIGN_PAGE)


def _check_origin(knock: Knock, principal: Principal) -> None:
    """Where nobody needs a key: what a browser lets any page send must come from a page of ours."""
    origin = knock.headers.get("origin")
    if principal.kind != "local" or knock.method in _SAFE or origin is None or sends_json(knock.headers):
        return
    if not _is_same(origin, knock.headers.get("host", "")):
        raise Problem(403, "Not from here", _FOREIGN_PAGE)


def sends_json(headers: Mapping[str, str]) -> bool:
    """Whether the body says that it is JSON: a foreign page cannot say so without asking first."""
    return headers.get("content-type", "").split(";")[0].strip().lower() == "application/json"


def _is_same(origin_text: str, host: str) -> bool:
    origin, asked = read_origin(origin_text), read_authority(host)
    if origin is None or asked is None:
        return False
    same_name = origin.host == asked.host or (is_loopback(origin.host) and is_loopback(asked.host))
    return same_name and origin.port == (asked.port or DEFAULT_PORTS.get(origin.scheme))
