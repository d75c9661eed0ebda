"""An agent's script in the answer: thought, action, input, and an observation nobody made."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.guard.brackets import Brackets, value_end
from fingerpost.choose.guard.labels import LONGEST_LABEL, kind_of, label_at
from fingerpost.choose.guard.literals import program_calls
from fingerpost.choose.guard.names import distinctive, is_invented
from fingerpost.choose.guard.values import has_call_shape, names_real_tool
from fingerpost.choose.guard.verdicts import WAIT, Hide, Place, Show, Verdict

_LONGEST_LINE: Final = 2_000
_LONGEST_THOUGHT: Final = 3_000
_NAME: Final = re.compile(r"[`\"'*\[]{0,3}([\w.\-/:]{2,120}?)[`\"'*\]]{0,3}\s*(?:\Z|(?=[(\[{]))")
_WHOLE: Final = re.compile(r"[`\"'*]{0,3}[\w.\-/:]{2,120}[`\"'*]{0,3}[.]?\s*\Z")
_SEARCHLIKE: Final = re.compile(r"[A-Z][A-Za-z_]{1,40}\[[^\[\]\n]{0,400}\]\s*\Z")
_JSON: Final = re.compile(r"\s{0,40}(?:`{3,}\w{0,12}\s{0,10})?(?=[{\[])")
_INDENTED: Final = re.compile(r"\n[ \t]{1,12}[\w\-]{1,60}[ \t]?:")  # as YAML has it
_OPENING: Final = re.compile(r"[{\[(]")
_CALLING: Final = frozenset({"input", "action", "call", "tool"})
_JSON_BEGUN: Final = re.compile(r"\s{0,40}(?:`{1,9}\w{0,12}\s{0,10})?\Z")


class Script:
    """The inside of a script: lines with labels and what belongs to them, until ordinary text returns."""

    def __init__(self) -> None:
        self._fresh = True  # at the start of a line
        self._kind = ""
        self._blank = False  # an empty line since the last label
        self._value: Brackets | None = None  # JSON that is open
        self._unread = ""
        self._had_value = False
        self._fenced = False

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        while at < len(text):
            if not self._fresh:
                at = self._through_line(text, at)
                continue
            to, done = self._line(text, at, final=final)
            if done or (to == at and self._fresh):
                return to, done
            at = to
        return at, final

    def _through_line(self, text: str, at: int) -> int:
        stop = text.find("\n", at)
        end = len(text) if stop < 0 else stop + 1
        self._track(text[at:end])
        self._fresh = stop >= 0
        return end

    def _track(self, piece: str) -> None:
        """Whether the JSON of an input is still open behind this piece."""
        piece, at = self._unread + piece, 0
        self._unread = ""
        while at < len(piece):
            if self._value is None:
                opening = _OPENING.search(piece, at) if self._kind in _CALLING else None
                if opening is None:
                    return
                self._value, at = Brackets(markers=False), opening.start()
            end = self._value.read(piece, at)
            if end is None:
                self._unread = piece[self._value.at :]
                return
            self._had_value, self._value = True, None
            at = max(end, at + 1)

    def _line(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        found = label_at(text, at, final=final)
        head = text[at : at + LONGEST_LABEL]
        if found is True or (not final and re.fullmatch(r"\s*`{0,2}", head) and "\n" not in head):
            return at, False
        if found is not False and self._value is None and not self._fenced:
            return self._labelled(found)
        return self._unlabelled(text, at, head)

    def _labelled(self, found: re.Match[str]) -> tuple[int, bool]:
        kind = kind_of(found)
        if kind == "final":
            return found.end(), True
        self._kind, self._blank, self._had_value = kind, False, False
        self._fresh = False
        return found.end(), False

    def _unlabelled(self, text: str, at: int, head: str) -> tuple[int, bool]:
        if not head.partition("\n")[0].strip():
            self._blank = True
        elif head.lstrip().startswith("```"):
            if not self._fenced and self._had_value and self._kind != "action":
                return at, True
            self._fenced = not self._fenced
        elif self._ended(head):
            return at, True
        self._fresh = False
        return at, False

    def _ended(self, head: str) -> bool:
        if self._value is not None or self._fenced:
            return False
        if self._kind == "action" and not self._had_value and head.lstrip()[:1] in ("{", "["):
            return False
        return self._blank or self._had_value


def examine_label(place: Place, found: re.Match[str]) -> Verdict:
    """A line that begins with a label: the start of a script, or somebody's minutes."""
    stop = place.text.find("\n", found.end(), found.end() + _LONGEST_LINE)
    if stop < 0 and not place.final and len(place.text) - found.end() < _LONGEST_LINE:
        return WAIT
    end = stop if stop >= 0 else min(len(place.text), found.end() + _LONGEST_LINE)
    value = place.text[found.end() : end].strip()
    kind = kind_of(found)
    if kind == "thought":
        return _thought(place, found, end)
    if place.about or kind in ("final", "observation"):
        return Show(found.end())
    starts = _starts(place, found, kind, value, end)
    if starts is None:
        return WAIT
    return (
        Hide(place.at, "hebrew" if re.search("[א-ת]", found["label"]) else "react", Script())
        if starts
        else Show(found.end())
    )


def _starts(place: Place, found: re.Match[str], kind: str, value: str, end: int) -> bool | None:
    """Whether this line is a call's; None: what follows decides."""
    if kind == "input":
        specific = found["label"].casefold().startswith(("action", "tool", "קלט לפעולה", "קלט הפעולה"))
        return specific and value[:1] in ("{", "[")
    if not value or value[0] in "{[`":
        rest, complete = place.ahead(found.end(), 80)
        if (json := _JSON.match(rest)) is not None:
            return _json_starts(place, found.end() + json.end(), kind, found["label"])
        if _JSON_BEGUN.match(rest) and not complete:
            return None
    if _says_tool(place, kind, value, found["label"]) or (found["number"] and _SEARCHLIKE.match(value)):
        return True
    named = _NAME.match(value)
    if kind not in ("action", "tool", "call") or named is None:
        return False if kind != "action" else _input_follows(place, end, kind, named=False)
    known = place.names.knows(named[1]) or (distinctive(named[1]) and place.takes_unknown)
    return _input_follows(place, end, kind, named=known)


def _is_tools(label: str) -> bool:
    """Whether a label speaks of a tool: a call alone may be one by telephone."""
    return re.search(r"tool|function|mcp|כלי|פונקצי", label, re.IGNORECASE) is not None


def _json_starts(place: Place, at: int, kind: str, label: str) -> bool | None:
    length = value_end(place.text[at : place.limit], 0)
    if length is None and not place.closed:
        return None
    value = place.text[at : at + length if length is not None else place.limit]
    if place.takes_unknown and kind in ("call", "tool", "action"):
        named_so = kind == "call" and _is_tools(label) and value.startswith("{")
        if named_so or has_call_shape(value, place.request):
            return True
    return names_real_tool(value, place.names) or (
        kind == "action" and "tool_name" in value and "parameters" in value
    )


def _says_tool(place: Place, kind: str, value: str, label: str) -> bool:
    """Whether the line says the name of a real tool and nothing else, or a call of it or of an"
    " unknown one."""
    named = _NAME.match(value)
    if named is None:
        return False
    known = place.names.knows(named[1])
    sure = is_invented(named[1]) or (kind == "call" and _is_tools(label) and distinctive(named[1]))
    if not known and not (sure and place.takes_unknown):
        return False
    if _WHOLE.match(value):
        return distinctive(named[1]) and kind != "tool" and (known or (kind == "call" and _is_tools(label)))
    behind = value[named.end() :].lstrip()
    if behind.startswith("("):
        calls = program_calls(value.strip("`* "))
        return bool(calls) and all(call.keyworded or distinctive(call.written) for call in calls)
    return behind[:1] in ("{", "[") and behind.rstrip("`* ")[-1:] in ("}", "]", ",", "{")


def _input_follows(place: Place, end: int, kind: str, *, named: bool) -> bool | None:
    """Whether the next line that is not empty gives the input of this action."""
    rest, complete = place.ahead(end, 400)
    start = end + len(rest) - len(rest.lstrip())
    if start == end + len(rest):
        return False if complete else None
    found = label_at(place.text, start, final=place.final)
    if found is True:
        return None
    if found is False or kind_of(found) != "input":
        return False
    if kind == "action" and found["label"].casefold().startswith(("action", "tool", "קלט ")):
        return True
    behind, complete = place.ahead(found.end(), 80)
    if behind.startswith("\n") and not complete:
        return None
    return named and (behind[:1] in ("{", "[", "`", "(") or _INDENTED.match(behind) is not None)


def _thought(place: Place, found: re.Match[str], end: int) -> Verdict:
    """A thought is part of a script if an action follows it."""
    if place.about:
        return Show(found.end())
    at, blank = end + 1, False
    limit = place.at + _LONGEST_THOUGHT
    while at <= min(len(place.text), limit):
        label = label_at(place.text, at, final=place.final)
        if label is True:
            return WAIT
        if label is not False:
            return _after_thought(place, found, label)
        stop = place.text.find("\n", at)
        line = place.text[at : stop if stop >= 0 else len(place.text)]
        if line.strip() and blank:
            return Show(found.end())
        if stop < 0:
            break
        blank = blank or not line.strip()
        at = stop + 1
    return Show(found.end()) if place.final or len(place.text) > limit else WAIT


def _after_thought(place: Place, found: re.Match[str], label: re.Match[str]) -> Verdict:
    kind = kind_of(label)
    if kind == "final":
        return Hide(label.end(), "react")
    if kind not in ("action", "input", "call", "tool"):
        return Show(found.end())
    there = replace(place, at=label.start(), line="")
    verdict = examine_label(there, label)
    if isinstance(verdict, Hide):
        return Hide(place.at, verdict.syntax, Script())
    return WAIT if verdict is WAIT else Show(found.end())
