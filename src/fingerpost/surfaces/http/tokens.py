"""Signed tokens (JWT) of an authorization server: its public keys, the checks, and the claims. Tokens are
never forwarded.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

import anyio
import anyio.to_thread
import httpx2
import jwt
import orjson

from fingerpost.frozen import frozen
from fingerpost.records import AccessRole, Effect, Principal, Right, Scope, combine_rights, get_sign_in_user
from fingerpost.redaction import register_secret, scrub
from fingerpost.settings.model import ClaimedRoles, IssuerSettings, OidcSettings, SignInSettings
from fingerpost.settings.validation import find_sign_in_flaws, is_trustworthy, raise_first_flaw
from fingerpost.surfaces.http.credentials import (
    CredentialVerdict,
    InsufficientCredential,
    KnownCredential,
    SignedOnPerson,
    SignOnAttempt,
    SignOnFailed,
    UndecidedCredential,
    UnknownCredential,
)

MAX_NAME_LENGTH: Final = 200
MAX_SCOPES: Final = 1000
SCOPE_PREFIX: Final = "fingerpost:"

# Issuers use one of these names or both.
_SCOPE_CLAIMS: Final = ("scope", "scp")
# Scopes of ours, also misspelled ones, which must be rejected: in capitals, after a comma or after a URL.
# A number after the colon is the port of a host named "fingerpost".
_OWN_SCOPE_PATTERN = re.compile(r"^fingerpost:|fingerpost:(?!\d)", re.IGNORECASE)


class InvalidClaims(Exception):
    """The token is valid, but its claims are not."""


def get_scopes(claims: Mapping[str, object]) -> tuple[str, ...]:
    """Return all scopes of a token.

    Raises `InvalidClaims` if they cannot be read completely: an incomplete limit would permit too much.
    """
    scopes = tuple(scope for name in _SCOPE_CLAIMS for scope in _parse_scope_claim(name, claims.get(name)))
    if len(scopes) > MAX_SCOPES:
        raise InvalidClaims(f"the token has more than {MAX_SCOPES} scopes")
    return scopes


def _parse_scope_claim(name: str, given: object) -> list[str]:
    """Parse one claim: a text separated by spaces, or a list of texts. None means no scopes."""
    if given is None:
        return []
    if isinstance(given, str):
        return given.split()
    if isinstance(given, list):
        entries = cast("list[object]", given)
        texts = [entry for entry in entries if isinstance(entry, str)]
        if len(texts) == len(entries):
            return texts
    raise InvalidClaims(f"the token's {name} is neither a text nor a list of texts")


def get_claimed_roles(claims: Mapping[str, object], mapping: ClaimedRoles) -> tuple[AccessRole, ...]:
    """Return the roles of a person by the claims of a token.

    Raises `InvalidClaims` if the claim cannot be read, and if it gives no role and there is no default.
    """
    name = mapping.roles_claim
    values = [] if name is None else _get_claim_values(name, _find_claim(claims, name))
    roles = {mapping.roles[value] for value in values if value in mapping.roles}
    found = tuple(role for role in AccessRole if role in roles) or mapping.default_roles
    if not found:
        raise InvalidClaims(f"no value of the claim {name} gives a role")
    return found


def _find_claim(claims: Mapping[str, object], name: str) -> object:
    """Return a claim by its name, or by the names of nested objects with dots between them."""
    if name in claims:
        return claims[name]
    outer, _, inner = name.partition(".")
    found = claims.get(outer) if inner else None
    return _find_claim(cast("dict[str, object]", found), inner) if isinstance(found, dict) else None


def _get_claim_values(name: str, given: object) -> list[str]:
    """Return the values of a claim: one text, or a list of texts. A text may contain spaces."""
    return [given] if isinstance(given, str) else _parse_scope_claim(name, given)


def build_principal(
    claims: Mapping[str, object],
    scopes: tuple[str, ...],
    *,
    roles: tuple[AccessRole, ...] = (AccessRole.USER,),
    audience_profiles: tuple[str, ...] = (),
) -> Principal:
    """Build the principal of a token. `audience_profiles` are the profiles its audience limits it to, if any.

    Raises `InvalidClaims` for an unknown scope of ours.
    """
    servers: list[str] = []
    tools: list[str] = []
    effects: list[Effect] = []
    profiles: list[str] = []
    rights: list[Right] = []
    names_by_kind = {"server": servers, "tool": tools, "profile": profiles}
    for scope in scopes:
        if _OWN_SCOPE_PATTERN.search(scope) is None:
            continue
        named, _, value = scope.removeprefix(SCOPE_PREFIX).partition(":")
        kind = named if scope.startswith(SCOPE_PREFIX) else ""
        if kind == "effect" and value in set(Effect):
            effects.append(Effect(value))
        elif kind == "may" and value in set(Right):
            rights.append(Right(value))
        elif kind in names_by_kind and value:
            names_by_kind[kind].append(value)
        else:
            raise InvalidClaims(f"the scope {scope[:MAX_NAME_LENGTH]!r} is not one we know")
    name, user = _build_principal_name(claims), f"token:{claims['sub']}"  # one user for all clients
    return Principal(
        name=name,
        user="" if name == user else user,
        kind="token",
        scope=Scope(servers=tuple(servers), tools=tuple(tools), effects=tuple(effects)),
        profiles=_intersect_profiles(tuple(profiles), audience_profiles),
        rights=combine_rights(roles, rights),
    )


def _intersect_profiles(scoped: tuple[str, ...], audience_profiles: tuple[str, ...]) -> tuple[str, ...]:
    """Return the profiles allowed by scopes and audience. If one of them sets no limit, use the other."""
    if not scoped or not audience_profiles:
        return scoped or audience_profiles
    both = tuple(name for name in scoped if name in audience_profiles)
    if not both:  # an empty result would mean all profiles
        raise InvalidClaims("the token's scopes name other profiles than its audience")
    return both


def _build_principal_name(claims: Mapping[str, object]) -> str:
    """Return `token:<sub>`, followed by the client if it is named. API keys and local callers never have such
    names.

    The part after the last "@" is the client, so names are unique: a subject with an "@" and no client gets a
    trailing "@".
    """
    subject = claims.get("sub")
    client = claims.get("client_id", claims.get("azp"))
    if not isinstance(subject, str):
        raise InvalidClaims("the token names no subject")
    name = f"token:{subject}"
    if isinstance(client, str) and client not in ("", subject):
        name += f"@{client.replace('%', '%25').replace('@', '%40')}"
    elif "@" in subject:
        name += "@"
    if not subject.strip() or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidClaims("the token's subject is empty, too long or unprintable")
    return name


log = logging.getLogger("fingerpost.access")

FETCH_TIMEOUT_S: Final = 5.0
MAX_FETCH_BYTES: Final = 512 * 1024
MAX_KEYS: Final = 100
RENEW_AFTER_S: Final = 600.0
MAX_KEY_AGE_S: Final = 3600.0
UNKNOWN_KEY_INTERVAL_S: Final = 30.0  # limits how often callers can cause a request to the issuer
RETRY_INTERVAL_S: Final = 5.0

Jwk = Mapping[str, Any]


class IssuerUnreachable(Exception):
    """The issuer's keys are not available now."""


@frozen(kw_only=False)
class _KeySet:
    keys: tuple[Jwk, ...] = field(repr=False)
    fetched: float


class TokenIssuer:
    """The keys of one authorization server."""

    def __init__(
        self,
        settings: IssuerSettings,
        *,
        path: str = "gateway.sign_in",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`path` is where the settings are, for messages."""
        self._path = path
        self._issuer = settings.issuer
        self._jwks_url = settings.jwks_url
        self._clock = clock
        self._lock = anyio.Lock()
        self._key_set: _KeySet | None = None
        self._failed_at: float | None = None
        self._logged_reason: str | None = None  # the last logged reason

    async def find_keys(self, kid: str | None) -> tuple[Jwk, ...]:
        """Return the keys that may have signed a token: the one with this id, or all if it names none.

        Raises `IssuerUnreachable`.
        """
        keys = await self._get_key_set(since=None)
        if found := _filter_by_kid(keys.keys, kid):
            return found
        if kid is not None and self._clock() - keys.fetched >= UNKNOWN_KEY_INTERVAL_S:
            return _filter_by_kid((await self._get_key_set(since=keys.fetched)).keys, kid)
        return ()

    async def _get_key_set(self, *, since: float | None) -> _KeySet:
        """Return the known keys. Fetch them first if they are old, or were fetched at `since`."""
        if self._key_set is not None and not self._is_due(self._key_set, since):
            return self._key_set
        async with self._lock:  # later tasks find the keys that the first one fetched
            held = self._key_set
            if held is not None and not self._is_due(held, since):
                return held
            if self._failed_at is None or self._clock() - self._failed_at >= RETRY_INTERVAL_S:
                return await self._renew_keys(held)
        return self._check_usable(held, "the issuer could not be reached a moment ago")

    def _is_due(self, key_set: _KeySet, since: float | None) -> bool:
        return self._clock() - key_set.fetched >= RENEW_AFTER_S or key_set.fetched == since

    async def _renew_keys(self, key_set: _KeySet | None) -> _KeySet:
        try:
            with anyio.fail_after(FETCH_TIMEOUT_S):
                keys = await self._fetch_keys()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:  # also TimeoutError
            self._failed_at = self._clock()
            self._log_failure(str(error) or type(error).__name__)
            return self._check_usable(key_set, f"{type(error).__name__}: {error}")
        self._failed_at = self._logged_reason = None
        self._key_set = _KeySet(keys, self._clock())
        return self._key_set

    def _log_failure(self, reason: str) -> None:
        """Log each reason once, because every request with a token tries again."""
        if reason != self._logged_reason:
            self._logged_reason = reason
            log.warning(
                "The keys of %s, which are needed to check tokens, could not be fetched (%s). "
                "Check %s.issuer and jwks_url, and whether this machine reaches them.",
                scrub(self._issuer),
                scrub(reason),
                self._path,
            )

    def _check_usable(self, key_set: _KeySet | None, reason: str) -> _KeySet:
        if key_set is None or self._clock() - key_set.fetched >= MAX_KEY_AGE_S:
            raise IssuerUnreachable(reason)
        return key_set

    async def _fetch_keys(self) -> tuple[Jwk, ...]:
        # Creating a client reads certificates and settings from disk.
        async with await anyio.to_thread.run_sync(_build_client) as client:
            url = self._jwks_url or await self._discover_keys_url(client)
            document = await _get_document(client, url)
        listed = document.get("keys")
        if not isinstance(listed, list):
            raise ValueError("the key document holds no keys")
        entries = cast("list[object]", listed)[:MAX_KEYS]
        return tuple(cast("Jwk", entry) for entry in entries if isinstance(entry, dict))

    async def _discover_keys_url(self, client: httpx2.AsyncClient) -> str:
        """Return the URL of the issuer's keys from its metadata."""
        metadata = await _fetch_metadata(client, self._issuer)
        if metadata is None:
            raise ValueError(f"the issuer publishes no metadata; set {self._path}.jwks_url")
        jwks_url = metadata.get("jwks_uri")
        if isinstance(jwks_url, str) and is_trustworthy(jwks_url):
            return jwks_url
        raise ValueError("the metadata name no trustworthy address of keys")


async def _fetch_metadata(client: httpx2.AsyncClient, issuer: str) -> Mapping[str, object] | None:
    """Return the metadata of an issuer (RFC 8414, then OpenID Connect), or None if it publishes none."""
    for url in build_metadata_urls(issuer):
        try:
            metadata = await _get_document(client, url)
        except _MissingDocument:
            continue
        # The document must name the issuer it was requested for (RFC 8414, 3.3).
        if metadata.get("issuer") != issuer:
            raise ValueError("the metadata are those of another issuer")
        return metadata
    return None


def _build_client() -> httpx2.AsyncClient:
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    return httpx2.AsyncClient(follow_redirects=False, timeout=FETCH_TIMEOUT_S, headers=headers)


class _MissingDocument(ValueError):
    """The document does not exist."""


def build_metadata_urls(issuer: str) -> tuple[str, ...]:
    """Return the possible URLs of an issuer's metadata, in the order to try."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = (
        f"{base}/.well-known/oauth-authorization-server{path}",
        f"{base}/.well-known/openid-configuration{path}",
        f"{base}{path}/.well-known/openid-configuration",
    )
    return tuple(dict.fromkeys(urls))


async def _get_document(client: httpx2.AsyncClient, url: str) -> Mapping[str, object]:
    return await _read_document(client, client.build_request("GET", url))


async def _read_document(client: httpx2.AsyncClient, request: httpx2.Request) -> Mapping[str, object]:
    """Send the request and return the JSON object it is answered with. Raises `ValueError`."""
    url, response = request.url, await client.send(request, stream=True)
    try:
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise _MissingDocument(f"there is nothing at {url}")
        if response.status_code != HTTPStatus.OK:
            raise ValueError(f"{url} answered with status {response.status_code}")
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > MAX_FETCH_BYTES:
                raise ValueError(f"{url} answered with more than {MAX_FETCH_BYTES} bytes")
    finally:
        await response.aclose()
    document: object = orjson.loads(body)
    if not isinstance(document, dict):
        raise ValueError(f"{url} did not answer with a JSON object")
    return cast("Mapping[str, object]", document)


def _filter_by_kid(keys: tuple[Jwk, ...], kid: str | None) -> tuple[Jwk, ...]:
    return keys if kid is None else tuple(key for key in keys if key.get("kid") == kid)


MAX_TOKEN_LENGTH: Final = 16_384
LEEWAY_SECONDS: Final = 30
TOKEN_FRESH_S: Final = 60.0  # a withdrawn key is accepted at most this long plus RENEW_AFTER_S
MAX_KEYS_TRIED: Final = 10  # for a token that names no key
_MAX_CACHED_TOKENS: Final = 1000

_TOKEN_TYPES: Final = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})


@frozen(kw_only=False)
class _CachedVerdict:
    verdict: CredentialVerdict
    until: float  # monotonic clock
    expires: float  # wall clock


class TokenCheck:
    """Checks tokens. `audiences` returns the accepted audiences, each with the profile it limits to."""

    def __init__(
        self,
        settings: SignInSettings,
        *,
        audiences: Callable[[], Mapping[str, str | None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        raise_first_flaw(find_sign_in_flaws(settings))
        self._settings = settings
        self._audiences = audiences or (lambda: {settings.audience: None})
        self._clock = clock
        self._wall_clock = wall_clock
        self._issuer = TokenIssuer(settings, clock=clock)
        self._seen: OrderedDict[bytes, _CachedVerdict] = OrderedDict()

    def get_cached(self, token: str) -> KnownCredential | None:
        """Return the cached verdict if the token was valid a moment ago."""
        seen = self._seen.get(_hash_token(token))
        if seen is None or self._clock() >= seen.until:
            return None
        if self._wall_clock() >= seen.expires + LEEWAY_SECONDS:
            return None
        return seen.verdict if isinstance(seen.verdict, KnownCredential) else None

    async def check_credential(self, token: str) -> CredentialVerdict:
        """Check a token: signature, audience, validity time, and required scopes."""
        if len(token) > MAX_TOKEN_LENGTH:
            return UnknownCredential("the token is too long")
        audiences = self._audiences()
        try:
            claims = await self._verify_token(token, tuple(audiences))
            expires = float(claims["exp"])
        except IssuerUnreachable as error:
            return UndecidedCredential(f"the issuer's keys are not available: {error}")
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            return UnknownCredential(f"{type(error).__name__}: {error}")
        try:
            scopes = get_scopes(claims)
            principal = build_principal(
                claims,
                scopes,
                roles=get_claimed_roles(claims, self._settings),
                audience_profiles=_get_audience_profiles(claims["aud"], audiences),
            )
        except InvalidClaims as refused:
            return InsufficientCredential(str(refused))
        missing = [scope for scope in self._settings.scopes if scope not in scopes]
        if missing:
            reason = f"the token lacks the scope {' '.join(missing)}"
            return InsufficientCredential(reason, self._settings.scopes, principal.name)
        known = KnownCredential(principal)
        self._seen[_hash_token(token)] = _CachedVerdict(known, self._clock() + TOKEN_FRESH_S, expires)
        if len(self._seen) > _MAX_CACHED_TOKENS:
            self._seen.popitem(last=False)
        return known

    async def _verify_token(self, token: str, audiences: tuple[str, ...]) -> Mapping[str, Any]:
        if str(jwt.get_unverified_header(token).get("typ", "")).lower() not in _TOKEN_TYPES:
            raise ValueError("this is not an access token")
        return await _verify_signed(token, self._issuer, self._settings, audiences)


async def _verify_signed(
    token: str, issuer: TokenIssuer, settings: IssuerSettings, audiences: tuple[str, ...]
) -> Mapping[str, Any]:
    """Return the claims of a token after checking signature, issuer, audience and validity time.

    Raises `IssuerUnreachable`, `jwt.PyJWTError` or `ValueError`.
    """
    header = jwt.get_unverified_header(token)
    algorithm = header.get("alg")
    if algorithm not in settings.algorithms:
        raise ValueError("the token's signature algorithm is not accepted")
    entries = await issuer.find_keys(header.get("kid"))
    fitting = (key for entry in entries if (key := _load_key(entry, algorithm)))
    for key in islice(fitting, MAX_KEYS_TRIED):
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=audiences,
                issuer=settings.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
            )
        except jwt.InvalidSignatureError:
            continue
    raise ValueError("no key of the issuer fits the token")


def _get_audience_profiles(audience: object, audiences: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the profiles a token is limited to by its audiences. Empty if one audience sets no limit."""
    listed = cast("list[object]", audience) if isinstance(audience, list) else [audience]
    taken = [audiences[entry] for entry in listed if isinstance(entry, str) and entry in audiences]
    profiles = tuple(name for name in taken if name is not None)
    return profiles if len(profiles) == len(taken) else ()


def _load_key(entry: Jwk, algorithm: str) -> jwt.PyJWK | None:
    """Return the key if it suits this signature algorithm."""
    if entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
        return None
    try:
        return jwt.PyJWK(dict(entry), algorithm)
    except jwt.PyJWTError:
        return None


def _hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


SIGN_ON_SECONDS: Final = 600.0
SIGN_ON_STATE_PREFIX: Final = "sso-"  # the console knows its answers by it
EXCHANGE_TIMEOUT_S: Final = 10.0
METADATA_FRESH_S: Final = 600.0


class SingleSignOn:
    """Implements `SignOn` with an OpenID provider: authorization code with PKCE, state and nonce.

    What a sign-on needs later is in a signed cookie of the browser that began it. So nothing is stored for
    callers who are not known yet, and any instance can finish it.
    """

    def __init__(
        self,
        settings: OidcSettings,
        secret: bytes,
        *,
        address: str,
        token_issuer: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`token_issuer` is the issuer of tokens for the gateway, if there is one."""
        raise_first_flaw(find_sign_in_flaws(settings, ("console", "oidc")))
        if settings.client_secret is not None:
            register_secret(settings.client_secret)
        self._settings = settings
        self._token_issuer = token_issuer
        self._key = hmac.digest(secret, b"fingerpost/sign-on/1", "sha256")
        self._home = f"{address.rstrip('/')}/"
        self._clock = clock
        self._issuer = TokenIssuer(settings, path="console.oidc")
        self._metadata: tuple[Mapping[str, object], float] | None = None

    async def begin(self) -> SignOnAttempt:
        """Begin a sign-on. Raises `SignOnFailed`."""
        metadata = await self._get_metadata()
        state = f"{SIGN_ON_STATE_PREFIX}{secrets.token_urlsafe(24)}"
        nonce, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        challenge = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._home,
            "scope": " ".join(dict.fromkeys(("openid", *self._settings.scopes))),
            "state": state,
            "nonce": nonce,
            "code_challenge": _encode_base64(challenge),
            "code_challenge_method": "S256",
        }
        page = _get_endpoint(metadata, "authorization_endpoint")
        expires = self._clock() + SIGN_ON_SECONDS
        kept = {"state": state, "nonce": nonce, "verifier": verifier, "expires": expires}
        body = _encode_base64(orjson.dumps(kept))
        joint = "&" if urlsplit(page).query else "?"
        return SignOnAttempt(url=f"{page}{joint}{urlencode(query)}", cookie=f"{body}.{self._sign(body)}")

    async def finish(self, cookie: str | None, answer: Mapping[str, str]) -> SignedOnPerson:
        """Finish a sign-on with what the provider added to our address. Raises `SignOnFailed`."""
        kept = self._read_cookie(cookie or "", answer.get("state", ""))
        metadata = await self._get_metadata()
        self._check_issuer(answer.get("iss"), metadata)
        if (error := answer.get("error")) is not None:
            words = f"{error}: {answer['error_description']}" if "error_description" in answer else error
            raise SignOnFailed(f"The identity provider refused: {scrub(words)[:MAX_NAME_LENGTH]}")
        id_token = await self._fetch_id_token(metadata, answer.get("code", ""), kept["verifier"])
        claims = await self._check_id_token(id_token, kept["nonce"])
        try:
            roles = get_claimed_roles(claims, self._settings)
        except InvalidClaims as refused:
            raise SignOnFailed(f"You have no role here: {refused}. Ask the operator.", status=403) from None
        return SignedOnPerson(
            issuer=self._settings.issuer,
            subject=claims["sub"],
            roles=roles,
            sign_out_url=self._build_sign_out_url(metadata),
        )

    def build_principal(self, person: SignedOnPerson) -> Principal | None:
        """Return the principal of a person, or None if another provider signed them on.

        Where this provider also issues tokens for the gateway, the person is the one that its tokens name.
        Otherwise the name is one that no token has.
        """
        if person.issuer != self._settings.issuer:
            return None
        same = self._token_issuer == person.issuer
        name = _build_principal_name({"sub": person.subject}) if same else f"sso:{person.subject}"
        rights = combine_rights(person.roles)
        return Principal(name=name, user=get_sign_in_user(name), kind="token", rights=rights)

    def _check_issuer(self, issuer: str | None, metadata: Mapping[str, object]) -> None:
        """Raise `SignOnFailed` for an answer of another provider (RFC 9207). One that says that it names
        itself in answers must do so.
        """
        names_itself = metadata.get("authorization_response_iss_parameter_supported") is True
        if issuer != self._settings.issuer and (issuer is not None or names_itself):
            raise SignOnFailed("The answer comes from another identity provider.")

    def _read_cookie(self, cookie: str, state: str) -> Mapping[str, Any]:
        body, _, mac = cookie.partition(".")
        if hmac.compare_digest(mac.encode("utf-8", "replace"), self._sign(body).encode()):
            kept: dict[str, Any] = orjson.loads(base64.urlsafe_b64decode(f"{body}=="))
            same = hmac.compare_digest(kept["state"].encode(), state.encode("utf-8", "replace"))
            if same and self._clock() < kept["expires"]:
                return kept
        raise SignOnFailed("This sign-in has expired, or was begun in another browser. Sign in again.")

    def _sign(self, body: str) -> str:
        return hmac.digest(self._key, body.encode("utf-8", "replace"), "sha256").hex()

    async def _get_metadata(self) -> Mapping[str, object]:
        if self._metadata is not None and self._clock() - self._metadata[1] < METADATA_FRESH_S:
            return self._metadata[0]
        try:
            with anyio.fail_after(EXCHANGE_TIMEOUT_S):
                async with await anyio.to_thread.run_sync(_build_client) as client:
                    found = await _fetch_metadata(client, self._settings.issuer)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise _build_unreachable(f"{type(error).__name__}: {error}") from error
        if found is None:
            raise _build_unreachable("it publishes no metadata")
        self._metadata = found, self._clock()
        return found

    async def _fetch_id_token(self, metadata: Mapping[str, object], code: str, verifier: str) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._home,
            "code_verifier": verifier,
        }
        headers: dict[str, str] = {}
        client_id, secret = self._settings.client_id, self._settings.client_secret
        methods = metadata.get("token_endpoint_auth_methods_supported")
        if secret is None:
            form["client_id"] = client_id
        elif isinstance(methods, list) and "client_secret_basic" not in methods:
            form |= {"client_id": client_id, "client_secret": secret}
        else:
            pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"  # RFC 6749, 2.3.1
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        try:
            with anyio.fail_after(EXCHANGE_TIMEOUT_S):
                async with await anyio.to_thread.run_sync(_build_client) as client:
                    request = client.build_request(
                        "POST", _get_endpoint(metadata, "token_endpoint"), data=form, headers=headers
                    )
                    answer = await _read_document(client, request)
        except (httpx2.HTTPError, OSError, ValueError) as error:
            log.warning("The OpenID provider gave no token for a code: %s", scrub(str(error)))
            raise SignOnFailed("The identity provider did not confirm the sign-in. Sign in again.") from error
        id_token = answer.get("id_token")
        if not isinstance(id_token, str) or len(id_token) > MAX_TOKEN_LENGTH:
            message = (
                "The identity provider sent no ID token. The scope `openid` may be missing at its client."
            )
            raise SignOnFailed(message)
        return id_token

    async def _check_id_token(self, id_token: str, nonce: str) -> Mapping[str, Any]:
        """Return the claims of the ID token (OpenID Connect Core, 3.1.3.7)."""
        client_id = self._settings.client_id
        try:
            claims = await _verify_signed(id_token, self._issuer, self._settings, (client_id,))
            if not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
                raise ValueError("the nonce is another one")
            audience: object = claims["aud"]
            several = isinstance(audience, list) and len(cast("list[object]", audience)) > 1
            if claims.get("azp", None if several else client_id) != client_id:
                raise ValueError("it was made for another client")
            _build_principal_name({"sub": claims["sub"]})
        except IssuerUnreachable as error:
            raise _build_unreachable(str(error)) from error
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, InvalidClaims) as error:
            log.warning("An ID token was refused: %s", scrub(f"{type(error).__name__}: {error}"))
            raise SignOnFailed("The identity provider's answer is not valid. Sign in again.") from error
        return claims

    def _build_sign_out_url(self, metadata: Mapping[str, object]) -> str | None:
        """Return where the person ends the session at the provider (RP-initiated logout), if it has that."""
        page = metadata.get("end_session_endpoint")
        if not isinstance(page, str) or not is_trustworthy(page):
            return None
        query = {"client_id": self._settings.client_id, "post_logout_redirect_uri": self._home}
        return f"{page}{'&' if urlsplit(page).query else '?'}{urlencode(query)}"


def _build_unreachable(reason: str) -> SignOnFailed:
    log.warning("The OpenID provider cannot be used: %s", scrub(reason))
    message = "The identity provider cannot be reached now. Try again later."
    return SignOnFailed(message, status=503)


def _get_endpoint(metadata: Mapping[str, object], name: str) -> str:
    endpoint = metadata.get(name)
    if isinstance(endpoint, str) and is_trustworthy(endpoint):
        return endpoint
    raise _build_unreachable(f"its metadata name no trustworthy {name}")


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
