"""Detect tool syntax that occupies whole lines: labels, ReAct scripts, delimiters and code blocks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.syntax_guard.call_parser import (
    BracketReader,
    MoreTextNeeded,
    find_call_block_end,
    find_paragraph_end,
    may_begin_block,
    parse_calls,
    parse_json_value,
    parse_program_calls,
)
from fingerpost.choose.syntax_guard.formats import (
    LABEL_PATTERN,
    MAX_LABEL_LENGTH,
    STRONG_TAGS,
    HideUntil,
    MarkedCall,
    MarkerKind,
    ScanPosition,
    ScanVerdict,
    ShowCodeBlock,
    ShowUntil,
    SyntaxMarker,
    UntilCloser,
    get_label_kind,
    match_label,
    match_or_wait,
    may_become_label,
    normalize_tag_name,
)
from fingerpost.choose.syntax_guard.inline_formats import has_call_shape, is_real_tool_call, may_be_call_head
from fingerpost.choose.syntax_guard.vocabulary import (
    WORDS,
    is_about_syntax,
    is_announcement,
    is_announcing_call,
    is_distinctive,
    is_namespaced,
    is_tool_like,
)
from fingerpost.regex import prepare_re

RULER: Final = r"\-=*~+%@—–═━─"
_MAX_DELIMITER_LENGTH: Final = 120
_MAX_DELIMITED_LENGTH: Final = 2_000
_DELIMITER_SPACE: Final = r"[ \t_\-]{1,3}"
_DELIMITER_WORDS: Final = rf"(?:[^\W_]{{1,20}}{_DELIMITER_SPACE}){{0,4}}?"
_SURE_WORDS: Final = (
    r"(?:tools?[ _-]{0,3}(?:calls?|calling|use|usage|requests?|invocations?|code|execution"
    r"|inputs?|outputs?|results?"
    r"|responses?|commands?|query|action)"
    r"|functions?[ _-]{0,3}(?:calls?|calling|invocations?|use)"
    r"|(?:plugin|mcp|helper|skill)s?[ _-]{0,3}(?:calls?|use|requests?|invocations?|inputs?"
    r"|outputs?|results?|responses?)"
    r"|(?:api|agent|action)[ _-]{0,3}(?:calls?|invocations?)"
    r"|helper|קריאה לכלי|קריאת כלי|הפעלת כלי|שימוש בכלי)"
)
_WEAK_WORDS: Final = r"(?:lookup|query|search|retrieval|call|invocation|request)"
_LAST_WORD: Final = r"(?![ \t_\-]{0,3}[^\W_])"  # no word follows
_CALL_NOUN: Final = rf"(?:(?P<sure>{_SURE_WORDS}){_LAST_WORD}|(?P<weak>{_WEAK_WORDS}){_LAST_WORD})"
_START_WORDS: Final = r"(?:start|begin|beginning|open|opening|תחילת)"
_END_WORDS: Final = r"(?:end|ending|finish|stop|close|closing|סוף)"
_OF_TOOL: Final = (
    rf"(?:s|ing)?(?:{_DELIMITER_SPACE}of)?{_DELIMITER_SPACE}(?:(?:the|a|an|my|this){_DELIMITER_SPACE})?"
)
_DELIMITER_PHRASE: Final = (
    rf"(?:(?:(?P<start>{_START_WORDS})|(?P<end>{_END_WORDS})){_OF_TOOL}{_DELIMITER_WORDS}{_CALL_NOUN}"
    rf"|{_DELIMITER_WORDS}(?P<noun>{_SURE_WORDS})[ "
    rf"\t_:\-]{{1,3}}(?:(?P<last_start>{_START_WORDS})|(?P<last_end>{_END_WORDS})))"
)
_OPENING_DECORATION: Final = (
    rf"[ \t]{{0,4}}(?P<open>(?P<bracket>[\[({{<«]{{1,3}})[ \t]?[|!{RULER}#_]{{0,6}}"
    rf"|[{RULER}#_>/|<!]{{1,24}})?[ \t]{{0,2}}"
)
_CLOSING_DECORATION: Final = (
    rf"[ \t]{{0,2}}:?[ \t]?(?P<close>[|!{RULER}#_/<]{{0,24}}(?P<last>[\])}}>»]{{0,3}}))"
)
_DELIMITER: Final = prepare_re(
    rf"{_OPENING_DECORATION}{_DELIMITER_PHRASE}{_CLOSING_DECORATION}", re.IGNORECASE
)
_DELIMITER_START: Final = prepare_re(
    rf"[ \t]{{0,4}}(?:[\[({{<«]{{1,3}}[ \t]?[|!{RULER}#_]{{0,6}}|[{RULER}#_>/|<!]{{1,24}})?[ \t]{{0,2}}"
    rf"(?P<words>[^\W_][\w \t\-:]{{0,100}}|)[ \t]{{0,2}}:?[ \t]?[|!{RULER}#_/<]{{0,24}}[\])}}>»]{{0,3}}\Z"
)
_FIRST_WORDS: Final = ("start", "begin", "open", "end", "finish", "stop", "close", "closing", "סוף", "תחילת")
_MAX_FIRST_WORD_LENGTH: Final = max(map(len, _FIRST_WORDS))
_DELIMITER_NOUN: Final = prepare_re("tool|function|plugin|mcp|helper|call|כלי")
_LEADING_DECORATION: Final = prepare_re(r"[\W_]{0,30}")
_LATE_PHRASE: Final = prepare_re(rf"{_DELIMITER_WORDS}{_SURE_WORDS}", re.IGNORECASE)
_DELIMITER_CLOSER: Final = prepare_re(
    rf"[\[({{<«|!{RULER}#_/> \t]{{0,30}}"
    rf"(?:{_END_WORDS}{_OF_TOOL}{_DELIMITER_WORDS}(?:{_SURE_WORDS}|{_WEAK_WORDS}){_LAST_WORD}"
    rf"|{_DELIMITER_WORDS}{_SURE_WORDS}[ \t_:\-]{{1,3}}{_END_WORDS})"
    rf"[ \t]{{0,2}}[|!{RULER}#_/<]{{0,24}}[\])}}>»]{{0,3}}",
    re.IGNORECASE,
)
_DELIMITED_BODY: Final = prepare_re(
    r"\s{0,20}(?:`{3}\w{0,12}\s{0,9})?(?:\[\s{0,9})?(?:\{|[^\W\d][\w.]{1,80}\()"
)
_ASIDE_VERBS: Final = ("calling", "invoking", "using", "running", "executing")
_ASIDE: Final = prepare_re(
    rf"\((?:{'|'.join(_ASIDE_VERBS)})[ ](?:the |a )?(?P<before>(?:tool|function):? )?"
    r"[`'\"]?(?P<name>[\w.\-/]{2,80}?)[`'\"]?(?P<behind> (?:tool|function))?"
    r"(?:[ ][^()\n]{0,80}?)?[ ]?(?:\.{2,3}|…)[ ]?\)",
    re.IGNORECASE,
)


def examine_aside(position: ScanPosition) -> ScanVerdict | None:
    """Examine `Sure! (calling brew_tea...)`, an aside about the tool in use. Return None if there is none."""
    if not position.accepts_unknown_tools:
        return None
    rest, complete = position.look_ahead(position.at, _MAX_DELIMITER_LENGTH)
    found = _ASIDE.match(rest)
    if found is not None:
        named = is_distinctive(found["name"]) or found["before"] or found["behind"]
        return HideUntil(position.at + found.end(), "marker") if named else None
    written = rest[1:].casefold()
    may_be_aside = any(verb.startswith(written) or written.startswith(f"{verb} ") for verb in _ASIDE_VERBS)
    if may_be_aside and not complete and "\n" not in rest and ")" not in rest:
        raise MoreTextNeeded
    return None


def examine_delimiter(position: ScanPosition) -> ScanVerdict | None:
    """Examine words that may start or end a delimited call. Return None if they do not."""
    if position.is_about_syntax:
        return None
    rest, complete = position.look_ahead(position.at, _MAX_DELIMITER_LENGTH)
    if not _may_be_delimiter(rest):
        return None
    found = _DELIMITER.match(rest)
    if (found is None or found.end() == len(rest)) and not complete and _may_become_delimiter(rest):
        raise MoreTextNeeded
    return None if found is None else _classify_delimiter(position, found)


def _may_be_delimiter(rest: str) -> bool:
    """Return whether the words after the decoration can be a delimiter. This fast check rejects most text."""
    start = _LEADING_DECORATION.match(rest)
    words = rest[start.end() :].casefold() if start is not None else ""
    if not words or words.startswith(_FIRST_WORDS):
        return True
    if len(words) < _MAX_FIRST_WORD_LENGTH and any(word.startswith(words) for word in _FIRST_WORDS):
        return True
    return _DELIMITER_NOUN.search(words) is not None


def _may_become_delimiter(rest: str) -> bool:
    start = _DELIMITER_START.match(rest)
    if start is None:
        return False
    words = start["words"].casefold()
    if any(word.startswith(words[: len(word)]) for word in _FIRST_WORDS):
        return True
    return start.start("words") > 0 and _LATE_PHRASE.match(words) is not None


def _classify_delimiter(position: ScanPosition, found: re.Match[str]) -> ScanVerdict | None:
    end = position.at + found.end()
    behind, complete = position.look_ahead(end, _MAX_DELIMITER_LENGTH)
    if not complete and not behind.strip():
        raise MoreTextNeeded
    ends_line = not behind.partition("\n")[0].strip()
    decorated = _is_decorated(found, ends_line=ends_line)
    if not decorated and not (position.is_line_start and (ends_line or found["open"])):
        return None
    is_sure = decorated and position.is_line_start and not found["weak"]
    if found["end"] or found["last_end"]:
        is_left = position.follows_hidden or is_sure
        return HideUntil(end, "marker", is_stray=True) if is_left else None
    if is_sure:
        return HideUntil(end, "marker", MarkedCall(_DELIMITER_CLOSER))
    return _examine_delimited_body(position, found, end)


def _is_decorated(found: re.Match[str], *, ends_line: bool) -> bool:
    """Return whether brackets or rulers surround the words. Sentences and headings have none."""
    if found["bracket"]:
        return bool(found["last"])
    opening = (found["open"] or "").strip()
    if not opening.strip("#"):
        return "#" in found["close"]
    return len(opening) > 1 and (len(found["close"]) > 1 or ends_line)


def _examine_delimited_body(position: ScanPosition, found: re.Match[str], end: int) -> ScanVerdict | None:
    """Examine a delimiter in a sentence or heading: a call or the closing delimiter must follow."""
    limit = end + _MAX_DELIMITED_LENGTH
    body = _DELIMITED_BODY.match(position.text, end, limit)
    if body is None or found["weak"]:
        closer = _DELIMITER_CLOSER.search(position.text, end, limit)
        if closer is None and not position.read(end, _MAX_DELIMITED_LENGTH).strip():
            return HideUntil(end, "marker")
        if closer is None or (found["weak"] and body is None):
            return None
    return HideUntil(end, "marker", MarkedCall(_DELIMITER_CLOSER))


_MAX_SCRIPT_LINE_LENGTH: Final = 2_000
_MAX_THOUGHT_LENGTH: Final = 3_000
_ACTION_TOOL_NAME: Final = prepare_re(r"[`\"'*\[]{0,3}([\w.\-/:]{2,120}?)[`\"'*\]]{0,3}\s*(?:\Z|(?=[(\[{]))")
_WHOLE_LINE: Final = prepare_re(r"[`\"'*]{0,3}[\w.\-/:]{2,120}[`\"'*]{0,3}[.]?\s*\Z")
_BRACKETED_ACTION: Final = prepare_re(r"[A-Z][A-Za-z_]{1,40}\[[^\[\]\n]{0,400}\]\s*\Z")
_JSON_INPUT: Final = prepare_re(r"\s{0,40}(?:`{3,}\w{0,12}\s{0,10})?(?=[{\[])")
_INDENTED_LINE: Final = prepare_re(r"\n[ \t]{1,12}[\w\-]{1,60}[ \t]?:")  # a YAML entry
_OPENING_SIGNS: Final = prepare_re(r"[{\[(]")
_CALL_LABEL_KINDS: Final = frozenset({"input", "action", "call", "tool"})
_JSON_INPUT_START: Final = prepare_re(r"\s{0,40}(?:`{1,9}\w{0,12}\s{0,10})?\Z")


class ReactScript:
    """Hides a ReAct script: labelled lines and their content, until ordinary text follows."""

    def __init__(self) -> None:
        self._is_new_line = True  # at the start of a line
        self._kind = ""
        self._blank = False  # an empty line since the last label
        self._value: BracketReader | None = None  # open JSON value
        self._unread = ""
        self._had_value = False
        self._fenced = False

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        while at < len(text):
            if not self._is_new_line:
                at = self._skip_line(text, at)
                continue
            try:
                to, done = self._examine_script_line(text, at, final=final)
            except MoreTextNeeded:
                return at, False
            if done:
                return to, True
            at = to
        return at, final

    def _skip_line(self, text: str, at: int) -> int:
        stop = text.find("\n", at)
        end = len(text) if stop < 0 else stop + 1
        self._track_json(text[at:end])
        self._is_new_line = stop >= 0
        return end

    def _track_json(self, piece: str) -> None:
        """Track whether the JSON of an input is still open after this piece."""
        piece, at = self._unread + piece, 0
        self._unread = ""
        while at < len(piece):
            if self._value is None:
                opening = _OPENING_SIGNS.search(piece, at) if self._kind in _CALL_LABEL_KINDS else None
                if opening is None:
                    return
                self._value, at = BracketReader(markers=False), opening.start()
            end = self._value.find_end(piece, at)
            if end is None:
                self._unread = piece[self._value.at :]
                return
            self._had_value, self._value = True, None
            at = max(end, at + 1)

    def _examine_script_line(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        """Return where the examined part of the line ends, and whether the script ended before it."""
        found = match_label(text, at, final=final)
        head = text[at : at + MAX_LABEL_LENGTH]
        if not final and re.fullmatch(r"[^\S\n]*`{0,2}", head):
            raise MoreTextNeeded
        if found is None or self._value is not None or self._fenced:
            return at, self._ends_before(head)
        kind = get_label_kind(found)
        if kind == "final":
            return found.end(), True
        self._kind, self._blank, self._had_value = kind, False, False
        self._is_new_line = False
        return found.end(), False

    def _ends_before(self, head: str) -> bool:
        """Return whether the script ends before this line without a label."""
        if not head.partition("\n")[0].strip():
            self._blank = True
        elif head.lstrip().startswith("```"):
            if not self._fenced and self._had_value and self._kind != "action":
                return True
            self._fenced = not self._fenced
        elif self._has_ended(head):
            return True
        self._is_new_line = False
        return False

    def _has_ended(self, head: str) -> bool:
        if self._value is not None or self._fenced:
            return False
        if self._kind == "action" and not self._had_value and head.lstrip()[:1] in ("{", "["):
            return False
        return self._blank or self._had_value


def examine_label(position: ScanPosition, found: re.Match[str]) -> ScanVerdict:
    """Examine a line that starts with a label: the start of a script, or ordinary text."""
    line, complete = position.look_ahead(found.end(), _MAX_SCRIPT_LINE_LENGTH)
    value, newline, _ = line.partition("\n")
    if not newline and not complete:
        raise MoreTextNeeded
    end, kind = found.end() + len(value), get_label_kind(found)
    if kind == "thought":
        return _examine_thought(position, found, end)
    if position.is_about_syntax or kind in ("final", "observation"):
        return ShowUntil(found.end())
    if not _starts_script(position, found, kind, value.strip(), end):
        return ShowUntil(found.end())
    syntax = "hebrew" if re.search("[א-ת]", found["label"]) else "react"
    return HideUntil(position.at, syntax, ReactScript())


def _starts_script(position: ScanPosition, found: re.Match[str], kind: str, value: str, end: int) -> bool:
    """Return whether this line belongs to a call. Raises `MoreTextNeeded` if this is open."""
    if kind == "input":
        specific = found["label"].casefold().startswith(("action", "tool", "קלט לפעולה", "קלט הפעולה"))
        return specific and value[:1] in ("{", "[")
    if not value or value[0] in "{[`":
        rest, complete = position.look_ahead(found.end(), 80)
        json = match_or_wait(_JSON_INPUT, _JSON_INPUT_START, rest, complete=complete)
        if json is not None:
            return _starts_with_json(position, found.end() + json.end(), kind, found["label"])
    if _names_tool(position, kind, value, found["label"]) or (
        found["number"] and _BRACKETED_ACTION.match(value)
    ):
        return True
    named = _ACTION_TOOL_NAME.match(value)
    if kind not in ("action", "tool", "call") or named is None:
        return kind == "action" and _is_followed_by_input(position, end, kind, named=False)
    known = position.names.is_known(named[1]) or (is_distinctive(named[1]) and position.accepts_unknown_tools)
    return _is_followed_by_input(position, end, kind, named=known)


def _label_mentions_tool(label: str) -> bool:
    """Return whether a label mentions a tool. The word "call" alone may be a phone call."""
    return re.search(r"tool|function|mcp|כלי|פונקצי", label, re.IGNORECASE) is not None


def _starts_with_json(position: ScanPosition, at: int, kind: str, label: str) -> bool:
    end = position.find_end(at)
    value = position.text[at : position.limit if end is None else end]
    if position.accepts_unknown_tools:
        is_labelled_call = kind == "call" and _label_mentions_tool(label) and value.startswith("{")
        if is_labelled_call or has_call_shape(value, position.request):
            return True
    is_action = kind == "action" and "tool_name" in value and "parameters" in value
    return is_action or is_real_tool_call(value, position.names)


def _names_tool(position: ScanPosition, kind: str, value: str, label: str) -> bool:
    """Return whether the line contains only a known tool's name, or a call of a known or unknown tool."""
    named = _ACTION_TOOL_NAME.match(value)
    if named is None:
        return False
    known, distinctive = position.names.is_known(named[1]), is_distinctive(named[1])
    is_tool_call = kind == "call" and _label_mentions_tool(label)
    is_sure = is_tool_like(named[1]) or (is_tool_call and distinctive)
    if not known and not (is_sure and position.accepts_unknown_tools):
        return False
    if _WHOLE_LINE.match(value):
        return distinctive and kind != "tool" and (known or is_tool_call)
    behind = value[named.end() :].lstrip()
    if behind.startswith("("):
        calls = parse_program_calls(value.strip("`* "))
        return bool(calls) and all(call.has_keywords or is_distinctive(call.name) for call in calls)
    return behind[:1] in ("{", "[") and behind.rstrip("`* ")[-1:] in ("}", "]", ",", "{")


def _is_followed_by_input(position: ScanPosition, end: int, kind: str, *, named: bool) -> bool:
    """Return whether the next non-empty line is the input of this action. Raises `MoreTextNeeded`."""
    rest, complete = position.look_ahead(end, 400)
    if not rest.strip():
        if not complete:
            raise MoreTextNeeded
        return False
    found = match_label(position.text, end + len(rest) - len(rest.lstrip()), final=position.final)
    if found is None or get_label_kind(found) != "input":
        return False
    if kind == "action" and found["label"].casefold().startswith(("action", "tool", "קלט ")):
        return True
    behind, complete = position.look_ahead(found.end(), 80)
    if behind.startswith("\n") and not complete:
        raise MoreTextNeeded
    return named and (behind[:1] in ("{", "[", "`", "(") or _INDENTED_LINE.match(behind) is not None)


def _examine_thought(position: ScanPosition, found: re.Match[str], end: int) -> ScanVerdict:
    """Examine a thought. It belongs to a script if an action follows."""
    if position.is_about_syntax:
        return ShowUntil(found.end())
    at, blank = end + 1, False
    limit = position.at + _MAX_THOUGHT_LENGTH
    while at <= min(len(position.text), limit):
        label = match_label(position.text, at, final=position.final)
        if label is not None:
            return _examine_after_thought(position, found, label)
        line, newline, _ = position.text[at:].partition("\n")
        if line.strip() and blank:
            return ShowUntil(found.end())
        if not newline:
            break
        blank = blank or not line.strip()
        at += len(line) + 1
    if not position.final and len(position.text) <= limit:
        raise MoreTextNeeded
    return ShowUntil(found.end())


def _examine_after_thought(position: ScanPosition, found: re.Match[str], label: re.Match[str]) -> ScanVerdict:
    kind = get_label_kind(label)
    if kind == "final":
        return HideUntil(label.end(), "react")
    if kind in _CALL_LABEL_KINDS:
        verdict = examine_label(replace(position, at=label.start(), line=""), label)
        if isinstance(verdict, HideUntil):
            return HideUntil(position.at, verdict.syntax, ReactScript())
    return ShowUntil(found.end())


_MAX_LINE_HEAD_LENGTH: Final = 200
_LINE_CALL: Final = prepare_re(r"[ \t]{0,8}(?:print\(|await )?[ \t]?(?!print\()([^\W\d][\w.]{1,120})\(")
_LINE_CALL_START: Final = prepare_re(r"[ \t]{0,8}(?:print\(|await )?[ \t]?([^\W\d][\w.]{0,120})?\Z")
_CHANNEL_LINE: Final = prepare_re(r"[ \t]{0,4}>{3}([\w.\-/]{1,120})\n\s{0,9}(?=\{)")
_CHANNEL_LINE_START: Final = prepare_re(r"[ \t]{0,4}>{1,3}(?:[\w.\-/]{1,120}\n?\s{0,9})?\Z")
_NAME_AND_ARGUMENTS: Final = prepare_re(
    r"[ \t]{0,8}(?:[@/!]|/(?:tool|call|use) )?"
    r"([^\W\d][\w.\-/]{1,120})[ \t]?\n?[ \t]{0,8}(?=\{)"
)
_NAME_AND_ARGUMENTS_START: Final = prepare_re(
    r"[ \t]{0,8}(?:[@/!]|/(?:tool|call|use) |/[a-z]{0,4}\Z)?"
    r"(?:([^\W\d][\w.\-/]{0,120})[ \t]?\n?[ \t]{0,8})?\Z"
)
_NAME_START: Final = prepare_re(r"[a-z]+(?:_\w*|[A-Z]\w*)?")
_LINE_SIGNS: Final = r"(?:[=\-*~+_%@]{2,12}|#{1,6})"
_MAX_RULER_LENGTH: Final = 100
_RULER_LINE: Final = prepare_re(
    rf"[ \t]{{0,4}}{_LINE_SIGNS}[ \t]?(?P<end>end(?:[ _]of)?[ _]|סוף "
    r")?(?:(?:begin|start)(?:[ _]of)?[ _]|תחילת )?"
    r"(?:\w{1,20}[ _]){0,3}?"
    r"(?:(?:tool|function)[ _-]?(?:calls?|use|request|invocation|code)|קריאה לכלי|קריאת כלי)"
    r"[ \t]?:?[ \t]?[=\-*#~+_%@]{0,12}[ \t]{0,9}(?=\n|\Z)",
    re.IGNORECASE,
)
_RULER_LINE_START: Final = prepare_re(
    rf"[ \t]{{0,4}}(?:[=\-*~+_%@#]{{1,12}}"
    rf"|{_LINE_SIGNS}[ \t]?[\w \t\-]{{0,90}}:?[ \t]?[=\-*#~+_%@]{{0,12}}[ \t]{{0,9}})\Z"
)


def examine_line(position: ScanPosition) -> ScanVerdict | None:
    """Examine the start of a line. Return None if nothing special starts here."""
    block = _examine_call_block(position)
    if block is not None:
        return block
    rest, complete = position.look_ahead(position.at, _MAX_LINE_HEAD_LENGTH)
    label = match_label(position.text, position.at, final=position.final)
    if label is not None:
        return examine_label(position, label)
    delimiter = examine_delimiter(position)
    if delimiter is not None:
        return delimiter
    drawn = _RULER_LINE.match(rest)
    if drawn is not None and drawn.end() < _MAX_RULER_LENGTH and (drawn.end() < len(rest) or complete):
        return _examine_ruler_line(position, position.at + drawn.end(), ending=bool(drawn["end"]))
    if channel := _CHANNEL_LINE.match(rest):
        known = position.names.is_known(channel[1]) and not position.is_about_syntax
        return HideUntil(position.at + channel.end(), "functionary", MarkedCall(None)) if known else None
    if named := _NAME_AND_ARGUMENTS.match(rest):
        return _examine_named_call(position, named)
    if program := _LINE_CALL.match(rest):
        return _examine_program_line(position, program)
    if not complete and _may_begin_syntax(rest, position):
        raise MoreTextNeeded
    return None


def _examine_call_block(position: ScanPosition) -> ScanVerdict | None:
    """Examine lines of a session or of YAML. Return None if they are not a call."""
    is_in_session = ">>>" in position.before.rpartition("\n\n")[2]  # of a session that is not a call
    if is_in_session or not position.accepts_lines:
        return None
    rest, complete = position.look_ahead(position.at, 2 * _MAX_LINE_HEAD_LENGTH)
    if not may_begin_block(rest, complete=complete):
        return None
    end = find_paragraph_end(position.text, position.at, position.limit)
    if end is None and not position.is_closed:
        raise MoreTextNeeded
    length = find_call_block_end(position.text[position.at : position.limit if end is None else end])
    return HideUntil(position.at + length, "lines") if length else None


def _may_begin_syntax(rest: str, position: ScanPosition) -> bool:
    named = _NAME_AND_ARGUMENTS_START.match(rest)
    first = not position.before.strip() and position.accepts_unknown_tools
    if named is not None and (not named[1] or _may_begin_name(position, named[1], first=first)):
        return True
    if _CHANNEL_LINE_START.match(rest):
        return True
    if "\n" in rest:
        return False
    if _RULER_LINE_START.match(rest) and len(rest) <= _MAX_RULER_LENGTH:
        return True
    program = _LINE_CALL_START.match(rest)
    if program is None:
        return False
    word = program[1] or ""
    if not word:
        return not rest.strip() or rest.endswith(("(", " "))
    if any(prefix.startswith(word) for prefix in ("print", "await")):
        return True
    return _may_begin_name(position, word, first=first)


def _may_begin_name(position: ScanPosition, word: str, *, first: bool) -> bool:
    """Return whether a tool's name may start with this word. At the start of an answer, it may be unknown."""
    return position.names.is_prefix(word) or (first and _NAME_START.fullmatch(word) is not None)


def _examine_ruler_line(position: ScanPosition, end: int, *, ending: bool) -> ScanVerdict | None:
    """Examine a line such as `=== TOOL CALL ===`. It may be a heading, so the following text decides."""
    if position.is_about_syntax:
        return None
    if ending:
        return HideUntil(end, "marker", is_stray=True)
    behind = re.sub(r"\A`{3}\w{0,12}\s*", "", position.read(end, 300).lstrip())
    word = re.match(
        r"(?:(?:tool|name|function|כלי|שם)[ \t]?:[ \t]?)?[`\"']?([\w.\-/]{2,120})", behind, re.IGNORECASE
    )
    named = word is not None and position.names.is_known(word[1]) and is_distinctive(word[1])
    if not named and not re.match(r"\{\s{0,9}[\"'](?:name|tool|function|action|tool_name)[\"']", behind):
        return None
    return HideUntil(end, "marker", MarkedCall(_DELIMITER_CLOSER))


def _examine_named_call(position: ScanPosition, found: re.Match[str]) -> ScanVerdict | None:
    """Examine `get_weather {"city": "Haifa"}`: a tool's name directly followed by its arguments."""
    unknown = not position.before.strip() and is_tool_like(found[1]) and position.accepts_unknown_tools
    is_tool = is_distinctive(found[1]) and (position.names.is_known_from_start(found[1]) or unknown)
    if not is_tool or position.is_about_syntax:
        return None
    start = position.at + found.end()
    end = position.find_end(start)
    if end is None or not isinstance(parse_json_value(position.text[start:end]), dict):
        return None
    return HideUntil(end, "marker")


def _examine_program_line(position: ScanPosition, found: re.Match[str]) -> ScanVerdict | None:
    """Examine `get_weather(city="Haifa")` as a separate line."""
    known, alone = position.names.is_known_from_start(found[1]), not position.before.strip()
    looks_like_tool = is_namespaced(found[1]) or (is_tool_like(found[1]) and alone)
    unknown = position.accepts_unknown_tools and looks_like_tool
    if not (known or unknown) or position.is_about_syntax:
        return None
    is_printed = found[0].lstrip().startswith("print(")
    begin = position.text.index("print(", position.at) if is_printed else position.at + found.start(1)
    end = position.find_end(position.text.index("(", begin))
    if end is None or not position.ends_line(end, " \t;"):
        return None
    calls = parse_program_calls(position.text[begin:end])
    if calls and unknown and is_namespaced(calls[0].name):
        return HideUntil(end, "pythonic")
    if not calls or not all(call.has_keywords for call in calls) or not any(call.arguments for call in calls):
        return None
    if not known:  # only if it is the whole answer
        if position.text[end : position.limit].strip(" \t\n;"):
            return None
        if not position.is_closed:
            raise MoreTextNeeded
    return HideUntil(end, "pythonic")


_MAX_SPAN_LENGTH: Final = 1_000
_MAX_INFO_LENGTH: Final = 120
_MAX_CODE_HEAD_LENGTH: Final = 400
_BACKTICK_RUN: Final = prepare_re(r"`+|~{3,}")
_TOOL_INFO_STRING: Final = prepare_re(
    r"\s*+(?:json|xml|python|text)?[\s:_-]*+(?:tool[_ -]?(?:calls?|code|use|request|invocation)"
    r"|function[_ -]?calls?|tools?|קריאה לכלי)\s*",
    re.IGNORECASE,
)
_INFO_LANGUAGE: Final = prepare_re(r"\A(?:json|xml|python|text|tool_code|tool_call)\s+(?=\S)", re.IGNORECASE)
_CODE_CALL: Final = prepare_re(r"\[?\s{0,9}(?:print\(\s{0,9})?(?!print\()([^\W\d][\w.]{0,120})\s?\(")
_CODE_TOKEN: Final = prepare_re(r"<\|([^|<>\n]{1,80})\|>")
_CODE_TOKEN_START: Final = prepare_re(r"<\|[^<>\n]{0,80}\Z")
_CODE_TAG: Final = prepare_re(r"<\s?(\|?[\w:.\-|]{1,80})")
_BACKTICKS: Final = prepare_re(r"`+")
_CODE_CALL_START: Final = prepare_re(r"\[?\s{0,9}(?:print\(\s{0,9})?(?:[^\W\d][\w.]{0,120})?\s?\Z")


def build_fence_closer(fence: str) -> re.Pattern[str]:
    """Return the pattern of the closing fence. Models omit the line break before it."""
    sign = re.escape(fence[0])
    return re.compile(rf"(?:\n[ \t>]{{0,12}}|(?<=[^\s{sign}])){sign}{{{len(fence)},}}[ \t]*(?=\n|\Z)")


def examine_code(position: ScanPosition) -> ScanVerdict:
    """Examine backticks: a code block, inline code, or neither."""
    run = _BACKTICK_RUN.match(position.text, position.at)
    if run is None or (run[0][0] == "~" and not position.is_line_start):
        return ShowUntil(position.at + 1)
    position.read(run.end(), 1)
    end = None if run[0][0] == "~" else _find_span_end(position, run)
    if end is not None:
        return _examine_span(position, run.end(), end, len(run[0]))
    return _examine_code_block(position, run) if len(run[0]) >= 3 else ShowUntil(run.end())


def _find_span_end(position: ScanPosition, run: re.Match[str]) -> int | None:
    """Return the end of the closing backticks on the same line, or None. Raises `MoreTextNeeded`."""
    text, complete = position.look_ahead(run.end(), _MAX_SPAN_LENGTH)
    line, newline, _ = text.partition("\n")
    for found in _BACKTICKS.finditer(line):
        if len(found[0]) == len(run[0]):
            position.read(run.end() + found.end(), 1)
            return run.end() + found.end()
    if not newline and not complete:
        raise MoreTextNeeded
    return None


def _examine_span(position: ScanPosition, start: int, end: int, count: int) -> ScanVerdict:
    """Examine inline code. It is shown unless it is a call that fills the line or was announced in it."""
    line = position.line
    announced = position.accepts_lines and is_announcing_call(line) and is_announcement(line)
    is_alone = position.is_line_start or announced
    if position.is_about_syntax or not is_alone or not position.ends_line(end, " \t."):
        return ShowUntil(end)
    content = _INFO_LANGUAGE.sub("", position.text[start : end - count].strip())
    program = parse_program_calls(content) if announced else ()
    called = bool(program) and all(is_distinctive(call.name) for call in program)
    return HideUntil(end, "fenced") if called or _is_code_call(content, position, "") else ShowUntil(end)


def _examine_code_block(position: ScanPosition, run: re.Match[str]) -> ScanVerdict:
    head, complete = position.look_ahead(run.end(), _MAX_INFO_LENGTH)
    info, newline, _ = head.partition("\n")
    if not newline:
        if not complete:
            raise MoreTextNeeded
        return ShowCodeBlock(run.end(), run[0])
    stop = run.end() + len(info)
    head, complete = position.look_ahead(stop + 1, _MAX_CODE_HEAD_LENGTH)
    is_likely = not position.is_about_syntax and (
        _TOOL_INFO_STRING.fullmatch(info) or _may_be_code_call(head.lstrip(), position, complete=complete)
    )
    return _examine_whole_block(position, run, stop, info) if is_likely else ShowCodeBlock(stop, run[0])


def _may_be_code_call(head: str, position: ScanPosition, *, complete: bool) -> bool:
    """Return whether a block with this beginning can be a call. Raises `MoreTextNeeded` if this is open."""
    if not head and not complete:
        raise MoreTextNeeded
    if head[:1] in ("{", "["):
        unknown = position.accepts_unknown_tools
        if may_be_call_head(head, position.names, allow_unknown=unknown, complete=complete):
            return True
        return head[0] == "[" and _may_be_code_program(head, position, complete=complete)
    if head[:1] == "<":
        return _may_be_code_marker(head, complete=complete)
    if LABEL_PATTERN.match(head):
        return True
    if not complete and may_become_label(head):
        raise MoreTextNeeded
    return may_begin_block(head, complete=complete) or _may_be_code_program(head, position, complete=complete)


def _may_be_code_program(head: str, position: ScanPosition, *, complete: bool) -> bool:
    program = match_or_wait(_CODE_CALL, _CODE_CALL_START, head, complete=complete)
    if program is None:
        return False
    name = program[1]
    is_sure = position.names.is_known(name) or is_namespaced(name)
    return is_sure or (position.expects_call and is_tool_like(name))


def _may_be_code_marker(head: str, *, complete: bool) -> bool:
    pipes = match_or_wait(_CODE_TOKEN, _CODE_TOKEN_START, head, complete=complete)
    if pipes is not None:
        return SyntaxMarker.from_token(pipes[1]).kind in (MarkerKind.BLOCK, MarkerKind.CHANNEL)
    tag = _CODE_TAG.match(head)
    if not complete and (len(head) == 1 if tag is None else tag.end() == len(head)):
        raise MoreTextNeeded
    if tag is None or tag.end() == len(head):
        return head.startswith("<|DSML")
    plain = normalize_tag_name(tag[1])
    return STRONG_TAGS.get(plain, "thought") != "thought" or plain in WORDS["weak tags"]


def _examine_whole_block(position: ScanPosition, run: re.Match[str], stop: int, info: str) -> ScanVerdict:
    closing = build_fence_closer(run[0])
    found = closing.search(position.text, stop, position.limit)
    grows = found is not None and found.end() == len(position.text) and not position.final
    if (found is None and not position.is_closed) or grows:
        raise MoreTextNeeded
    content = position.text[stop : found.start() if found is not None else position.limit].strip()
    if not _is_code_call(content.removesuffix(run[0]).rstrip(), position, info):
        return ShowCodeBlock(stop, run[0])
    if found is not None:
        return HideUntil(found.end(), "fenced")
    return HideUntil(position.limit, "fenced", None if position.final else UntilCloser(closing))


def _is_code_call(content: str, position: ScanPosition, info: str) -> bool:
    """Return whether all of this code is a call of a known tool, or is in an unmistakable call syntax."""
    names, unknown = position.names, position.accepts_unknown_tools
    if content[:1] in ("{", "[") and (
        is_real_tool_call(content, names) or (unknown and has_call_shape(content, position.request))
    ):
        return True
    program = parse_program_calls(content)
    if program and unknown and all(is_namespaced(call.name) for call in program):
        return True
    if program and position.expects_call and all(is_tool_like(call.name) for call in program):
        return True
    if position.accepts_lines and find_call_block_end(content) == len(content) > 0:
        return True
    is_tool_info, is_tag = bool(_TOOL_INFO_STRING.fullmatch(info)), content.startswith("<")
    if program and any(names.is_known(call.name) for call in program):
        sure = all(call.has_keywords and (call.arguments or is_distinctive(call.name)) for call in program)
        return sure or is_tool_info
    is_marked = _may_be_code_marker(content, complete=True) if is_tag else bool(LABEL_PATTERN.match(content))
    calls = parse_calls(content, names) if is_marked or is_tool_info else ()
    if any(names.is_known(call.name) and (call.arguments is not None or not info) for call in calls):
        return True
    return (is_tool_info or _is_unmistakable_syntax(content)) and not is_about_syntax(position.before)


def _is_unmistakable_syntax(content: str) -> bool:
    tag = _CODE_TAG.match(content)
    is_strong = tag is not None and normalize_tag_name(tag[1]) in STRONG_TAGS
    return is_strong or content.lower().startswith(("<|", "<function="))
