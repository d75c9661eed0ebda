"""What ranks the tools for the requests of one router: the narrower with learned data.

It loads numpy and the encoder, which a greeting does not need: `request_narrower` imports it with the first
request that does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from itertools import chain
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from fingerpost.llm import ChatModel
from fingerpost.narrow.components import build_default_components
from fingerpost.narrow.dense.encoder import model_processes
from fingerpost.narrow.feedback import (
    Corrections,
    PastDecisions,
    Preferences,
    RememberedDecision,
    RequestVectors,
)
from fingerpost.narrow.history_scorer import Floats, HistoryScorer
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.scorer import Scorer
from fingerpost.records import EVERYBODY, Signals, utc_now
from fingerpost.settings import Settings
from fingerpost.store import Store

logger = logging.getLogger(__name__)

REFRESH_INTERVAL_S: Final = 5.0
CHECK_INTERVAL_S: Final = 30.0


class LearnedData:
    """Learned data, one instance per narrower, refreshed in the event loop and read in threads."""

    def __init__(self, settings: Settings, store: Store, *, tasks: TaskGroup | None = None) -> None:
        """`tasks` runs refreshes in the background. Without it, requests refresh stale data."""
        flags = settings.flags
        self._flags = flags
        self._settings = settings.learning
        self._store = store
        self.history_scorer = HistoryScorer()
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
        self._is_awaited = True  # the next request reads the data itself
        self._is_new = False  # the data was read again since the last refresh
        self._is_reading = False
        self._read_lock = anyio.Lock()  # older data never replaces newer data

    def set_encoder(self, encode: Callable[[str], Floats]) -> None:
        """Set the encoder. From now on, requests are also compared by vectors."""
        self._vectors = RequestVectors(encode)

    def mark_stale(self, *, at_once: bool = False) -> None:
        """Mark the data as out of date. With `at_once`, the next request waits for the refresh."""
        self._stale = True
        if at_once:
            self._read_at = -CHECK_INTERVAL_S
            self._is_awaited = True

    def find_decision(self, text: str, vector: Floats | None) -> RememberedDecision | None:
        """Return the remembered decision for this request, if the decision cache is enabled."""
        return self.decisions.recall(text, vector) if self._flags.decision_cache else None

    async def refresh(self) -> bool:
        """Refresh stale data. Return whether there is new data."""
        if not self._is_on:
            return False
        if (self._is_awaited or not self._is_reading) and await self._is_stale():
            self._stale, self._read_at = False, time.monotonic()
            if self._is_awaited or self._tasks is None:
                self._is_awaited = False
                async with self._read_lock:
                    await self._read()
            else:
                self._is_reading = True
                self._tasks.start_soon(self._read_in_background)
        is_new, self._is_new = self._is_new, False
        return is_new

    async def _read_in_background(self) -> None:
        """Read the data in the background, while requests use the old data; again if it fails."""
        try:
            async with self._read_lock:
                await self._read()
        except Exception:
            logger.warning("learned data could not be refreshed", exc_info=True)
            self._stale = True
        finally:
            self._is_reading = False

    async def _read(self) -> None:
        store = self._store
        choices = await store.choices.list_recent()
        followings = await store.choices.list_followers()
        feedback = await store.feedback.list_recent()
        habits_since = await store.learned.get_marks("preferences")
        decisions_since = await store.learned.get_marks("decisions")
        now = utc_now()
        half_life = timedelta(days=self._settings.half_life_days)
        oldest = now - timedelta(days=self._settings.decision_days)
        since = max(oldest, decisions_since.get(EVERYBODY, oldest))

        def learn() -> None:
            rows = self._encode_rows([one.request for one in feedback], [one.request for one in choices])
            self.history_scorer.learn(choices, followings, vectors=rows[1])
            self.corrections.learn(feedback, now=now, half_life=half_life, vectors=rows[0])
            self.preferences.learn(choices, feedback, now=now, half_life=half_life, marks=habits_since)
            known = None if self._vectors is None else self._vectors.known
            self.decisions.learn(choices, feedback, since=since, vectors=known)

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

    def _encode_rows(
        self, feedback_texts: list[str], choice_texts: list[str]
    ) -> tuple[Floats | None, Floats | None]:
        """Return the vectors of both lists. Feedback is encoded first; the rest may follow later."""
        if self._vectors is None:
            return None, None
        self._stale = not self._vectors.fill(chain(feedback_texts, choice_texts)) or self._stale
        return self._vectors.get_rows(feedback_texts), self._vectors.get_rows(choice_texts)


class RequestRanker:
    """The narrower of a router with its learned data. The constructor reads files, so it is called in a
    worker thread.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        tasks: TaskGroup | None,
        scorers: Sequence[Scorer],
        lite: ChatModel | None,
        encoder_idle_seconds: float | None,
    ) -> None:
        self._processes = ExitStack()
        if encoder_idle_seconds is not None:
            self._processes.enter_context(model_processes.use(encoder_idle_seconds))
        self._flags = settings.flags
        self.learned = LearnedData(settings, store, tasks=tasks)
        self.narrower = Narrower(
            settings,
            parts=build_default_components(
                settings,
                history=self.learned.history_scorer,
                corrections=self.learned.corrections,
                preferences=self.learned.preferences,
                scorers=scorers,
                lite=lite,
            ),
        )
        if self.narrower.parts.meaning is not None:
            self.learned.set_encoder(self.narrower.encode)

    async def refresh(self) -> None:
        """Refresh stale learned data."""
        if await self.learned.refresh():
            self.narrower.clear_cache()

    def find_known_tools(
        self, request: NarrowRequest, signals: Signals, *, new: bool
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return the tools that were right for this request before, and those that enough corrections name
        as right. The first are looked up for a new conversation only.
        """
        vector = self.narrower.encode_signals(request.text, signals)
        found = self.learned.find_decision(request.text, vector) if new else None
        remembered = () if found is None else found.tools
        if not self._flags.learn_from_feedback:
            return remembered, ()
        corrections = self.learned.corrections.find_corrections(request.text, vector, person=request.person)
        return remembered, [tool for tool, one in corrections.items() if one.settled]

    def close(self) -> None:
        """Stop background work and end the encoder's process."""
        self.narrower.close()
        self._processes.close()
