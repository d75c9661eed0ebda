"""The scanner that removes tool syntax from model output, for a whole text or a stream."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, TypeAlias

from fingerpost.choose.syntax_guard.call_parser import (
    MAX_BLOCK_LENGTH,
    MoreTextNeeded,
    WrittenCall,
    cut_at_observation,
    has_only_call_words,
    is_bare_call,
    may_be_bare_call,
    parse_calls,
)
from fingerpost.choose.syntax_guard.formats import (
    HideUntil,
    ScanPosition,
    ScanVerdict,
    ShowCodeBlock,
    ShowUntil,
)
from fingerpost.choose.syntax_guard.inline_formats import (
    INLINE_LABELS,
    MARKER_LITERALS,
    MARKER_PATTERN,
    examine_brace,
    examine_decorated_label,
    examine_marker,
    examine_marker_word,
    examine_square_bracket,
)
from fingerpost.choose.syntax_guard.line_formats import (
    RULER,
    build_fence_closer,
    examine_aside,
    examine_code,
    examine_delimiter,
    examine_line,
)
from fingerpost.choose.syntax_guard.vocabulary import (
    WrittenToolNames,
    get_written_names,
    is_about_syntax,
    is_asking_for_data,
)
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, ToolCard
from fingerpost.regex import prepare_re

MAX_RAW_LENGTH: Final = 2_000  # characters kept for inspection


@frozen
class FoundSyntax:
    """Tool syntax found in a text. With a name and arguments, it can be executed as a call."""

    syntax: str  # the family: "hermes", "llama", "react", …; "thought" for reasoning
    raw: str  # at most MAX_RAW_LENGTH characters
    name: str | None = None  # the key of the real tool, or the name of a tool in `others`
    arguments: JsonObject | None = None  # None if they could not be parsed
    is_call: bool = True  # not a single marker, an invented result or turn, or reasoning


@frozen
class CleanedText:
    """A text to show, and the tool syntax that was removed from it."""

    text: str
    removed: tuple[FoundSyntax, ...] = ()


INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e007f"
)
_WIDE_CHARACTERS: Final = {ord("！") + offset: ord("!") + offset for offset in range(94)}
_LOOKALIKES: Final = str.maketrans("▁│┃∣❘ǀ⏐‹›〈〉⟨⟩❮❯【】", "_||||||<><><><>[]")
_FOLD_TABLE: Final = {**_WIDE_CHARACTERS, **_LOOKALIKES}
_ENTITIES: Final = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "vert": "|", "lbrace": "{", "rbrace": "}"}
_ENTITY_CODES: Final = {60: "<", 62: ">", 124: "|", 34: '"', 39: "'"}
_DISGUISED_CHARACTER: Final = prepare_re(
    rf"[{INVISIBLE}]+"
    r"|&(?:amp;)?(?:(?P<name>lt|gt|quot|apos|vert|lbrace|rbrace)|#0{0,4}(?P<ten>60|62|124|34|39)"
    r"|#x0{0,4}(?P<hex>3c|3e|7c|22|27));|\\u00(?P<escape>3c|3e|7c)",
    re.IGNORECASE,
)
# The beginning of an escape that may continue in the next piece.
_UNFINISHED_ENTITY: Final = prepare_re(
    r"(?:&(?:amp;)?(?:[a-z]{0,6}|#x?[0-9a-f]{0,6})|\\(?:u[0-9a-f]{0,3})?)\Z", re.IGNORECASE
)


class FoldedText:
    """Text that arrives in pieces, its view without disguised characters, and the mapping between both."""

    def __init__(self) -> None:
        self.text = ""  # the view
        self._raw = ""
        self._pending_escape = ""  # the start of a possible escape, added once it is complete
        # Where each character of the view starts and ends in the text.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def append(self, piece: str, *, final: bool = False) -> None:
        fresh = self._pending_escape + piece
        unfinished = None if final else _UNFINISHED_ENTITY.search(fresh, max(0, len(fresh) - 16))
        cut = len(fresh) if unfinished is None else unfinished.start()
        fresh, self._pending_escape = fresh[:cut], fresh[cut:]
        parts: list[str] = []
        base, at = len(self._raw), 0
        for found in _DISGUISED_CHARACTER.finditer(fresh):
            parts.append(self._map_plain(fresh[at : found.start()], base + at))
            if plain := _decode_escape(found):
                parts.append(plain)
                self._starts.append(base + found.start())
                self._ends.append(base + found.end())
            at = found.end()
        parts.append(self._map_plain(fresh[at:], base + at))
        self._raw += fresh
        self.text += "".join(parts).translate(_FOLD_TABLE)

    def _map_plain(self, text: str, at: int) -> str:
        self._starts.extend(range(at, at + len(text)))
        self._ends.extend(range(at + 1, at + len(text) + 1))
        return text

    def get_text_start(self, place: int) -> int:
        """Return the text position where the character at this view position starts."""
        return self._starts[place] if place < len(self._starts) else len(self._raw)

    def get_text_end(self, place: int) -> int:
        """Return the text position where the character before this view position ends."""
        return self._ends[place - 1] if place else 0

    def get_raw(self, start: int, end: int) -> str:
        """Return the text between two positions of the text, not of the view."""
        return self._raw[start:end]

    def discard_before(self, place: int) -> int:
        """Discard the view before `place`. Return the length of the discarded text."""
        gone = self.get_text_end(place)
        if gone:
            self._starts = [start - gone for start in self._starts[place:]]
            self._ends = [end - gone for end in self._ends[place:]]
            self.text = self.text[place:]
            self._raw = self._raw[gone:]
        return gone


def _decode_escape(found: re.Match[str]) -> str:
    """Return the plain character for an escaped one, or an empty string for an invisible one."""
    if name := found["name"]:
        return _ENTITIES[name.lower()]
    if ten := found["ten"]:
        return _ENTITY_CODES[int(ten)]
    code = found["hex"] or found["escape"]
    return _ENTITY_CODES[int(code, 16)] if code else ""


_REMEMBERED_LENGTH: Final = 600  # characters of shown text, to tell a mention from a call
_REMEMBERED_LINE_LENGTH: Final = 200
_TRIGGER: Final = prepare_re(
    rf"[<`{{\[(«]|\n+|~~~|[{RULER}]{{2,}}|{MARKER_PATTERN.pattern}", MARKER_PATTERN.flags
)
_TRIGGER_OUTSIDE_VALUES: Final = prepare_re(rf"[<`]|\n+|~~~|{MARKER_PATTERN.pattern}", MARKER_PATTERN.flags)
_RULER_SIGNS: Final = RULER.replace("\\", "")
_ORDINARY_SIGN: Final = prepare_re(rf"[(«]|(?!~~~)[{RULER}]+")
_WORD_PREFIXES: Final = frozenset(
    word[:count] for word in (*MARKER_LITERALS, "~~~") for count in range(1, len(word))
)
_LABEL_PREFIXES: Final = frozenset(label[:count] for label in INLINE_LABELS for count in range(1, len(label)))
_MAX_PREFIX_LENGTH: Final = max(map(len, (*_WORD_PREFIXES, *_LABEL_PREFIXES))) + 3


_CODE_TAIL: Final = prepare_re(r"[^\s`~]?[`~]+[ \t]*\Z|\S?\Z")


@frozen(kw_only=False)
class HiddenBlock:
    """A complete hidden block: the original text, its view, and the verdict that opened it."""

    raw: str
    plain: str
    verdict: HideUntil


ScannedPart: TypeAlias = str | HiddenBlock  # a text is shown


class SyntaxScanner:
    """The scanner state for one text. Everything before the position is decided."""

    def __init__(
        self, names: WrittenToolNames, *, request: str, is_about_syntax: bool, asks_for_data: bool
    ) -> None:
        self._position = ScanPosition(
            names=names, request=request, is_about_syntax=is_about_syntax, asks_for_data=asks_for_data
        )
        self._fold = FoldedText()
        self._returned_to = 0  # text position; everything before it was returned
        self._is_new_line = True  # at the start of a line that was not examined
        self._values_checked_to = 0  # view position; JSON values before it were examined
        self._wait_length = 0  # minimum length before the next scan
        self._hidden: HideUntil | None = None  # opened the block that is hidden now
        self._fence: re.Pattern[str] | None = None
        self._raw = ""
        self._plain = ""

    def scan(self, piece: str, *, final: bool = False) -> Iterator[ScannedPart]:
        """Add a piece and yield the parts that are decided now."""
        position = self._position
        self._fold.append(piece, final=final)
        position.text, position.final = self._fold.text, final
        if len(position.text) - position.at >= self._wait_length or final:
            yield from self._advance_scan()
            self._returned_to -= self._fold.discard_before(position.at)
            self._values_checked_to = max(0, self._values_checked_to - position.at)
            position.tags_checked_to = max(0, position.tags_checked_to - position.at)
            position.text, position.at = self._fold.text, 0
        if final:
            yield from self._show(len(position.text))

    def _advance_scan(self) -> Iterator[ScannedPart]:
        self._wait_length = 0
        position = self._position
        while position.at < len(position.text):
            before = (position.at, self._hidden, self._fence, self._is_new_line)
            try:
                if self._hidden is not None:
                    yield from self._scan_hidden(self._hidden)
                elif self._fence is not None:
                    yield from self._scan_code(self._fence)
                else:
                    yield from self._scan_text()
            except MoreTextNeeded:
                pass
            if (position.at, self._hidden, self._fence, self._is_new_line) == before:
                held = len(position.text) - position.at
                self._wait_length = held + max(1, held // 8) if held > 64 else 0
                return
        if position.final and self._hidden is not None:
            yield from self._scan_hidden(self._hidden)

    def _scan_hidden(self, verdict: HideUntil) -> Iterator[ScannedPart]:
        """Hide more of the block. It is complete if no mode continues it."""
        position, done = self._position, True
        if verdict.mode is not None:
            to, done = verdict.mode.step(position.text, position.at, final=position.final)
            self._hide(to)
        if done:
            yield HiddenBlock(self._raw, self._plain, verdict)
            self._hidden, self._raw, self._plain = None, "", ""
            self._is_new_line = not position.line
            position.follows_hidden = True

    def _hide(self, to: int) -> None:
        position, end = self._position, self._fold.get_text_end(to)
        if to > position.at:
            self._raw = (self._raw + self._fold.get_raw(self._returned_to, end))[:MAX_BLOCK_LENGTH]
            self._plain = (self._plain + position.text[position.at : to])[:MAX_BLOCK_LENGTH]
            self._returned_to = max(self._returned_to, end)
        position.at = to

    def _scan_code(self, closing: re.Pattern[str]) -> Iterator[ScannedPart]:
        text, at, final = self._position.text, self._position.at, self._position.final
        found = closing.search(text, at)
        if found is not None and (final or found.end() < len(text)):
            self._fence = None
            yield from self._show(found.end())
            return
        edge = len(text)
        if not final:  # the end may be the beginning of the closing fence
            start = max(at, len(text) - _REMEMBERED_LINE_LENGTH)
            tail, newline = _CODE_TAIL.search(text, start), text.rfind("\n", start)
            edge = edge if tail is None else tail.start()
            if newline >= 0 and not text[newline:].strip(" \t>`~\n"):
                edge = min(edge, newline)
        yield from self._show(max(at, edge))

    def _scan_text(self) -> Iterator[ScannedPart]:
        position = self._position
        if self._is_new_line:
            verdict = examine_line(position)
            self._is_new_line = False
            if verdict is not None:
                yield from self._apply_verdict(verdict)
                return
        found, edge = self._find_next_trigger(position.text)
        if found is None:
            held = 0 if position.final else _count_held_tail(position.text, position.at)
            yield from self._show(min(edge, len(position.text) - held))
            return
        yield from self._show(found.start())
        if found[0][0] == "\n":
            yield from self._show(found.end())
            self._is_new_line = True
            return
        yield from self._apply_verdict(self._examine_sign(found[0], position))

    def _find_next_trigger(self, text: str) -> tuple[re.Match[str] | None, int]:
        """Return the next trigger, or None, and the end of the searched text."""
        if self._position.at >= self._values_checked_to:
            return _TRIGGER.search(text, self._position.at), len(text)
        # Skip examined braces together, not one by one.
        end = self._values_checked_to
        found = _TRIGGER_OUTSIDE_VALUES.search(text, self._position.at, end + _MAX_PREFIX_LENGTH + 1)
        return (found if found is not None and found.start() < end else None), end

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
            if sign[0] not in "(«":
                position.read(position.at + len(sign), 1)
            return ShowUntil(position.at + len(sign))
        if sign == "<":
            return examine_marker(position)
        if sign[0] in "`~":
            return examine_code(position)
        if sign in "{[":
            return examine_brace(position) if sign == "{" else examine_square_bracket(position)
        return examine_marker_word(position)

    def _apply_verdict(self, verdict: ScanVerdict) -> Iterator[ScannedPart]:
        position = self._position
        if isinstance(verdict, ShowUntil):
            self._values_checked_to = max(self._values_checked_to, verdict.values_checked_to)
            position.tags_checked_to = max(position.tags_checked_to, verdict.tags_checked_to)
            yield from self._show(verdict.to)
        elif isinstance(verdict, ShowCodeBlock):
            yield from self._show(verdict.to)
            self._fence = build_fence_closer(verdict.fence)
        else:
            yield from self._show(position.at)  # invisible characters before the block are not part of it
            self._hidden = verdict
            self._hide(verdict.to)
            if verdict.mode is None:
                yield from self._scan_hidden(verdict)

    def _show(self, to: int) -> Iterator[ScannedPart]:
        position, end = self._position, self._fold.get_text_start(to)
        if to > position.at:
            shown = position.text[position.at : to]
            position.before = (position.before + shown)[-_REMEMBERED_LENGTH:]
            position.follows_hidden = position.follows_hidden and not shown.strip()
            position.line = (position.line + shown).rpartition("\n")[2][-_REMEMBERED_LINE_LENGTH:]
            position.at = to
        if end > self._returned_to:
            yield self._fold.get_raw(self._returned_to, end)
            self._returned_to = end


def _may_begin_word(tail: str, at: int) -> bool:
    """Return whether a marker word or a label may start here. A label must start at a word boundary."""
    rest = tail[at:]
    inside = at > 0 and (tail[at - 1].isalnum() or tail[at - 1] == "_")
    label = rest.strip("*_") if rest[0] in "*_" else rest
    return rest in _WORD_PREFIXES or (not inside and (label in _LABEL_PREFIXES or not label))


def _count_held_tail(text: str, start: int) -> int:
    """Return how many characters at the end may be the beginning of a marker word, a label or a ruler."""
    tail = text[max(start, len(text) - _MAX_PREFIX_LENGTH) :].casefold()
    length = next((len(tail) - at for at in range(len(tail)) if _may_begin_word(tail, at)), 0)
    return length or int(tail[-1:] in _RULER_SIGNS and bool(tail))


MAX_FOUND: Final = 200  # recorded per text; further ones are hidden but not recorded
_MAX_SPACE_HELD: Final = 256  # white space held back; dropped if only a block follows
_UNSEEN_CHARACTERS: Final = prepare_re(f"[{INVISIBLE}]+")
_WHITE_SPACE: Final = prepare_re(rf"[\s{INVISIBLE}]*")
_UNKNOWN_CALL: Final = WrittenCall(name="", arguments=None)
_TRAILING_SPACE: Final = prepare_re(rf"[\s{INVISIBLE}]{{0,{_MAX_SPACE_HELD}}}\Z")


class SyntaxGuard:
    """Removes tool syntax from model output. It uses the names of the real tools to tell a call from data.

    `others` are names of tools that are not routed, such as client tools. Calls of them are found under that
    name.
    """

    def __init__(self, tools: Iterable[ToolCard] = (), *, others: Collection[str] = ()) -> None:
        names = get_written_names(tools)
        self._names = names.with_other_names(others) if others else names

    def clean(self, text: str, *, request: str = "") -> CleanedText:
        """Return the text without tool syntax, and the removed parts. `request` is the request it answers."""
        stream = self.stream(request=request)
        shown = stream.feed(text) + stream.finish()
        return CleanedText(text=shown, removed=stream.removed)

    def stream(self, *, request: str = "") -> StreamGuard:
        """Return a guard for a text that arrives in pieces."""
        return StreamGuard(self._names, request)

    def is_about_syntax(self, request: str) -> bool:
        """Return whether a request asks about tool syntax, so that the answer must be able to show it."""
        return is_about_syntax(request)


class StreamGuard:
    """The guard for one text that arrives in pieces. The piece boundaries do not affect the result."""

    def __init__(self, names: WrittenToolNames, request: str) -> None:
        self._names = names
        about, data = is_about_syntax(request), is_asking_for_data(request)
        self._scanner = SyntaxScanner(names, request=request, is_about_syntax=about, asks_for_data=data)
        self._whole: list[str] | None = None if about or data else []  # while the text may be only a call
        self._removed: list[FoundSyntax] = []
        self._gap = ""  # white space that may be dropped
        self._last = ""  # the last returned character
        self._follows_block = False  # only white space since the last block
        self._keeps_next_space = False  # no white space before that block: keep the one after it

    @property
    def removed(self) -> tuple[FoundSyntax, ...]:
        """The tool syntax found so far."""
        return tuple(self._removed)

    def feed(self, piece: str) -> str:
        """Add a piece. Return the text that can be shown now."""
        if self._whole is None:
            return self._scan_piece(piece, final=False)
        self._whole.append(piece)
        whole = "".join(self._whole)
        if may_be_bare_call(whole):
            return ""
        self._whole = None
        return self._scan_piece(whole, final=False)

    def finish(self) -> str:
        """End the text. Return the rest that can be shown."""
        whole = "".join(self._whole or ())
        rest = self._scan_piece(whole, final=True)
        if not self._follows_block:
            rest += self._gap
        self._gap = ""
        if self._whole is None or not rest.strip():
            return rest
        if self._removed and has_only_call_words(rest):
            return ""
        if is_bare_call(whole):
            self._removed.append(FoundSyntax(syntax="alone", raw=whole[:MAX_RAW_LENGTH]))
            return ""
        return rest

    def _scan_piece(self, piece: str, *, final: bool) -> str:
        shown: list[str] = []
        for part in self._scanner.scan(piece, final=final):
            if isinstance(part, str):
                shown.append(self._join_spacing(part))
            else:
                self._record_block(part)
        return "".join(shown)

    def _join_spacing(self, text: str) -> str:
        """Keep the white space around a block only once: before it, unless the block is at the start."""
        if self._follows_block:
            space = _WHITE_SPACE.match(text)
            end = space.end() if space is not None else 0
            if self._keeps_next_space:
                self._gap = (self._gap + text[:end])[:_MAX_SPACE_HELD]
            text = text[end:]
            if not text:
                return ""
            self._follows_block = False
        whole = self._gap + text
        trailing = _TRAILING_SPACE.search(whole, max(0, len(whole) - _MAX_SPACE_HELD))
        cut = trailing.start() if trailing is not None else len(whole)
        self._gap = whole[cut:]
        given = whole[:cut]
        self._last = given[-1:] or self._last
        return given

    def _record_block(self, part: HiddenBlock) -> None:
        verdict = part.verdict
        repeated = verdict.is_stray and self._follows_block
        self._gap = _UNSEEN_CHARACTERS.sub("", self._gap) if self._last else ""
        if not self._follows_block:
            self._keeps_next_space = not self._gap and bool(self._last)
        self._follows_block = True
        if repeated or len(self._removed) >= MAX_FOUND:
            return
        is_call = not (verdict.is_stray or verdict.has_no_calls or verdict.syntax == "thought")
        for call in self._parse_block_calls(part) if is_call else (_UNKNOWN_CALL,):
            name, arguments = self._names.resolve(call.name, call.arguments)
            raw, syntax = part.raw[:MAX_RAW_LENGTH], verdict.syntax
            found = FoundSyntax(syntax=syntax, raw=raw, name=name, arguments=arguments, is_call=is_call)
            self._removed.append(found)

    def _parse_block_calls(self, part: HiddenBlock) -> tuple[WrittenCall, ...]:
        known = self._find_known_calls(cut_at_observation(part.raw))
        if part.plain != part.raw and all(call.arguments is None for call in known):
            known = self._find_known_calls(cut_at_observation(part.plain)) or known
        return known or (_UNKNOWN_CALL,)

    def _find_known_calls(self, block: str) -> tuple[WrittenCall, ...]:
        calls = parse_calls(block, self._names)
        return tuple(call for call in calls if self._names.resolve(call.name, None)[0] is not None)
