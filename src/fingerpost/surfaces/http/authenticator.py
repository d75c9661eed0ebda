"""Authentication of every HTTP request: host, origin, API key or token, and limits for failed attempts."""

from __future__ import annotations

import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from fingerpost.errors import ConfigError
from fingerpost.events import AccessRefused, EventSink
from fingerpost.frozen import frozen
from fingerpost.records import LOCAL_NAME, Json, JsonObject, Principal, Right
from fingerpost.settings.model import GatewaySettings, SignInSettings
from fingerpost.settings.validation import (
    find_gateway_flaws,
    get_base_url,
    get_host,
    is_loopback,
    raise_first_flaw,
)
from fingerpost.store.credentials import PREFIX
from fingerpost.surfaces.http.access import AccessDenial, Endpoint
from fingerpost.surfaces.http.addresses import (
    AllowedHosts,
    Authority,
    get_reachable_address,
    is_cross_site_embed,
)
from fingerpost.surfaces.http.credentials import (
    ApiKeyCheck,
    ApiKeyLookup,
    CredentialVerdict,
    InsufficientCredential,
    KnownCredential,
    UndecidedCredential,
    UnknownCredential,
)

# OAuth resources of the gateway (RFC 8707) and the metadata that names the authorization server (RFC 9728).

_ENDPOINT_PATHS: Final = ("/mcp", "/mcp/route", "/mcp/all")
_ENDPOINT_PATTERN = re.compile(r"(?P<root>.*?)/mcp(?:/route|/all|/p/[^/?#]+)?")


class ProtectedResources:
    """The resource names of this gateway's endpoints, and the accepted audiences."""

    def __init__(self, settings: GatewaySettings, *, bound: str, profiles: Iterable[str] = ()) -> None:
        audience = None if settings.sign_in is None else settings.sign_in.audience
        named = audience if audience is not None and get_base_url(audience) is not None else None
        root = None if named is None else _parse_root(named)
        base_url = settings.public_url or root or f"http://{get_reachable_address(bound)}"
        self._base_url = base_url.rstrip("/")
        self._audience = audience
        self._profiles = profiles
        self._is_ours = root is not None and root == self._base_url
        self._shared_resource = None if named is None or self._is_ours else named
        self.main = named or f"{self._base_url}/mcp"

    @property
    def prefix(self) -> str:
        """The path prefix that a proxy adds, or an empty string."""
        return urlsplit(self._base_url).path

    def get_resources(self) -> Mapping[str, str]:
        """Return the resource of each current endpoint, by path."""
        return {path: self._shared_resource or f"{self._base_url}{path}" for path in self._get_endpoints()}

    def get_audiences(self) -> Mapping[str, str | None]:
        """Return the accepted audiences, each with the profile that it limits a token to."""
        taken: dict[str, str | None] = {}
        if self._is_ours:
            taken = {f"{self._base_url}{path}": profile for path, profile in self._get_endpoints().items()}
        if self._audience is not None:
            taken[self._audience] = None
        return taken

    def _get_endpoints(self) -> Mapping[str, str | None]:
        return {**dict.fromkeys(_ENDPOINT_PATHS), **{f"/mcp/p/{name}": name for name in self._profiles}}


def _parse_root(address: str) -> str | None:
    """Return the root URL of a gateway with this endpoint URL, or None if it is not an endpoint URL."""
    match = _ENDPOINT_PATTERN.fullmatch(address)
    return None if match is None else match["root"]


WELL_KNOWN_PATH: Final = "/.well-known/oauth-protected-resource"


class ResourceMetadata:
    """The protected-resource metadata, and the challenge that refers to them.

    Clients check that the resource named in a document is the URL they requested (RFC 9728, 3.3).
    """

    def __init__(self, sign_in: SignInSettings | None, resources: ProtectedResources) -> None:
        self._sign_in = sign_in
        self._resources = resources

    def get_documents(self) -> Mapping[str, JsonObject]:
        """Return the documents by path. Empty if sign-in is not configured."""
        if self._sign_in is None:
            return {}
        main, prefix = self._resources.main, self._resources.prefix
        named = {"": main, _get_path(main): main}
        for path, resource in self._resources.get_resources().items():
            named[path] = named[f"{prefix}{path}"] = resource
        return {
            f"{WELL_KNOWN_PATH}{path}": _build_document(self._sign_in, named[path]) for path in sorted(named)
        }

    def build_challenge(
        self, path: str, error: str | None = None, scopes: tuple[str, ...] = ()
    ) -> tuple[str, str]:
        """Build the `WWW-Authenticate` header of a denial at this path."""
        parts = ['realm="fingerpost"']
        if error is not None:
            parts.append(f'error="{error}"')
        if scopes:
            parts.append(f'scope="{" ".join(scopes)}"')
        if self._sign_in is not None:
            resource = self._resources.get_resources().get(path, self._resources.main)
            parts.append(
                f'resource_metadata="{get_base_url(resource)}{WELL_KNOWN_PATH}{_get_path(resource)}"'
            )
        return "www-authenticate", f"Bearer {', '.join(parts)}"


def _build_document(sign_in: SignInSettings, resource: str) -> JsonObject:
    document: dict[str, Json] = {
        "resource": resource,
        "authorization_servers": [sign_in.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "Fingerpost",
    }
    if sign_in.scopes:
        document["scopes_supported"] = [*sign_in.scopes]
    return document


def _get_path(resource: str) -> str:
    return urlsplit(resource).path.rstrip("/")


def is_exposed(settings: GatewaySettings) -> bool:
    """Return whether the gateway can be reached from other machines."""
    public = get_host(settings.public_url) if settings.public_url else ""
    return not is_loopback(settings.host) or bool(public and not is_loopback(public))


def check_exposure(settings: GatewaySettings, *, has_keys: bool) -> str | None:
    """Return a note for the operator at startup, or None.

    Raises `ConfigError` if every host in the network could use every tool.
    """
    if not is_exposed(settings):
        return None
    if not has_keys and settings.sign_in is None:
        where = settings.host if not is_loopback(settings.host) else settings.public_url
        raise ConfigError(
            f"the gateway would be open to every program that can reach {where}",
            hint="make a key with `fingerpost keys add NAME`, or set [gateway.sign_in], "
            "or listen at 127.0.0.1 only",
        )
    if settings.public_url is None:
        return (
            f"{settings.host} is not encrypted, so keys can be read in transit. Put a proxy with "
            "TLS in front, and set its address as gateway.public_url."
        )
    if not settings.public_url.startswith("https://"):
        return "gateway.public_url is not https, so keys can be read in transit."
    return None


MAX_FAILURES: Final = 20
WINDOW_S: Final = 60.0
_MAX_REMOTES: Final = 10_000


class FailedAttempts:
    """Counts failures of the last minute by remote address."""

    def __init__(
        self,
        *,
        limit: int = MAX_FAILURES,
        seconds: float = WINDOW_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def get_wait(self, remote: str) -> float:
        """Return how many seconds this remote must wait, 0 if it is below the limit."""
        failures = self._failures.get(remote)
        if failures is None or len(failures) < self._limit:
            return 0.0
        return max(0.0, failures[0] + self._seconds - self._clock())

    def add_failure(self, remote: str) -> None:
        """Add a failure. Above the limit the remote with the oldest failure is dropped."""
        failures = self._failures.pop(remote, None) or deque[float](maxlen=self._limit)
        failures.append(self._clock())
        self._failures[remote] = failures
        if len(self._failures) > _MAX_REMOTES:
            self._failures.popitem(last=False)


class RefusalLog:
    """Records refusals, with a limit per remote and minute."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._recent_refusals = FailedAttempts()

    def record(self, remote: str, *, endpoint: str, reason: str, principal: str | None = None) -> None:
        if self._recent_refusals.get_wait(remote) > 0:
            return
        self._recent_refusals.add_failure(remote)
        self._events.emit(AccessRefused(endpoint=endpoint, reason=reason, principal=principal))


# Callers without a key may be people or tools, so they may only use and watch. To decide, a caller needs
# a key with the right, or a console session opened by `fingerpost console`.
LOCAL_PRINCIPAL: Final = Principal(name=LOCAL_NAME, kind="local", rights=(Right.USE, Right.WATCH))

MAX_CREDENTIAL_LENGTH: Final = 16_384
# Set by proxies. A caller behind a proxy is not local.
_PROXY_HEADERS: Final = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"})

_KEY_NEEDED = "A key is needed: send it as `Authorization: Bearer …` or `X-API-Key: …`."
_INVALID_CREDENTIAL = "The key or token is not valid. Ask the operator of this gateway for another."
_WRONG_ENDPOINT = "The key or token is valid, but not for this endpoint."
_NOT_ACCEPTED = "The token is valid, but not accepted: {reason}."
_RIGHT_MISSING = "The key or token is valid, but its holder may not do this: it needs the right `{right}`."
_SIGN_IN_NEEDED = (
    "A local connection is not enough for this, because a tool could open one, too. "
    "It needs the right `{right}`. "
    "Sign in to the console with the link that `fingerpost console` prints, use the command line "
    "(`fingerpost approvals`), or send a key made with `fingerpost keys add NAME --may {right}`."
)
_TOO_MANY_FAILURES = "Too many wrong keys or tokens. Wait a minute."
_EMBEDDING_REFUSED = "Pages of other sites may not load this."
_CHECK_UNAVAILABLE = "Keys and tokens cannot be checked now. Try again in a few seconds."


ApplyUser: TypeAlias = Callable[[Principal], Principal | None]
USER_DISABLED: Final = "This user is disabled. Ask an administrator of this gateway."


class CredentialCheck(Protocol):
    """Checks one kind of credential."""

    def get_cached(self, credential: str, /) -> KnownCredential | None: ...

    async def check_credential(self, credential: str, /) -> CredentialVerdict: ...


@frozen(kw_only=False)
class _RefusedAccess:
    """A denial with its reason, which only the audit trail gets."""

    denial: AccessDenial
    reason: str
    principal: str | None = None


class HttpAuthenticator:
    """Implements `access.Authenticator`. `local` is the caller without a key; None: all need one."""

    def __init__(
        self,
        *,
        hosts: AllowedHosts,
        documents: ResourceMetadata,
        keys: CredentialCheck,
        tokens: CredentialCheck | None,
        events: EventSink,
        local: Principal | None,
        failures: FailedAttempts | None = None,
        apply_user: ApplyUser | None = None,
    ) -> None:
        self._hosts = hosts
        self._documents = documents
        self._keys = keys
        self._tokens = tokens
        self._local = local
        self._apply_user = apply_user
        self._failures = failures or FailedAttempts()
        self._refusal_log = RefusalLog(events)

    def get_public_documents(self) -> Mapping[str, JsonObject]:
        return self._documents.get_documents()

    def allows_origin(self, headers: Mapping[str, str]) -> bool:
        """Return whether a web page may send requests, by Host and Origin. Its key is checked separately."""
        return self._hosts.get_target(headers).refusal is None

    def allows_probe(self, headers: Mapping[str, str]) -> bool:
        return self._hosts.allows_probe(headers)

    async def authenticate(
        self, headers: Mapping[str, str], endpoint: Endpoint, *, remote: str = ""
    ) -> Principal | AccessDenial:
        """Return the principal, or why access is denied. `remote` is the client's address."""
        answer = await self._decide_access(headers, endpoint, remote)
        if isinstance(answer, _RefusedAccess):
            self._refusal_log.record(
                remote, endpoint=endpoint.path, reason=answer.reason, principal=answer.principal
            )
            return answer.denial
        return answer

    async def _decide_access(
        self, headers: Mapping[str, str], endpoint: Endpoint, remote: str
    ) -> Principal | _RefusedAccess:
        target = self._hosts.get_target(headers)
        if target.refusal is not None:
            return _RefusedAccess(AccessDenial(status=403, message=target.refusal), target.refusal)
        if is_cross_site_embed(headers):
            return _RefusedAccess(AccessDenial(status=403, message=_EMBEDDING_REFUSED), _EMBEDDING_REFUSED)
        credential = _get_credential(headers)
        if credential is None:
            if self._local is not None and target.loopback and _PROXY_HEADERS.isdisjoint(headers):
                return self._authorize_endpoint(endpoint, self._local)
            return _RefusedAccess(self._build_unauthorized(endpoint, _KEY_NEEDED), "no credential was given")
        check = self._keys if self._tokens is None or credential.startswith(PREFIX) else self._tokens
        known = check.get_cached(credential)
        if known is None:
            # Check before applying the limit: behind a proxy all callers share one address, and a caller that
            # guesses must not lock out the others. Guessing cannot succeed: keys have 256 random bits,
            # tokens a signature. The check is cheap.
            verdict = await self._check_credential(check, credential)
            if not isinstance(verdict, KnownCredential):
                return self._build_refusal(verdict, endpoint, remote)
            known = verdict
        return self._authorize_endpoint(endpoint, known.principal)

    async def _check_credential(self, check: CredentialCheck, credential: str) -> CredentialVerdict:
        if not credential.isascii() or len(credential) > MAX_CREDENTIAL_LENGTH:
            return UnknownCredential("not a credential")
        return await check.check_credential(credential)

    def _authorize_endpoint(self, endpoint: Endpoint, given: Principal) -> Principal | _RefusedAccess:
        principal = given if self._apply_user is None else self._apply_user(given)
        if principal is None:
            return _RefusedAccess(
                AccessDenial(status=403, message=USER_DISABLED), "the user is disabled", given.name
            )
        if endpoint.right is not None and not principal.may(endpoint.right):
            message = _SIGN_IN_NEEDED if principal.kind == "local" else _RIGHT_MISSING
            denial = self._build_insufficient(endpoint, message.format(right=endpoint.right))
            return _RefusedAccess(denial, f"may not {endpoint.right}", principal.name)
        if endpoint.any_profile or principal.may_use(endpoint.profile):
            return principal
        denial = self._build_insufficient(endpoint, _WRONG_ENDPOINT)
        return _RefusedAccess(denial, f"may use only {', '.join(principal.profiles)}", principal.name)

    def _build_refusal(
        self,
        verdict: UnknownCredential | InsufficientCredential | UndecidedCredential,
        endpoint: Endpoint,
        remote: str,
    ) -> _RefusedAccess:
        if isinstance(verdict, UndecidedCredential):
            again = ("retry-after", str(verdict.seconds))
            return _RefusedAccess(
                AccessDenial(status=503, message=_CHECK_UNAVAILABLE, headers=(again,)), verdict.reason
            )
        if isinstance(verdict, InsufficientCredential):
            message = _NOT_ACCEPTED.format(reason=verdict.reason)
            denial = self._build_insufficient(endpoint, message, verdict.scopes)
            return _RefusedAccess(denial, verdict.reason, verdict.principal)
        if (seconds := self._failures.get_wait(remote)) > 0:
            return _build_too_many(seconds)
        self._failures.add_failure(remote)
        return _RefusedAccess(
            self._build_unauthorized(endpoint, _INVALID_CREDENTIAL, "invalid_token"), verdict.reason
        )

    def _build_unauthorized(self, endpoint: Endpoint, message: str, error: str | None = None) -> AccessDenial:
        challenge = self._documents.build_challenge(endpoint.path, error)
        return AccessDenial(status=401, message=message, headers=(challenge,))

    def _build_insufficient(
        self, endpoint: Endpoint, message: str, scopes: tuple[str, ...] = ()
    ) -> AccessDenial:
        challenge = self._documents.build_challenge(endpoint.path, "insufficient_scope", scopes)
        return AccessDenial(status=403, message=message, headers=(challenge,))


def _build_too_many(seconds: float) -> _RefusedAccess:
    again = ("retry-after", str(int(seconds) + 1))
    return _RefusedAccess(
        AccessDenial(status=429, message=_TOO_MANY_FAILURES, headers=(again,)), "too many wrong credentials"
    )


def _get_credential(headers: Mapping[str, str]) -> str | None:
    """Return the gateway's credential. Beside an `X-API-Key`, Authorization may be for a server."""
    if (key := headers.get("x-api-key")) is not None:
        return key.strip()
    authorization = headers.get("authorization")
    if authorization is None:
        return None
    scheme, _, value = authorization.strip().partition(" ")
    # Another scheme counts as an invalid credential.
    return value.strip() if scheme.lower() == "bearer" else ""


__all__ = ["HttpAuthenticator", "build_authenticator", "check_exposure", "is_exposed"]


def build_authenticator(
    settings: GatewaySettings,
    *,
    keys: ApiKeyLookup,
    events: EventSink,
    bound: str,
    profiles: Iterable[str] = (),
    apply_user: ApplyUser | None = None,
) -> HttpAuthenticator:
    """Build the authenticator of a gateway that listens at `bound` (`host:port`).

    `apply_user` returns a principal with the roles of its user, or None if the user is disabled. Raises
    `ConfigError` for settings under which no caller could get access.
    """
    address = Authority.parse(bound) or Authority(settings.host, settings.port)
    _check_settings(settings)
    resources = ProtectedResources(settings, bound=bound, profiles=profiles)
    tokens = None
    if settings.sign_in is not None:
        # Imports the signature library, which a gateway without sign-in does not need.
        from fingerpost.surfaces.http.tokens import TokenCheck

        tokens = TokenCheck(settings.sign_in, audiences=resources.get_audiences)
    hosts = AllowedHosts(settings, address)
    is_local_only = is_loopback(address.host) and not is_exposed(settings) and not hosts.allows_any_origin
    return HttpAuthenticator(
        hosts=hosts,
        documents=ResourceMetadata(settings.sign_in, resources),
        keys=ApiKeyCheck(keys),
        tokens=tokens,
        events=events,
        local=_build_local_principal(settings) if is_local_only and not settings.require_key else None,
        apply_user=apply_user,
    )


def _build_local_principal(settings: GatewaySettings) -> Principal:
    """Return the principal of local callers without a key."""
    confirms = (Right.CONFIRM,) if settings.local_confirm else ()
    return replace(LOCAL_PRINCIPAL, rights=(*LOCAL_PRINCIPAL.rights, *confirms))


def _check_settings(settings: GatewaySettings) -> None:
    raise_first_flaw(find_gateway_flaws(settings))
    for entry in settings.allowed_hosts:
        if Authority.parse(entry) is None:
            message = f"gateway.allowed_hosts: {entry} is not a host"
            raise ConfigError(message, hint="write a name, or name:port, without http://")
