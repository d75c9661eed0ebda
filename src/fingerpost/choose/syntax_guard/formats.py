"""Known formats of tool syntax (markers, tags and labels), and how a hidden block of each ends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias

from fingerpost.choose.syntax_guard.call_parser import BracketReader, MoreTextNeeded, find_value_end
from fingerpost.choose.syntax_guard.vocabulary import (
    LISTS,
    WORDS,
    WrittenToolNames,
    is_announcing_call,
    is_asking_how,
    is_introducing_data,
    is_tool_like,
)
from fingerpost.frozen import frozen
from fingerpost.regex import prepare_re

MAX_HELD_LENGTH: Final = 32_000  # characters held back at most before a decision


class HiddenMode(Protocol):
    """The state inside hidden text. It decides how much more of the text is hidden."""

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        """Return the end of the hidden text so far, and whether the block is complete."""
        ...


@frozen(kw_only=False)
class ShowUntil:
    """The verdict that the text up to `to` is ordinary."""

    to: int
    values_checked_to: int = 0  # JSON values before this position were examined
    tags_checked_to: int = 0  # tags before this position have no closing tag


@frozen(kw_only=False)
class HideUntil:
    """The verdict that the text up to `to` is tool syntax, continued by `mode`."""

    to: int
    syntax: str
    mode: HiddenMode | None = None
    is_stray: bool = False  # a single marker: not counted directly after a block
    has_no_calls: bool = False  # a turn or a result: not parsed for calls


@frozen(kw_only=False)
class ShowCodeBlock:
    """The verdict that a code block starts here. It is shown unchanged."""

    to: int
    fence: str


ScanVerdict: TypeAlias = ShowUntil | HideUntil | ShowCodeBlock


@dataclass(slots=True)
class ScanPosition:
    """One position in a text that may still be incomplete."""

    names: WrittenToolNames
    request: str  # the request that the text answers
    is_about_syntax: bool  # the request is about tool syntax
    asks_for_data: bool  # the request asks for data or code
    text: str = ""
    at: int = 0
    final: bool = False  # no more text will arrive
    line: str = ""  # shown text of this line before the position
    before: str = ""  # end of the shown text before the position
    follows_hidden: bool = False  # directly after a hidden block
    tags_checked_to: int = 0  # tags before this position have no closing tag

    @property
    def limit(self) -> int:
        """The end of the text that may be examined. It does not depend on how the text arrives in pieces."""
        return min(len(self.text), self.at + MAX_HELD_LENGTH)

    @property
    def is_closed(self) -> bool:
        """Whether more text would not change the verdict."""
        return self.final or len(self.text) - self.at >= MAX_HELD_LENGTH

    @property
    def accepts_unknown_tools(self) -> bool:
        """Whether text in the form of a call counts as a call even if no known tool has that name."""
        return not (self.is_about_syntax or self.asks_for_data or is_introducing_data(self.before))

    @property
    def accepts_lines(self) -> bool:
        """Whether lines of a session or YAML can be a call of an unknown tool, and no explanation."""
        return self.accepts_unknown_tools and not is_asking_how(self.request)

    @property
    def expects_call(self) -> bool:
        """Whether program text can be a call of an unknown tool: at the start, or announced."""
        return self.accepts_lines and (not self.before.strip() or is_announcing_call(self.before))

    @property
    def is_line_start(self) -> bool:
        return not self.line.strip(" \t>*-•")

    def may_be_tool(self, name: str) -> bool:
        """Return whether a call under this name counts: a known tool has it, or any tool may have it."""
        return self.names.is_known(name) or (self.accepts_unknown_tools and is_tool_like(name))

    def look_ahead(self, start: int, count: int) -> tuple[str, bool]:
        """Return at most `count` characters from `start`, and whether no more will be added to them."""
        piece = self.text[start : start + count]
        return piece, self.final or len(piece) == count

    def read(self, start: int, count: int) -> str:
        """Return `count` characters from `start`, or all that are left. Raises `MoreTextNeeded`."""
        piece, complete = self.look_ahead(start, count)
        if not complete:
            raise MoreTextNeeded
        return piece

    def find_end(self, start: int) -> int | None:
        """Return the end of the bracketed value at `start`, or None. Raises `MoreTextNeeded`."""
        length = find_value_end(self.text[start : self.limit], 0)
        if length is None and not self.is_closed:
            raise MoreTextNeeded
        return None if length is None else start + length

    def ends_line(self, end: int, ignored: str = " \t,;.`*_)]") -> bool:
        """Return whether nothing else follows on the line: else it is content. Raises `MoreTextNeeded`."""
        behind, complete = self.look_ahead(end, 40)
        line, newline, _ = behind.partition("\n")
        if not line.strip(ignored) and not newline and not complete:
            raise MoreTextNeeded
        return not line.strip(ignored)


def match_or_wait(
    pattern: re.Pattern[str], beginning: re.Pattern[str], text: str, *, complete: bool
) -> re.Match[str] | None:
    """Return the match at the start of the text. Raises `MoreTextNeeded` if the text may still become one."""
    found = pattern.match(text)
    if found is None and not complete and beginning.match(text):
        raise MoreTextNeeded
    return found


_CALL_WORD_PATTERN: Final = (
    r"(?:tools?|functions?|actions?|plugin|api|mcp|python|recipient|invoke|interpreter|ipython|observation"
    r"|כלי|כלים|פונקציה|פעולה|תוסף)"
)
_END_WORD_PATTERN: Final = (
    r"(?:end|ends|ended|stop|close|closed|suffix|finish|finished|done|complete|eom|eot|סוף|סיום|סגירה)"
)


class MarkerKind(Enum):
    """The effect of a marker on the text after it."""

    BLOCK = auto()  # opens a call
    SPAN = auto()  # opens text hidden up to its closer, usually reasoning
    TURN = auto()  # opens a turn; the role follows
    CHANNEL = auto()  # opens a message with a header that names its recipient
    ALONE = auto()  # opens nothing


@frozen
class SyntaxMarker:
    """One marker: its family, its kind, and the end of the block it opens."""

    syntax: str
    kind: MarkerKind
    closer: re.Pattern[str] | None = None
    is_result: bool = False  # opens an invented tool result

    @classmethod
    def from_token(cls, inner: str) -> SyntaxMarker:
        """Return the marker for `<|inner|>`. Unknown tokens are markers too."""
        if dsml := _DSML_TOKEN.match(inner):
            closing = inner.startswith("/") or dsml[1].startswith("/")
            return cls(
                syntax="deepseek",
                kind=MarkerKind.ALONE if closing else MarkerKind.BLOCK,
                closer=_build_closer(rf"<\|?\s*/\s*\|?dsml\|{dsml[1].lstrip('/')}>"),
            )
        plain = _TOKEN_SPELLING.sub("_", inner.strip())
        for pattern, syntax, kind in _TOKEN_TABLE:
            if pattern.fullmatch(plain):
                closer = _SPAN_CLOSERS.get(syntax, TOKEN_CLOSER)
                return cls(syntax=syntax, kind=kind, closer=closer, is_result=is_result_name(plain))
        syntax = "hebrew" if _HEBREW_MARKER.search(plain) else "marker"
        opens = _CALLING_TOKEN.search(plain) and not _ENDING_TOKEN.search(plain)
        kind = MarkerKind.BLOCK if opens else MarkerKind.ALONE
        return cls(syntax=syntax, kind=kind, closer=TOKEN_CLOSER, is_result=is_result_name(plain))


def _build_closer(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


# Tokens in pipes, by the text between the pipes. The first match counts.
_TOKEN_TABLE: Final = tuple(
    (prepare_re(pattern, re.IGNORECASE), syntax, MarkerKind[kind.upper()])
    for syntax, kind, pattern in (line.split(" ", 2) for line in LISTS["tokens"])
)
_RESULT_NAME: Final = prepare_re(r"result|output|response|observation|תוצא", re.IGNORECASE)
_HEBREW_MARKER: Final = prepare_re(r"[א-ת]")
_TOKEN_SPELLING: Final = prepare_re(r"[\s_\-]+")
_ENDING_TOKEN: Final = prepare_re(rf"(?:\A/|(?:\A|_){_END_WORD_PATTERN}(?:_|\Z))", re.IGNORECASE)
_CALLING_TOKEN: Final = prepare_re(rf"(?:\A|_){_CALL_WORD_PATTERN}(?:_|\Z|calls?)", re.IGNORECASE)
# Any following end token in pipes, or the older form of an end token.
TOKEN_CLOSER: Final = _build_closer(
    rf"<\|\s*(?:/[^|<>\n]{{1,60}}|(?:[^|<>\n]{{0,60}}[\s_])?{_END_WORD_PATTERN}(?:[\s_][^|<>\n]{{0,60}}|_id)?|call|im_end|endoftext)\s*\|>"
    r"|<[^|<>\n]{1,40}\|>"
)
_THOUGHT_CLOSER: Final = _build_closer(
    r"<\|?\s*/?\s*(?:end_thinking|end_of_thought|/?think|/?thinking|/?thought|/?reasoning)\s*\|?>"
    r"|<\|start_(?:response|action)\|>"
)

_SPAN_CLOSERS: Final = {
    "thought": _THOUGHT_CLOSER,
    "kimi": _build_closer(r"<\|close\|>(?:tools|message)\w{0,20}<\|sep\|>"),
}
_DSML_TOKEN: Final = prepare_re(r"/?dsml\|(/?\w+)", re.IGNORECASE)


def is_result_name(name: str) -> bool:
    """Return whether a marker with this name opens an invented tool result."""
    return _RESULT_NAME.search(name) is not None


def is_sure_token(inner: str) -> bool:
    """Return whether the text between the pipes is a token even with spaces around it, or cut off."""
    plain = _TOKEN_SPELLING.sub("_", inner.strip())
    is_known = any(pattern.fullmatch(plain) for pattern, _, _ in _TOKEN_TABLE)
    return is_known or _CALLING_TOKEN.search(plain) is not None


_ROLE_FOLLOWS: Final = frozenset({"im_start", "start_header_id", "header_start", "start_of_role", "start"})


def is_role_expected(inner: str) -> bool:
    return _TOKEN_SPELLING.sub("_", inner.strip()).casefold() in _ROLE_FOLLOWS


def is_unfinished_token(rest: str) -> bool:
    """Return whether a text that ends here ends inside a token."""
    plain = _TOKEN_SPELLING.sub("_", rest.rstrip("|").strip()).casefold()
    if len(plain) < 3:
        return False
    begins = any(word.startswith(plain) or plain.startswith(word) for word in WORDS["token words"])
    return begins or _CALLING_TOKEN.search(plain) is not None


_MAX_CLOSER_LENGTH: Final = 200
_MAX_HEAD_LENGTH: Final = 240
_MAX_GAP_LENGTH: Final = 200
# Text allowed between a marker and the JSON of its call: a name, other markers, an opening fence.
_BODY_HEAD: Final = prepare_re(
    r"(?:[\s\w.\-/:=\"'`,✿]|<\|(?!\s*(?:/|end\b|call\b))(?![^|<>\n]{0,60}[\s_](?:end"
    r"|סוף))[^|<>\n]{1,60}\|>|\[(?:ARGS|CALL_ID)\])*",
    re.IGNORECASE,
)
_BODY_GAP: Final = prepare_re(r"[\s,;]*")
_TURN_ROLE: Final = prepare_re(r"\s{0,4}([^\W\d][\w.]{0,60})")
_ASSISTANT_ROLES: Final = frozenset({"assistant", "model", "bot", "chatbot", "ai"})
TURN_CLOSER: Final = prepare_re(
    r"<\|(?:im_end|eot_id|eom_id|end_of_text|endoftext|end|return|call)\|>"
    r"|(?=<\|(?:im_start|start_header_id|start_of_role|start|assistant)\|>)",
    re.IGNORECASE,
)
_ANALYSIS_CLOSER: Final = prepare_re(r"<\|(?:end|return|call)\|>|(?=<\|(?:start|channel)\|>)", re.IGNORECASE)


class UntilCloser:
    """Hides the text up to and including the closing marker, or to the end."""

    def __init__(self, closer: re.Pattern[str]) -> None:
        self._closer = closer

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        found = self._closer.search(text, at)
        # A closer at the end of the text so far may still become longer.
        if found is not None and (final or found.end() < len(text)):
            return found.end(), True
        if final:
            return len(text), True
        edge = found.start() if found is not None else len(text) - _MAX_CLOSER_LENGTH
        return max(at, edge), False


class MarkedCall:
    """Hides a call after its marker: JSON to its end, or any other text to the closing marker."""

    def __init__(self, closer: re.Pattern[str] | None) -> None:
        self._until = UntilCloser(closer or TOKEN_CLOSER)
        self._brackets: BracketReader | None = None
        self._phase = self._skip_head

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        while True:
            phase = self._phase
            at, done = phase(text, at, final=final)
            if done or self._phase == phase:
                return at, done

    def _skip_head(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        found = _BODY_HEAD.match(text, at, at + _MAX_HEAD_LENGTH)
        stop = found.end() if found is not None else at
        if stop == len(text) and stop < at + _MAX_HEAD_LENGTH and not final:
            return at, False
        if not final and _is_half_marker(text, stop):
            return at, False
        if text[stop : stop + 1] in ("{", "["):
            self._phase = self._skip_value
            return stop, False
        self._phase = self._skip_to_closer
        return at, False

    def _skip_value(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        brackets = self._brackets = self._brackets or BracketReader()
        end = brackets.find_end(text, at, final=final)
        if end is None:
            return brackets.at, final
        self._brackets = None
        if brackets.broken:
            return end, True
        self._phase = self._skip_gap
        return end, False

    def _skip_gap(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        """Continue with further JSON or the end of a fence. Prose ends the block."""
        found = _BODY_GAP.match(text, at, at + _MAX_GAP_LENGTH)
        stop = found.end() if found is not None else at
        seen = text[stop : stop + 3]
        if len(seen) < 3 and stop < at + _MAX_GAP_LENGTH and not final:
            return at, False
        if seen.startswith("{") or re.match(r"\[\s*\{", seen):
            self._phase = self._skip_value
            return stop, False
        return (stop + 3 if seen == "```" else at), True

    def _skip_to_closer(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        return self._until.step(text, at, final=final)


def _is_half_marker(text: str, at: int) -> bool:
    """Return whether an incomplete marker starts here."""
    rest = text[at : at + _MAX_HEAD_LENGTH]
    if rest.startswith("<"):
        return len(rest) < _MAX_HEAD_LENGTH and ">" not in rest
    return rest.startswith("[") and any(word.startswith(rest.upper()) for word in ("[ARGS]", "[CALL_ID]"))


class ConversationTurn:
    """Hides an invented turn of the conversation. Of an assistant turn only the role is hidden."""

    def __init__(self) -> None:
        self._until: UntilCloser | None = None

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        if self._until is None:
            role = _TURN_ROLE.match(text, at)
            if role is None:
                rest = text[at : at + 5]
                return at, final or len(rest) > 4 or bool(rest.strip())
            if role.end() == len(text) and not final:
                return at, False
            if role[1].casefold() in _ASSISTANT_ROLES:
                return role.end(), True
            self._until = UntilCloser(TURN_CLOSER)
        return self._until.step(text, at, final=final)


_CHANNEL_HEADER_END: Final = prepare_re(r"<\|message\|>", re.IGNORECASE)


class ChannelMessage:
    """Handles a message whose header marks it as a call, as reasoning, or as text for the user."""

    def __init__(self) -> None:
        self._mode: HiddenMode | None = None

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        if self._mode is None:
            end = _CHANNEL_HEADER_END.search(text, at, at + _MAX_HEAD_LENGTH)
            if end is None and len(text) - at < _MAX_HEAD_LENGTH and not final:
                return at, False
            header = text[at : end.start()] if end is not None else text[at : at + 40]
            stop = end.end() if end is not None else at
            if re.search(r"\bto=(?!assistant|user|all)", header):
                self._mode = MarkedCall(None)
            elif re.match(r"\s*analysis", header, re.IGNORECASE):
                self._mode = UntilCloser(_ANALYSIS_CLOSER)
            else:
                word = re.match(r"\s*(?:final|commentary)?", header)
                return (stop if end is not None else at + (word.end() if word else 0)), True
            at = stop
        return self._mode.step(text, at, final=final)


# Tags that ordinary markup does not use, with their families.
STRONG_TAGS: Final = {
    name: syntax
    for syntax, _, names in (line.partition(": ") for line in LISTS["strong tags"])
    for name in names.split()
}
_TAG_NAME: Final = prepare_re(r"[\W_]+")

_ANY_CALL_TAG: Final = prepare_re(r"\w{1,30}?((?:tool|function)calls?)")


def normalize_tag_name(written: str) -> str:
    """Return the tag's name as in the tables: `seed:tool_call`, `TOOLCALL` and `tool-call` are the same."""
    plain = _TAG_NAME.sub("", written.rsplit(":", 1)[-1].rsplit("|", 1)[-1]).casefold()
    calls = _ANY_CALL_TAG.fullmatch(plain)
    return calls[1] if calls is not None else plain


def build_tag_closer(written: str) -> re.Pattern[str]:
    """Return the pattern of the closing tag."""
    letters = re.split(r"[\W_]+", written)
    name = r"[\W_]?".join(re.escape(part) for part in letters if part)
    ending = r"|<end_function_call>" if normalize_tag_name(written) == "startfunctioncall" else ""
    return re.compile(rf"<\|?\s*/\s*(?:\|?\w{{1,20}}[|:])?{name}s?\s*\|?>|<{name}\|>{ending}", re.IGNORECASE)


LABEL_KINDS: Final = {
    word: kind
    for kind, _, words in (line.partition(": ") for line in LISTS["labels"])
    for word in words.split(", ")
}
_LABEL_LEAD: Final = r"[ \t>*_#•🔧🛠️→\-]{0,12}"
_ANY_LABEL: Final = "|".join(re.escape(word) for word in sorted(LABEL_KINDS, key=len, reverse=True))
LABEL_PATTERN: Final = prepare_re(
    rf"(?P<lead>{_LABEL_LEAD})(?P<label>{_ANY_LABEL})(?P<number>[ \t]?\d{{1,3}})?"
    rf"[ \t*_`]{{0,4}}[:=][*_]{{0,3}}[ \t]{{0,4}}",
    re.IGNORECASE,
)
_LABEL_DECORATION: Final = prepare_re(_LABEL_LEAD)
MAX_LABEL_LENGTH: Final = 60


def get_label_kind(found: re.Match[str]) -> str:
    return LABEL_KINDS[found["label"].casefold()]


def may_become_label(head: str) -> bool:
    """Return whether a line with this beginning may still start with a label."""
    lead = _LABEL_DECORATION.match(head)
    written = head[lead.end() if lead is not None else 0 :].casefold()
    if len(head) >= MAX_LABEL_LENGTH or "\n" in head:
        return False
    return any(word.startswith(written) or _is_numbered_word(written, word) for word in LABEL_KINDS)


def match_label(text: str, at: int, *, final: bool) -> re.Match[str] | None:
    """Return the label of the line at `at`, or None. Raises `MoreTextNeeded` if there may still be one."""
    found = LABEL_PATTERN.match(text, at)
    if final or (found is not None and found.end() < len(text)):
        return found
    head = text[at : at + MAX_LABEL_LENGTH]
    cut = "\n" not in head and len(head) < MAX_LABEL_LENGTH
    if found is not None or (cut and (not head.strip() or may_become_label(head))):
        raise MoreTextNeeded
    return None


def _is_numbered_word(written: str, word: str) -> bool:
    rest = written[len(word) :]
    return written.startswith(word) and re.fullmatch(r"[ \t]?\d{0,3}[ \t*_`]{0,4}", rest) is not None
