"""Detect tool syntax that occupies whole lines: labels, ReAct scripts, delimiters and code blocks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.syntax_guard.call_parser import (
    BracketReader,
    find_call_block_end,
    find_paragraph_end,
    find_value_end,
    may_begin_block,
    parse_calls,
    parse_json_value,
    parse_program_calls,
)
from fingerpost.choose.syntax_guard.formats import (
    LABEL_PATTERN,
    MAX_LABEL_LENGTH,
    STRONG_TAGS,
    WAIT_FOR_MORE,
    WEAK_TAGS,
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
    may_become_label,
    normalize_tag_name,
)
from fingerpost.choose.syntax_guard.inline_formats import has_call_shape, is_real_tool_call, may_be_call_head
from fingerpost.choose.syntax_guard.vocabulary import (
    is_about_syntax,
    is_announcement,
    is_announcing_call,
    is_distinctive,
    is_namespaced,
    is_tool_like,
)

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
_DELIMITER: Final = re.compile(
    rf"{_OPENING_DECORATION}{_DELIMITER_PHRASE}{_CLOSING_DECORATION}", re.IGNORECASE
)
_DELIMITER_START: Final = re.compile(
    rf"[ \t]{{0,4}}(?:[\[({{<«]{{1,3}}[ \t]?[|!{RULER}#_]{{0,6}}|[{RULER}#_>/|<!]{{1,24}})?[ \t]{{0,2}}"
    rf"(?P<words>[^\W_][\w \t\-:]{{0,100}}|)[ \t]{{0,2}}:?[ \t]?[|!{RULER}#_/<]{{0,24}}[\])}}>»]{{0,3}}\Z"
)
_FIRST_WORDS: Final = (
    "start",
    "begin",
    "open",
    "end",
    "finish",
    "stop",
    "close",
    "closing",
    "סוף",
    "תחילת",
)
_LEADING_DECORATION: Final = re.compile(r"[\W_]{0,30}")
_LATE_PHRASE: Final = re.compile(rf"{_DELIMITER_WORDS}{_SURE_WORDS}", re.IGNORECASE)
_DELIMITER_CLOSER: Final = re.compile(
    rf"[\[({{<«|!{RULER}#_/> \t]{{0,30}}"
    rf"(?:{_END_WORDS}{_OF_TOOL}{_DELIMITER_WORDS}(?:{_SURE_WORDS}|{_WEAK_WORDS}){_LAST_WORD}"
    rf"|{_DELIMITER_WORDS}{_SURE_WORDS}[ \t_:\-]{{1,3}}{_END_WORDS})"
    rf"[ \t]{{0,2}}[|!{RULER}#_/<]{{0,24}}[\])}}>»]{{0,3}}",
    re.IGNORECASE,
)
_DELIMITED_BODY: Final = re.compile(
    r"\s{0,20}(?:`{3}\w{0,12}\s{0,9})?(?:\[\s{0,9})?(?:\{|[^\W\d][\w.]{1,80}\()"
)
_ASIDE_VERBS: Final = ("calling", "invoking", "using", "running", "executing")
_ASIDE: Final = re.compile(
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
    return WAIT_FOR_MORE if may_be_aside and not complete and "\n" not in rest and ")" not in rest else None


def examine_delimiter(position: ScanPosition) -> ScanVerdict | None:
    """Examine words that may start or end a delimited call. Return None if they do not."""
    if position.is_about_syntax:
        return None
    rest, complete = position.look_ahead(position.at, _MAX_DELIMITER_LENGTH)
    if not _may_be_delimiter(rest):
        return None
    found = _DELIMITER.match(rest)
    if found is None or found.end() == len(rest):
        if not complete and _may_become_delimiter(position, rest):
            return WAIT_FOR_MORE
        if found is None:
            return None
    return _classify_delimiter(position, found)


def _may_be_delimiter(rest: str) -> bool:
    """Return whether the words after the decoration can be a delimiter. This fast check rejects most text."""
    start = _LEADING_DECORATION.match(rest)
    words = rest[start.end() :].casefold() if start is not None else ""
    if not words or words.startswith(_FIRST_WORDS) or any(word.startswith(words) for word in _FIRST_WORDS):
        return True
    return any(noun in words for noun in ("tool", "function", "plugin", "mcp", "helper", "call", "כלי"))


def _may_become_delimiter(position: ScanPosition, rest: str) -> bool:
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
    ends_line = not behind.partition("\n")[0].strip()
    if not complete and not behind.strip():
        return WAIT_FOR_MORE
    decorated = _is_decorated(found, ends_line=ends_line)
    if not decorated and not (position.is_line_start and (ends_line or found["open"])):
        return None
    if found["end"] or found["last_end"]:
        left_over = position.follows_hidden or (decorated and position.is_line_start and not found["weak"])
        return HideUntil(end, "marker", is_stray=True) if left_over else None
    if decorated and position.is_line_start and not found["weak"]:
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
    """Examine a delimiter in a sentence or heading: it counts only if a call or its closing delimiter
    follows.
    """
    limit = min(len(position.text), end + _MAX_DELIMITED_LENGTH)
    body = _DELIMITED_BODY.match(position.text, end, limit)
    closer = _DELIMITER_CLOSER.search(position.text, end, limit)
    if body is not None and not found["weak"]:
        return HideUntil(end, "marker", MarkedCall(_DELIMITER_CLOSER))
    if closer is None and not position.final and limit - end < _MAX_DELIMITED_LENGTH:
        return WAIT_FOR_MORE
    if position.final and not position.text[end:].strip():
        return HideUntil(end, "marker")
    if closer is None or (found["weak"] and body is None):
        return None
    return HideUntil(end, "marker", MarkedCall(_DELIMITER_CLOSER))


_MAX_SCRIPT_LINE_LENGTH: Final = 2_000
_MAX_THOUGHT_LENGTH: Final = 3_000
_ACTION_TOOL_NAME: Final = re.compile(r"[`\"'*\[]{0,3}([\w.\-/:]{2,120}?)[`\"'*\]]{0,3}\s*(?:\Z|(?=[(\[{]))")
_WHOLE_LINE: Final = re.compile(r"[`\"'*]{0,3}[\w.\-/:]{2,120}[`\"'*]{0,3}[.]?\s*\Z")
_BRACKETED_ACTION: Final = re.compile(r"[A-Z][A-Za-z_]{1,40}\[[^\[\]\n]{0,400}\]\s*\Z")
_JSON_INPUT: Final = re.compile(r"\s{0,40}(?:`{3,}\w{0,12}\s{0,10})?(?=[{\[])")
_INDENTED_LINE: Final = re.compile(r"\n[ \t]{1,12}[\w\-]{1,60}[ \t]?:")  # a YAML entry
_OPENING_SIGNS: Final = re.compile(r"[{\[(]")
_CALL_LABEL_KINDS: Final = frozenset({"input", "action", "call", "tool"})
_JSON_INPUT_START: Final = re.compile(r"\s{0,40}(?:`{1,9}\w{0,12}\s{0,10})?\Z")


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
            to, done = self._examine_script_line(text, at, final=final)
            if done or (to == at and self._is_new_line):
                return to, done
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
        found = match_label(text, at, final=final)
        head = text[at : at + MAX_LABEL_LENGTH]
        if found is True or (not final and re.fullmatch(r"\s*`{0,2}", head) and "\n" not in head):
            return at, False
        if found is not False and self._value is None and not self._fenced:
            return self._handle_labelled_line(found)
        return self._handle_unlabelled_line(text, at, head)

    def _handle_labelled_line(self, found: re.Match[str]) -> tuple[int, bool]:
        kind = get_label_kind(found)
        if kind == "final":
            return found.end(), True
        self._kind, self._blank, self._had_value = kind, False, False
        self._is_new_line = False
        return found.end(), False

    def _handle_unlabelled_line(self, text: str, at: int, head: str) -> tuple[int, bool]:
        if not head.partition("\n")[0].strip():
            self._blank = True
        elif head.lstrip().startswith("```"):
            if not self._fenced and self._had_value and self._kind != "action":
                return at, True
            self._fenced = not self._fenced
        elif self._has_ended(head):
            return at, True
        self._is_new_line = False
        return at, False

    def _has_ended(self, head: str) -> bool:
        if self._value is not None or self._fenced:
            return False
        if self._kind == "action" and not self._had_value and head.lstrip()[:1] in ("{", "["):
            return False
        return self._blank or self._had_value


def examine_label(position: ScanPosition, found: re.Match[str]) -> ScanVerdict:
    """Examine a line that starts with a label: the start of a script, or ordinary text."""
    stop = position.text.find("\n", found.end(), found.end() + _MAX_SCRIPT_LINE_LENGTH)
    if stop < 0 and not position.final and len(position.text) - found.end() < _MAX_SCRIPT_LINE_LENGTH:
        return WAIT_FOR_MORE
    end = stop if stop >= 0 else min(len(position.text), found.end() + _MAX_SCRIPT_LINE_LENGTH)
    value = position.text[found.end() : end].strip()
    kind = get_label_kind(found)
    if kind == "thought":
        return _examine_thought(position, found, end)
    if position.is_about_syntax or kind in ("final", "observation"):
        return ShowUntil(found.end())
    starts = _starts_script(position, found, kind, value, end)
    if starts is None:
        return WAIT_FOR_MORE
    return (
        HideUntil(position.at, "hebrew" if re.search("[א-ת]", found["label"]) else "react", ReactScript())
        if starts
        else ShowUntil(found.end())
    )


def _starts_script(
    position: ScanPosition, found: re.Match[str], kind: str, value: str, end: int
) -> bool | None:
    """Return whether this line belongs to a call, or None if more text is needed."""
    if kind == "input":
        specific = found["label"].casefold().startswith(("action", "tool", "קלט לפעולה", "קלט הפעולה"))
        return specific and value[:1] in ("{", "[")
    if not value or value[0] in "{[`":
        rest, complete = position.look_ahead(found.end(), 80)
        if (json := _JSON_INPUT.match(rest)) is not None:
            return _starts_with_json(position, found.end() + json.end(), kind, found["label"])
        if _JSON_INPUT_START.match(rest) and not complete:
            return None
    if _names_tool(position, kind, value, found["label"]) or (
        found["number"] and _BRACKETED_ACTION.match(value)
    ):
        return True
    named = _ACTION_TOOL_NAME.match(value)
    if kind not in ("action", "tool", "call") or named is None:
        return False if kind != "action" else _is_followed_by_input(position, end, kind, named=False)
    known = position.names.is_known(named[1]) or (is_distinctive(named[1]) and position.accepts_unknown_tools)
    return _is_followed_by_input(position, end, kind, named=known)


def _label_mentions_tool(label: str) -> bool:
    """Return whether a label mentions a tool. The word "call" alone may be a phone call."""
    return re.search(r"tool|function|mcp|כלי|פונקצי", label, re.IGNORECASE) is not None


def _starts_with_json(position: ScanPosition, at: int, kind: str, label: str) -> bool | None:
    length = find_value_end(position.text[at : position.limit], 0)
    if length is None and not position.is_closed:
        return None
    value = position.text[at : at + length if length is not None else position.limit]
    if position.accepts_unknown_tools and kind in ("call", "tool", "action"):
        is_labelled_call = kind == "call" and _label_mentions_tool(label) and value.startswith("{")
        if is_labelled_call or has_call_shape(value, position.request):
            return True
    return is_real_tool_call(value, position.names) or (
        kind == "action" and "tool_name" in value and "parameters" in value
    )


def _names_tool(position: ScanPosition, kind: str, value: str, label: str) -> bool:
    """Return whether the line contains only a known tool's name, or a call of a known or unknown tool."""
    named = _ACTION_TOOL_NAME.match(value)
    if named is None:
        return False
    known = position.names.is_known(named[1])
    sure = is_tool_like(named[1]) or (
        kind == "call" and _label_mentions_tool(label) and is_distinctive(named[1])
    )
    if not known and not (sure and position.accepts_unknown_tools):
        return False
    if _WHOLE_LINE.match(value):
        return (
            is_distinctive(named[1])
            and kind != "tool"
            and (known or (kind == "call" and _label_mentions_tool(label)))
        )
    behind = value[named.end() :].lstrip()
    if behind.startswith("("):
        calls = parse_program_calls(value.strip("`* "))
        return bool(calls) and all(call.has_keywords or is_distinctive(call.name) for call in calls)
    return behind[:1] in ("{", "[") and behind.rstrip("`* ")[-1:] in ("}", "]", ",", "{")


def _is_followed_by_input(position: ScanPosition, end: int, kind: str, *, named: bool) -> bool | None:
    """Return whether the next non-empty line gives the input of this action, or None if more text is
    needed.
    """
    rest, complete = position.look_ahead(end, 400)
    start = end + len(rest) - len(rest.lstrip())
    if start == end + len(rest):
        return False if complete else None
    found = match_label(position.text, start, final=position.final)
    if found is True:
        return None
    if found is False or get_label_kind(found) != "input":
        return False
    if kind == "action" and found["label"].casefold().startswith(("action", "tool", "קלט ")):
        return True
    behind, complete = position.look_ahead(found.end(), 80)
    if behind.startswith("\n") and not complete:
        return None
    return named and (behind[:1] in ("{", "[", "`", "(") or _INDENTED_LINE.match(behind) is not None)


def _examine_thought(position: ScanPosition, found: re.Match[str], end: int) -> ScanVerdict:
    """Examine a thought. It belongs to a script if an action follows."""
    if position.is_about_syntax:
        return ShowUntil(found.end())
    at, blank = end + 1, False
    limit = position.at + _MAX_THOUGHT_LENGTH
    while at <= min(len(position.text), limit):
        label = match_label(position.text, at, final=position.final)
        if label is True:
            return WAIT_FOR_MORE
        if label is not False:
            return _examine_after_thought(position, found, label)
        stop = position.text.find("\n", at)
        line = position.text[at : stop if stop >= 0 else len(position.text)]
        if line.strip() and blank:
            return ShowUntil(found.end())
        if stop < 0:
            break
        blank = blank or not line.strip()
        at = stop + 1
    return ShowUntil(found.end()) if position.final or len(position.text) > limit else WAIT_FOR_MORE


def _examine_after_thought(position: ScanPosition, found: re.Match[str], label: re.Match[str]) -> ScanVerdict:
    kind = get_label_kind(label)
    if kind == "final":
        return HideUntil(label.end(), "react")
    if kind not in ("action", "input", "call", "tool"):
        return ShowUntil(found.end())
    there = replace(position, at=label.start(), line="")
    verdict = examine_label(there, label)
    if isinstance(verdict, HideUntil):
        return HideUntil(position.at, verdict.syntax, ReactScript())
    return WAIT_FOR_MORE if verdict is WAIT_FOR_MORE else ShowUntil(found.end())


_MAX_LINE_HEAD_LENGTH: Final = 200
_LINE_CALL: Final = re.compile(r"[ \t]{0,8}(?:print\(|await )?[ \t]?(?!print\()([^\W\d][\w.]{1,120})\(")
_LINE_CALL_START: Final = re.compile(r"[ \t]{0,8}(?:print\(|await )?[ \t]?([^\W\d][\w.]{0,120})?\Z")
_CHANNEL_LINE: Final = re.compile(r"[ \t]{0,4}>{3}([\w.\-/]{1,120})\n\s{0,9}(?=\{)")
_CHANNEL_LINE_START: Final = re.compile(r"[ \t]{0,4}>{1,3}(?:[\w.\-/]{1,120}\n?\s{0,9})?\Z")
_NAME_AND_ARGUMENTS: Final = re.compile(
    r"[ \t]{0,8}(?:[@/!]|/(?:tool|call|use) )?"
    r"([^\W\d][\w.\-/]{1,120})[ \t]?\n?[ \t]{0,8}(?=\{)"
)
_NAME_AND_ARGUMENTS_START: Final = re.compile(
    r"[ \t]{0,8}(?:[@/!]|/(?:tool|call|use) |/[a-z]{0,4}\Z)?"
    r"(?:([^\W\d][\w.\-/]{0,120})[ \t]?\n?[ \t]{0,8})?\Z"
)
_NAME_START: Final = r"[a-z]+(?:_\w*|[A-Z]\w*)?"
_LINE_SIGNS: Final = r"(?:[=\-*~+_%@]{2,12}|#{1,6})"
_MAX_RULER_LENGTH: Final = 100
_RULER_LINE: Final = re.compile(
    rf"[ \t]{{0,4}}{_LINE_SIGNS}[ \t]?(?P<end>end(?:[ _]of)?[ _]|סוף "
    r")?(?:(?:begin|start)(?:[ _]of)?[ _]|תחילת )?"
    r"(?:\w{1,20}[ _]){0,3}?"
    r"(?:(?:tool|function)[ _-]?(?:calls?|use|request|invocation|code)|קריאה לכלי|קריאת כלי)"
    r"[ \t]?:?[ \t]?[=\-*#~+_%@]{0,12}[ \t]{0,9}(?=\n|\Z)",
    re.IGNORECASE,
)
_RULER_LINE_START: Final = re.compile(
    rf"[ \t]{{0,4}}(?:[=\-*~+_%@#]{{1,12}}"
    rf"|{_LINE_SIGNS}[ \t]?[\w \t\-]{{0,90}}:?[ \t]?[=\-*#~+_%@]{{0,12}}[ \t]{{0,9}})\Z"
)
_RULER_LINE_CLOSER: Final = re.compile(
    r"\n[ \t]{0,4}[=\-*#~+_%@]{1,12}[ \t]?(?:end|/|סוף)[^\n]{0,60}(?=\n|\Z)", re.IGNORECASE
)


def examine_line(position: ScanPosition) -> ScanVerdict | None:
    """Examine the start of a line. Return None if nothing special starts here."""
    block = _examine_call_block(position)
    if block is not None:
        return block
    rest, complete = position.look_ahead(position.at, _MAX_LINE_HEAD_LENGTH)
    label = match_label(position.text, position.at, final=position.final)
    if not isinstance(label, bool):
        return examine_label(position, label)
    delimiter = examine_delimiter(position)
    if delimiter is not None:
        return delimiter
    drawn = _RULER_LINE.match(rest)
    if drawn is not None and drawn.end() < _MAX_RULER_LENGTH and (drawn.end() < len(rest) or complete):
        return _examine_ruler_line(position, position.at + drawn.end(), ending=bool(drawn["end"]))
    channel = _CHANNEL_LINE.match(rest)
    if channel is not None:
        known = position.names.is_known(channel[1]) and not position.is_about_syntax
        return HideUntil(position.at + channel.end(), "functionary", MarkedCall(None)) if known else None
    named = _NAME_AND_ARGUMENTS.match(rest)
    if named is not None:
        return _examine_named_call(position, named)
    program = _LINE_CALL.match(rest)
    if program is not None:
        return _examine_program_line(position, program)
    if complete:
        return None
    return WAIT_FOR_MORE if label or _may_begin_syntax(rest, position) else None


def _examine_call_block(position: ScanPosition) -> ScanVerdict | None:
    """Examine lines of a session or of YAML. Return None if they are not a call."""
    if not position.accepts_lines or _is_in_session(position.before):
        return None
    rest, complete = position.look_ahead(position.at, 2 * _MAX_LINE_HEAD_LENGTH)
    may_be = may_begin_block(rest)
    if not may_be:
        return WAIT_FOR_MORE if may_be is None and not complete else None
    end = find_paragraph_end(position.text, position.at, position.limit)
    if end is None and not position.is_closed:
        return WAIT_FOR_MORE
    length = find_call_block_end(position.text[position.at : position.limit if end is None else end])
    return HideUntil(position.at + length, "lines") if length else None


def _is_in_session(before: str) -> bool:
    """Return whether the text shown before this line is part of a session that is not a call."""
    return ">>>" in before.rpartition("\n\n")[2]


def _may_begin_syntax(rest: str, position: ScanPosition) -> bool:
    named = _NAME_AND_ARGUMENTS_START.match(rest)
    first = not position.before.strip() and position.accepts_unknown_tools
    invented = first and named is not None and re.fullmatch(_NAME_START, (named[1] or "")) is not None
    if named is not None and (not named[1] or position.names.is_prefix(named[1]) or invented):
        return True
    if "\n" in rest:
        return _CHANNEL_LINE_START.match(rest) is not None
    if _CHANNEL_LINE_START.match(rest) or (_RULER_LINE_START.match(rest) and len(rest) <= _MAX_RULER_LENGTH):
        return True
    program = _LINE_CALL_START.match(rest)
    if program is None:
        return False
    word = program[1] or ""
    if not word:
        return not rest.strip() or rest.endswith(("(", " "))
    if first and re.fullmatch(_NAME_START, word):
        return True
    return position.names.is_prefix(word) or any(prefix.startswith(word) for prefix in ("print", "await"))


def _examine_ruler_line(position: ScanPosition, end: int, *, ending: bool) -> ScanVerdict | None:
    """Examine a line such as `=== TOOL CALL ===`. It may be a heading, so the following text decides."""
    if position.is_about_syntax:
        return None
    if ending:
        return HideUntil(end, "marker", is_stray=True)
    rest, complete = position.look_ahead(end, 300)
    behind = rest.lstrip()
    if not complete:
        return WAIT_FOR_MORE
    behind = re.sub(r"\A`{3}\w{0,12}\s*", "", behind)
    word = re.match(
        r"(?:(?:tool|name|function|כלי|שם)[ \t]?:[ \t]?)?[`\"']?([\w.\-/]{2,120})", behind, re.IGNORECASE
    )
    named = word is not None and position.names.is_known(word[1]) and is_distinctive(word[1])
    if not named and not re.match(r"\{\s{0,9}[\"'](?:name|tool|function|action|tool_name)[\"']", behind):
        return None
    return HideUntil(end, "marker", MarkedCall(_RULER_LINE_CLOSER))


def _examine_named_call(position: ScanPosition, found: re.Match[str]) -> ScanVerdict | None:
    """Examine `get_weather {"city": "Haifa"}`: a tool's name directly followed by its arguments."""
    unknown = not position.before.strip() and is_tool_like(found[1]) and position.accepts_unknown_tools
    if (
        not (is_distinctive(found[1]) and (position.names.is_known_from_start(found[1]) or unknown))
        or position.is_about_syntax
    ):
        return None
    start = position.at + found.end()
    length = find_value_end(position.text[start : position.limit], 0)
    if length is None:
        return None if position.is_closed else WAIT_FOR_MORE
    if not isinstance(parse_json_value(position.text[start : start + length]), dict):
        return None
    return HideUntil(start + length, "marker")


def _examine_program_line(position: ScanPosition, found: re.Match[str]) -> ScanVerdict | None:
    """Examine `get_weather(city="Haifa")` as a separate line."""
    unknown = position.accepts_unknown_tools and (
        is_namespaced(found[1]) or (is_tool_like(found[1]) and not position.before.strip())
    )
    if not (position.names.is_known_from_start(found[1]) or unknown) or position.is_about_syntax:
        return None
    start = position.at + found.start(1)
    wrapped = found[0].lstrip().startswith("print(")
    opening = position.at + found.end() - 1 if not wrapped else position.text.index("(", position.at)
    length = find_value_end(position.text[opening : position.limit], 0)
    if length is None:
        return WAIT_FOR_MORE if not position.is_closed else None
    end = opening + length
    behind, complete = position.look_ahead(end, 40)
    line, newline, _ = behind.partition("\n")
    if line.strip(" \t;"):
        return None
    if not newline and not complete:
        return WAIT_FOR_MORE
    begin = position.text.index("print(", position.at) if wrapped else start
    calls = parse_program_calls(position.text[begin:end])
    if calls and unknown and is_namespaced(calls[0].name):
        return HideUntil(end, "pythonic")
    if not calls or not all(call.has_keywords for call in calls) or not any(call.arguments for call in calls):
        return None
    if not position.names.is_known_from_start(found[1]) and position.text[end : position.limit].strip(
        " \t\n;"
    ):
        return None  # only if it is the whole answer
    if not position.names.is_known_from_start(found[1]) and not position.is_closed:
        return WAIT_FOR_MORE
    return HideUntil(end, "pythonic")


_MAX_SPAN_LENGTH: Final = 1_000
_MAX_INFO_LENGTH: Final = 120
_MAX_CODE_HEAD_LENGTH: Final = 400
_BACKTICK_RUN: Final = re.compile(r"`+|~{3,}")
_TOOL_INFO_STRING: Final = re.compile(
    r"\s*(?:json|xml|python|text)?[\s:_-]*(?:tool[_ -]?(?:calls?|code|use|request|invocation)"
    r"|function[_ -]?calls?|tools?|קריאה לכלי)\s*",
    re.IGNORECASE,
)
_INFO_LANGUAGE: Final = re.compile(r"\A(?:json|xml|python|text|tool_code|tool_call)\s+(?=\S)", re.IGNORECASE)
_CODE_CALL: Final = re.compile(r"\[?\s{0,9}(?:print\(\s{0,9})?(?!print\()([^\W\d][\w.]{0,120})\s?\(")
_CODE_CALL_START: Final = re.compile(r"\[?\s{0,9}(?:print\(\s{0,9})?(?:[^\W\d][\w.]{0,120})?\s?\Z")


def build_fence_closer(fence: str) -> re.Pattern[str]:
    """Return the pattern of the closing fence. The line break before it is optional, because models omit
    it.
    """
    sign = re.escape(fence[0])
    return re.compile(rf"(?:\n[ \t>]{{0,12}}|(?<=[^\s{sign}])){sign}{{{len(fence)},}}[ \t]*(?=\n|\Z)")


def examine_code(position: ScanPosition) -> ScanVerdict:
    """Examine backticks: a code block, inline code, or neither."""
    run = _BACKTICK_RUN.match(position.text, position.at)
    if run is None or (run[0][0] == "~" and not position.is_line_start):
        return ShowUntil(position.at + 1)
    if run.end() == len(position.text) and not position.final:
        return WAIT_FOR_MORE
    end = _find_span_end(position, run)
    if end is None:
        return WAIT_FOR_MORE
    if end > 0:
        return _examine_span(position, run.end(), end, len(run[0]))
    if len(run[0]) >= 3:
        return _examine_code_block(position, run)
    return ShowUntil(run.end())


def _find_span_end(position: ScanPosition, run: re.Match[str]) -> int | None:
    """Return the end of the closing backticks on the same line, 0 if there are none, or None if more text is
    needed.
    """
    if run[0][0] == "~":
        return 0
    stop = position.text.find("\n", run.end(), run.end() + _MAX_SPAN_LENGTH)
    limit = stop if stop >= 0 else min(len(position.text), run.end() + _MAX_SPAN_LENGTH)
    count = len(run[0])
    for found in re.compile(r"`+").finditer(position.text, run.end(), limit):
        if len(found[0]) == count:
            grows = found.end() == len(position.text) and not position.final
            return None if grows else found.end()
    seen_all = stop >= 0 or position.final or limit - run.end() >= _MAX_SPAN_LENGTH
    return 0 if seen_all else None


def _examine_span(position: ScanPosition, start: int, end: int, count: int) -> ScanVerdict:
    """Examine inline code. It is shown unless it is a call that fills the line or was announced in it."""
    announced = (
        position.accepts_lines and is_announcing_call(position.line) and is_announcement(position.line)
    )
    if not (position.is_line_start or announced) or position.is_about_syntax:
        return ShowUntil(end)
    behind, complete = position.look_ahead(end, 40)
    line, newline, _ = behind.partition("\n")
    if line.strip(" \t.") or (len(line) == 40):
        return ShowUntil(end)
    if not newline and not complete:
        return WAIT_FOR_MORE
    content = _INFO_LANGUAGE.sub("", position.text[start : end - count].strip())
    program = parse_program_calls(content) if announced else ()
    called = bool(program) and all(is_distinctive(call.name) for call in program)
    return HideUntil(end, "fenced") if called or _is_code_call(content, position, "") else ShowUntil(end)


def _examine_code_block(position: ScanPosition, run: re.Match[str]) -> ScanVerdict:
    stop = position.text.find("\n", run.end(), run.end() + _MAX_INFO_LENGTH)
    if stop < 0:
        waits = len(position.text) - run.end() < _MAX_INFO_LENGTH and not position.final
        return WAIT_FOR_MORE if waits else ShowCodeBlock(run.end(), run[0])
    info = position.text[run.end() : stop]
    opening = ShowCodeBlock(stop, run[0])
    if position.is_about_syntax:
        return opening
    head = position.text[stop + 1 : stop + 1 + _MAX_CODE_HEAD_LENGTH]
    all_seen = position.final or len(head) == _MAX_CODE_HEAD_LENGTH
    likely = bool(_TOOL_INFO_STRING.fullmatch(info)) or _may_be_code_call(head.lstrip(), position)
    if likely is None:
        return opening if all_seen else WAIT_FOR_MORE
    return _examine_whole_block(position, run, stop, info) if likely else opening


def _may_be_code_call(head: str, position: ScanPosition) -> bool | None:
    """Return whether a block with this beginning can be a call, or None if more text is needed."""
    names = position.names
    if not head:
        return None
    if head[0] in "{[":
        possible = may_be_call_head(head, names, allow_unknown=position.accepts_unknown_tools)
        return possible if possible is not False or head[0] == "{" else _may_be_code_program(head, position)
    if head[0] == "<":
        return _may_be_code_marker(head)
    if LABEL_PATTERN.match(head):
        return True
    lines = may_begin_block(head)
    program = _may_be_code_program(head, position)
    if lines or program:
        return True
    return None if lines is None or program is None or may_become_label(head) else False


def _may_be_code_program(head: str, position: ScanPosition) -> bool | None:
    program = _CODE_CALL.match(head)
    if program is not None:
        name = program[1]
        return (
            position.names.is_known(name)
            or is_namespaced(name)
            or (position.expects_call and is_tool_like(name))
        )
    return None if _CODE_CALL_START.match(head) else False


def _may_be_code_marker(head: str) -> bool | None:
    pipes = re.match(r"<\|([^|<>\n]{1,80})\|>", head)
    if pipes is not None:
        return (
            SyntaxMarker.from_token(pipes[1]).kind is MarkerKind.BLOCK
            or SyntaxMarker.from_token(pipes[1]).kind is MarkerKind.CHANNEL
        )
    if re.match(r"<\|[^<>\n]{0,80}\Z", head):
        return None
    tag = re.match(r"<\s?(\|?[\w:.\-|]{1,80})", head)
    if tag is None:
        return None if len(head) == 1 else head.startswith("<|DSML")
    if tag.end() == len(head):
        return None
    plain = normalize_tag_name(tag[1])
    return (plain in STRONG_TAGS and STRONG_TAGS[plain] != "thought") or plain in WEAK_TAGS


def _examine_whole_block(position: ScanPosition, run: re.Match[str], stop: int, info: str) -> ScanVerdict:
    closing = build_fence_closer(run[0])
    found = closing.search(position.text, stop, position.limit)
    grows = found is not None and found.end() == len(position.text) and not position.final
    if (found is None and not position.is_closed) or grows:
        return WAIT_FOR_MORE
    content = position.text[stop : found.start() if found is not None else position.limit].strip()
    if not _is_code_call(content.removesuffix(run[0]).rstrip(), position, info):
        return ShowCodeBlock(stop, run[0])
    if found is not None:
        return HideUntil(found.end(), "fenced")
    return HideUntil(position.limit, "fenced", None if position.final else UntilCloser(closing))


def _is_code_call(content: str, position: ScanPosition, info: str) -> bool:
    """Return whether all of this code is a call of a known tool, or is in an unmistakable call syntax."""
    names = position.names
    if content[:1] in ("{", "[") and is_real_tool_call(content, names):
        return True
    if (
        content[:1] in ("{", "[")
        and position.accepts_unknown_tools
        and has_call_shape(content, position.request)
    ):
        return True
    program = parse_program_calls(content)
    if program and position.accepts_unknown_tools and all(is_namespaced(call.name) for call in program):
        return True
    if program and position.expects_call and all(is_tool_like(call.name) for call in program):
        return True
    if position.accepts_lines and find_call_block_end(content) == len(content) > 0:
        return True
    if program and any(names.is_known(call.name) for call in program):
        sure = all(call.has_keywords and (call.arguments or is_distinctive(call.name)) for call in program)
        return sure or bool(_TOOL_INFO_STRING.fullmatch(info))
    marked = (
        _may_be_code_marker(content) is True
        if content.startswith("<")
        else bool(LABEL_PATTERN.match(content))
    )
    calls = parse_calls(content, names) if marked or _TOOL_INFO_STRING.fullmatch(info) else ()
    if any(names.is_known(call.name) and (call.arguments is not None or not info) for call in calls):
        return True
    strong = content.startswith("<") and _is_unmistakable_syntax(content)
    return (strong or bool(_TOOL_INFO_STRING.fullmatch(info))) and not is_about_syntax(position.before)


def _is_unmistakable_syntax(content: str) -> bool:
    if content.startswith("<|"):
        return True
    tag = re.match(r"<\s?(\|?[\w:.\-|]{1,80})", content)
    return tag is not None and (
        normalize_tag_name(tag[1]) in STRONG_TAGS or content.lower().startswith("<function=")
    )
