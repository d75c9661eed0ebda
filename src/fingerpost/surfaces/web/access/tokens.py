"""Signed tokens (JWT) of an authorization server: checked here, never passed on."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, cast

import jwt

from fingerpost.frozen import frozen
from fingerpost.settings.checks import find_sign_in_flaws, raise_first_flaw
from fingerpost.settings.model import SignInSettings
from fingerpost.surfaces.web.access.claims import InvalidClaims, build_principal, get_scopes
from fingerpost.surfaces.web.access.issuer import IssuerUnreachable, Jwk, TokenIssuer
from fingerpost.surfaces.web.access.verdicts import (
    CredentialVerdict,
    InsufficientCredential,
    KnownCredential,
    UndecidedCredential,
    UnknownCredential,
)

MAX_TOKEN_LENGTH: Final = 16_384
LEEWAY_SECONDS: Final = 30
TOKEN_FRESH_S: Final = 60.0  # a key the issuer withdraws is believed no longer than this and RENEW_AFTER
MAX_KEYS_TRIED: Final = 10  # keys tried for a token that names none
_MAX_CACHED_TOKENS: Final = 1000

_TOKEN_TYPES: Final = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})


@frozen(kw_only=False)
class _CachedVerdict:
    verdict: CredentialVerdict
    until: float  # by the clock of this process
    expires: float  # by the world's


class TokenCheck:
    """Tells whose token it is. `audiences` are those taken now, each with the profile it is bound to."""

    def __init__(
        self,
        settings: SignInSettings,
        *,
        audiences: Callable[[], Mapping[str, str | None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        raise_first_flaw(find_sign_in_flaws(settings))
        self._settings = settings
        self._audiences = audiences or (lambda: {settings.audience: None})
        self._clock = clock
        self._issuer = TokenIssuer(settings, clock=clock)
        self._seen: OrderedDict[bytes, _CachedVerdict] = OrderedDict()

    def get_cached(self, token: str) -> KnownCredential | None:
        """The answer of a moment ago, if it was a good one."""
        seen = self._seen.get(_hash_token(token))
        if seen is None or self._clock() >= seen.until or time.time() >= seen.expires + LEEWAY_SECONDS:
            return None
        return seen.verdict if isinstance(seen.verdict, KnownCredential) else None

    async def check_credential(self, token: str) -> CredentialVerdict:
        """Whose token this is: signed by the issuer, for us, now, with the scopes we ask for."""
        if len(token) > MAX_TOKEN_LENGTH:
            return UnknownCredential("the token is too long")
        audiences = self._audiences()
        try:
            claims = await self._verify_token(token, tuple(audiences))
            expires = float(claims["exp"])
        except IssuerUnreachable as error:
            return UndecidedCredential(f"the issuer's keys cannot be had: {error}")
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            return UnknownCredential(f"{type(error).__name__}: {error}")
        try:
            scopes = get_scopes(claims)
            principal = build_principal(
                claims, scopes, audience_profiles=_get_audience_profiles(claims["aud"], audiences)
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
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in self._settings.algorithms:
            message = "the token is signed in a way we do not take"
            raise ValueError(message)
        if str(header.get("typ", "")).lower() not in _TOKEN_TYPES:
            message = "this is not an access token"
            raise ValueError(message)
        entries = await self._issuer.find_keys(header.get("kid"))
        fitting = (key for entry in entries if (key := _load_key(entry, algorithm)))
        for key in islice(fitting, MAX_KEYS_TRIED):
            try:
                return self._decode_token(token, key, audiences)
            except jwt.InvalidSignatureError:
                continue
        message = "no key of the issuer fits the token"
        raise ValueError(message)

    def _decode_token(self, token: str, key: jwt.PyJWK, audiences: tuple[str, ...]) -> Mapping[str, Any]:
        return jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=audiences,
            issuer=self._settings.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
        )


def _get_audience_profiles(audience: object, audiences: Mapping[str, str | None]) -> tuple[str, ...]:
    """The profiles a token is bound to by the endpoints it was asked for; none when by one it is not."""
    listed = cast("list[object]", audience) if isinstance(audience, list) else [audience]
    taken = [audiences[entry] for entry in listed if isinstance(entry, str) and entry in audiences]
    profiles = tuple(name for name in taken if name is not None)
    return profiles if len(profiles) == len(taken) else ()


def _load_key(entry: Jwk, algorithm: str) -> jwt.PyJWK | None:
    """The key, if it is one for signatures of this kind."""
    if entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
        return None
    try:
        return jwt.PyJWK(dict(entry), algorithm)
    except jwt.PyJWTError:
        return None


def _hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
