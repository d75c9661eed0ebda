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
from fingerpost.surfaces.api.doors import Doors, Knock, cookie_of
from fingerpost.surfaces.api.operation import ApiRequest, Operation, Problem, Reply
from fingerpost.surfaces.api.sessions import COOKIE, Held, Sessions
from fingerpost.surfaces.web.asgi import Header
from fingerpost.surfaces.web.peers import is_tool_peer
from fingerpost.surfaces.web.tickets import use_ticket

_NO_TICKET: Final = (
    "This link was used, or is older than 10 minutes. Run `fingerpost console` on the machine where "
    "Fingerpost runs: it prints a new one."
)
_ONE_OF_TWO: Final = "Sign in with `key` or with `ticket`, and not with both."
_FOR_PEOPLE: Final = "This was sent by a program that Fingerpost started. People sign in, tools do not."
_NOT_A_KEY: Final = "Sign in with a key of this gateway, as `fingerpost keys add NAME` shows it."


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
class Preference:
    """What the caller wants of answers where a request says nothing."""

    effort: Annotated[
        Effort | None, Field(strict=False, description="quick or thorough; null: what is usual")
    ]


class Desk:
    """The operations about whoever asks."""

    def __init__(self, router: Router, *, address: str, doors: Doors, sessions: Sessions) -> None:
        self._router = router
        self._address = (router.settings.gateway.public_url or address).rstrip("/")
        self._doors = doors
        self._sessions = sessions

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET", path="/api/me", name="get_me", tag="session", right=None,
                summary="Who asks, and what they may do", returns=Me, answer=self.me,
            ),
            Operation(
                method="GET", path="/api/me/preference", name="get_preference", tag="session",
                right=Right.USE, summary="Whether the caller prefers quick or thorough answers",
                returns=Preference, answer=self.preference,
            ),
            Operation(
                method="PUT", path="/api/me/preference", name="set_preference", tag="session",
                right=Right.USE, summary="Keep whether the caller prefers quick or thorough answers",
                body=Preference, returns=Preference, answer=self.set_preference,
            ),
            Operation(
                method="POST", path="/api/session", name="sign_in", tag="session", right=None, opens=True,
                summary="Sign in to the console with a key or a ticket: sets a cookie",
                body=Key, returns=Me, answer=self.sign_in,
            ),
            Operation(
                method="DELETE", path="/api/session", name="sign_out", tag="session", right=None,
                summary="Sign out", status=204, answer=self.sign_out,
            ),
        )  # fmt: skip

    async def me(self, request: ApiRequest) -> Me:
        return self._told(request.principal, request.session)

    async def preference(self, request: ApiRequest) -> Preference:
        return Preference(effort=self._router.profiles.efforts.get(request.principal.name))

    async def set_preference(self, request: ApiRequest) -> Preference:
        wanted: Preference = request.body
        await self._router.prefer(request.principal.name, wanted.effort)
        return wanted

    async def sign_in(self, request: ApiRequest) -> Reply:
        wanted: Key = request.body
        if (wanted.key is None) is (wanted.ticket is None):
            raise Problem(422, "A key or a ticket", _ONE_OF_TWO)
        if await is_tool_peer(request.peer):
            raise Problem(403, "Not for tools", _FOR_PEOPLE)
        key = None
        if wanted.key is not None:
            key = await self._key(request, wanted.key)
        elif wanted.ticket is None or not await use_ticket(self._router.store, wanted.ticket):
            raise Problem(401, "This link is not good any more", _NO_TICKET)
        token, held = await self._sessions.open(key)
        return Reply(
            body=self._told(held.principal, held), headers=(self._cookie(token, self._sessions.seconds),)
        )

    async def _key(self, request: ApiRequest, text: str) -> ApiKey:
        knock = Knock("POST", request.headers, request.remote, request.peer)
        principal = await self._doors.recognise(knock, text)
        key = await self._router.store.keys.find(text) if principal.kind == "key" else None
        if key is None:
            raise Problem(401, "This is no key", _NOT_A_KEY)
        return key

    async def sign_out(self, request: ApiRequest) -> Reply:
        token = cookie_of(request.headers)
        if request.session is not None and token is not None:
            await self._sessions.close(token)
        return Reply(status=204, headers=(self._cookie("", 0),))

    def _cookie(self, token: str, seconds: int) -> Header:
        parts = [f"{COOKIE}={token}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Strict"]
        if self._address.startswith("https://"):
            parts.append("Secure")
        return b"set-cookie", "; ".join(parts).encode()

    def _told(self, principal: Principal, held: Held | None) -> Me:
        models = self._router.models
        profiles = self._router.profiles
        default = profiles.meant(caller=principal.name, among=principal.profiles)
        theirs = (n for n in profiles if principal.may_use(n) and profiles.may_use(n, principal.name))
        return Me(
            name=principal.name,
            kind=principal.kind,
            rights=principal.rights,
            signed_in=held is not None,
            csrf=None if held is None else held.session.csrf,
            version=__version__,
            address=self._address,
            profiles=tuple(sorted(theirs)),
            profile_required=len(principal.profiles) > 1 and default is None,
            default_profile=default,
            modes=MODES,
            models=Models(lite=models.lite or None, prime=models.prime or None),
            keyless=not models.lite and not models.prime,
        )
