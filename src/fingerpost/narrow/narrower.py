"""The narrower: select the few relevant tools out of thousands for one request."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Condition, Lock
from typing import Final, Generic, TypeVar

import anyio.to_thread
import numpy as np

from fingerpost.catalog import Snapshot
from fingerpost.errors import FingerpostError
from fingerpost.narrow.components import NarrowComponents, Vector, build_default_components
from fingerpost.narrow.features import Rows, ToolColumns, build_columns
from fingerpost.narrow.fusion import load_fit_models
from fingerpost.narrow.request import NarrowRequest, bound_text
from fingerpost.narrow.shortlist import ShortlistInput, build_shortlist
from fingerpost.narrow.tool_scores import ScoredTools, ToolScorer
from fingerpost.records import HiddenTool, Message, Narrowing, Need, NeedVerdict, Shortlist, Signals
from fingerpost.settings import Settings

T = TypeVar("T")


class ExpiringCache(Generic[T]):
    """A cache of the latest results, each with a lifetime in seconds. Thread-safe."""

    def __init__(self, *, seconds: float, entries: int, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._entries = entries
        self._clock = clock
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            entry = self._kept.get(key)
            if entry is None:
                return None
            since, value = entry
            if self._clock() - since >= self._seconds:
                del self._kept[key]
                return None
            self._kept.move_to_end(key)
            return value

    def put(self, key: Hashable, value: T) -> None:
        if self._entries < 1 or self._seconds <= 0:
            return
        with self._lock:
            self._kept[key] = (self._clock(), value)
            self._kept.move_to_end(key)
            while len(self._kept) > self._entries:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


def build_cache_key(request: NarrowRequest, *, catalog: int, ready: float) -> Hashable:
    """Return the cache key: all that the result depends on, with catalog and share of ready vectors."""
    return (
        bound_text(request.text),
        _hash_history(request.history),
        catalog,
        ready,
        request.allowed,
        frozenset((key, hidden.rule, hidden.reason) for key, hidden in request.hidden.items()),
        None if request.servers is None else (request.servers.servers, request.servers.by == "off"),
        frozenset(request.health.items()),
        request.max_tools,
        request.used,
        request.about,
        request.effort,
        request.person,
        None if request.settings is None else (request.settings.flags, request.settings.narrow),
    )


def _hash_history(history: tuple[Message, ...]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for message in history:
        for part in (message.role, message.text):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
    return digest.digest()


class ReadWriteLock:
    """A lock for many readers or one writer. A waiting writer has precedence over new readers."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._reading = 0
        self._writing = False
        self._waiting = 0

    @contextmanager
    def lock_for_reading(self) -> Generator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._waiting)
            self._reading += 1
        try:
            yield
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    @contextmanager
    def lock_for_writing(self) -> Generator[None]:
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._reading)
            finally:
                self._waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


def group_scores_by_server(
    scored: ScoredTools, columns: ToolColumns, eligible: Rows
) -> Mapping[str, Sequence[float]]:
    """Return the tools' scores by server. Each score is the maximum over the whole request and its needs."""
    best = np.max(np.stack((scored.whole, *scored.by_need)), axis=0)
    found: dict[str, list[float]] = {}
    for row in eligible:
        found.setdefault(columns.servers[columns.server_index[row]], []).append(float(best[row]))
    return found


MAX_HISTORY_MESSAGES: Final = 40  # the latest messages


class Narrower:
    """Narrows the catalog for requests."""

    def __init__(
        self,
        settings: Settings,
        *,
        parts: NarrowComponents | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._parts = parts or build_default_components(settings)
        self._scoring = ToolScorer(
            components=self._parts, flags=settings.flags, meaning_weight=settings.narrow.meaning_weight
        )
        self._fit = load_fit_models()
        self._lock = ReadWriteLock()
        self._snapshot: Snapshot | None = None
        self._columns = build_columns(Snapshot())
        self._generation = 0
        self._recent: ExpiringCache[Narrowing] = ExpiringCache(
            seconds=settings.narrow.cache_seconds, entries=settings.narrow.cache_entries, clock=clock
        )

    @property
    def parts(self) -> NarrowComponents:
        return self._parts

    def prepare(self, snapshot: Snapshot) -> None:
        """Set the tools. Does nothing when the snapshot is the same as before."""
        if snapshot is self._snapshot:
            return
        columns = build_columns(snapshot)
        with self._lock.lock_for_writing():
            self._parts.reader.prepare(snapshot.cards)
            self._parts.words.prepare(snapshot.cards)
            if self._parts.meaning is not None and self._settings.flags.dense_scores:
                self._parts.meaning.prepare(snapshot.cards)
            self._columns = columns
            self._snapshot = snapshot
            self._generation += 1

    def wait_until_ready(self, seconds: float) -> bool:
        """Wait at most `seconds` until every tool has a vector. Blocks.

        It also loads the encoder, so that the first request does not have to.
        """
        self._encode_for_need("a request", Signals())
        return self._parts.meaning is None or self._parts.meaning.wait(seconds)

    def clear_cache(self) -> None:
        """Remove all cached results, because the learned data has changed."""
        self._recent.clear()

    def close(self) -> None:
        """Stop the background work."""
        if self._parts.meaning is not None:
            self._parts.meaning.close()

    async def narrow_snapshot(self, snapshot: Snapshot, request: NarrowRequest) -> Narrowing:
        """Run `narrow` on this snapshot in a worker thread."""

        def work() -> Narrowing:
            self.prepare(snapshot)
            return self.narrow(request)

        return await anyio.to_thread.run_sync(work)

    def narrow(self, request: NarrowRequest) -> Narrowing:
        """Decide whether the request needs a tool and which tools suit it, with reasons."""
        started = time.perf_counter()
        with self._lock.lock_for_reading():
            narrowing = self._narrow_cached(request)
        return replace(narrowing, milliseconds=round((time.perf_counter() - started) * 1000, 3))

    def read_signals(self, text: str) -> Signals:
        """Return the signals of the request."""
        with self._lock.lock_for_reading():
            return self._parts.reader.read(bound_text(text))

    def encode(self, text: str) -> Vector:
        """Return the vector of a request, or of its English gloss. Raises a `FingerpostError`."""
        assert self._parts.meaning is not None
        return self._parts.meaning.encode_query(self.read_signals(text).gloss or text)

    def encode_signals(self, text: str, signals: Signals) -> Vector | None:
        """Return the vector of a request with known signals, or None without an encoder."""
        return self._encode_for_need(bound_text(text), signals)

    def is_tool_unneeded(self, request: NarrowRequest, signals: Signals) -> bool:
        """Return whether the words alone show that the request needs no tool."""
        with self._lock.lock_for_reading():
            history = request.history[-MAX_HISTORY_MESSAGES:]
            need = self._parts.need_estimator.classify(bound_text(request.text), signals, history, None)
        return need.verdict is NeedVerdict.NONE

    def score_servers(self, request: NarrowRequest, signals: Signals) -> Mapping[str, Sequence[float]]:
        """Return the tools' scores for the request by server, for the choice of servers."""
        with self._lock.lock_for_reading():
            columns, text = self._columns, bound_text(request.text)
            eligible = _find_eligible_rows(columns, replace(request, servers=None))
            if not text or not len(eligible):
                return {}
            scored = self._build_tool_scorer(request).score(
                text, signals, request, columns, eligible, rerank=False
            )
            return group_scores_by_server(scored, columns, eligible)

    def _narrow_cached(self, request: NarrowRequest) -> Narrowing:
        if not self._settings.flags.narrow_cache:
            return self._narrow_uncached(request)
        key = build_cache_key(request, catalog=self._generation, ready=self._ready)
        if self._parts.added:  # such a scorer may depend on them
            key = (key, request.caller, request.profile, request.conversation)
        found = self._recent.get(key)
        if found is not None:
            return replace(found, servers=request.servers, shortlist=replace(found.shortlist, cached=True))
        made = self._narrow_uncached(request)
        if not made.shortlist.failed_scorers:
            self._recent.put(key, made)
        return made

    @property
    def _ready(self) -> float:
        meaning = self._parts.meaning
        return meaning.ready if meaning is not None and self._settings.flags.dense_scores else 0.0

    def _narrow_uncached(self, request: NarrowRequest) -> Narrowing:
        text = bound_text(request.text)
        request = replace(request, history=request.history[-MAX_HISTORY_MESSAGES:])
        columns = self._columns
        signals = _remove_hidden_mentions(self._parts.reader.read(text), request, columns)
        need = self._parts.need_estimator.classify(
            text, signals, request.history, self._encode_for_need(text, signals)
        )
        eligible = _find_eligible_rows(columns, request)
        if not text or not len(eligible):
            empty = Shortlist(
                hidden=_list_hidden_tools(request),
                considered=len(eligible),
                needs=(text,) if text else (),
                catalog_version=columns.version,
            )
            return Narrowing(need=need, signals=signals, shortlist=empty, servers=request.servers)
        return self._build_narrowing(text, signals, need, request, columns, eligible)

    def _build_narrowing(
        self,
        text: str,
        signals: Signals,
        need: Need,
        request: NarrowRequest,
        columns: ToolColumns,
        eligible: Rows,
    ) -> Narrowing:
        scored = self._build_tool_scorer(request).score(text, signals, request, columns, eligible)
        fit = round(self._fit.estimate_fit(scored.evidence, eligible), 4)
        inputs = ShortlistInput(
            columns=columns,
            scored=scored,
            eligible=eligible,
            request=request,
            signals=signals,
            settings=request.settings or self._settings,
            fit=fit,
            best_scores=[float(scores[eligible].max()) for scores in scored.by_need],
        )
        can_recall = bool(columns.recalls[eligible].any())
        need = self._parts.need_estimator.adjust_to_tools(need, text, signals, fit=fit, can_recall=can_recall)
        made = Shortlist(
            candidates=build_shortlist(inputs),
            considered=len(eligible),
            hidden=_list_hidden_tools(request),
            needs=scored.needs,
            fit=fit,
            catalog_version=columns.version,
            dense=scored.evidence.meaning is not None,
            exclusive=tuple(sorted(columns.cards[row].key for sole in scored.exclusive for row in sole)),
            failed_scorers=scored.failures,
        )
        return Narrowing(need=need, signals=signals, shortlist=made, servers=request.servers)

    def _build_tool_scorer(self, request: NarrowRequest) -> ToolScorer:
        if (settings := request.settings) is None:
            return self._scoring
        return replace(self._scoring, flags=settings.flags, meaning_weight=settings.narrow.meaning_weight)

    def _encode_for_need(self, text: str, signals: Signals) -> Vector | None:
        """Return the vector of the request or its gloss for the need classifier; None without an encoder."""
        meaning = self._parts.meaning
        if meaning is None or not text or not self._settings.flags.dense_scores:
            return None
        try:
            return meaning.encode_query(signals.gloss or text)
        except FingerpostError:  # the scorer logs it once
            return None


def _find_eligible_rows(columns: ToolColumns, request: NarrowRequest) -> Rows:
    """Return the rows of tools that are allowed, on a chosen server, and not hidden."""
    if request.allowed is not None:
        rows = sorted(row for key in request.allowed if (row := columns.rows.get(key)) is not None)
        eligible = np.array(rows, np.intp)
    else:
        eligible = np.arange(columns.size, dtype=np.intp)
    if request.servers is not None and request.servers.by != "off":
        chosen = [number for number, name in enumerate(columns.servers) if name in request.servers.servers]
        eligible = eligible[np.isin(columns.server_index[eligible], chosen)]
    hidden = [row for key in request.hidden if (row := columns.rows.get(key)) is not None]
    return eligible[~np.isin(eligible, hidden)] if hidden else eligible


def _remove_hidden_mentions(signals: Signals, request: NarrowRequest, columns: ToolColumns) -> Signals:
    """Return the signals without mentions of tools and servers that the caller must not see."""
    if not signals.mentions or not request.hidden:
        return signals
    shown = [key for key in columns.rows if key not in request.hidden]
    known: set[str] = {columns.servers[int(columns.server_index[columns.rows[key]])] for key in shown}
    known.update(shown)
    return replace(signals, mentions=tuple(mention for mention in signals.mentions if mention.name in known))


def _list_hidden_tools(request: NarrowRequest) -> tuple[HiddenTool, ...]:
    return tuple(request.hidden[key] for key in sorted(request.hidden) if not request.hidden[key].personal)
