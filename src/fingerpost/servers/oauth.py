"""OAuth sign-in to servers, token storage and renewal."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from base64 import b64encode, urlsafe_b64decode
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import field
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, cast
from urllib.parse import parse_qs, quote, urlsplit

import anyio
import anyio.to_thread
import httpx2
from anyio.abc import SocketAttribute, SocketStream
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from fingerpost.errors import ConfigError, FingerpostError, ServerUnavailable
from fingerpost.frozen import frozen
from fingerpost.records import LOCAL_NAME, JsonObject, OAuthSpec, ServerSpec
from fingerpost.redaction import register_token
from fingerpost.servers.errors import (
    RequestNotSent,
    build_caller_token_required,
    build_exchange_refused,
    build_token_refused,
    clean_text,
)
from fingerpost.servers.failures import from_exception
from fingerpost.servers.http_client import HttpClients, check_address, resolve_addresses
from fingerpost.servers.library import (
    SIGN_IN_SECONDS,
    HoldRenewal,
    SignInStore,
    SignOutResult,
    build_user_token_name,
)
from fingerpost.settings.validation import is_link_local, is_loopback

IpAddress = IPv4Address | IPv6Address

_LINK_LOCAL_REASON: Final = (
    "link-local and metadata addresses are for this machine alone: clouds keep credentials there"
)

# Suffixes of private network names. Names without a dot are private as well.
_PRIVATE_SUFFIXES: Final = (".local", ".lan", ".internal", ".home.arpa")


def find_url_fault(address: httpx2.URL, *, server: httpx2.URL) -> str | None:
    """Return why a URL named by this server must not be used, or None."""
    host, own = _get_host(address), _get_host(server)
    if address.scheme not in ("http", "https") or host == "":
        return "it is not a web address"
    if is_link_local(str(host)) and host != own:
        return _LINK_LOCAL_REASON
    if address.scheme == "https":
        return None
    if is_loopback(str(host)):
        return None if is_loopback(str(own)) else "it is this machine, where the server is not"
    if host == own and server.scheme == "http" and _is_private_host(host):
        return None
    return "it is not https, so that the traffic could be read or changed in transit"


async def find_resolved_url_fault(address: httpx2.URL, *, server: httpx2.URL) -> str | None:
    """Like `find_url_fault`, but also resolve the host and check its addresses."""
    why = find_url_fault(address, server=server)
    if why is not None or _get_host(address) == _get_host(server):
        return why
    default = 443 if address.scheme == "https" else 80
    found = await resolve_addresses((address.raw_host.decode("ascii"), address.port or default))
    return _LINK_LOCAL_REASON if any(map(is_link_local, found)) else None


def _get_host(url: httpx2.URL) -> str | IpAddress:
    """Return the host of a URL: an IP address in any notation, or a name."""
    name = url.raw_host.decode("ascii").lower().rstrip(".")
    try:
        address = ip_address(name)
    except ValueError:
        return _parse_numeric_address(name) or name
    return getattr(address, "ipv4_mapped", None) or address


def _parse_numeric_address(name: str) -> IpAddress | None:
    """Parse addresses such as `2852039166` and `0xa9fea9fe`, which the system also accepts."""
    try:
        return IPv4Address(socket.inet_aton(name))
    except OSError:
        return None


def _is_private_host(host: str | IpAddress) -> bool:
    """Return whether a host is in a private network, where https is hard to set up."""
    if isinstance(host, str):
        return "." not in host or host.endswith(_PRIVATE_SUFFIXES)
    return not host.is_global


class OAuthSignIn(BaseModel):
    """Everything needed to stay signed in after a restart.

    The library stores only tokens and client, and guesses the token endpoint. That fails for servers with a
    separate authorization server.
    """

    address: str
    tokens: OAuthToken | None = None
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    authority: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    wanted_scope: str | None = None  # what the server asked for when it refused a request for its scope

    def register_secrets(self) -> None:
        """Register all secrets of this sign-in for redaction."""
        if self.client is not None and self.client.client_secret is not None:
            register_token(self.client.client_secret)
        if self.tokens is not None:
            register_token(self.tokens.access_token)
            register_token(self.tokens.refresh_token or "")


class OAuthTokenStorage:
    """The library's token storage, backed by `SignInStore`, with what the sign-in flow discovered."""

    def __init__(self, store: SignInStore, server: str, sign_in: OAuthSignIn) -> None:
        self._store = store
        self.name = server
        self.sign_in = sign_in
        self.context: OAuthContext | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.sign_in.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.context
        self.sign_in = self.sign_in.model_copy(
            update={
                "tokens": tokens,
                "expires_at": None if tokens.expires_in is None else time.time() + tokens.expires_in,
                "authority": context.oauth_metadata if context is not None else None,
                "resource": context.protected_resource_metadata if context is not None else None,
            }
        )
        self.sign_in.register_secrets()
        await self._save()

    async def note_wanted_scope(self, scope: str) -> None:
        """Remember a scope for the next sign-in, beside those that the token has."""
        held = self.sign_in.tokens.scope if self.sign_in.tokens is not None else None
        wanted = union_scopes(union_scopes(held, self.sign_in.wanted_scope), scope)
        if wanted != self.sign_in.wanted_scope:
            self.sign_in = self.sign_in.model_copy(update={"wanted_scope": wanted})
            await self._save()

    async def load_wanted_scope(self) -> str | None:
        """Return the scope that the server asked for since the last sign-in, if there was one."""
        try:
            data = await self._store.get(self.name)
        except ConfigError:  # it cannot be decrypted, and is replaced
            return None
        stored = None if data is None else _parse_sign_in(data)
        return None if stored is None or stored.address != self.sign_in.address else stored.wanted_scope

    async def use_newer_tokens(self) -> bool:
        """Use the tokens that another process has stored meanwhile: a token for renewal can often be used
        only once. Return whether there are any.
        """
        try:
            data = await self._store.get(self.name)
        except FingerpostError:  # what this process has is still the newest that it knows
            return False
        stored = None if data is None else _parse_sign_in(data)
        if stored is None or stored.address != self.sign_in.address or stored.tokens is None:
            return False
        if self.context is None or stored.tokens == self.sign_in.tokens:
            return False
        stored.register_secrets()
        self.sign_in = stored
        self.context.current_tokens, self.context.token_expiry_time = stored.tokens, stored.expires_at
        return True

    async def _save(self) -> None:
        await self._store.put(self.name, self.sign_in.model_dump_json(exclude_none=True).encode())

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.sign_in.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        # Not stored yet: it is useless without tokens, which follow.
        self.sign_in = self.sign_in.model_copy(update={"client": client_info})


async def load_sign_in(
    spec: ServerSpec, store: SignInStore | None, hold: HoldRenewal = nullcontext
) -> httpx2.Auth | None:
    """Return the authentication for this server, or None if there is no stored sign-in. It renews its token
    within `hold`.
    """
    if store is None or spec.url is None or spec.auth != "shared" or has_own_authorization(spec):
        return None
    data = await store.get(spec.name)
    sign_in = None if data is None else _parse_sign_in(data)
    # A token belongs to one server. If the entry now has another URL, the token must not be sent there.
    if sign_in is not None and sign_in.address != spec.url:
        sign_in = None
    if spec.oauth is not None and spec.oauth.grant == "client_credentials":
        return await _load_client_sign_in(spec, spec.oauth, store, sign_in, hold)
    if sign_in is None:
        return None
    # Do not renew at a URL that a sign-in would refuse today. Old sign-ins were not checked.
    renewed_at = None if sign_in.authority is None else httpx2.URL(str(sign_in.authority.token_endpoint))
    if (
        renewed_at is not None
        and await find_resolved_url_fault(renewed_at, server=httpx2.URL(spec.url)) is not None
    ):
        return None
    sign_in.register_secrets()
    return _BearerAuth(
        spec.url,
        build_client_metadata(spec.oauth, "http://127.0.0.1/callback"),
        OAuthTokenStorage(store, spec.name, sign_in),
        hold,
    )


def has_own_authorization(spec: ServerSpec) -> bool:
    """Return whether the entry of the server has an `Authorization` header."""
    return any(name.casefold() == "authorization" for name in spec.headers)


async def load_user_authorization(
    spec: ServerSpec, store: SignInStore, user: str, hold: HoldRenewal
) -> str | None:
    """Return the `Authorization` header of this user for this server, renewed if it expired, or None."""
    name = build_user_token_name(spec.name, user)
    auth = await _load_user_auth(spec, store, name)
    if auth is not None and not auth.context.is_token_valid():
        async with hold(build_renewal_name(name)):  # a token for renewal may be used once
            auth = await _load_user_auth(spec, store, name)  # another instance may have renewed it
            if auth is not None and not auth.context.is_token_valid():
                await _renew(auth)
    if auth is None or auth.context.current_tokens is None or not auth.context.is_token_valid():
        return None
    return f"Bearer {auth.context.current_tokens.access_token}"


async def _load_user_auth(spec: ServerSpec, store: SignInStore, name: str) -> _BearerAuth | None:
    data = await store.get(name)
    sign_in = None if data is None else _parse_sign_in(data)
    if sign_in is None or sign_in.address != spec.url:
        return None
    sign_in.register_secrets()
    metadata = build_client_metadata(spec.oauth, "http://127.0.0.1/callback")
    return _BearerAuth(sign_in.address, metadata, OAuthTokenStorage(store, name, sign_in))


def build_renewal_name(name: str) -> str:
    """Return what a process claims while it renews the sign-in of this name."""
    return f"renewal of {name}"


async def _renew(auth: _BearerAuth) -> None:
    """Renew the token now. Without success the token is gone from the context."""
    if not auth.context.can_refresh_token():
        return
    outgoing = await auth.build_renewal()
    await check_url(str(outgoing.url), "to renew its token", auth.context.server_url)
    http = HttpClients()
    try:
        async with await http.build_client() as client:
            with anyio.fail_after(RENEW_SECONDS):
                await auth.accept_renewal(await client.send(outgoing))
    finally:
        await http.aclose()


TOKEN_EXCHANGE_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a grant
ACCESS_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a type
_USABLE_TOKEN_TYPES: Final = frozenset({ACCESS_TOKEN_TYPE, "urn:ietf:params:oauth:token-type:jwt"})
EXCHANGE_SECONDS: Final = 10.0
EARLY_SECONDS: Final = 30.0  # a token is not used any more so long before it expires
DEFAULT_LIFETIME: Final = 60.0  # of a token whose lifetime is not named
MAX_LIFETIME: Final = 86_400.0
MAX_EXCHANGED: Final = 1000  # tokens kept for one server; the least recently used one is dropped
MAX_TOKEN_ANSWER: Final = 256 * 1024
# Errors that say something about the caller's token; the others concern our own client and its settings.
_TOKEN_ERRORS: Final = frozenset({"invalid_grant", "invalid_request", "invalid_token"})


@frozen
class _ExchangedToken:
    authorization: str = field(repr=False)
    until: float  # event loop time


class TokenExchange:
    """Exchanges the tokens of callers for tokens of one server (RFC 8693). They are kept in memory until
    shortly before they expire, under a hash of user and token.
    """

    def __init__(self, spec: ServerSpec, http: HttpClients) -> None:
        self._spec = spec
        self._oauth = spec.oauth or OAuthSpec()
        self._http = http
        self._authority: OAuthMetadata | None = None
        self._exchanged: OrderedDict[bytes, _ExchangedToken] = OrderedDict()
        self._running: dict[bytes, anyio.Event] = {}

    async def get_authorization(self, user: str, token: str | None) -> str:
        """Return the `Authorization` header for the caller with this token. Equal requests at once share one
        exchange. Raises `SignInRequired` or `ServerUnavailable`.
        """
        if token is None:
            where = self._oauth.issuer or self._oauth.token_endpoint or ""
            raise build_caller_token_required(self._spec.name, where)
        key = _hash_caller(user, token)
        while (running := self._running.get(key)) is not None:
            await running.wait()
        known = self._exchanged.get(key)
        if known is not None and anyio.current_time() < known.until:
            self._exchanged.move_to_end(key)
            return known.authorization
        running = self._running[key] = anyio.Event()
        try:
            made = await self._exchange(token)
        finally:
            del self._running[key]
            running.set()
        self._exchanged[key] = made
        while len(self._exchanged) > MAX_EXCHANGED:
            self._exchanged.popitem(last=False)
        return made.authorization

    def forget(self, authorization: str) -> None:
        """Forget a token that the server refused."""
        self._exchanged = OrderedDict(
            (key, known) for key, known in self._exchanged.items() if known.authorization != authorization
        )

    async def _exchange(self, token: str) -> _ExchangedToken:
        name = self._spec.name
        try:
            with anyio.fail_after(EXCHANGE_SECONDS):
                async with await self._http.build_client() as client:
                    request = await self._build_request(client, token)
                    status, answer = await _read_json(client, request)
        except OAuthFlowError as error:
            raise build_exchange_refused(name, clean_text(str(error))) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:  # OSError: also the timeout
            reason = clean_text(str(error)) or "the authorization server did not answer"
            message = f"the authorization server that exchanges tokens for {name} cannot be reached: {reason}"
            raise RequestNotSent(message, server=name, hint="try again in a minute") from error
        if status != HTTPStatus.OK:
            raise self._build_refusal(status, answer)
        return self._accept(answer, token)

    async def _build_request(self, client: httpx2.AsyncClient, token: str) -> httpx2.Request:
        oauth = self._oauth
        form = {
            "grant_type": TOKEN_EXCHANGE_GRANT,
            "subject_token": token,
            "subject_token_type": ACCESS_TOKEN_TYPE,
            "requested_token_type": ACCESS_TOKEN_TYPE,
        }
        target = {"audience": oauth.audience} if oauth.audience else {"resource": self._spec.url or ""}
        scope = {"scope": " ".join(oauth.scopes)} if oauth.scopes else {}
        endpoint, methods = await self._find_endpoint(client)
        headers = {"Accept": "application/json"}
        client_id, secret = oauth.client_id or "", oauth.client_secret
        if secret is None:
            form["client_id"] = client_id
        elif methods and "client_secret_basic" not in methods:
            form |= {"client_id": client_id, "client_secret": secret}
        else:
            pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"  # RFC 6749, 2.3.1
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        return client.build_request("POST", endpoint, data={**form, **target, **scope}, headers=headers)

    async def _find_endpoint(self, client: httpx2.AsyncClient) -> tuple[str, Sequence[str]]:
        """Return where tokens are exchanged, and how clients authenticate there if that is known."""
        if self._oauth.token_endpoint:
            return self._oauth.token_endpoint, ()
        if self._authority is None:
            self._authority = await _fetch_authority(client, self._oauth.issuer or "")
        methods = self._authority.token_endpoint_auth_methods_supported or ()
        return str(self._authority.token_endpoint), methods

    def _build_refusal(self, status: int, answer: JsonObject) -> ServerUnavailable:
        code, description = answer.get("error"), answer.get("error_description")
        words = [str(part) for part in (code, description) if isinstance(part, str)]
        detail = clean_text(": ".join(words)) or f"the authorization server answered HTTP {status}"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            message = f"the authorization server that exchanges tokens for {self._spec.name} failed: {detail}"
            return RequestNotSent(message, server=self._spec.name, hint="try again in a minute")
        build = build_token_refused if code in _TOKEN_ERRORS else build_exchange_refused
        return build(self._spec.name, detail)

    def _accept(self, answer: JsonObject, token: str) -> _ExchangedToken:
        made, kind = answer.get("access_token"), answer.get("token_type")
        issued = answer.get("issued_token_type", ACCESS_TOKEN_TYPE)
        if (
            not isinstance(made, str)
            or not made.isascii()
            or not made.isprintable()
            or str(kind).lower() != "bearer"
            or issued not in _USABLE_TOKEN_TYPES
        ):
            detail = "the authorization server did not answer with a bearer token"
            raise build_exchange_refused(self._spec.name, detail)
        if made == token:
            detail = "the authorization server answered with the caller's own token, which is not sent on"
            raise build_exchange_refused(self._spec.name, detail)
        self._check_audience(_read_audiences(made), _read_audiences(token))
        register_token(made)
        named = answer.get("expires_in")
        seconds = min(float(named), MAX_LIFETIME) if isinstance(named, int | float) else DEFAULT_LIFETIME
        early = min(EARLY_SECONDS, seconds / 10)
        return _ExchangedToken(authorization=f"Bearer {made}", until=anyio.current_time() + seconds - early)

    def _check_audience(self, made_for: frozenset[str], own: frozenset[str]) -> None:
        """Raise `ServerUnavailable` if the token is for another audience than the one of the settings, or if
        the server could use it wherever the caller's own can be used, such as at this gateway.
        """
        wanted = self._oauth.audience
        elsewhere = own - {wanted or self._spec.url or ""}
        if wanted is not None and made_for and wanted not in made_for:
            detail = "the authorization server answered with a token for another audience"
        elif elsewhere and elsewhere <= made_for:
            detail = "the exchanged token still has the audience of the caller's own, and is not sent on"
        else:
            return
        raise build_exchange_refused(self._spec.name, detail)


def _read_audiences(token: str) -> frozenset[str]:
    """Return the audiences that a token names; empty if it cannot be read (it is not a JWT)."""
    parts = token.split(".")
    if len(parts) != 3:  # header, claims, signature
        return frozenset()
    try:
        claims: object = json.loads(urlsafe_b64decode(f"{parts[1]}=="))
    except (ValueError, RecursionError):
        return frozenset()
    named = cast("dict[str, object]", claims).get("aud") if isinstance(claims, dict) else None
    listed = cast("list[object]", named) if isinstance(named, list) else [named]
    return frozenset(one for one in listed if isinstance(one, str))


def _hash_caller(user: str, token: str) -> bytes:
    """Return the name of a caller's token. Hashed, so that the tokens themselves are not kept."""
    name = user.encode("utf-8", "surrogatepass")
    given = token.encode("utf-8", "surrogatepass")
    return hashlib.sha256(len(name).to_bytes(8, "big") + name + given).digest()


async def _fetch_authority(client: httpx2.AsyncClient, issuer: str) -> OAuthMetadata:
    """Return the metadata of an authorization server. Raises `OAuthFlowError`."""
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer):
        status, document = await _read_json(client, client.build_request("GET", url))
        if status != HTTPStatus.OK:
            continue
        try:
            found = OAuthMetadata.model_validate(document)
        except ValidationError:
            continue
        if not issuers_match(str(found.issuer), issuer):
            message = f"the metadata at {_format_url(httpx2.URL(url))} are those of another issuer"
            raise OAuthFlowError(message)
        await check_url(str(found.token_endpoint), "to exchange tokens", issuer)
        return found
    raise OAuthFlowError(f"{_format_url(httpx2.URL(issuer))} publishes no metadata; set token_endpoint")


async def _read_json(client: httpx2.AsyncClient, request: httpx2.Request) -> tuple[int, JsonObject]:
    """Send a request to an authorization server. Return the status and the object it answered with."""
    answer = await client.send(request, stream=True)
    try:
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > MAX_TOKEN_ANSWER:
                message = "the authorization server answered with too much"
                raise OAuthFlowError(message)
    finally:
        await answer.aclose()
    try:
        document: object = json.loads(body)
    except ValueError:
        document = None
    return answer.status_code, cast("JsonObject", document) if isinstance(document, dict) else {}


def _parse_sign_in(data: bytes) -> OAuthSignIn | None:
    try:
        sign_in = OAuthSignIn.model_validate_json(data)
    except ValidationError:
        return None
    return None if sign_in.tokens is None else sign_in


async def _load_client_sign_in(
    spec: ServerSpec, oauth: OAuthSpec, store: SignInStore, stored: OAuthSignIn | None, hold: HoldRenewal
) -> httpx2.Auth:
    """Return the authentication of a client that signs in by itself. Gets a token if none is stored."""
    if stored is None or not _is_sign_in_of(stored, oauth):
        storage = OAuthTokenStorage(store, spec.name, OAuthSignIn(address=spec.url or ""))
        await _fetch_client_token(spec, oauth, storage)
        stored = storage.sign_in
    stored.register_secrets()
    return _ClientAuth(spec, oauth, OAuthTokenStorage(store, spec.name, stored), hold)


def _is_sign_in_of(stored: OAuthSignIn, oauth: OAuthSpec) -> bool:
    """Return whether this client signed in, at its authorization server."""
    return (
        stored.client is not None
        and stored.authority is not None
        and stored.client.client_id == oauth.client_id
        and issuers_match(str(stored.authority.issuer), oauth.issuer or "")
    )


def build_client_metadata(oauth: OAuthSpec | None, redirect: str) -> OAuthClientMetadata:
    """Return our client metadata for registration at an authorization server."""
    scopes = oauth.scopes if oauth is not None else ()
    return OAuthClientMetadata(
        client_name="Fingerpost", redirect_uris=[AnyUrl(redirect)], scope=" ".join(scopes) or None
    )


class _BearerAuth(OAuthClientProvider):
    """Uses and renews tokens without user interaction.

    The library's flow holds a lock for the whole request, so one slow call would block all others. Here the
    lock covers renewal only.
    """

    def __init__(
        self,
        address: str,
        client: OAuthClientMetadata,
        storage: OAuthTokenStorage,
        hold: HoldRenewal = nullcontext,
    ) -> None:
        super().__init__(address, client, storage)
        self._sign_in_storage = storage
        self._hold = hold
        storage.context = self.context
        self.context.current_tokens = storage.sign_in.tokens
        self.context.token_expiry_time = storage.sign_in.expires_at
        self.context.client_info = storage.sign_in.client
        self.context.oauth_metadata = storage.sign_in.authority
        self.context.protected_resource_metadata = storage.sign_in.resource

    def can_renew(self) -> bool:
        return self.context.can_refresh_token()

    async def build_renewal(self) -> httpx2.Request:
        return await self._refresh_token()

    async def accept_renewal(self, response: httpx2.Response) -> None:
        await self._handle_refresh_response(response)

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        async with self.context.lock:
            if not self.context.is_token_valid():
                await self._sign_in_storage.use_newer_tokens()
            if not self.context.is_token_valid() and self.can_renew():
                async with self._hold(build_renewal_name(self._sign_in_storage.name)):
                    await self._sign_in_storage.use_newer_tokens()
                    if not self.context.is_token_valid():
                        await self.accept_renewal((yield await self.build_renewal()))
        used = self.context.current_tokens
        self._add_auth_header(request)
        response = yield request
        scope = extract_scope_from_www_auth(response)
        if scope and extract_field_from_www_auth(response, "error") == "insufficient_scope":
            await self._sign_in_storage.note_wanted_scope(scope)
        if response.status_code != 401:
            return
        async with self.context.lock:
            # Another request may have renewed it meanwhile; then only the header is outdated.
            is_outdated = self.context.current_tokens is used
            if is_outdated and not await self._sign_in_storage.use_newer_tokens() and self.can_renew():
                async with self._hold(build_renewal_name(self._sign_in_storage.name)):
                    if not await self._sign_in_storage.use_newer_tokens():
                        await self.accept_renewal((yield await self.build_renewal()))
        if self.context.current_tokens is not None and self.context.current_tokens is not used:
            self._add_auth_header(request)
            yield request


class _ClientAuth(_BearerAuth):
    """Uses the token of a client that signs in by itself, and gets the next one when it expires."""

    def __init__(
        self, spec: ServerSpec, oauth: OAuthSpec, storage: OAuthTokenStorage, hold: HoldRenewal
    ) -> None:
        metadata = build_client_metadata(oauth, "http://127.0.0.1/callback")
        super().__init__(spec.url or "", metadata, storage, hold)
        self.context.client_info = _build_own_client(oauth)

    def can_renew(self) -> bool:
        return True

    async def build_renewal(self) -> httpx2.Request:
        form, headers = self.context.prepare_token_auth({"grant_type": "client_credentials"}, {})
        if self.context.should_include_resource_param(self.context.protocol_version):
            form["resource"] = self.context.get_resource_url()
        if self.context.client_metadata.scope:
            form["scope"] = self.context.client_metadata.scope
        return httpx2.Request("POST", self._get_token_endpoint(), data=form, headers=headers)

    async def accept_renewal(self, response: httpx2.Response) -> None:
        await self._handle_token_response(response)


def _build_own_client(oauth: OAuthSpec) -> OAuthClientInformationFull:
    return OAuthClientInformationFull(
        client_id=oauth.client_id or "",
        client_secret=oauth.client_secret,
        redirect_uris=None,
        grant_types=["client_credentials"],
        token_endpoint_auth_method="client_secret_basic",  # noqa: S106 - a method
        scope=" ".join(oauth.scopes) or None,
    )


MAX_ADDRESS_LENGTH = 200


class _CheckedUrls(OAuthClientProvider):
    """Checks every URL before it is requested."""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super().async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    await self._check_request(outgoing)
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _check_request(self, outgoing: httpx2.Request) -> None:
        if not self._is_own_document(outgoing):
            await check_url(str(outgoing.url), "for its sign-in", self.context.server_url)

    def _is_own_document(self, outgoing: httpx2.Request) -> bool:
        """Return whether the server's own documents are read, at the server itself."""
        return outgoing.method == "GET" and _is_same_url(outgoing.url, httpx2.URL(self.context.server_url))


class CheckedSignIn(_CheckedUrls):
    """Sign-in that also checks the authorization server before the user signs in."""

    wanted_scope: str | None = None  # beside what the server asks for now
    own_client: OAuthClientInformationFull | None = None  # from the entry of the server

    async def _perform_authorization(self) -> httpx2.Request:
        authority, own_client = self.context.oauth_metadata, self.own_client
        if authority is not None:
            await check_authority(authority, self.context.server_url)
            methods = authority.token_endpoint_auth_methods_supported or ("client_secret_post",)
            if own_client is not None and own_client.client_secret and "client_secret_post" not in methods:
                own_client.token_endpoint_auth_method = "client_secret_basic"  # noqa: S105 - a method
        metadata = self.context.client_metadata
        metadata.scope = union_scopes(metadata.scope, self.wanted_scope)
        return await super()._perform_authorization()

    async def _check_request(self, outgoing: httpx2.Request) -> None:
        if self.context.oauth_metadata is not None and not self._is_own_document(outgoing):
            await check_authority(self.context.oauth_metadata, self.context.server_url)
        await super()._check_request(outgoing)


async def check_authority(authority: OAuthMetadata, server: str) -> None:
    """Raise `OAuthFlowError` for an authorization server that is not safe to use."""
    endpoints = {
        "to authorize": authority.authorization_endpoint,
        "for tokens": authority.token_endpoint,
        "to register": authority.registration_endpoint,
    }
    for purpose, endpoint in endpoints.items():
        if endpoint is not None:
            await check_url(str(endpoint), purpose, server)
    # MCP specification: if this is absent, PKCE is not supported and clients must refuse. Without PKCE an
    # attacker who intercepts the authorization code gets the token.
    methods = authority.code_challenge_methods_supported or []
    if "S256" not in methods:
        listed = f"only {', '.join(methods)}"[:MAX_ADDRESS_LENGTH] if methods else "nothing"
        message = (
            f"its authority {_format_url(httpx2.URL(str(authority.issuer)))} "
            "does not say that it supports PKCE "
            f"by S256 (code_challenge_methods_supported names {listed}), which is required for sign-in"
        )
        raise OAuthFlowError(message)


async def check_url(address: str, purpose: str, server: str) -> None:
    """Raise `OAuthFlowError` for a URL that must not be used. `purpose` is part of the message."""
    url = httpx2.URL(address)
    why = await find_resolved_url_fault(url, server=httpx2.URL(server))
    if why is not None:
        raise OAuthFlowError(f"it pointed to {_format_url(url)} {purpose}, which was not followed: {why}")


def _format_url(url: httpx2.URL) -> str:
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:MAX_ADDRESS_LENGTH]


def _is_same_url(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.raw_host, one.port) == (other.scheme, other.raw_host, other.port)


MAX_CALLBACK_LENGTH = 16 * 1024
CALLBACK_SECONDS = 10.0
REVOKE_SECONDS: Final = 10.0
RENEW_SECONDS: Final = 10.0

_HANDSHAKE_VERSION: Final = "2025-11-25"
_INITIALIZE_REQUEST: Final[JsonObject] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": _HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "fingerpost", "version": "0"},
    },
}
_LIST_REQUEST: Final[JsonObject] = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
_PAGE = b"<!doctype html><meta charset=utf-8><title>Fingerpost</title><p>%s You can close this window."


async def sign_in(
    spec: ServerSpec,
    tokens: SignInStore,
    *,
    open_browser: Callable[[str], object],
    timeout: float = SIGN_IN_SECONDS,
) -> bool:
    """Sign in to this server. Return False if the server does not require it. Raises `ServerUnavailable`."""
    if spec.url is None or spec.transport not in ("http", "sse"):
        message = f"{spec.name} runs as a local program; only HTTP servers need signing in"
        raise ConfigError(message, hint="give a local program its credentials in env")
    if spec.auth == "exchange":
        message = f"{spec.name} has no sign-in: it gets a token that the caller's own is exchanged for"
        raise ConfigError(message, hint="call its tools with your token of the authorization server")
    if spec.oauth is not None and spec.oauth.grant == "client_credentials":
        return await load_sign_in(spec, tokens) is not None
    name = build_user_token_name(spec.name, LOCAL_NAME) if spec.auth == "per_user" else spec.name
    storage = OAuthTokenStorage(tokens, name, OAuthSignIn(address=spec.url))
    try:
        with anyio.fail_after(timeout):
            await check_address(spec)
            await _run_sign_in(spec, spec.url, storage, open_browser)
    except TimeoutError:
        message = f"signing in to {spec.name} was not finished within {timeout:g} s"
        raise ServerUnavailable(message, server=spec.name, hint="run the command again") from None
    except OAuthFlowError as error:
        message = f"signing in to {spec.name} failed: {clean_text(str(error))}"
        raise ServerUnavailable(message, server=spec.name) from error
    except Exception as error:
        raise from_exception(spec.name, error) from error
    return storage.sign_in.tokens is not None


async def sign_in_user(
    spec: ServerSpec,
    tokens: SignInStore,
    user: str,
    *,
    redirect: str,
    open_page: Callable[[str], Awaitable[None]],
    wait_for_answer: Callable[[], Awaitable[Mapping[str, str]]],
) -> None:
    """Sign one user in at the page given to `open_page`, which leads back to `redirect`."""

    async def wait_for_code() -> AuthorizationCodeResult:
        return _read_code(await wait_for_answer())

    name = build_user_token_name(spec.name, user)
    storage = OAuthTokenStorage(tokens, name, OAuthSignIn(address=spec.url or ""))
    try:
        await check_address(spec)
        await _authorize(spec, spec.url or "", storage, redirect, open_page, wait_for_code)
    except OAuthFlowError as error:
        message = f"signing in to {spec.name} failed: {clean_text(str(error))}"
        raise ServerUnavailable(message, server=spec.name) from error
    except Exception as error:
        raise from_exception(spec.name, error) from error


async def sign_out(server: str, tokens: SignInStore, user: str | None = None) -> SignOutResult:
    """Delete the stored sign-in (of all callers, or of this user) and revoke its tokens at the authorization
    server (RFC 7009).

    "not revoked": the authorization server names no endpoint for that, or refused; the tokens are valid
    until they expire.
    """
    name = server if user is None else build_user_token_name(server, user)
    try:
        data = await tokens.get(name)
    except ConfigError:  # it cannot be decrypted
        await tokens.remove(name)
        return "not revoked"
    if data is None:
        return "not signed in"
    await tokens.remove(name)
    try:
        stored = OAuthSignIn.model_validate_json(data)
        stored.register_secrets()
        with anyio.fail_after(REVOKE_SECONDS):
            return "revoked" if await _revoke(stored) else "not revoked"
    except (ValidationError, OAuthFlowError, httpx2.HTTPError, OSError):  # OSError: also the timeout
        return "not revoked"


async def _revoke(stored: OAuthSignIn) -> bool:
    endpoint = None if stored.authority is None else stored.authority.revocation_endpoint
    if endpoint is None or stored.tokens is None:
        return False
    await check_url(str(endpoint), "to revoke", stored.address)
    client_fields = () if stored.client is None else ("client_id", "client_secret")
    named = {name: getattr(stored.client, name) for name in client_fields}
    kinds = {"refresh_token": stored.tokens.refresh_token, "access_token": stored.tokens.access_token}
    http = HttpClients()
    try:
        async with await http.build_client() as client:
            for kind, token in kinds.items():
                if token is not None:
                    form = {"token": token, "token_type_hint": kind, **named}
                    answer = await client.post(
                        str(endpoint), data={name: value for name, value in form.items() if value is not None}
                    )
                    if answer.status_code != 200:
                        return False
    finally:
        await http.aclose()
    return True


async def _run_sign_in(
    spec: ServerSpec, address: str, storage: OAuthTokenStorage, open_browser: Callable[[str], object]
) -> None:
    async with _OAuthCallback(spec.oauth.redirect_port if spec.oauth else 0) as callback:

        async def open_page(url: str) -> None:
            await anyio.to_thread.run_sync(open_browser, url)

        await _authorize(spec, address, storage, callback.address, open_page, callback.wait_for_code)


async def _authorize(
    spec: ServerSpec,
    address: str,
    storage: OAuthTokenStorage,
    redirect: str,
    open_page: Callable[[str], Awaitable[None]],
    wait_for_code: Callable[[], Awaitable[AuthorizationCodeResult]],
) -> None:
    """Run the authorization code flow: the person agrees at a page, which leads back to `redirect`."""
    async with AsyncExitStack() as stack:
        storage.sign_in.client = own_client = _build_registered_client(spec, redirect)

        async def open_checked_page(url: str) -> None:
            await check_url(url, "to authorize", address)
            await open_page(url)

        flow = CheckedSignIn(
            address, build_client_metadata(spec.oauth, redirect), storage, open_checked_page, wait_for_code
        )
        storage.context = flow.context
        flow.wanted_scope, flow.own_client = await storage.load_wanted_scope(), own_client
        http = HttpClients()
        stack.push_async_callback(http.aclose)
        client = await stack.enter_async_context(await http.build_client(headers=spec.headers, auth=flow))
        headers = {"Accept": "application/json, text/event-stream"}
        # Some servers can be asked for their name without a sign-in, but not for their tools.
        for message in (_INITIALIZE_REQUEST, _LIST_REQUEST):
            async with client.stream("POST", address, json=message, headers=headers) as response:
                if response.status_code in (401, 403):
                    refusal = f"{spec.name} still refuses after signing in (HTTP {response.status_code})"
                    raise ServerUnavailable(refusal, server=spec.name, hint="does this account have access?")
                session = response.headers.get("mcp-session-id")
            if storage.sign_in.tokens is not None:
                return
            headers |= {"MCP-Protocol-Version": _HANDSHAKE_VERSION if spec.era == "auto" else spec.era}
            headers |= {} if session is None else {"Mcp-Session-Id": session}


async def _fetch_client_token(spec: ServerSpec, oauth: OAuthSpec, storage: OAuthTokenStorage) -> None:
    """Find the authorization server of this server and get a token for the client itself."""
    # Loads much for signing tokens, which is not used.
    from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

    class CheckedClientSignIn(_CheckedUrls, ClientCredentialsOAuthProvider):
        """Sign-in of a client by itself."""

    storage.sign_in.client = _build_own_client(oauth).model_copy(update={"client_secret": None})
    flow = CheckedClientSignIn(
        spec.url or "",
        storage,
        oauth.client_id or "",
        oauth.client_secret or "",
        scope=" ".join(oauth.scopes) or None,
        issuer=oauth.issuer,
    )
    storage.context = flow.context
    http = HttpClients()
    try:
        async with await http.build_client(headers=spec.headers, auth=flow) as client:
            accept = {"Accept": "application/json, text/event-stream"}
            async with client.stream("POST", spec.url or "", json=_INITIALIZE_REQUEST, headers=accept):
                pass
    except OAuthFlowError as error:
        raise _build_client_refused(spec, str(error)) from error
    finally:
        await http.aclose()
    if storage.sign_in.tokens is None:
        raise _build_client_refused(spec, "the server did not ask for a token")


def _build_client_refused(spec: ServerSpec, detail: str) -> ServerUnavailable:
    message = f"the client of {spec.name} could not sign in: {clean_text(detail)}"
    hint = "check client_id, client_secret, scopes and issuer in its oauth entry"
    return ServerUnavailable(message, server=spec.name, hint=hint)


def _build_registered_client(spec: ServerSpec, redirect: str) -> OAuthClientInformationFull | None:
    """Return the manually registered client, for authorization servers without dynamic registration."""
    if spec.oauth is None or spec.oauth.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=spec.oauth.client_id,
        client_secret=spec.oauth.client_secret,
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method="none" if spec.oauth.client_secret is None else "client_secret_post",
    )


def _read_code(answer: Mapping[str, str]) -> AuthorizationCodeResult:
    """Return the code in the answer of an authorization server. Raises `OAuthFlowError`."""
    if "code" not in answer:
        detail = answer.get("error_description") or answer.get("error") or "no code came back"
        raise OAuthFlowError(detail)
    return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))


class _OAuthCallback:
    """The loopback address that the browser is redirected to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._received = anyio.Event()
        self._query: dict[str, list[str]] = {}

    async def __aenter__(self) -> _OAuthCallback:
        self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._listener.serve, self._serve)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()

    @property
    def address(self) -> str:
        port = self._listener.listeners[0].extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
        return f"http://127.0.0.1:{port}/callback"

    async def wait_for_code(self) -> AuthorizationCodeResult:
        await self._received.wait()
        return _read_code({name: values[0] for name, values in self._query.items()})

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(CALLBACK_SECONDS):
                try:
                    target = await _read_request_target(stream)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
                parts = urlsplit(target)
                query = parse_qs(parts.query)
                wanted = parts.path == "/callback" and ("code" in query or "error" in query)
                body = _PAGE % (b"Fingerpost has the answer." if wanted else b"Nothing here.")
                head = (
                    f"HTTP/1.1 {200 if wanted else 404} -\r\nContent-Type: text/html\r\nConnection: close\r\n"
                )
                await stream.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                if wanted and not self._received.is_set():
                    self._query = query
                    self._received.set()


async def _read_request_target(stream: SocketStream) -> str:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_CALLBACK_LENGTH:
        head += await stream.receive()
    words = head.split(b"\r\n", 1)[0].split()
    return words[1].decode("latin-1") if len(words) > 1 else "/"
