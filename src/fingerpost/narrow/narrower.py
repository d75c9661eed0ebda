"""From thousands of tools to the few that matter for one request.

    request ─▶ signals ─▶ need        would the model alone do?
                  └─▶ scores ─▶ turns ─▶ offer ─▶ shortlist, fit

`Narrower` holds what was worked out from the catalog, so that a request costs
milliseconds. It is synchronous and may be used from several threads; `look` is
the same for an event loop. What policy hides from a caller takes no part in
anything: it is not scored, lends its server nothing, and is named only where the
result says what was hidden.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio.to_thread
import numpy as np

from fingerpost.catalog import Snapshot
from fingerpost.errors import FingerpostError
from fingerpost.narrow.cache import Recent, key_of
from fingerpost.narrow.columns import Columns, Rows, columns_of
from fingerpost.narrow.fit import shipped_models
from fingerpost.narrow.listing import Listing, shortlist
from fingerpost.narrow.parts import Parts, Vector, shipped
from fingerpost.narrow.preselection.by_server import by_server
from fingerpost.narrow.request import NarrowRequest, bounded
from fingerpost.narrow.scoring import Scoring
from fingerpost.narrow.turnstile import Turnstile
from fingerpost.records import HiddenTool, Narrowing, Need, NeedVerdict, Shortlist, Signals
from fingerpost.settings import Settings

HISTORY: Final = 40  # messages looked at, the latest


class Narrower:
    """Narrows the catalog for requests."""

    def __init__(
        self,
        settings: Settings,
        *,
        parts: Parts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._parts = parts or shipped(settings)
        self._scoring = Scoring(parts=self._parts, flags=settings.flags)
        self._fit = shipped_models()
        self._turnstile = Turnstile()
        self._snapshot: Snapshot | None = None
        self._columns = columns_of(Snapshot())
        self._generation = 0
        self._recent: Recent[Narrowing] = Recent(
            seconds=settings.narrow.cache_seconds, entries=settings.narrow.cache_entries, clock=clock
        )

    @property
    def parts(self) -> Parts:
        return self._parts

    def prepare(self, snapshot: Snapshot) -> None:
        """These are the tools now. Costs nothing when they are the same as before."""
        if snapshot is self._snapshot:
            return
        columns = columns_of(snapshot)
        with self._turnstile.writing():
            self._parts.reader.prepare(snapshot.cards)
            self._parts.words.prepare(snapshot.cards)
            if self._parts.meaning is not None and self._settings.flags.dense_scores:
                self._parts.meaning.prepare(snapshot.cards)
            if self._parts.learned is not None:
                self._parts.learned.prepare(snapshot.cards)
            self._columns = columns
            self._snapshot = snapshot
            self._generation += 1

    def settle(self, seconds: float) -> bool:
        """Wait, at most so long, until every tool can be compared by meaning. Blocks.

        What is loaded with the first request is loaded now: nobody's request pays for it.
        """
        self._vector("a request", Signals())
        return self._parts.meaning is None or self._parts.meaning.wait(seconds)

    def forget(self) -> None:
        """Answer nothing from memory that was worked out before now (what was learned has changed)."""
        self._recent.clear()

    def close(self) -> None:
        """Stop working in the background."""
        if self._parts.meaning is not None:
            self._parts.meaning.close()

    async def look(self, snapshot: Snapshot, request: NarrowRequest) -> Narrowing:
        """`narrow` over this snapshot, in a worker thread."""

        def work() -> Narrowing:
            self.prepare(snapshot)
            return self.narrow(request)

        return await anyio.to_thread.run_sync(work)

    def narrow(self, request: NarrowRequest) -> Narrowing:
        """Whether the request needs a tool, and which few suit it, with reasons for everything."""
        started = time.perf_counter()
        with self._turnstile.reading():
            narrowing = self._remembered(request)
        return replace(narrowing, milliseconds=round((time.perf_counter() - started) * 1000, 3))

    def read(self, text: str) -> Signals:
        """What the request says about itself."""
        with self._turnstile.reading():
            return self._parts.reader.read(bounded(text))

    def vector(self, text: str) -> Vector:
        """A request's vector; a foreign one's is that of its English words. Raises a `FingerpostError`."""
        assert self._parts.meaning is not None
        return self._parts.meaning.query_vector(self.read(text).gloss or text)

    def vector_of(self, text: str, signals: Signals) -> Vector | None:
        """The same for a request that was read already; None where there is no encoder."""
        return self._vector(bounded(text), signals)

    def needs_none(self, request: NarrowRequest, signals: Signals) -> bool:
        """Whether it is plain at a glance, by words alone, that the request needs no tool."""
        with self._turnstile.reading():
            history = request.history[-HISTORY:]
            need = self._parts.judge.judge(bounded(request.text), signals, history, None)
        return need.verdict is NeedVerdict.NONE

    def by_server(self, request: NarrowRequest, signals: Signals) -> Mapping[str, Sequence[float]]:
        """How well the tools of each server suit the request, for choosing among servers."""
        with self._turnstile.reading():
            columns, text = self._columns, bounded(request.text)
            eligible = _eligible(columns, replace(request, servers=None))
            if not text or not len(eligible):
                return {}
            scored = self._scoring_for(request).score(text, signals, request, columns, eligible)
            return by_server(scored, columns, eligible)

    def _remembered(self, request: NarrowRequest) -> Narrowing:
        if not self._settings.flags.narrow_cache:
            return self._work(request)
        key = key_of(request, catalog=self._generation, ready=self._ready)
        found = self._recent.get(key)
        if found is not None:
            return replace(found, servers=request.servers, shortlist=replace(found.shortlist, cached=True))
        made = self._work(request)
        self._recent.put(key, made)
        return made

    @property
    def _ready(self) -> float:
        meaning = self._parts.meaning
        return meaning.ready if meaning is not None and self._settings.flags.dense_scores else 0.0

    def _work(self, request: NarrowRequest) -> Narrowing:
        text = bounded(request.text)
        request = replace(request, history=request.history[-HISTORY:])
        columns = self._columns
        signals = _seen_signals(self._parts.reader.read(text), request, columns)
        need = self._parts.judge.judge(text, signals, request.history, self._vector(text, signals))
        eligible = _eligible(columns, request)
        if not text or not len(eligible):
            empty = Shortlist(
                hidden=_hidden(request),
                considered=len(eligible),
                needs=(text,) if text else (),
                catalog_version=columns.version,
            )
            return Narrowing(need=need, signals=signals, shortlist=empty, servers=request.servers)
        return self._shortlisted(text, signals, need, request, columns, eligible)

    def _shortlisted(
        self,
        text: str,
        signals: Signals,
        need: Need,
        request: NarrowRequest,
        columns: Columns,
        eligible: Rows,
    ) -> Narrowing:
        scored = self._scoring_for(request).score(text, signals, request, columns, eligible)
        fit = round(self._fit.judge(scored.evidence, eligible), 4)
        listing = Listing(
            columns=columns,
            scored=scored,
            eligible=eligible,
            request=request,
            signals=signals,
            settings=request.settings or self._settings,
            fit=fit,
        )
        can_recall = bool(columns.recalls[eligible].any())
        need = self._parts.judge.among_tools(need, text, signals, fit=fit, can_recall=can_recall)
        made = Shortlist(
            candidates=shortlist(listing),
            considered=len(eligible),
            hidden=_hidden(request),
            needs=scored.needs,
            fit=fit,
            catalog_version=columns.version,
            dense=scored.evidence.meaning is not None,
            exclusive=tuple(sorted(columns.cards[row].key for sole in scored.exclusive for row in sole)),
        )
        return Narrowing(need=need, signals=signals, shortlist=made, servers=request.servers)

    def _scoring_for(self, request: NarrowRequest) -> Scoring:
        settings = request.settings
        return self._scoring if settings is None else replace(self._scoring, flags=settings.flags)

    def _vector(self, text: str, signals: Signals) -> Vector | None:
        """The request's vector for the judge of need; a foreign request's is that of its English words."""
        meaning = self._parts.meaning
        if meaning is None or not text or not self._settings.flags.dense_scores:
            return None
        try:
            return meaning.query_vector(signals.gloss or text)
        except FingerpostError:  # told about by the scorer itself, once
            return None


def _eligible(columns: Columns, request: NarrowRequest) -> Rows:
    """The rows that may be found: in scope, on a chosen server, not hidden."""
    if request.allowed is not None:
        rows = sorted(row for key in request.allowed if (row := columns.rows.get(key)) is not None)
        eligible = np.array(rows, np.intp)
    else:
        eligible = np.arange(columns.size, dtype=np.intp)
    if request.servers is not None and request.servers.by != "off":
        chosen = [number for number, name in enumerate(columns.servers) if name in request.servers.servers]
        eligible = eligible[np.isin(columns.server_of[eligible], chosen)]
    hidden = [row for key in request.hidden if (row := columns.rows.get(key)) is not None]
    return eligible[~np.isin(eligible, hidden)] if hidden else eligible


def _seen_signals(signals: Signals, request: NarrowRequest, columns: Columns) -> Signals:
    """What was read off the request, without names of tools and servers that the caller may not see."""
    if not signals.mentions or not request.hidden:
        return signals
    shown = [key for key in columns.rows if key not in request.hidden]
    known: set[str] = {columns.servers[int(columns.server_of[columns.rows[key]])] for key in shown}
    known.update(shown)
    return replace(signals, mentions=tuple(mention for mention in signals.mentions if mention.name in known))


def _hidden(request: NarrowRequest) -> tuple[HiddenTool, ...]:
    return tuple(request.hidden[key] for key in sorted(request.hidden) if not request.hidden[key].personal)
