"""Access of HTTP callers: endpoints, the authentication interface, profile scopes, CORS, rate limits."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import CallerAuthorization, JsonObject, Principal, Right, Scope, SubjectToken
from fingerpost.router.profiles import Profiles, build_scope
from fingerpost.servers.requests import parse_bearer
from fingerpost.store.credentials import PREFIX
from fingerpost.surfaces.http.asgi import Header, HttpError

HOST_REFUSED: Final = "This Host or Origin is not allowed. If it should be, add it to gateway.allowed_hosts."
# Browsers do not give such responses to pages of other sites.
SAME_ORIGIN_HEADERS: Final = (
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)


@frozen
class Endpoint:
    """The endpoint of a path: `/mcp`, `/mcp/p/<profile>`, `/v1/chat/completions`, `/api/packets`."""

    path: str
    mode: str = ""  # of the MCP gateway: auto, route, all
    profile: str | None = None
    right: Right | None = Right.USE  # required right; None: any authenticated caller
    any_profile: bool = False  # the request names the profile, which is checked there


@frozen
class AccessDenial:
    """The HTTP response to a caller that is denied access."""

    status: int
    message: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def encoded_headers(self) -> tuple[Header, ...]:
        return tuple((name.encode(), value.encode()) for name, value in self.headers)


class Authenticator(Protocol):
    """Authenticates callers. Used for every HTTP request, so it must be fast."""

    async def authenticate(
        self, headers: Mapping[str, str], endpoint: Endpoint, *, remote: str = ""
    ) -> Principal | AccessDenial:
        """Return the principal of a request, or a denial. Header names are lower-case; `remote` is the
        client's address.

        This also checks Host and Origin, and records denials.
        """
        ...

    def allows_origin(self, headers: Mapping[str, str]) -> bool:
        """Return whether a web page may send requests, by Host and Origin. Credentials are checked apart."""
        ...

    def allows_probe(self, headers: Mapping[str, str]) -> bool:
        """Return whether a health probe with these headers is answered. It needs no credential."""
        ...

    def get_public_documents(self) -> Mapping[str, JsonObject]:
        """Return public documents by path (`/.well-known/oauth-protected-resource…`)."""
        ...


def get_caller_authorization(headers: Mapping[str, str], principal: Principal) -> CallerAuthorization | None:
    """Return what this admitted caller brought for servers: the `Authorization` header for those that are
    configured to get it, or the token it was admitted with, which may be exchanged.

    The credential used for Fingerpost is never forwarded. So the header is returned only if the request also
    has an `X-API-Key`, and never if it holds a Fingerpost key.
    """
    given = headers.get("authorization")
    if given is None or given.partition(" ")[2].strip().startswith(PREFIX):
        return None
    if "x-api-key" in headers:
        return given
    token = parse_bearer(given) if principal.kind == "token" else None
    return None if token is None else SubjectToken(token)


@frozen
class CorsPolicy:
    """What pages of allowed origins may send to a surface and read of its responses."""

    methods: bytes
    headers: tuple[str, ...]  # that they may send
    prefix: str | None = None  # headers whose names start with it may be sent, too
    exposed: bytes  # the headers that they may read

    def build_headers(self, authenticator: Authenticator, headers: Mapping[str, str]) -> tuple[Header, ...]:
        """Return the headers of responses to an allowed page."""
        origin = headers.get("origin")
        if origin is None or not authenticator.allows_origin(headers):
            return ()
        return (
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", self.exposed),
            (b"vary", b"Origin"),
        )

    def build_preflight(
        self, authenticator: Authenticator, headers: Mapping[str, str]
    ) -> tuple[int, tuple[Header, ...]]:
        """Return status and headers for a preflight. Browsers send no key, so it contains nothing private."""
        allowed = self.build_headers(authenticator, headers)
        if not allowed:
            return 403, ()
        asked = (name.strip() for name in headers.get("access-control-request-headers", "").split(","))
        further = [
            name for name in asked if self.prefix and name.isascii() and name.lower().startswith(self.prefix)
        ]
        accepted = ", ".join((*self.headers, *further[:_MAX_REQUESTED_HEADERS]))
        return 204, (
            *allowed,
            (b"access-control-allow-methods", self.methods),
            (b"access-control-allow-headers", accepted.encode("latin-1")),
            (b"access-control-max-age", b"600"),
        )


_MAX_REQUESTED_HEADERS: Final = 50


VERSION_HEADER = "x-api-version"


@frozen
class AccessScope:
    """What a request may access. No scopes means no limit."""

    profile: str | None
    scopes: tuple[Scope, ...]


def resolve_access_scope(
    principal: Principal, profile: str | None, profiles: Profiles, *, api_version: str | None = None
) -> AccessScope:
    """Return what this caller may access under this profile. Raises `HttpError` if it may not use the
    profile.

    If no profile is named: a caller with exactly one profile uses that one. Others use the profile of the API
    version they name, or their default.
    """
    if profile is None and len(principal.profiles) == 1:
        profile = principal.profiles[0]
    if profile is None or principal.may_use(profile):
        profile = _resolve_profile(principal, profile, profiles, api_version)
    if not principal.may_use(profile):
        yours = ", ".join(principal.profiles)
        raise HttpError(403, f"Your key or token is limited to certain profiles. Name one of them: {yours}.")
    own = (principal.scope,) if principal.scope.bounded else ()
    scope = None if profile is None else build_scope(profile, profiles[profile])
    return AccessScope(profile=profile, scopes=own if scope is None else (*own, scope))


def _resolve_profile(
    principal: Principal, profile: str | None, profiles: Profiles, api_version: str | None
) -> str | None:
    """Resolve the profile. Raises `HttpError` 404 for one that does not exist for this caller."""
    try:
        return profiles.resolve_profile(
            profile, caller=principal.name, api_version=api_version, among=principal.profiles
        )
    except FingerpostError:
        raise HttpError(404, f"There is no profile {(profile or '')[:80]!r} here.") from None


def build_conversation_id(principal: Principal, name: str) -> str:
    """Return the id of a conversation. The same name from another caller gives another id.

    An approval for a conversation is then limited to the caller that asked for it.
    """
    if principal.kind == "local":
        return escape_slashes(name)
    return f"{escape_slashes(principal.name)}/{name}"


def escape_slashes(name: str) -> str:
    """Return the name with "/" escaped. Different names stay different."""
    return name.replace("%", "%25").replace("/", "%2F")


_MAX_CALLERS: Final = 10_000


class RateLimiter:
    """A token bucket for each caller. It holds the tokens of one minute and refills evenly."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = float(per_minute)
        self._per_second = per_minute / 60
        self._clock = clock
        # Tokens left, and time of the last update.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take_token(self, caller: str) -> float:
        """Take a token and return 0.0, or return how many seconds to wait."""
        now = self._clock()
        left, then = self._buckets.pop(caller, (self._size, now))
        left = min(self._size, left + (now - then) * self._per_second)
        allowed = left >= 1
        self._buckets[caller] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second
