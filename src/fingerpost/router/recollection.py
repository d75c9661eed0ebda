"""What was recorded, made ready for narrowing: outcomes, corrections, habits, decisions.

It is read again when something new is known, and now and then because another process
may have recorded something: a person corrects from a terminal what a server routed. No
request waits for that, but the first one, and one behind a person's word.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import chain
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from fingerpost.narrow.experience import HistoryScorer
from fingerpost.narrow.experience.similar import Floats
from fingerpost.narrow.learning import (
    Corrections,
    PastDecisions,
    Preferences,
    RememberedDecision,
    RequestVectors,
)
from fingerpost.records import utc_now
from fingerpost.settings import Settings
from fingerpost.store import Store
from fingerpost.store.learned import EVERYBODY

logger = logging.getLogger(__name__)

REFRESH_INTERVAL_S: Final = 5.0
CHECK_INTERVAL_S: Final = 30.0


class LearnedData:
    """One for each guide. `refresh` is for the event loop; what it fills is read by other threads."""

    def __init__(self, settings: Settings, store: Store, *, tasks: TaskGroup | None = None) -> None:
        """`tasks`: where it is read again; without it the request that finds it out of date does."""
        flags = settings.flags
        self._flags = flags
        self._settings = settings.learning
        self._store = store
        self.experience = HistoryScorer()
        self.corrections = Corrections(shared=settings.learning.shared)
        self.preferences = Preferences()
        self.decisions = PastDecisions()
        self._is_on = (
            flags.learned_use or flags.learn_from_feedback or flags.preferences or flags.decision_cache
        )
        self._vectors: RequestVectors | None = None
        self._stale = True
        self._read_at = -CHECK_INTERVAL_S
        self._seen: tuple[object, ...] | None = None
        self._tasks = tasks
        self._is_awaited = True  # the next request reads it itself
        self._is_new = False  # it was read again meanwhile
        self._is_reading = False
        self._one_reads = anyio.Lock()  # older knowledge never comes after newer

    def compare_by_meaning(self, encode: Callable[[str], Floats]) -> None:
        """From now on requests are alike in meaning too."""
        self._vectors = RequestVectors(encode)

    def mark_stale(self, *, at_once: bool = False) -> None:
        """Something was recorded: what is known is out of date. `at_once`: somebody waits to see it."""
        self._stale = True
        if at_once:
            self._read_at = -CHECK_INTERVAL_S
            self._is_awaited = True

    @property
    def is_personal(self) -> bool:
        """Whether what is found may depend on who asks."""
        return self._flags.learn_from_feedback or self._flags.preferences

    def find_decision(self, text: str, vector: Floats | None) -> RememberedDecision | None:
        """What was right for this request before, where that is to be remembered."""
        return self.decisions.recall(text, vector) if self._flags.decision_cache else None

    async def refresh(self) -> bool:
        """Take in what is new; whether something was."""
        if not self._is_on:
            return False
        if (self._is_awaited or not self._is_reading) and await self._is_stale():
            self._stale, self._read_at = False, time.monotonic()
            if self._is_awaited or self._tasks is None:
                self._is_awaited = False
                async with self._one_reads:
                    await self._read()
            else:
                self._is_reading = True
                self._tasks.start_soon(self._read_aside)
        is_new, self._is_new = self._is_new, False
        return is_new

    async def _read_aside(self) -> None:
        """While requests go on with what was known. What cannot be read now is read later."""
        try:
            async with self._one_reads:
                await self._read()
        except Exception:
            logger.warning("what was learned could not be read again", exc_info=True)
            self._stale = True
        finally:
            self._is_reading = False

    async def _read(self) -> None:
        store = self._store
        choices = await store.choices.list_recent()
        followings = await store.choices.list_followers()
        said = await store.feedback.list_recent()
        habits_since = await store.learned.get_marks("preferences")
        decisions_since = await store.learned.get_marks("decisions")
        now = utc_now()
        half_life = timedelta(days=self._settings.half_life_days)
        oldest = now - timedelta(days=self._settings.decision_days)
        since = max(oldest, decisions_since.get(EVERYBODY, oldest))

        def learn() -> None:
            rows = self._encode_rows([one.request for one in said], [one.request for one in choices])
            self.experience.learn(choices, followings, vectors=rows[1])
            self.corrections.learn(said, now=now, half_life=half_life, vectors=rows[0])
            self.preferences.learn(choices, said, now=now, half_life=half_life, marks=habits_since)
            known = None if self._vectors is None else self._vectors.known
            self.decisions.learn(choices, said, since=since, vectors=known)

        await anyio.to_thread.run_sync(learn)
        self._is_new = True

    async def _is_stale(self) -> bool:
        waited = time.monotonic() - self._read_at
        if waited < REFRESH_INTERVAL_S:
            return False
        if self._stale:
            self._seen = await self._store.learned.get_version()
            return True
        if waited < CHECK_INTERVAL_S:
            return False
        self._read_at = time.monotonic()
        seen, self._seen = self._seen, await self._store.learned.get_version()
        return seen != self._seen

    def _encode_rows(self, said: list[str], chosen: list[str]) -> tuple[Floats | None, Floats | None]:
        """The vectors of both; those of people's words are made first, the rest at the next times."""
        if self._vectors is None:
            return None, None
        self._stale = not self._vectors.fill(chain(said, chosen)) or self._stale
        return self._vectors.get_rows(said), self._vectors.get_rows(chosen)
