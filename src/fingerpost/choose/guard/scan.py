"""Goes through a text once and says, piece by piece, what is shown and what is hidden.

Whether a text comes whole or in pieces makes no difference: a decision is made only
when nothing that may follow could change it, and otherwise waited for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from fingerpost.choose.guard.code import closing_of, examine_code
from fingerpost.choose.guard.delimiters import RULER, examine_aside, examine_delimiter
from fingerpost.choose.guard.fold import Fold
from fingerpost.choose.guard.lines import examine_line
from fingerpost.choose.guard.markers import examine_marker
from fingerpost.choose.guard.names import Names
from fingerpost.choose.guard.reading import LONGEST_BLOCK
from fingerpost.choose.guard.spoken import LABELS, LITERALS, SPOKEN, examine_decorated, examine_spoken
from fingerpost.choose.guard.square import examine_square
from fingerpost.choose.guard.values import examine_brace
from fingerpost.choose.guard.verdicts import WAIT, Hide, Mode, Pass, Place, Show, Verdict, Wait
from fingerpost.frozen import frozen

_REMEMBERED: Final = 600  # characters of what was shown, to tell talk from use
_LINE: Final = 200
_TRIGGER: Final = re.compile(rf"[<`{{\[(«]|\n+|~~~|[{RULER}]{{2,}}|{SPOKEN.pattern}", SPOKEN.flags)
_BESIDE_VALUES: Final = re.compile(rf"[<`]|\n+|~~~|{SPOKEN.pattern}", SPOKEN.flags)
_RULERS: Final = RULER.replace("\\", "")
_PLAIN_SIGN: Final = re.compile(rf"[(«]|(?!~~~)[{RULER}]+")
_BEGINNINGS: Final = frozenset(word[:count] for word in (*LITERALS, "~~~") for count in range(1, len(word)))
_LABELS_BEGUN: Final = frozenset(label[:count] for label in LABELS for count in range(1, len(label)))
_LONGEST_BEGINNING: Final = max(map(len, (*_BEGINNINGS, *_LABELS_BEGUN))) + 3


@frozen(kw_only=False)
class Shown:
    text: str


@frozen(kw_only=False)
class Hidden:
    """A block that ended: as it was written, and the plain view of it."""

    raw: str
    plain: str
    syntax: str
    alone: bool
    mute: bool


Part: TypeAlias = Shown | Hidden


class Scanner:
    """One text on its way through."""

    def __init__(self, names: Names, *, request: str, about: bool, data: bool) -> None:
        self._names = names
        self._request = request
        self._about = about
        self._data = data
        self._fold = Fold()
        self._at = 0  # in the view: what is before it is decided
        self._done = 0  # in the text: what is before it was given out
        self._line = ""
        self._before = ""
        self._fresh = True  # at the start of a line that was not looked at
        self._blind = 0  # values before this place of the view were looked at
        self._blind_tags = 0
        self._patience = 0  # how much has to be there before looking again is worth it
        self._mode: Mode | None = None
        self._fence: re.Pattern[str] | None = None
        self._behind = False
        self._raw = ""
        self._plain = ""
        self._syntax = ""
        self._alone = False
        self._mute = False

    def feed(self, piece: str, *, final: bool = False) -> Iterator[Part]:
        """What can be said now that this piece has come."""
        self._fold.feed(piece, final=final)
        if len(self._fold.text) - self._at >= self._patience or final:
            yield from self._advance(final=final)
            gone = self._fold.forget(self._at)
            self._done -= gone
            self._blind = max(0, self._blind - self._at)
            self._blind_tags = max(0, self._blind_tags - self._at)
            self._at = 0
        if final:
            yield from self._show(len(self._fold.text))

    def _advance(self, *, final: bool) -> Iterator[Part]:
        self._patience = 0
        text = self._fold.text
        while self._at < len(text):
            before = (self._at, self._mode, self._fence, self._fresh)
            if self._mode is not None:
                yield from self._inside(self._mode, text, final=final)
            elif self._fence is not None:
                yield from self._code(self._fence, text, final=final)
            else:
                yield from self._outside(text, final=final)
            if (self._at, self._mode, self._fence, self._fresh) == before:
                held = len(text) - self._at
                self._patience = held + max(1, held // 8) if held > 64 else 0
                return
        if final and self._mode is not None:
            yield from self._inside(self._mode, text, final=True)

    def _inside(self, mode: Mode, text: str, *, final: bool) -> Iterator[Part]:
        to, done = mode.step(text, self._at, final=final)
        self._hide(to)
        if done:
            yield self._ended()

    def _hide(self, to: int) -> None:
        end = self._fold.end(to)
        if to > self._at:
            self._raw = (self._raw + self._fold.raw(self._done, end))[:LONGEST_BLOCK]
            self._plain = (self._plain + self._fold.text[self._at : to])[:LONGEST_BLOCK]
            self._done = max(self._done, end)
        self._at = to

    def _ended(self) -> Hidden:
        part = Hidden(
            raw=self._raw, plain=self._plain, syntax=self._syntax, alone=self._alone, mute=self._mute
        )
        self._mode, self._raw, self._plain = None, "", ""
        self._fresh = not self._line
        self._behind = True
        return part

    def _code(self, closing: re.Pattern[str], text: str, *, final: bool) -> Iterator[Part]:
        found = closing.search(text, self._at)
        if found is not None and (final or found.end() < len(text)):
            self._fence = None
            yield from self._show(found.end())
            return
        edge = len(text)
        if not final:
            newline = text.rfind("\n", max(self._at, len(text) - _LINE))
            tail = re.search(r"[^\s`~]?[`~]+[ \t]*\Z|\S?\Z", text[max(self._at, len(text) - _LINE) :])
            cut = max(self._at, len(text) - _LINE) + tail.start() if tail is not None else len(text)
            blank = newline >= 0 and not text[newline:].strip(" \t>`~\n")
            edge = min(cut, newline) if blank else cut
        yield from self._show(max(self._at, edge))

    def _outside(self, text: str, *, final: bool) -> Iterator[Part]:
        if self._fresh:
            verdict = examine_line(self._place(text, final=final))
            if verdict is not None:
                yield from self._obey(verdict)
                self._fresh = self._fresh and isinstance(verdict, Wait)
                return
            self._fresh = False
        found, edge = self._next_trigger(text)
        if found is None:
            held = 0 if final else _held_tail(text, self._at)
            yield from self._show(min(edge, len(text) - held))
            return
        yield from self._show(found.start())
        if found[0][0] == "\n":
            yield from self._show(found.end())
            self._fresh = True
            return
        yield from self._obey(self._examine(found[0], self._place(text, final=final)))

    def _next_trigger(self, text: str) -> tuple[re.Match[str] | None, int]:
        """The next place to look at; where there is none, how far that is known."""
        if self._at >= self._blind:
            return _TRIGGER.search(text, self._at), len(text)
        # Braces that were looked at are passed over together, not one by one.
        found = _BESIDE_VALUES.search(text, self._at, self._blind + _LONGEST_BEGINNING + 1)
        return (found if found is not None and found.start() < self._blind else None), self._blind

    def _examine(self, sign: str, place: Place) -> Verdict:
        delimiter = None if sign[0] == "`" else examine_delimiter(place)
        if delimiter is not None:
            return delimiter
        aside = examine_aside(place) if sign == "(" else None
        if aside is None and (sign in "([`*_" or sign[:2] == "**"):
            aside = examine_decorated(place)
        if aside is not None:
            return aside
        if _PLAIN_SIGN.fullmatch(sign):
            grows = place.at + len(sign) == len(place.text) and not place.final and sign[0] not in "(«"
            return WAIT if grows else Show(place.at + len(sign))
        if sign == "<":
            return examine_marker(place)
        if sign[0] in "`~":
            return examine_code(place)
        if sign in "{[":
            return examine_brace(place) if sign == "{" else examine_square(place)
        return examine_spoken(place)

    def _place(self, text: str, *, final: bool) -> Place:
        return Place(
            text=text,
            at=self._at,
            final=final,
            line=self._line,
            before=self._before,
            names=self._names,
            request=self._request,
            about=self._about,
            data=self._data,
            behind=self._behind,
            blind_tags=self._blind_tags,
        )

    def _obey(self, verdict: Verdict) -> Iterator[Part]:
        if isinstance(verdict, Show):
            self._blind = max(self._blind, verdict.blind)
            self._blind_tags = max(self._blind_tags, verdict.blind_tags)
            yield from self._show(verdict.to)
        elif isinstance(verdict, Pass):
            yield from self._show(verdict.to)
            self._fence = closing_of(verdict.fence)
        elif isinstance(verdict, Hide):
            yield from self._show(self._at)  # invisible characters before the block are not part of it
            self._syntax, self._mode = verdict.syntax, verdict.mode
            self._alone, self._mute = verdict.alone, verdict.mute
            self._hide(verdict.to)
            if verdict.mode is None:
                yield self._ended()

    def _show(self, to: int) -> Iterator[Part]:
        end = self._fold.start(to)
        if to > self._at:
            shown = self._fold.text[self._at : to]
            self._before = (self._before + shown)[-_REMEMBERED:]
            self._behind = self._behind and not shown.strip()
            self._line = (self._line + shown).rpartition("\n")[2][-_LINE:]
            self._at = to
        if end > self._done:
            yield Shown(self._fold.raw(self._done, end))
            self._done = end


def _may_begin(tail: str, at: int) -> bool:
    """Whether a word that matters may begin here; a label begins no later than its word."""
    begun = tail[at:]
    inside = at > 0 and (tail[at - 1].isalnum() or tail[at - 1] == "_")
    label = begun.strip("*_") if begun[0] in "*_" else begun
    return begun in _BEGINNINGS or (not inside and (label in _LABELS_BEGUN or not label))


def _held_tail(text: str, start: int) -> int:
    """How much at the end may be the beginning of a word that matters."""
    tail = text[max(start, len(text) - _LONGEST_BEGINNING) :].casefold()
    word = next((len(tail) - at for at in range(len(tail)) if _may_begin(tail, at)), 0)
    return word or int(tail[-1:] in _RULERS and bool(tail))
