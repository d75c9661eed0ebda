"""What is being done right now, in a few words for somebody who waits."""

from __future__ import annotations

from functools import singledispatchmethod

from fingerpost.events import (
    AttemptFinished,
    AttemptStarted,
    CallFinished,
    CallProgressed,
    Event,
    FallbackTaken,
    HistorySummarised,
    PacketReceived,
    RequestNarrowed,
    RouteBegan,
    SelectionReviewed,
    ShortlistWidened,
    SmartRoutingStart,
    ThoughtNoted,
    ToolSelected,
)
from fingerpost.surfaces.cli.screen import count, plain

LONGEST = 100


class Stages:
    """Turns events into words. It remembers who selects and who answers, to say who is being asked."""

    def __init__(self) -> None:
        self._selects = self._answers = "the model"
        self._any_model = False

    def words(self, event: Event) -> str | None:
        """What to show from now on; None: nothing new."""
        said = self._words(event)
        if said is None:
            return None
        said = plain(said)
        return said if len(said) <= LONGEST else said[: LONGEST - 1].rstrip() + "…"

    @singledispatchmethod
    def _words(self, event: Event) -> str | None:
        return None

    @_words.register
    def _(self, event: PacketReceived) -> str | None:
        return "reading the request"

    @_words.register
    def _(self, event: RouteBegan) -> str | None:
        self._any_model = (event.lite or event.prime) is not None
        self._selects = event.lite or event.prime or self._selects
        self._answers = event.prime or event.lite or self._answers
        return "reading the request"

    @_words.register
    def _(self, event: SmartRoutingStart) -> str | None:
        return f"choosing among {count(event.total_servers, 'server')}"

    @_words.register
    def _(self, event: RequestNarrowed) -> str | None:
        shortlist = event.narrowing.shortlist
        if not shortlist.offered:
            return f"no tool is needed{self._then(self._answers)}"
        fit = "fits" if len(shortlist.offered) == 1 else "fit"
        of = f"{len(shortlist.offered)} of {count(shortlist.considered, 'tool')} {fit}"
        return f"{of}{self._then(self._selects)}"

    @_words.register
    def _(self, event: ShortlistWidened) -> str | None:
        return f"looking at {count(len(event.tools), 'tool')}{self._then(self._selects)}"

    @_words.register
    def _(self, event: ToolSelected) -> str | None:
        if event.selection is None:
            return f"no tool was chosen{self._then(self._answers)}"
        return f"{event.selection.tool} was chosen, checking it"

    @_words.register
    def _(self, event: SelectionReviewed) -> str | None:
        return f"the choice was {'approved' if event.review.approved else 'not approved'}"

    @_words.register
    def _(self, event: ThoughtNoted) -> str | None:
        return event.text

    @_words.register
    def _(self, event: AttemptStarted) -> str | None:
        return f"{event.tool}…" if event.number == 1 else f"{event.tool}, attempt {event.number}…"

    @_words.register
    def _(self, event: CallProgressed) -> str | None:
        return event.summary()

    @_words.register
    def _(self, event: AttemptFinished) -> str | None:
        made = event.attempt
        return None if made.error is None else f"{made.tool} did not work ({made.error})"

    @_words.register
    def _(self, event: FallbackTaken) -> str | None:
        return f"{event.tool} instead…"

    @_words.register
    def _(self, event: CallFinished) -> str | None:
        done = f"{event.tool} {'answered' if event.success else 'did not work'}"
        return f"{done}{self._then(self._answers)}"

    @_words.register
    def _(self, event: HistorySummarised) -> str | None:
        return f"{count(event.messages, 'earlier message')} put into fewer words"

    def _then(self, model: str) -> str:
        return f", asking {model}…" if self._any_model else ""
