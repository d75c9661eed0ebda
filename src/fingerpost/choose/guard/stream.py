"""The guard between a model's text and the person who reads it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from fingerpost.choose.guard.bare_calls import has_only_call_words, is_bare_call, may_be_bare_call
from fingerpost.choose.guard.finds import MAX_RAW_LENGTH, CleanedText, FoundSyntax
from fingerpost.choose.guard.fold import INVISIBLE
from fingerpost.choose.guard.names import WrittenToolNames, get_written_names
from fingerpost.choose.guard.reading import cut_at_observation, parse_calls
from fingerpost.choose.guard.scan import HiddenBlock, ShownText, SyntaxScanner
from fingerpost.choose.guard.shapes import WrittenCall
from fingerpost.choose.guard.talk import is_about_syntax, is_asking_for_data
from fingerpost.records import ToolCard

MAX_FOUND: Final = 200  # finds of one text; more are hidden all the same
_MAX_SPACE_HELD: Final = 256  # white space held back, which is dropped if only a block follows it
_UNSEEN_CHARACTERS: Final = re.compile(f"[{INVISIBLE}]+")
_WHITE_SPACE: Final = re.compile(rf"[\s{INVISIBLE}]*")
_UNKNOWN_CALL: Final = WrittenCall(name="", arguments=None)
_TRAILING_SPACE: Final = re.compile(rf"[\s{INVISIBLE}]{{0,{_MAX_SPACE_HELD}}}\Z")


class SyntaxGuard:
    """Takes invented tool syntax out of what models write. Knows the real tools, to tell a call from data.

    `others`: the names of tools that are not ours; what calls one of them is found under that name.
    """

    def __init__(self, tools: Iterable[ToolCard] = (), *, others: Collection[str] = ()) -> None:
        names = get_written_names(tools)
        self._names = names.with_other_names(others) if others else names

    def clean(self, text: str, *, request: str = "") -> CleanedText:
        """The text without tool syntax, and what that was. `request`: what it answers."""
        stream = self.stream(request=request)
        shown = stream.feed(text) + stream.finish()
        return CleanedText(text=shown, removed=stream.removed)

    def stream(self, *, request: str = "") -> StreamGuard:
        """The same for a text that comes in pieces."""
        return StreamGuard(self._names, request)

    def is_about_syntax(self, request: str) -> bool:
        """Whether a request asks about tool syntax itself, so that the answer has to show some."""
        return is_about_syntax(request)


class StreamGuard:
    """One text that comes in pieces. What is shown over all pieces does not depend on where they are cut."""

    def __init__(self, names: WrittenToolNames, request: str) -> None:
        self._names = names
        about, data = is_about_syntax(request), is_asking_for_data(request)
        self._scanner = SyntaxScanner(names, request=request, is_about_syntax=about, asks_for_data=data)
        self._whole: list[str] | None = None if about or data else []  # while it may be nothing but a call
        self._stopped: list[FoundSyntax] = []
        self._gap = ""  # white space that may have to go
        self._last = ""  # the last character given out
        self._behind = False  # nothing but white space since the last block
        self._wanting = False  # no white space came before that block: what comes behind it stays

    @property
    def removed(self) -> tuple[FoundSyntax, ...]:
        """What was found so far."""
        return tuple(self._stopped)

    def feed(self, piece: str) -> str:
        """What may be shown now."""
        if self._whole is None:
            return self._scan_piece(piece, final=False)
        self._whole.append(piece)
        whole = "".join(self._whole)
        if may_be_bare_call(whole):
            return ""
        self._whole = None
        return self._scan_piece(whole, final=False)

    def finish(self) -> str:
        """What may be shown at last: nothing more will come."""
        whole = "".join(self._whole or ())
        rest = self._scan_piece(whole, final=True)
        if not self._behind:
            rest += self._gap
        self._gap = ""
        if self._whole is None or not rest.strip():
            return rest
        if self._stopped and has_only_call_words(rest):
            return ""
        if is_bare_call(whole):
            self._stopped.append(FoundSyntax(syntax="alone", raw=whole[:MAX_RAW_LENGTH]))
            return ""
        return rest

    def _scan_piece(self, piece: str, *, final: bool) -> str:
        shown: list[str] = []
        for part in self._scanner.scan(piece, final=final):
            if isinstance(part, ShownText):
                shown.append(self._join_spacing(part.text))
            else:
                self._record_block(part)
        return "".join(shown)

    def _join_spacing(self, text: str) -> str:
        """White space around a block is there once: before it, unless the block began the text."""
        if self._behind:
            space = _WHITE_SPACE.match(text)
            end = space.end() if space is not None else 0
            if self._wanting:
                self._gap = (self._gap + text[:end])[:_MAX_SPACE_HELD]
            text = text[end:]
            if not text:
                return ""
            self._behind = False
        whole = self._gap + text
        trailing = _TRAILING_SPACE.search(whole, max(0, len(whole) - _MAX_SPACE_HELD))
        cut = trailing.start() if trailing is not None else len(whole)
        self._gap = whole[cut:]
        given = whole[:cut]
        self._last = given[-1:] or self._last
        return given

    def _record_block(self, part: HiddenBlock) -> None:
        repeated = part.alone and self._behind
        self._gap = _UNSEEN_CHARACTERS.sub("", self._gap) if self._last else ""
        if not self._behind:
            self._wanting = not self._gap and bool(self._last)
        self._behind = True
        if repeated or len(self._stopped) >= MAX_FOUND:
            return
        is_call = not (part.alone or part.mute or part.syntax == "thought")
        for call in self._parse_block_calls(part) if is_call else (_UNKNOWN_CALL,):
            self._stopped.append(
                FoundSyntax(
                    syntax=part.syntax,
                    raw=part.raw[:MAX_RAW_LENGTH],
                    name=self._names.get_key(call.name),
                    arguments=call.arguments if self._names.get_key(call.name) else None,
                    is_call=is_call,
                )
            )

    def _parse_block_calls(self, part: HiddenBlock) -> tuple[WrittenCall, ...]:
        known = self._find_known_calls(cut_at_observation(part.raw))
        if part.plain != part.raw and all(call.arguments is None for call in known):
            known = self._find_known_calls(cut_at_observation(part.plain)) or known
        return known or (_UNKNOWN_CALL,)

    def _find_known_calls(self, block: str) -> tuple[WrittenCall, ...]:
        return tuple(call for call in parse_calls(block, self._names) if self._names.get_key(call.name))
