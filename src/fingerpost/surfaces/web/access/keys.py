"""API keys at the gate: looked up in the store now and then, not for every request."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from fingerpost.errors import StoreError
from fingerpost.records import Principal, utc_now
from fingerpost.store.keys import PREFIX, ApiKey
from fingerpost.surfaces.web.access.verdicts import Known, Undecided, Unknown, Verdict

RENEW_SECONDS: Final = 3.0  # then one request looks the key up again, while others go on
FRESH_SECONDS: Final = 5.0  # a revoked key is refused after this time at the latest
USE_NOTED_EVERY: Final = timedelta(hours=1)
_REMEMBERED: Final = 1000


class KeyBook(Protocol):
    """Where keys are kept. The store implements this."""

    async def find(self, key: str, *, now: datetime | None = None) -> ApiKey | None: ...

    def note_use(self, key_id: str, at: datetime) -> None: ...


@dataclass(slots=True)
class _Seen:
    key: ApiKey
    verdict: Known
    at: float
    renewing: bool = False


class KeyCheck:
    """Tells whose key it is."""

    def __init__(self, book: KeyBook, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._book = book
        self._clock = clock
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._noted: dict[str, datetime] = {}

    def remembered(self, key: str) -> Known | None:
        """The answer of a moment ago, if it was a good one."""
        seen = self._seen.get(_mark(key))
        if seen is None:
            return None
        age = self._clock() - seen.at
        if age >= FRESH_SECONDS or not seen.key.holds(utc_now()):
            return None
        if age >= RENEW_SECONDS and not seen.renewing:
            seen.renewing = True
            return None
        return seen.verdict

    async def judge(self, key: str) -> Verdict:
        """Whose key this is, as the store knows it now."""
        if not key.startswith(PREFIX):  # anybody may send us anything: no look-up for what cannot be a key
            return Unknown("no such key")
        try:
            found = await self._book.find(key)
        except StoreError as error:
            return Undecided(f"keys cannot be looked up: {error}")
        mark = _mark(key)
        if found is None:
            self._seen.pop(mark, None)
            return Unknown("no such key")
        known = Known(
            Principal(
                name=found.name,
                kind="key",
                scope=found.scope,
                profiles=found.profiles,
                rights=found.rights,
            ),
        )
        self._seen[mark] = _Seen(found, known, self._clock())
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        self._note(found)
        return known

    def _note(self, key: ApiKey) -> None:
        now = utc_now()
        last = self._noted.get(key.key_id) or key.last_used
        if last is None or now - last >= USE_NOTED_EVERY:
            if len(self._noted) >= _REMEMBERED:
                self._noted.clear()
            self._noted[key.key_id] = now
            self._book.note_use(key.key_id, now)


def _mark(key: str) -> bytes:
    """What a key is remembered by: a dump of our memory should not be a list of keys."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
