"""Access of HTTP callers: endpoints, the authentication interface, profile scopes, CORS headers, rate
limits.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Principal, Right, Scope
from fingerpost.router.profiles import Profiles, build_scope
from fingerpost.store.api_keys import PREFIX
from fingerpost.surfaces.http.asgi import Header, HttpError

HOST_REFUSED: Final = (
    "This Host or Origin is not this gateway's. If it should be, add it to gateway.allowed_hosts."
)
# Browsers give what says so to no page of another site.
SAME_ORIGIN_HEADERS: Final = (
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)


@frozen
class Endpoint:
    """What a path leads to: `/mcp`, `/mcp/p/<profile>`, `/v1/chat/completions`, `/api/packets`."""

    path: str
    mode: str = ""  # of the MCP gateway: auto, route, all
    profile: str | None = None
    right: Right | None = Right.USE  # without it nobody is let in; None: whoever is known
    any_profile: bool = False  # which profile is meant stands in the request, and is checked there


@frozen
class AccessDenial:
    """Why somebody is not let in, as the HTTP answer they get."""

    status: int
    message: str
    headers: tuple[tuple[str, str], ...] = ()


class Authenticator(Protocol):
    """Says who asks. Asked for every HTTP request, so it takes no time where it need not."""

    async def authenticate(
        self, headers: Mapping[str, str], endpoint: Endpoint, *, remote: str = ""
    ) -> Principal | AccessDenial:
        """Who this is, by lower-case headers; `remote` is where they come from.

        Host and Origin are checked here, too, and whoever is refused is told of here.
        """
        ...

    def allows_origin(self, headers: Mapping[str, str]) -> bool:
        """Whether a web page may call us, by Host and Origin; its credential comes with the call."""
        ...

    def allows_probe(self, headers: Mapping[str, str]) -> bool:
        """Whether a health probe with these headers is answered. It needs no credential."""
        ...

    def get_public_documents(self) -> Mapping[str, JsonObject]:
        """Public documents by path (`/.well-known/oauth-protected-resource…`)."""
        ...


def get_forwarded_authorization(headers: Mapping[str, str]) -> str | None:
    """The caller's own `Authorization` for servers set up for it, where it is not what let them in here.

    A key or token for Fingerpost is for nobody else; one beside an `X-API-Key` is, except a key of ours.
    """
    given = headers.get("authorization")
    if given is None or "x-api-key" not in headers:
        return None
    return None if given.partition(" ")[2].strip().startswith(PREFIX) else given


def build_cors_headers(
    authenticator: Authenticator, headers: Mapping[str, str], exposed: bytes
) -> tuple[Header, ...]:
    """What goes with every answer to a page that may read it. `exposed` are the headers it may read, too."""
    origin = headers.get("origin")
    if origin is None or not authenticator.allows_origin(headers):
        return ()
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", exposed),
        (b"vary", b"Origin"),
    )


VERSION_HEADER = "x-api-version"


@frozen
class AccessScope:
    """What a request may touch. Empty scopes set no bound."""

    profile: str | None
    scopes: tuple[Scope, ...]


def resolve_access_scope(
    principal: Principal, profile: str | None, profiles: Profiles, *, api_version: str | None = None
) -> AccessScope:
    """What this caller may touch under this profile. Raises `Fault` where they may not use it.

    Whoever may use one profile alone means that one when they name none; others mean the one of the
    API version they name, or the one they get by default.
    """
    if profile is None and len(principal.profiles) == 1:
        profile = principal.profiles[0]
    if profile is None or principal.may_use(profile):
        profile = _resolve_profile(principal, profile, profiles, api_version)
    if not principal.may_use(profile):
        yours = ", ".join(principal.profiles)
        raise HttpError(403, f"Your key or token is for certain profiles alone. Name one of them: {yours}.")
    own = (principal.scope,) if principal.scope.bounded else ()
    scope = None if profile is None else build_scope(profile, profiles[profile])
    return AccessScope(profile=profile, scopes=own if scope is None else (*own, scope))


def _resolve_profile(
    principal: Principal, profile: str | None, profiles: Profiles, api_version: str | None
) -> str | None:
    """One that is for others is as good as none."""
    try:
        return profiles.resolve_profile(
            profile, caller=principal.name, api_version=api_version, among=principal.profiles
        )
    except FingerpostError:
        raise HttpError(404, f"There is no profile {(profile or '')[:80]!r} here.") from None


def build_conversation_id(principal: Principal, name: str) -> str:
    """The id of a conversation its caller named: the same name from another caller is another conversation.

    What a person allowed for a conversation, they allowed to the caller who asked in it.
    """
    if principal.kind == "local":
        return escape_slashes(name)
    return f"{escape_slashes(principal.name)}/{name}"


def escape_slashes(name: str) -> str:
    """The name without a "/" in it; no two names become the same."""
    return name.replace("%", "%25").replace("/", "%2F")


_MAX_CALLERS: Final = 10_000  # callers


class RateLimiter:
    """A bucket for each caller: it holds what a minute allows and fills evenly."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = float(per_minute)
        self._per_second = per_minute / 60
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when

    def take_token(self, caller: str) -> float:
        """0.0: go on. Else how many seconds to wait."""
        now = self._clock()
        left, then = self._buckets.pop(caller, (self._size, now))
        left = min(self._size, left + (now - then) * self._per_second)
        allowed = left >= 1
        self._buckets[caller] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second
