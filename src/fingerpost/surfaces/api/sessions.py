"""Console sessions: a cookie for the holder of a key, for a person who signed on, or for the operator of this
installation.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import ALL_RIGHTS, Principal, utc_now
from fingerpost.records.codec import from_json, to_json
from fingerpost.store import Store
from fingerpost.store.credentials import ApiKey
from fingerpost.surfaces.http.credentials import SignedOnPerson

SESSION_COOKIE: Final = "fingerpost_session"
PERSON_KEY_ID: Final = "signed on"  # no key has this id, so that nothing takes the person for the operator
SESSION_CACHE_NAME: Final = "console_sessions"
OPERATOR_PRINCIPAL: Final = Principal(name="local", kind="local", rights=ALL_RIGHTS)
SESSION_CACHE_SECONDS: Final = 3.0
_TOKEN_LENGTH: Final = 43  # 32 random bytes as base64
_MAX_CACHED: Final = 1000


@frozen
class ConsoleSession:
    """A session as stored."""

    key_id: str | None  # None: the operator
    csrf: str = field(repr=False)
    ends: datetime
    person: SignedOnPerson | None = None  # who signed on; `key_id` is then that of no key


@frozen
class ActiveSession:
    """A valid session and its principal."""

    session: ConsoleSession
    principal: Principal


class ConsoleSessions:
    """Opens, finds and ends sessions."""

    def __init__(
        self,
        store: Store,
        *,
        hours: float,
        person_hours: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        build_person: Callable[[SignedOnPerson], Principal | None] = lambda _: None,
    ) -> None:
        """`person_hours` limits the sessions of people who signed on, because their roles are those of the
        beginning. `build_person` returns the principal of such a person, or None if there is none now.
        """
        self._store = store
        self._build_person = build_person
        self._lifetime = timedelta(hours=hours)
        self._person_lifetime = timedelta(hours=min(hours, person_hours or hours))
        self._clock = clock
        self._cached: OrderedDict[str, tuple[ActiveSession, float]] = OrderedDict()

    def get_lifetime(self, session: ConsoleSession) -> timedelta:
        """Return for how long such a session is valid."""
        return self._lifetime if session.person is None else self._person_lifetime

    async def open_session(self, key: ApiKey | None) -> tuple[str, ActiveSession]:
        """Open a session for the holder of a key, or for the operator."""
        key_id = None if key is None else key.key_id
        principal = OPERATOR_PRINCIPAL if key is None else key.build_principal()
        return await self._open(self._build_session(key_id, self._lifetime), principal)

    async def open_person_session(self, person: SignedOnPerson) -> tuple[str, ActiveSession]:
        """Open a session for a person who signed on."""
        principal = self._build_person(person)
        assert principal is not None  # single sign-on is set up
        return await self._open(self._build_session(PERSON_KEY_ID, self._person_lifetime, person), principal)

    def _build_session(
        self, key_id: str | None, lifetime: timedelta, person: SignedOnPerson | None = None
    ) -> ConsoleSession:
        ends, csrf = utc_now() + lifetime, secrets.token_urlsafe(32)
        return ConsoleSession(key_id=key_id, csrf=csrf, ends=ends, person=person)

    async def _open(self, session: ConsoleSession, principal: Principal) -> tuple[str, ActiveSession]:
        """Store a session. Only a hash of its token is stored."""
        token = secrets.token_urlsafe(32)
        ttl = self.get_lifetime(session).total_seconds()
        await self._store.cache.put(SESSION_CACHE_NAME, _hash_token(token), to_json(session), ttl=ttl)
        return token, ActiveSession(session=session, principal=principal)

    def get_cached(self, token: str) -> ActiveSession | None:
        """Return the cached session if it was valid a moment ago."""
        held, at = self._cached.get(_hash_token(token), (None, 0.0))
        if held is None or self._clock() - at >= SESSION_CACHE_SECONDS or held.session.ends <= utc_now():
            return None
        return held

    async def find_session(self, token: str) -> ActiveSession | None:
        """Return the session of this cookie if it and its key are valid."""
        if len(token) != _TOKEN_LENGTH or not token.isascii():
            return None
        digest = _hash_token(token)
        kept = await self._store.cache.get(SESSION_CACHE_NAME, digest)
        session = None if not kept else from_json(ConsoleSession, kept)
        principal = None if session is None else await self._find_principal(session)
        if session is None or principal is None:
            self._cached.pop(digest, None)
            return None
        held = ActiveSession(session=session, principal=principal)
        self._cached[digest] = (held, self._clock())
        if len(self._cached) > _MAX_CACHED:
            self._cached.popitem(last=False)
        return held

    async def close_session(self, token: str) -> None:
        """End the session. Its cookie becomes invalid."""
        self._cached.pop(_hash_token(token), None)
        await self._store.cache.put(SESSION_CACHE_NAME, _hash_token(token), b"", ttl=0)

    async def _find_principal(self, session: ConsoleSession) -> Principal | None:
        if session.person is not None:
            return self._build_person(session.person)
        if session.key_id is None:
            return OPERATOR_PRINCIPAL
        key = await self._store.keys.get(session.key_id)
        return key.build_principal() if key is not None and key.is_valid(utc_now()) else None


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
