"""Results of credential checks and of single sign-on, and the check of API keys with a short cache."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from fingerpost.errors import StoreError
from fingerpost.frozen import frozen
from fingerpost.records import AccessRole, Principal, utc_now
from fingerpost.store.credentials import PREFIX, ApiKey


@frozen(kw_only=False)
class KnownCredential:
    """A valid credential and its principal."""

    principal: Principal


@frozen(kw_only=False)
class UnknownCredential:
    """Not a valid credential. `reason` is for the audit trail; the caller does not get it."""

    reason: str


@frozen(kw_only=False)
class InsufficientCredential:
    """A valid token without the required permission. `scopes` are those it would need."""

    reason: str
    scopes: tuple[str, ...] = ()
    principal: str | None = None


@frozen(kw_only=False)
class UndecidedCredential:
    """The check is not possible now. `seconds` is when to retry."""

    reason: str
    seconds: int = 5


@frozen
class SignedOnPerson:
    """Whom the OpenID provider has signed on, with the roles that the claims give."""

    issuer: str
    subject: str
    roles: tuple[AccessRole, ...]
    sign_out_url: str | None = None  # where the session at the provider ends


class SignOnFailed(Exception):
    """A person could not be signed on. The message is for that person."""

    def __init__(self, message: str, *, status: int = 401) -> None:
        super().__init__(message)
        self.status = status


@frozen
class SignOnAttempt:
    """A sign-on that has begun: the page of the provider, and the cookie that binds it to this browser."""

    url: str
    cookie: str = field(repr=False)


class SignOn(Protocol):
    """Signs people on at an identity provider."""

    async def begin(self) -> SignOnAttempt:
        """Begin a sign-on. Raises `SignOnFailed`."""
        ...

    async def finish(self, cookie: str | None, answer: Mapping[str, str]) -> SignedOnPerson:
        """Finish a sign-on with what the provider added to our address. Raises `SignOnFailed`."""
        ...

    def build_principal(self, person: SignedOnPerson) -> Principal | None:
        """Return the principal of a person, or None if another provider signed them on."""
        ...


CredentialVerdict = KnownCredential | UnknownCredential | InsufficientCredential | UndecidedCredential


RENEW_AFTER_S: Final = 3.0  # then one request repeats the lookup while others use the cache
KEY_FRESH_S: Final = 5.0  # a revoked key is refused after this time at the latest
USE_NOTED_INTERVAL: Final = timedelta(hours=1)
_MAX_CACHED_KEYS: Final = 1000


class ApiKeyLookup(Protocol):
    """Lookup of API keys. The store implements this."""

    async def find(self, key: str, *, now: datetime | None = None) -> ApiKey | None: ...

    def note_use(self, key_id: str, at: datetime) -> None: ...


@dataclass(slots=True)
class _CachedKey:
    key: ApiKey
    verdict: KnownCredential
    at: float
    renewing: bool = False


class ApiKeyCheck:
    """Checks API keys."""

    def __init__(self, key_store: ApiKeyLookup, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._key_store = key_store
        self._clock = clock
        self._seen: OrderedDict[bytes, _CachedKey] = OrderedDict()
        self._noted: dict[str, datetime] = {}

    def get_cached(self, key: str) -> KnownCredential | None:
        """Return the cached verdict if the key was valid a moment ago.

        After `RENEW_AFTER_S`, one request gets None and repeats the lookup while others still use the cache.
        """
        seen = self._seen.get(_hash_key(key))
        if seen is None:
            return None
        age = self._clock() - seen.at
        if age >= KEY_FRESH_S or not seen.key.is_valid(utc_now()):
            return None
        if age >= RENEW_AFTER_S and not seen.renewing:
            seen.renewing = True
            return None
        return seen.verdict

    async def check_credential(self, key: str) -> CredentialVerdict:
        """Look the key up in the store."""
        if not key.startswith(PREFIX):  # no lookup for what cannot be a key
            return UnknownCredential("no such key")
        try:
            found = await self._key_store.find(key)
        except StoreError as error:
            return UndecidedCredential(f"keys cannot be looked up: {error}")
        mark = _hash_key(key)
        if found is None:
            self._seen.pop(mark, None)
            return UnknownCredential("no such key")
        known = KnownCredential(found.build_principal())
        self._seen[mark] = _CachedKey(found, known, self._clock())
        if len(self._seen) > _MAX_CACHED_KEYS:
            self._seen.popitem(last=False)
        self._note_use(found)
        return known

    def _note_use(self, key: ApiKey) -> None:
        now = utc_now()
        last = self._noted.get(key.key_id) or key.last_used
        if last is None or now - last >= USE_NOTED_INTERVAL:
            if len(self._noted) >= _MAX_CACHED_KEYS:
                self._noted.clear()
            self._noted[key.key_id] = now
            self._key_store.note_use(key.key_id, now)


def _hash_key(key: str) -> bytes:
    """Return the cache key. Hashed, so that a memory dump does not contain API keys."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
