"""Goes through a text once and says, piece by piece, what is shown and what is hidden.

Whether a text comes whole or in pieces makes no difference: a decision is made only
when nothing that may follow could change it, and otherwise waited for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from fingerpost.choose.guard.code import build_fence_closer, examine_code
from fingerpost.choose.guard.delimiters import RULER, examine_aside, examine_delimiter
from fingerpost.choose.guard.fold import FoldedText
from fingerpost.choose.guard.lines import examine_line
from fingerpost.choose.guard.markers import examine_marker
from fingerpost.choose.guard.names import WrittenToolNames
from fingerpost.choose.guard.reading import MAX_BLOCK_LENGTH
from fingerpost.choose.guard.spoken import (
    INLINE_LABELS,
    MARKER_LITERALS,
    MARKER_WORDS,
    examine_decorated_label,
    examine_marker_word,
)
from fingerpost.choose.guard.square import examine_square_bracket
from fingerpost.choose.guard.values import examine_brace
from fingerpost.choose.guard.verdicts import (
    WAIT_FOR_MORE,
    HiddenMode,
    HideUntil,
    ScanPosition,
    ScanVerdict,
    ShowCodeBlock,
    ShowUntil,
    WaitForMore,
)
from fingerpost.frozen import frozen

_REMEMBERED_LENGTH: Final = 600  # characters of what was shown, to tell talk from use
_REMEMBERED_LINE_LENGTH: Final = 200
_TRIGGER: Final = re.compile(
    rf"[<`{{\[(«]|\n+|~~~|[{RULER}]{{2,}}|{MARKER_WORDS.pattern}", MARKER_WORDS.flags
)
_TRIGGER_OUTSIDE_VALUES: Final = re.compile(rf"[<`]|\n+|~~~|{MARKER_WORDS.pattern}", MARKER_WORDS.flags)
_RULER_SIGNS: Final = RULER.replace("\\", "")
_ORDINARY_SIGN: Final = re.compile(rf"[(«]|(?!~~~)[{RULER}]+")
_WORD_PREFIXES: Final = frozenset(
    word[:count] for word in (*MARKER_LITERALS, "~~~") for count in range(1, len(word))
)
_LABEL_PREFIXES: Final = frozenset(label[:count] for label in INLINE_LABELS for count in range(1, len(label)))
_MAX_PREFIX_LENGTH: Final = max(map(len, (*_WORD_PREFIXES, *_LABEL_PREFIXES))) + 3


@frozen(kw_only=False)
class ShownText:
    text: str


@frozen(kw_only=False)
class HiddenBlock:
    """A block that ended: as it was written, and the plain view of it."""

    raw: str
    plain: str
    syntax: str
    alone: bool
    mute: bool


ScannedPart: TypeAlias = ShownText | HiddenBlock


class SyntaxScanner:
    """One text on its way through."""

    def __init__(
        self, names: WrittenToolNames, *, request: str, is_about_syntax: bool, asks_for_data: bool
    ) -> None:
        self._names = names
        self._request = request
        self._about = is_about_syntax
        self._data = asks_for_data
        self._fold = FoldedText()
        self._at = 0  # in the view: what is before it is decided
        self._done = 0  # in the text: what is before it was given out
        self._line = ""
        self._before = ""
        self._fresh = True  # at the start of a line that was not looked at
        self._blind = 0  # values before this place of the view were looked at
        self._blind_tags = 0
        self._wait_length = 0  # how much has to be there before looking again is worth it
        self._mode: HiddenMode | None = None
        self._fence: re.Pattern[str] | None = None
        self._behind = False
        self._raw = ""
        self._plain = ""
        self._syntax = ""
        self._alone = False
        self._mute = False

    def scan(self, piece: str, *, final: bool = False) -> Iterator[ScannedPart]:
        """What can be said now that this piece has come."""
        self._fold.append(piece, final=final)
        if len(self._fold.text) - self._at >= self._wait_length or final:
            yield from self._advance_scan(final=final)
            gone = self._fold.discard_before(self._at)
            self._done -= gone
            self._blind = max(0, self._blind - self._at)
            self._blind_tags = max(0, self._blind_tags - self._at)
            self._at = 0
        if final:
            yield from self._show(len(self._fold.text))

    def _advance_scan(self, *, final: bool) -> Iterator[ScannedPart]:
        self._wait_length = 0
        text = self._fold.text
        while self._at < len(text):
            before = (self._at, self._mode, self._fence, self._fresh)
            if self._mode is not None:
                yield from self._scan_hidden(self._mode, text, final=final)
            elif self._fence is not None:
                yield from self._scan_code(self._fence, text, final=final)
            else:
                yield from self._scan_text(text, final=final)
            if (self._at, self._mode, self._fence, self._fresh) == before:
                held = len(text) - self._at
                self._wait_length = held + max(1, held // 8) if held > 64 else 0
                return
        if final and self._mode is not None:
            yield from self._scan_hidden(self._mode, text, final=True)

    def _scan_hidden(self, mode: HiddenMode, text: str, *, final: bool) -> Iterator[ScannedPart]:
        to, done = mode.step(text, self._at, final=final)
        self._hide(to)
        if done:
            yield self._finish_block()

    def _hide(self, to: int) -> None:
        end = self._fold.get_text_end(to)
        if to > self._at:
            self._raw = (self._raw + self._fold.get_raw(self._done, end))[:MAX_BLOCK_LENGTH]
            self._plain = (self._plain + self._fold.text[self._at : to])[:MAX_BLOCK_LENGTH]
            self._done = max(self._done, end)
        self._at = to

    def _finish_block(self) -> HiddenBlock:
        part = HiddenBlock(
            raw=self._raw, plain=self._plain, syntax=self._syntax, alone=self._alone, mute=self._mute
        )
        self._mode, self._raw, self._plain = None, "", ""
        self._fresh = not self._line
        self._behind = True
        return part

    def _scan_code(self, closing: re.Pattern[str], text: str, *, final: bool) -> Iterator[ScannedPart]:
        found = closing.search(text, self._at)
        if found is not None and (final or found.end() < len(text)):
            self._fence = None
            yield from self._show(found.end())
            return
        edge = len(text)
        if not final:
            newline = text.rfind("\n", max(self._at, len(text) - _REMEMBERED_LINE_LENGTH))
            tail = re.search(
                r"[^\s`~]?[`~]+[ \t]*\Z|\S?\Z", text[max(self._at, len(text) - _REMEMBERED_LINE_LENGTH) :]
            )
            cut = (
                max(self._at, len(text) - _REMEMBERED_LINE_LENGTH) + tail.start()
                if tail is not None
                else len(text)
            )
            blank = newline >= 0 and not text[newline:].strip(" \t>`~\n")
            edge = min(cut, newline) if blank else cut
        yield from self._show(max(self._at, edge))

    def _scan_text(self, text: str, *, final: bool) -> Iterator[ScannedPart]:
        if self._fresh:
            verdict = examine_line(self._build_position(text, final=final))
            if verdict is not None:
                yield from self._apply_verdict(verdict)
                self._fresh = self._fresh and isinstance(verdict, WaitForMore)
                return
            self._fresh = False
        found, edge = self._find_next_trigger(text)
        if found is None:
            held = 0 if final else _count_held_tail(text, self._at)
            yield from self._show(min(edge, len(text) - held))
            return
        yield from self._show(found.start())
        if found[0][0] == "\n":
            yield from self._show(found.end())
            self._fresh = True
            return
        yield from self._apply_verdict(self._examine_sign(found[0], self._build_position(text, final=final)))

    def _find_next_trigger(self, text: str) -> tuple[re.Match[str] | None, int]:
        """The next place to look at; where there is none, how far that is known."""
        if self._at >= self._blind:
            return _TRIGGER.search(text, self._at), len(text)
        # Braces that were looked at are passed over together, not one by one.
        found = _TRIGGER_OUTSIDE_VALUES.search(text, self._at, self._blind + _MAX_PREFIX_LENGTH + 1)
        return (found if found is not None and found.start() < self._blind else None), self._blind

    def _examine_sign(self, sign: str, position: ScanPosition) -> ScanVerdict:
        delimiter = None if sign[0] == "`" else examine_delimiter(position)
        if delimiter is not None:
            return delimiter
        aside = examine_aside(position) if sign == "(" else None
        if aside is None and (sign in "([`*_" or sign[:2] == "**"):
            aside = examine_decorated_label(position)
        if aside is not None:
            return aside
        if _ORDINARY_SIGN.fullmatch(sign):
            grows = (
                position.at + len(sign) == len(position.text) and not position.final and sign[0] not in "(«"
            )
            return WAIT_FOR_MORE if grows else ShowUntil(position.at + len(sign))
        if sign == "<":
            return examine_marker(position)
        if sign[0] in "`~":
            return examine_code(position)
        if sign in "{[":
            return examine_brace(position) if sign == "{" else examine_square_bracket(position)
        return examine_marker_word(position)

    def _build_position(self, text: str, *, final: bool) -> ScanPosition:
        return ScanPosition(
            text=text,
            at=self._at,
            final=final,
            line=self._line,
            before=self._before,
            names=self._names,
            request=self._request,
            is_about_syntax=self._about,
            asks_for_data=self._data,
            follows_hidden=self._behind,
            tags_checked_to=self._blind_tags,
        )

    def _apply_verdict(self, verdict: ScanVerdict) -> Iterator[ScannedPart]:
        if isinstance(verdict, ShowUntil):
            self._blind = max(self._blind, verdict.values_checked_to)
            self._blind_tags = max(self._blind_tags, verdict.tags_checked_to)
            yield from self._show(verdict.to)
        elif isinstance(verdict, ShowCodeBlock):
            yield from self._show(verdict.to)
            self._fence = build_fence_closer(verdict.fence)
        elif isinstance(verdict, HideUntil):
            yield from self._show(self._at)  # invisible characters before the block are not part of it
            self._syntax, self._mode = verdict.syntax, verdict.mode
            self._alone, self._mute = verdict.is_stray, verdict.has_no_calls
            self._hide(verdict.to)
            if verdict.mode is None:
                yield self._finish_block()

    def _show(self, to: int) -> Iterator[ScannedPart]:
        end = self._fold.get_text_start(to)
        if to > self._at:
            shown = self._fold.text[self._at : to]
            self._before = (self._before + shown)[-_REMEMBERED_LENGTH:]
            self._behind = self._behind and not shown.strip()
            self._line = (self._line + shown).rpartition("\n")[2][-_REMEMBERED_LINE_LENGTH:]
            self._at = to
        if end > self._done:
            yield ShownText(self._fold.get_raw(self._done, end))
            self._done = end


def _may_begin_word(tail: str, at: int) -> bool:
    """Whether a word that matters may begin here; a label begins no later than its word."""
    begun = tail[at:]
    inside = at > 0 and (tail[at - 1].isalnum() or tail[at - 1] == "_")
    label = begun.strip("*_") if begun[0] in "*_" else begun
    return begun in _WORD_PREFIXES or (not inside and (label in _LABEL_PREFIXES or not label))


def _count_held_tail(text: str, start: int) -> int:
    """How much at the end may be the beginning of a word that matters."""
    tail = text[max(start, len(text) - _MAX_PREFIX_LENGTH) :].casefold()
    word = next((len(tail) - at for at in range(len(tail)) if _may_begin_word(tail, at)), 0)
    return word or int(tail[-1:] in _RULER_SIGNS and bool(tail))
