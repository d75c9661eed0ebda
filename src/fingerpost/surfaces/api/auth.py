"""Authentication of API requests by key, token or console session; the caller's account."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field

from fingerpost import __version__
from fingerpost.errors import StoreError
from fingerpost.events import EventSink
from fingerpost.frozen import frozen
from fingerpost.records import DECIDING_RIGHTS, Effort, Principal, Right
from fingerpost.router import Router
from fingerpost.router.options import MODES
from fingerpost.settings.validation import DEFAULT_PORTS, is_loopback
from fingerpost.store.credentials import ApiKey
from fingerpost.surfaces.api.operation import (
    ApiOperation,
    ApiProblem,
    ApiRequest,
    ApiResponse,
    OperationGroup,
    declare_operation,
)
from fingerpost.surfaces.api.sessions import SESSION_COOKIE, ActiveSession, ConsoleSessions
from fingerpost.surfaces.http.access import Authenticator, CorsPolicy, Endpoint
from fingerpost.surfaces.http.addresses import Authority, WebOrigin
from fingerpost.surfaces.http.asgi import Header, HttpError
from fingerpost.surfaces.http.authenticator import USER_DISABLED, ApplyUser, RefusalLog
from fingerpost.surfaces.http.credentials import SignOn, SignOnFailed
from fingerpost.surfaces.http.local_callers import Peer, is_tool_peer, redeem_ticket

SIGN_ON_COOKIE: Final = "fingerpost_sign_on"
SIGN_ON_COOKIE_SECONDS: Final = 600
CSRF_HEADER: Final = "x-csrf-token"
ANONYMOUS: Final = Principal(name="", rights=())

_CORS: Final = CorsPolicy(
    methods=b"GET, POST, PUT, DELETE",
    headers=("Authorization", "X-API-Key", "X-API-Version", "Content-Type", "Accept", "Last-Event-ID"),
    exposed=b"Retry-After, WWW-Authenticate",
)
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
    """The principal, and its console session if it has one."""

    principal: Principal
    session: ActiveSession | None = None


@frozen(kw_only=False)
class AccessAttempt:
    """The parts of a request that authentication depends on."""

    method: str
    headers: Mapping[str, str]
    remote: str
    peer: Peer | None = None


class ApiAuth:
    """Authenticates every request: by console session, else with the `Authenticator`."""

    def __init__(
        self,
        authenticator: Authenticator,
        sessions: ConsoleSessions,
        events: EventSink,
        *,
        apply_user: ApplyUser,
    ) -> None:
        self._authenticator = authenticator
        self._apply_user = apply_user
        self._sessions = sessions
        self._refusal_log = RefusalLog(events)

    async def authenticate(self, attempt: AccessAttempt, operation: ApiOperation) -> AuthenticatedCaller:
        """Return the caller. Raises `HttpError` or `ApiProblem` if access is denied."""
        _refuse_cross_site_embed(attempt)
        if operation.public or operation.is_sign_in:
            if not self._authenticator.allows_origin(attempt.headers):
                raise ApiProblem(403, "Origin not allowed", _FOREIGN_PAGE_MESSAGE)
            return AuthenticatedCaller(ANONYMOUS)
        if operation.right in DECIDING_RIGHTS and await is_tool_peer(attempt.peer):
            self._log_refusal(
                attempt, operation, "a program started by Fingerpost tried to decide", ANONYMOUS
            )
            raise ApiProblem(403, "Not for tools", _TOOL_DECISION_MESSAGE)
        session = await self._find_session(attempt)
        if session is not None:
            return self._authenticate_session(attempt, operation, session)
        endpoint = Endpoint(path=operation.path, right=operation.right, any_profile=True)
        admitted = await self._authenticator.authenticate(attempt.headers, endpoint, remote=attempt.remote)
        if isinstance(admitted, Principal):
            _check_origin(attempt, admitted)
            return AuthenticatedCaller(admitted)
        raise HttpError(admitted.status, admitted.message, headers=admitted.encoded_headers)

    async def is_still_authenticated(
        self, attempt: AccessAttempt, operation: ApiOperation, principal: Principal
    ) -> bool:
        """Return whether the same principal would be admitted now. True if that cannot be checked."""
        try:
            return (await self.authenticate(attempt, operation)).principal == principal
        except StoreError:
            return True
        except HttpError as fault:
            return fault.status == 503
        except ApiProblem:
            return False

    async def authenticate_key(self, attempt: AccessAttempt, key: str) -> Principal:
        """Return the principal of a key. The authenticator counts wrong keys. Raises `HttpError`."""
        headers = {name: attempt.headers[name] for name in ("host", "origin") if name in attempt.headers}
        endpoint = Endpoint(path="/api/session", right=None, any_profile=True)
        admitted = await self._authenticator.authenticate(
            {**headers, "x-api-key": key}, endpoint, remote=attempt.remote
        )
        if isinstance(admitted, Principal):
            return admitted
        kept = tuple(header for header in admitted.encoded_headers if header[0] == b"retry-after")
        raise HttpError(admitted.status, admitted.message, headers=kept)

    async def _find_session(self, attempt: AccessAttempt) -> ActiveSession | None:
        """Return the console session of the request, unless it also has a key or token."""
        if "authorization" in attempt.headers or "x-api-key" in attempt.headers:
            return None
        token = get_cookie(attempt.headers)
        if token is None:
            return None
        # Wrong cookies are not limited: behind a proxy all callers share one address, 256 random bits cannot
        # be guessed, and a wrong cookie gives no more access than none.
        return self._sessions.get_cached(token) or await self._sessions.find_session(token)

    def _authenticate_session(
        self, attempt: AccessAttempt, operation: ApiOperation, session: ActiveSession
    ) -> AuthenticatedCaller:
        principal = self._apply_user(session.principal)
        if principal is None:
            self._log_refusal(attempt, operation, "the user is disabled", session.principal)
            raise ApiProblem(403, "You may not do this", USER_DISABLED)
        if not self._authenticator.allows_origin(attempt.headers):
            self._log_refusal(attempt, operation, "a page of another site sent a session", principal)
            raise ApiProblem(403, "Origin not allowed", _FOREIGN_PAGE_MESSAGE)
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
        """Return the CORS headers for responses to an allowed web page."""
        return _CORS.build_headers(self._authenticator, headers)

    def build_preflight(self, headers: Mapping[str, str]) -> tuple[int, tuple[Header, ...]]:
        """Return status and headers for a preflight, or for another OPTIONS request."""
        return _CORS.build_preflight(self._authenticator, headers) if "origin" in headers else (204, ())


def get_cookie(headers: Mapping[str, str], wanted: str = SESSION_COOKIE) -> str | None:
    """Return the value of a cookie."""
    for part in headers.get("cookie", "").split(";"):
        name, separator, value = part.strip().partition("=")
        if separator and name == wanted:
            return value
    return None


def _refuse_cross_site_embed(attempt: AccessAttempt) -> None:
    """Raise `ApiProblem` if a page of another site embeds this URL. Browsers mark such requests."""
    headers = attempt.headers
    embeds = headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
    if embeds and "origin" not in headers:
        raise ApiProblem(403, "Origin not allowed", _FOREIGN_PAGE_MESSAGE)


def _check_origin(attempt: AccessAttempt, principal: Principal) -> None:
    """Raise `ApiProblem` for a change without a key that a page of another origin could have sent."""
    origin = attempt.headers.get("origin")
    if (
        principal.kind != "local"
        or attempt.method in _SAFE_METHODS
        or origin is None
        or is_json_body(attempt.headers)
    ):
        return
    if not _is_same_origin(origin, attempt.headers.get("host", "")):
        raise ApiProblem(403, "Origin not allowed", _FOREIGN_PAGE_MESSAGE)


def is_json_body(headers: Mapping[str, str]) -> bool:
    """Return whether the body is declared as JSON. A foreign page needs a CORS preflight to declare that."""
    return headers.get("content-type", "").split(";")[0].strip().lower() == "application/json"


def _is_same_origin(origin_text: str, host: str) -> bool:
    origin, asked = WebOrigin.parse(origin_text), Authority.parse(host)
    if origin is None or asked is None:
        return False
    same_name = origin.host == asked.host or (is_loopback(origin.host) and is_loopback(asked.host))
    return same_name and origin.port == (asked.port or DEFAULT_PORTS.get(origin.scheme))


_INVALID_TICKET_MESSAGE: Final = (
    "This link was used already, or is older than 10 minutes. Run `fingerpost console` on the machine where "
    "Fingerpost runs: it prints a new one."
)
_KEY_OR_TICKET_MESSAGE: Final = "Sign in with `key` or with `ticket`, and not with both."
_TOOL_SIGN_IN_MESSAGE: Final = (
    "This was sent by a program that Fingerpost started. People sign in, tools do not."
)
_INVALID_KEY_MESSAGE: Final = "Sign in with a key of this gateway, as `fingerpost keys add NAME` shows it."


@frozen
class ModelsInUse:
    """Names of the configured models. Null: not configured."""

    lite: str | None
    prime: str | None


@frozen
class Account:
    """The caller's account: its name, rights, profiles and session."""

    name: str
    kind: str  # local, key, token
    rights: tuple[Right, ...]
    signed_in: bool  # with a console session
    csrf: str | None  # sent as X-CSRF-Token with all methods but GET, if there is a session
    version: str
    address: str
    profiles: tuple[str, ...]  # that the caller may use
    profile_required: bool  # every request must name a profile
    default_profile: str | None  # used if no profile is named
    modes: tuple[str, ...]
    models: ModelsInUse
    keyless: bool  # no model is configured
    has_sign_ins: bool  # there are servers where each user signs in: /api/sign-ins
    sign_out_url: str | None  # where a person who signed on ends the session at the identity provider


@frozen
class SignInBody:
    """Credentials for signing in: a key or a ticket."""

    key: Annotated[str | None, Field(min_length=1, max_length=1000, description="A key of this gateway")] = (
        None
    )
    ticket: Annotated[
        str | None,
        Field(min_length=1, max_length=200, description="Of a link that `fingerpost console` printed"),
    ] = None


@frozen
class SignOnOffer:
    """Where people sign on to the console. Null: single sign-on is not set up."""

    issuer: str | None


@frozen
class SignOnStart:
    """The page of the identity provider."""

    url: str


AnswerText = Annotated[str, Field(max_length=4000)]


@frozen
class SignOnAnswer:
    """What the identity provider added to the address that it led back to."""

    state: AnswerText
    code: AnswerText | None = None
    error: AnswerText | None = None
    error_description: AnswerText | None = None
    iss: AnswerText | None = None


@frozen
class EffortPreference:
    """The caller's preferred effort, for requests that do not set one."""

    effort: Annotated[Effort | None, Field(strict=False, description="quick or thorough; null: the default")]


class AccountOperations(OperationGroup):
    """The operations about the caller's own account."""

    tag = "session"

    def __init__(
        self,
        router: Router,
        *,
        address: str,
        auth: ApiAuth,
        sessions: ConsoleSessions,
        sign_on: SignOn | None = None,
    ) -> None:
        super().__init__(router)
        self._sign_on = sign_on
        self._address = (router.settings.gateway.public_url or address).rstrip("/")
        self._auth = auth
        self._sessions = sessions

    @declare_operation("GET", "/api/me", right=None)
    async def get_me(self, request: ApiRequest) -> Account:
        """The caller and its rights."""
        return self._build_account(request.principal, request.session)

    @declare_operation("GET", "/api/me/preference", right=Right.USE)
    async def get_preference(self, request: ApiRequest) -> EffortPreference:
        """Whether the caller prefers quick or thorough answers."""
        return EffortPreference(effort=self._router.profiles.efforts.get(request.principal.name))

    @declare_operation("PUT", "/api/me/preference", right=Right.USE)
    async def set_preference(self, request: ApiRequest, body: EffortPreference) -> EffortPreference:
        """Store whether the caller prefers quick or thorough answers."""
        await self._router.prefer(request.principal.name, body.effort)
        return body

    @declare_operation("POST", "/api/session", is_sign_in=True, returns=Account, right=None)
    async def sign_in(self, request: ApiRequest, body: SignInBody) -> ApiResponse:
        """Sign in to the console with a key or a ticket: sets a cookie."""
        if (body.key is None) is (body.ticket is None):
            raise ApiProblem(422, "A key or a ticket", _KEY_OR_TICKET_MESSAGE)
        if await is_tool_peer(request.peer):
            raise ApiProblem(403, "Not for tools", _TOOL_SIGN_IN_MESSAGE)
        key = None
        if body.key is not None:
            key = await self._find_key(request, body.key)
        elif body.ticket is None or not await redeem_ticket(self._router.store, body.ticket):
            raise ApiProblem(401, "This link is not valid any more", _INVALID_TICKET_MESSAGE)
        token, session = await self._sessions.open_session(key)
        return ApiResponse(
            body=self._build_account(session.principal, session),
            headers=(self._build_session_cookie(token, session),),
        )

    @declare_operation("GET", "/api/sign-on", public=True, right=None)
    async def get_sign_on(self, request: ApiRequest) -> SignOnOffer:
        """Where people sign on to the console."""
        oidc = self._router.settings.console.oidc
        return SignOnOffer(issuer=None if self._sign_on is None or oidc is None else oidc.issuer)

    @declare_operation(
        "POST", "/api/sign-on", is_sign_in=True, returns=SignOnStart, right=None, problems=(404, 503)
    )
    async def begin_sign_on(self, request: ApiRequest) -> ApiResponse:
        """Begin to sign on; the answer names the page of the identity provider, and sets a cookie."""
        sign_on = await self._check_sign_on(request)
        try:
            attempt = await sign_on.begin()
        except SignOnFailed as error:
            raise ApiProblem(error.status, "Signing on is not possible now", str(error)) from error
        cookie = self._build_cookie(attempt.cookie, SIGN_ON_COOKIE_SECONDS, name=SIGN_ON_COOKIE)
        return ApiResponse(body=SignOnStart(url=attempt.url), headers=(cookie,))

    @declare_operation(
        "POST", "/api/sign-on-answers", is_sign_in=True, returns=Account, right=None, problems=(404, 503)
    )
    async def finish_sign_on(self, request: ApiRequest, body: SignOnAnswer) -> ApiResponse:
        """Finish signing on with the answer of the identity provider: sets a cookie."""
        sign_on = await self._check_sign_on(request)
        fields = ("state", "code", "error", "error_description", "iss")
        answer = {name: value for name in fields if (value := getattr(body, name)) is not None}
        try:
            person = await sign_on.finish(get_cookie(request.headers, SIGN_ON_COOKIE), answer)
        except SignOnFailed as error:
            used = self._build_cookie("", 0, name=SIGN_ON_COOKIE)
            raise ApiProblem(error.status, "You are not signed in", str(error), headers=(used,)) from error
        token, session = await self._sessions.open_person_session(person)
        return ApiResponse(
            body=self._build_account(session.principal, session),
            headers=(
                self._build_session_cookie(token, session),
                self._build_cookie("", 0, name=SIGN_ON_COOKIE),
            ),
        )

    async def _check_sign_on(self, request: ApiRequest) -> SignOn:
        if self._sign_on is None:
            raise ApiProblem(404, "There is no single sign-on", "Sign in with a key, or set console.oidc.")
        if await is_tool_peer(request.peer):
            raise ApiProblem(403, "Not for tools", _TOOL_SIGN_IN_MESSAGE)
        return self._sign_on

    async def _find_key(self, request: ApiRequest, text: str) -> ApiKey:
        attempt = AccessAttempt("POST", request.headers, request.remote, request.peer)
        principal = await self._auth.authenticate_key(attempt, text)
        key = await self._router.store.keys.find(text) if principal.kind == "key" else None
        if key is None:
            raise ApiProblem(401, "Invalid key", _INVALID_KEY_MESSAGE)
        return key

    @declare_operation("DELETE", "/api/session", status=204, right=None)
    async def sign_out(self, request: ApiRequest) -> ApiResponse:
        """Sign out."""
        token = get_cookie(request.headers)
        if request.session is not None and token is not None:
            await self._sessions.close_session(token)
        return ApiResponse(status=204, headers=(self._build_cookie("", 0),))

    def _build_session_cookie(self, token: str, session: ActiveSession) -> Header:
        return self._build_cookie(token, int(self._sessions.get_lifetime(session.session).total_seconds()))

    def _build_cookie(self, token: str, seconds: int, *, name: str = SESSION_COOKIE) -> Header:
        parts = [f"{name}={token}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Strict"]
        if self._address.startswith("https://"):
            parts.append("Secure")
        return b"set-cookie", "; ".join(parts).encode()

    def _build_account(self, principal: Principal, session: ActiveSession | None) -> Account:
        models = self._router.models
        profiles = self._router.profiles
        person = None if session is None else session.session.person
        default = profiles.resolve_profile(caller=principal.name, among=principal.profiles)
        usable = (n for n in profiles if principal.may_use(n) and profiles.may_use(n, principal.name))
        return Account(
            name=principal.name,
            kind=principal.kind,
            rights=principal.rights,
            signed_in=session is not None,
            csrf=None if session is None else session.session.csrf,
            version=__version__,
            address=self._address,
            profiles=tuple(sorted(usable)),
            profile_required=len(principal.profiles) > 1 and default is None,
            default_profile=default,
            modes=MODES,
            models=ModelsInUse(lite=models.lite or None, prime=models.prime or None),
            keyless=not models.lite and not models.prime,
            has_sign_ins=self._router.servers.has_user_servers,
            sign_out_url=None if person is None else person.sign_out_url,
        )
