"""Who signed in to the console: a cookie for a key, or for the person whose installation this is.

The cookie is a random text of which only a hash is kept, in the store, with the id of
the key that opened the session. The key is looked at again every few seconds: a revoked
key ends its sessions, and a changed one changes what they may do.
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
from fingerpost.records import EVERY_RIGHT, Principal, utc_now
from fingerpost.records.codec import from_json, to_json
from fingerpost.store import Store
from fingerpost.store.keys import ApiKey

COOKIE: Final = "fingerpost_session"
SPACE: Final = "console_sessions"
OPERATOR: Final = Principal(name="local", kind="local", rights=EVERY_RIGHT)
FRESH_S: Final = 3.0
_LENGTH: Final = 43  # of 32 random bytes, as text
_REMEMBERED: Final = 1000


@frozen
class Session:
    """A session as it is kept."""

    key_id: str | None  # None: of the person whose installation this is
    csrf: str = field(repr=False)
    ends: datetime


@frozen
class Held:
    """A session that holds now, and who it stands for."""

    session: Session
    principal: Principal


class Sessions:
    """Opens, finds and ends sessions."""

    def __init__(self, store: Store, *, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._length = timedelta(hours=hours)
        self._clock = clock
        self._seen: OrderedDict[str, tuple[Held, float]] = OrderedDict()

    @property
    def seconds(self) -> int:
        """How long one lasts."""
        return int(self._length.total_seconds())

    async def open(self, key: ApiKey | None) -> tuple[str, Held]:
        """A new session of the holder of this key, or of the operator. The text is the only copy there is."""
        token = secrets.token_urlsafe(32)
        ends = utc_now() + self._length
        key_id = None if key is None else key.key_id
        session = Session(key_id=key_id, csrf=secrets.token_urlsafe(32), ends=ends)
        ttl = self._length.total_seconds()
        await self._store.cache.put(SPACE, _mark(token), to_json(session), ttl=ttl)
        return token, Held(session=session, principal=OPERATOR if key is None else _holder(key))

    def remembered(self, token: str) -> Held | None:
        """The answer of a moment ago, if it was a good one."""
        held, at = self._seen.get(_mark(token), (None, 0.0))
        if held is None or self._clock() - at >= FRESH_S or held.session.ends <= utc_now():
            return None
        return held

    async def find(self, token: str) -> Held | None:
        """The session of this cookie, if it and its key hold now."""
        if len(token) != _LENGTH or not token.isascii():
            return None
        mark = _mark(token)
        kept = await self._store.cache.get(SPACE, mark)
        session = None if not kept else from_json(Session, kept)
        principal = None if session is None else await self._principal(session)
        if session is None or principal is None:
            self._seen.pop(mark, None)
            return None
        held = Held(session=session, principal=principal)
        self._seen[mark] = (held, self._clock())
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return held

    async def close(self, token: str) -> None:
        """From now on the cookie opens nothing."""
        self._seen.pop(_mark(token), None)
        await self._store.cache.put(SPACE, _mark(token), b"", ttl=0)

    async def _principal(self, session: Session) -> Principal | None:
        if session.key_id is None:
            return OPERATOR
        key = await self._store.keys.get(session.key_id)
        return _holder(key) if key is not None and key.holds(utc_now()) else None


def _holder(key: ApiKey) -> Principal:
    return Principal(name=key.name, kind="key", scope=key.scope, profiles=key.profiles, rights=key.rights)


def _mark(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
