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
from fingerpost.settings.checks import refuse, sign_in_flaws
from fingerpost.settings.model import SignInSettings
from fingerpost.surfaces.web.access.claims import ClaimsRefused, principal_of, scopes_of
from fingerpost.surfaces.web.access.issuer import Issuer, IssuerUnreachable, Jwk
from fingerpost.surfaces.web.access.verdicts import Insufficient, Known, Undecided, Unknown, Verdict

LONGEST_TOKEN: Final = 16_384
LEEWAY_SECONDS: Final = 30
FRESH_SECONDS: Final = 60.0  # a key the issuer withdraws is believed no longer than this and RENEW_AFTER
MOST_TRIED: Final = 10  # keys tried for a token that names none
_REMEMBERED: Final = 1000

_TYPES: Final = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})


@frozen(kw_only=False)
class _Seen:
    verdict: Verdict
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
        refuse(sign_in_flaws(settings))
        self._settings = settings
        self._audiences = audiences or (lambda: {settings.audience: None})
        self._clock = clock
        self._issuer = Issuer(settings, clock=clock)
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()

    def remembered(self, token: str) -> Known | None:
        """The answer of a moment ago, if it was a good one."""
        seen = self._seen.get(_mark(token))
        if seen is None or self._clock() >= seen.until or time.time() >= seen.expires + LEEWAY_SECONDS:
            return None
        return seen.verdict if isinstance(seen.verdict, Known) else None

    async def judge(self, token: str) -> Verdict:
        """Whose token this is: signed by the issuer, for us, now, with the scopes we ask for."""
        if len(token) > LONGEST_TOKEN:
            return Unknown("the token is too long")
        audiences = self._audiences()
        try:
            claims = await self._claims(token, tuple(audiences))
            expires = float(claims["exp"])
        except IssuerUnreachable as error:
            return Undecided(f"the issuer's keys cannot be had: {error}")
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            return Unknown(f"{type(error).__name__}: {error}")
        try:
            scopes = scopes_of(claims)
            principal = principal_of(claims, scopes, meant_for=_meant_for(claims["aud"], audiences))
        except ClaimsRefused as refused:
            return Insufficient(str(refused))
        missing = [scope for scope in self._settings.scopes if scope not in scopes]
        if missing:
            reason = f"the token lacks the scope {' '.join(missing)}"
            return Insufficient(reason, self._settings.scopes, principal.name)
        known = Known(principal)
        self._seen[_mark(token)] = _Seen(known, self._clock() + FRESH_SECONDS, expires)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return known

    async def _claims(self, token: str, audiences: tuple[str, ...]) -> Mapping[str, Any]:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in self._settings.algorithms:
            message = "the token is signed in a way we do not take"
            raise ValueError(message)
        if str(header.get("typ", "")).lower() not in _TYPES:
            message = "this is not an access token"
            raise ValueError(message)
        entries = await self._issuer.keys_for(header.get("kid"))
        fitting = (key for entry in entries if (key := _key(entry, algorithm)))
        for key in islice(fitting, MOST_TRIED):
            try:
                return self._decoded(token, key, audiences)
            except jwt.InvalidSignatureError:
                continue
        message = "no key of the issuer fits the token"
        raise ValueError(message)

    def _decoded(self, token: str, key: jwt.PyJWK, audiences: tuple[str, ...]) -> Mapping[str, Any]:
        return jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=audiences,
            issuer=self._settings.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
        )


def _meant_for(audience: object, audiences: Mapping[str, str | None]) -> tuple[str, ...]:
    """The profiles a token is bound to by the endpoints it was asked for; none when by one it is not."""
    listed = cast("list[object]", audience) if isinstance(audience, list) else [audience]
    taken = [audiences[entry] for entry in listed if isinstance(entry, str) and entry in audiences]
    profiles = tuple(name for name in taken if name is not None)
    return profiles if len(profiles) == len(taken) else ()


def _key(entry: Jwk, algorithm: str) -> jwt.PyJWK | None:
    """The key, if it is one for signatures of this kind."""
    if entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
        return None
    try:
        return jwt.PyJWK(dict(entry), algorithm)
    except jwt.PyJWTError:
        return None


def _mark(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
