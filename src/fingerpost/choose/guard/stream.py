"""The guard between a model's text and the person who reads it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from fingerpost.choose.guard.bare_calls import is_call_alone, may_be_call_alone, says_nothing
from fingerpost.choose.guard.finds import LONGEST_RAW, Cleaned, Invented
from fingerpost.choose.guard.fold import INVISIBLE
from fingerpost.choose.guard.names import Names, names_of
from fingerpost.choose.guard.reading import before_observation, read_calls
from fingerpost.choose.guard.scan import Hidden, Scanner, Shown
from fingerpost.choose.guard.shapes import Call
from fingerpost.choose.guard.talk import about_syntax, asks_for_data
from fingerpost.records import ToolCard

MOST_KEPT: Final = 200  # finds of one text; more are hidden all the same
_GAP: Final = 256  # white space held back, which is dropped if only a block follows it
_UNSEEN: Final = re.compile(f"[{INVISIBLE}]+")
_SPACE: Final = re.compile(rf"[\s{INVISIBLE}]*")
_NO_CALL: Final = Call(written="", arguments=None)
_TRAILING: Final = re.compile(rf"[\s{INVISIBLE}]{{0,{_GAP}}}\Z")


class Guard:
    """Takes invented tool syntax out of what models write. Knows the real tools, to tell a call from data.

    `others`: the names of tools that are not ours; what calls one of them is found under that name.
    """

    def __init__(self, tools: Iterable[ToolCard] = (), *, others: Collection[str] = ()) -> None:
        names = names_of(tools)
        self._names = names.beside(others) if others else names

    def clean(self, text: str, *, request: str = "") -> Cleaned:
        """The text without tool syntax, and what that was. `request`: what it answers."""
        stream = self.stream(request=request)
        shown = stream.feed(text) + stream.end()
        return Cleaned(text=shown, stopped=stream.stopped)

    def stream(self, *, request: str = "") -> StreamGuard:
        """The same for a text that comes in pieces."""
        return StreamGuard(self._names, request)

    def is_about_syntax(self, request: str) -> bool:
        """Whether a request asks about tool syntax itself, so that the answer has to show some."""
        return about_syntax(request)


class StreamGuard:
    """One text that comes in pieces. What is shown over all pieces does not depend on where they are cut."""

    def __init__(self, names: Names, request: str) -> None:
        self._names = names
        about, data = about_syntax(request), asks_for_data(request)
        self._scanner = Scanner(names, request=request, about=about, data=data)
        self._whole: list[str] | None = None if about or data else []  # while it may be nothing but a call
        self._stopped: list[Invented] = []
        self._gap = ""  # white space that may have to go
        self._last = ""  # the last character given out
        self._behind = False  # nothing but white space since the last block
        self._wanting = False  # no white space came before that block: what comes behind it stays

    @property
    def stopped(self) -> tuple[Invented, ...]:
        """What was found so far."""
        return tuple(self._stopped)

    def feed(self, piece: str) -> str:
        """What may be shown now."""
        if self._whole is None:
            return self._take(piece, final=False)
        self._whole.append(piece)
        whole = "".join(self._whole)
        if may_be_call_alone(whole):
            return ""
        self._whole = None
        return self._take(whole, final=False)

    def end(self) -> str:
        """What may be shown at last: nothing more will come."""
        whole = "".join(self._whole or ())
        rest = self._take(whole, final=True)
        if not self._behind:
            rest += self._gap
        self._gap = ""
        if self._whole is None or not rest.strip():
            return rest
        if self._stopped and says_nothing(rest):
            return ""
        if is_call_alone(whole):
            self._stopped.append(Invented(syntax="alone", raw=whole[:LONGEST_RAW]))
            return ""
        return rest

    def _take(self, piece: str, *, final: bool) -> str:
        shown: list[str] = []
        for part in self._scanner.feed(piece, final=final):
            if isinstance(part, Shown):
                shown.append(self._pass(part.text))
            else:
                self._stop(part)
        return "".join(shown)

    def _pass(self, text: str) -> str:
        """White space around a block is there once: before it, unless the block began the text."""
        if self._behind:
            space = _SPACE.match(text)
            end = space.end() if space is not None else 0
            if self._wanting:
                self._gap = (self._gap + text[:end])[:_GAP]
            text = text[end:]
            if not text:
                return ""
            self._behind = False
        whole = self._gap + text
        trailing = _TRAILING.search(whole, max(0, len(whole) - _GAP))
        cut = trailing.start() if trailing is not None else len(whole)
        self._gap = whole[cut:]
        given = whole[:cut]
        self._last = given[-1:] or self._last
        return given

    def _stop(self, part: Hidden) -> None:
        repeated = part.alone and self._behind
        self._gap = _UNSEEN.sub("", self._gap) if self._last else ""
        if not self._behind:
            self._wanting = not self._gap and bool(self._last)
        self._behind = True
        if repeated or len(self._stopped) >= MOST_KEPT:
            return
        is_call = not (part.alone or part.mute or part.syntax == "thought")
        for call in self._calls(part) if is_call else (_NO_CALL,):
            self._stopped.append(
                Invented(
                    syntax=part.syntax,
                    raw=part.raw[:LONGEST_RAW],
                    name=self._names.key(call.written),
                    arguments=call.arguments if self._names.key(call.written) else None,
                    is_call=is_call,
                )
            )

    def _calls(self, part: Hidden) -> tuple[Call, ...]:
        known = self._known(before_observation(part.raw))
        if part.plain != part.raw and all(call.arguments is None for call in known):
            known = self._known(before_observation(part.plain)) or known
        return known or (_NO_CALL,)

    def _known(self, block: str) -> tuple[Call, ...]:
        return tuple(call for call in read_calls(block, self._names) if self._names.key(call.written))
