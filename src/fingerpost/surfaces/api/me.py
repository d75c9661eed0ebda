"""Who asks, what they may do, what is there for them; signing in to the console, and out."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from fingerpost import __version__
from fingerpost.frozen import frozen
from fingerpost.records import Effort, Principal, Right
from fingerpost.router import Router
from fingerpost.router.switches import MODES
from fingerpost.store.keys import ApiKey
from fingerpost.surfaces.api.doors import AccessAttempt, ApiAuth, get_cookie
from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem, ApiRequest, ApiResponse
from fingerpost.surfaces.api.sessions import SESSION_COOKIE, ActiveSession, ConsoleSessions
from fingerpost.surfaces.web.asgi import Header
from fingerpost.surfaces.web.peers import is_tool_peer
from fingerpost.surfaces.web.tickets import redeem_ticket

_INVALID_TICKET_MESSAGE: Final = (
    "This link was used, or is older than 10 minutes. Run `fingerpost console` on the machine where "
    "Fingerpost runs: it prints a new one."
)
_KEY_OR_TICKET_MESSAGE: Final = "Sign in with `key` or with `ticket`, and not with both."
_TOOL_SIGN_IN_MESSAGE: Final = (
    "This was sent by a program that Fingerpost started. People sign in, tools do not."
)
_INVALID_KEY_MESSAGE: Final = "Sign in with a key of this gateway, as `fingerpost keys add NAME` shows it."


@frozen
class Models:
    """The names of the models in use; None: there is none."""

    lite: str | None
    prime: str | None


@frozen
class Me:
    """Who asks, and what they may do here."""

    name: str
    kind: str  # local, key, token
    rights: tuple[Right, ...]
    signed_in: bool  # by a session of the console
    csrf: str | None  # goes with everything but GET as X-CSRF-Token, where there is a session
    version: str
    address: str
    profiles: tuple[str, ...]  # that they may use
    profile_required: bool  # they may do nothing without naming one
    default_profile: str | None  # the one they get when they name none
    modes: tuple[str, ...]
    models: Models
    keyless: bool  # there is no model: requests are answered without one


@frozen
class Key:
    """What one signs in with."""

    key: Annotated[str | None, Field(min_length=1, max_length=1000, description="A key of this gateway")] = (
        None
    )
    ticket: Annotated[
        str | None,
        Field(min_length=1, max_length=200, description="Of a link that `fingerpost console` printed"),
    ] = None


@frozen
class EffortPreference:
    """What the caller wants of answers where a request says nothing."""

    effort: Annotated[
        Effort | None, Field(strict=False, description="quick or thorough; null: what is usual")
    ]


class AccountOperations:
    """The operations about whoever asks."""

    def __init__(self, router: Router, *, address: str, auth: ApiAuth, sessions: ConsoleSessions) -> None:
        self._router = router
        self._address = (router.settings.gateway.public_url or address).rstrip("/")
        self._doors = auth
        self._sessions = sessions

    def build_operations(self) -> tuple[ApiOperation, ...]:
        return (
            ApiOperation(
                method="GET", path="/api/me", name="get_me", tag="session", right=None,
                summary="Who asks, and what they may do", returns=Me, answer=self.get_account,
            ),
            ApiOperation(
                method="GET", path="/api/me/preference", name="get_preference", tag="session",
                right=Right.USE, summary="Whether the caller prefers quick or thorough answers",
                returns=EffortPreference, answer=self.get_preference,
            ),
            ApiOperation(
                method="PUT", path="/api/me/preference", name="set_preference", tag="session",
                right=Right.USE, summary="Keep whether the caller prefers quick or thorough answers",
                body=EffortPreference, returns=EffortPreference, answer=self.set_preference,
            ),
            ApiOperation(
                method="POST", path="/api/session", name="sign_in", tag="session", right=None, opens=True,
                summary="Sign in to the console with a key or a ticket: sets a cookie",
                body=Key, returns=Me, answer=self.open_session,
            ),
            ApiOperation(
                method="DELETE", path="/api/session", name="sign_out", tag="session", right=None,
                summary="Sign out", status=204, answer=self.close_session,
            ),
        )  # fmt: skip

    async def get_account(self, request: ApiRequest) -> Me:
        return self._build_account(request.principal, request.session)

    async def get_preference(self, request: ApiRequest) -> EffortPreference:
        return EffortPreference(effort=self._router.profiles.efforts.get(request.principal.name))

    async def set_preference(self, request: ApiRequest) -> EffortPreference:
        wanted: EffortPreference = request.body
        await self._router.prefer(request.principal.name, wanted.effort)
        return wanted

    async def open_session(self, request: ApiRequest) -> ApiResponse:
        wanted: Key = request.body
        if (wanted.key is None) is (wanted.ticket is None):
            raise ApiProblem(422, "A key or a ticket", _KEY_OR_TICKET_MESSAGE)
        if await is_tool_peer(request.peer):
            raise ApiProblem(403, "Not for tools", _TOOL_SIGN_IN_MESSAGE)
        key = None
        if wanted.key is not None:
            key = await self._find_key(request, wanted.key)
        elif wanted.ticket is None or not await redeem_ticket(self._router.store, wanted.ticket):
            raise ApiProblem(401, "This link is not good any more", _INVALID_TICKET_MESSAGE)
        token, held = await self._sessions.open_session(key)
        return ApiResponse(
            body=self._build_account(held.principal, held),
            headers=(self._build_cookie(token, self._sessions.seconds),),
        )

    async def _find_key(self, request: ApiRequest, text: str) -> ApiKey:
        knock = AccessAttempt("POST", request.headers, request.remote, request.peer)
        principal = await self._doors.authenticate_key(knock, text)
        key = await self._router.store.keys.find(text) if principal.kind == "key" else None
        if key is None:
            raise ApiProblem(401, "This is no key", _INVALID_KEY_MESSAGE)
        return key

    async def close_session(self, request: ApiRequest) -> ApiResponse:
        token = get_cookie(request.headers)
        if request.session is not None and token is not None:
            await self._sessions.close_session(token)
        return ApiResponse(status=204, headers=(self._build_cookie("", 0),))

    def _build_cookie(self, token: str, seconds: int) -> Header:
        parts = [f"{SESSION_COOKIE}={token}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Strict"]
        if self._address.startswith("https://"):
            parts.append("Secure")
        return b"set-cookie", "; ".join(parts).encode()

    def _build_account(self, principal: Principal, session: ActiveSession | None) -> Me:
        models = self._router.models
        profiles = self._router.profiles
        default = profiles.resolve_profile(caller=principal.name, among=principal.profiles)
        theirs = (n for n in profiles if principal.may_use(n) and profiles.may_use(n, principal.name))
        return Me(
            name=principal.name,
            kind=principal.kind,
            rights=principal.rights,
            signed_in=session is not None,
            csrf=None if session is None else session.session.csrf,
            version=__version__,
            address=self._address,
            profiles=tuple(sorted(theirs)),
            profile_required=len(principal.profiles) > 1 and default is None,
            default_profile=default,
            modes=MODES,
            models=Models(lite=models.lite or None, prime=models.prime or None),
            keyless=not models.lite and not models.prime,
        )
