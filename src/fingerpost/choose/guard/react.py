"""An agent's script in the answer: thought, action, input, and an observation nobody made."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.guard.brackets import BracketReader, find_value_end
from fingerpost.choose.guard.labels import MAX_LABEL_LENGTH, get_label_kind, match_label
from fingerpost.choose.guard.literals import parse_program_calls
from fingerpost.choose.guard.names import is_distinctive, is_tool_like
from fingerpost.choose.guard.values import has_call_shape, is_real_tool_call
from fingerpost.choose.guard.verdicts import WAIT_FOR_MORE, HideUntil, ScanPosition, ScanVerdict, ShowUntil

_MAX_SCRIPT_LINE_LENGTH: Final = 2_000
_MAX_THOUGHT_LENGTH: Final = 3_000
_ACTION_TOOL_NAME: Final = re.compile(r"[`\"'*\[]{0,3}([\w.\-/:]{2,120}?)[`\"'*\]]{0,3}\s*(?:\Z|(?=[(\[{]))")
_WHOLE_LINE: Final = re.compile(r"[`\"'*]{0,3}[\w.\-/:]{2,120}[`\"'*]{0,3}[.]?\s*\Z")
_BRACKETED_ACTION: Final = re.compile(r"[A-Z][A-Za-z_]{1,40}\[[^\[\]\n]{0,400}\]\s*\Z")
_JSON_INPUT: Final = re.compile(r"\s{0,40}(?:`{3,}\w{0,12}\s{0,10})?(?=[{\[])")
_INDENTED_LINE: Final = re.compile(r"\n[ \t]{1,12}[\w\-]{1,60}[ \t]?:")  # as YAML has it
_OPENING_SIGNS: Final = re.compile(r"[{\[(]")
_CALL_LABEL_KINDS: Final = frozenset({"input", "action", "call", "tool"})
_JSON_INPUT_START: Final = re.compile(r"\s{0,40}(?:`{1,9}\w{0,12}\s{0,10})?\Z")


class ReactScript:
    """The inside of a script: lines with labels and what belongs to them, until ordinary text returns."""

    def __init__(self) -> None:
        self._fresh = True  # at the start of a line
        self._kind = ""
        self._blank = False  # an empty line since the last label
        self._value: BracketReader | None = None  # JSON that is open
        self._unread = ""
        self._had_value = False
        self._fenced = False

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        while at < len(text):
            if not self._fresh:
                at = self._skip_line(text, at)
                continue
            to, done = self._examine_script_line(text, at, final=final)
            if done or (to == at and self._fresh):
                return to, done
            at = to
        return at, final

    def _skip_line(self, text: str, at: int) -> int:
        stop = text.find("\n", at)
        end = len(text) if stop < 0 else stop + 1
        self._track_json(text[at:end])
        self._fresh = stop >= 0
        return end

    def _track_json(self, piece: str) -> None:
        """Whether the JSON of an input is still open behind this piece."""
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
        self._fresh = False
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
        self._fresh = False
        return at, False

    def _has_ended(self, head: str) -> bool:
        if self._value is not None or self._fenced:
            return False
        if self._kind == "action" and not self._had_value and head.lstrip()[:1] in ("{", "["):
            return False
        return self._blank or self._had_value


def examine_label(position: ScanPosition, found: re.Match[str]) -> ScanVerdict:
    """A line that begins with a label: the start of a script, or somebody's minutes."""
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
    """Whether this line is a call's; None: what follows decides."""
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


def _names_tool_label(label: str) -> bool:
    """Whether a label speaks of a tool: a call alone may be one by telephone."""
    return re.search(r"tool|function|mcp|כלי|פונקצי", label, re.IGNORECASE) is not None


def _starts_with_json(position: ScanPosition, at: int, kind: str, label: str) -> bool | None:
    length = find_value_end(position.text[at : position.limit], 0)
    if length is None and not position.is_closed:
        return None
    value = position.text[at : at + length if length is not None else position.limit]
    if position.accepts_unknown_tools and kind in ("call", "tool", "action"):
        named_so = kind == "call" and _names_tool_label(label) and value.startswith("{")
        if named_so or has_call_shape(value, position.request):
            return True
    return is_real_tool_call(value, position.names) or (
        kind == "action" and "tool_name" in value and "parameters" in value
    )


def _names_tool(position: ScanPosition, kind: str, value: str, label: str) -> bool:
    """Whether the line says the name of a real tool and nothing else, or a call of it or of an"
    " unknown one."""
    named = _ACTION_TOOL_NAME.match(value)
    if named is None:
        return False
    known = position.names.is_known(named[1])
    sure = is_tool_like(named[1]) or (
        kind == "call" and _names_tool_label(label) and is_distinctive(named[1])
    )
    if not known and not (sure and position.accepts_unknown_tools):
        return False
    if _WHOLE_LINE.match(value):
        return (
            is_distinctive(named[1])
            and kind != "tool"
            and (known or (kind == "call" and _names_tool_label(label)))
        )
    behind = value[named.end() :].lstrip()
    if behind.startswith("("):
        calls = parse_program_calls(value.strip("`* "))
        return bool(calls) and all(call.has_keywords or is_distinctive(call.name) for call in calls)
    return behind[:1] in ("{", "[") and behind.rstrip("`* ")[-1:] in ("}", "]", ",", "{")


def _is_followed_by_input(position: ScanPosition, end: int, kind: str, *, named: bool) -> bool | None:
    """Whether the next line that is not empty gives the input of this action."""
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
    """A thought is part of a script if an action follows it."""
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
