"""Markers that are words: what is left of a call when its special tokens were already taken away."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.guard.brackets import find_value_end
from fingerpost.choose.guard.literals import parse_program_calls
from fingerpost.choose.guard.modes import MarkedCall, UntilCloser
from fingerpost.choose.guard.names import is_distinctive
from fingerpost.choose.guard.values import examine_json, has_call_shape, is_line_end
from fingerpost.choose.guard.verdicts import WAIT_FOR_MORE, HideUntil, ScanPosition, ScanVerdict, ShowUntil

# The longest first: each is looked for as it stands.
MARKER_LITERALS: Final = (
    "assistantcommentary to=",
    "assistantanalysis to=",
    "assistant to=",
    "commentary to=",
    "analysis to=",
    "to=functions.",
    "functools[",
    "✿function✿",
    "✿args✿",
    "✿result✿",
    "✿return✿",
    "◁think▷",
    "◁/think▷",
)
# Labels of a call in the middle of a line.
INLINE_LABELS: Final = (
    *(f"tool{space}{noun}:" for space in " _-" for noun in ("call", "calls", "use", "request", "invocation")),
    *(f"function{space}{noun}:" for space in " _-" for noun in ("call", "calls")),
    *(
        f"{verb} tool:"
        for verb in ("call", "calling", "use", "using", "run", "running", "executing", "invoking")
    ),
    "tool_code:",
    "mcp call:",
    "api call:",
    "invoke:",
)
INLINE_LABEL_WORDS: Final = tuple(label.removesuffix(":") for label in INLINE_LABELS)
MARKER_WORDS: Final = re.compile(
    rf"{'|'.join(map(re.escape, MARKER_LITERALS))}|\b(?:{'|'.join(map(re.escape, INLINE_LABELS))})"
    rf"|(?<!\w)[*_](?=(?:{'|'.join(map(re.escape, INLINE_LABEL_WORDS))})[*_]?:)",
    re.IGNORECASE,
)
_CALL_ADDRESS: Final = re.compile(r"[a-z ]{0,30}to=([\w.]{2,120})", re.IGNORECASE)
_MAX_HEADER_LENGTH: Final = 260
_FLORET_CLOSER: Final = re.compile(r"✿RESULT✿|✿RETURN✿:?", re.IGNORECASE)
_RETURN_WORD: Final = re.compile(r"✿RETURN✿:?", re.IGNORECASE)
_THOUGHT_END_WORD: Final = re.compile("◁/think▷")
_DECORATED_LABEL: Final = re.compile(
    rf"(?:[(\[]|[*_`]{{1,3}})(?:{'|'.join(map(re.escape, INLINE_LABEL_WORDS))})"
    r"(?::[*_`]{0,3}|[*_`]{1,3}:)",
    re.IGNORECASE,
)
_MAX_DECORATED_LENGTH: Final = 40
_LABEL_TO_VALUE: Final = re.compile(r"[ *`]{0,6}(?:\n\s{0,9})?(?P<fence>`{3}\w{0,12}\s{1,9})?(?=[{\[])")
_LABEL_TO_VALUE_START: Final = re.compile(r"[ *`]{0,6}(?:\n\s{0,9})?(?:`{1,3}|`{3}\w{0,12}\s{0,9})?")
_LABEL_TO_PROGRAM: Final = re.compile(r"[ *`]{0,6}(?P<name>[^\W\d][\w.]{0,120})\(")
_LABEL_TO_PROGRAM_START: Final = re.compile(r"[ *`]{0,6}(?:[^\W\d][\w.]{0,120})?")
_LABEL_END: Final = re.compile(r"[ \t*_`).\]]{0,12}(?=\n|\Z)")  # to the end of the line
_FENCE_END: Final = re.compile(r"\s{0,9}`{3}")


def examine_marker_word(position: ScanPosition) -> ScanVerdict:
    """What the word at this place begins."""
    found = MARKER_WORDS.match(position.text, position.at)
    word = found[0].casefold() if found is not None else ""
    end = position.at + max(1, len(word))
    if position.is_about_syntax or not word.strip("*_"):
        return ShowUntil(end)
    if word.endswith(":"):
        return _examine_inline_label(position, end)
    if word[0] == "✿":
        return _examine_floret(position, word, end)
    if word[0] == "◁":
        return (
            HideUntil(end, "thought", UntilCloser(_THOUGHT_END_WORD))
            if "/" not in word
            else HideUntil(end, "thought", is_stray=True)
        )
    if word == "functools[":
        behind, complete = position.look_ahead(end, 1)
        if not behind and not complete:
            return WAIT_FOR_MORE
        return HideUntil(end - 1, "phi", MarkedCall(None)) if behind == "{" else ShowUntil(end)
    return _examine_address(position, end)


def _examine_inline_label(position: ScanPosition, end: int) -> ScanVerdict:
    """`Let me see. tool_call: {…}`: the label goes with the value behind it."""
    program = _examine_labelled_program(position, end)
    if program is not None:
        return program
    rest, complete = position.look_ahead(end, 40)
    if not complete and _LABEL_TO_VALUE_START.fullmatch(rest):
        return WAIT_FOR_MORE
    found = _LABEL_TO_VALUE.match(rest)
    if found is None:
        return ShowUntil(end)
    start = end + found.end()
    verdict = examine_json(replace(position, at=start))
    if isinstance(verdict, HideUntil) and verdict.mode is None and found["fence"]:
        return _include_fence(position, verdict)
    if isinstance(verdict, HideUntil) or verdict is WAIT_FOR_MORE:
        return verdict
    said = re.search(r"tool|function", position.text[position.at : end], re.IGNORECASE)
    if not said or not position.accepts_unknown_tools:
        return ShowUntil(end)
    length = find_value_end(position.text[start : position.limit], 0)
    if length is None:
        return ShowUntil(end) if position.is_closed else WAIT_FOR_MORE
    is_call: bool | None = has_call_shape(position.text[start : start + length], position.request)
    if not is_call and position.text[start] == "{":
        is_call = is_line_end(position, start + length)
    if is_call is None:
        return WAIT_FOR_MORE
    return HideUntil(start + length, "json") if is_call else ShowUntil(end)


def _examine_labelled_program(position: ScanPosition, end: int) -> ScanVerdict | None:
    """`Let me see. Tool call: brew_tea(cups=2)`: the rest of the line; None: that is no call."""
    if not position.accepts_unknown_tools:
        return None
    rest, complete = position.look_ahead(end, 140)
    found = _LABEL_TO_PROGRAM.match(rest)
    if found is None:
        return WAIT_FOR_MORE if not complete and _LABEL_TO_PROGRAM_START.fullmatch(rest) else None
    opening = end + found.end() - 1
    length = find_value_end(position.text[opening : position.limit], 0)
    if length is None:
        return None if position.is_closed else WAIT_FOR_MORE
    to = opening + length
    calls = parse_program_calls(position.text[end + found.start("name") : to])
    if not any(is_distinctive(call.name) or (call.has_keywords and call.arguments) for call in calls):
        return None
    alone = is_line_end(position, to)
    if alone is None:
        return WAIT_FOR_MORE
    closing = _LABEL_END.match(position.text, to)
    return HideUntil(to if closing is None else closing.end(), "marker") if alone else None


def _include_fence(position: ScanPosition, value: HideUntil) -> ScanVerdict:
    """The value with the end of the code block it is in."""
    rest, complete = position.look_ahead(value.to, 12)
    closing = _FENCE_END.match(rest)
    if closing is None and not complete and not rest.strip("` \t\n"):
        return WAIT_FOR_MORE
    return value if closing is None else replace(value, to=value.to + closing.end())


def examine_decorated_label(position: ScanPosition) -> ScanVerdict | None:
    """`Let me see. **Tool call**: {…}`: such a label goes like a plain one; None: no such label."""
    if position.is_about_syntax:
        return None
    rest, complete = position.look_ahead(position.at, _MAX_DECORATED_LENGTH)
    found = _DECORATED_LABEL.match(rest)
    if found is not None:
        verdict = _examine_inline_label(position, position.at + found.end())
        return None if isinstance(verdict, ShowUntil) else verdict
    written = rest.lstrip("([*_`").casefold()
    begun = (
        word.startswith(written) or (written.startswith(word) and not written[len(word) :].strip("*_`:"))
        for word in INLINE_LABEL_WORDS
    )
    return WAIT_FOR_MORE if not complete and any(begun) else None


def _examine_floret(position: ScanPosition, word: str, end: int) -> ScanVerdict:
    if "return" in word:
        behind, complete = position.look_ahead(end, 1)
        if not behind and not complete:
            return WAIT_FOR_MORE
        return HideUntil(end + (behind == ":"), "qwen", is_stray=True)
    closer = _RETURN_WORD if "result" in word else _FLORET_CLOSER
    return HideUntil(end, "qwen", UntilCloser(closer) if "result" in word else MarkedCall(closer))


def _examine_address(position: ScanPosition, end: int) -> ScanVerdict:
    """`to=functions.get_weather json {…}`: an address, at most one line break, and the arguments."""
    rest, complete = position.look_ahead(position.at, _MAX_HEADER_LENGTH)
    brace = rest.find("{")
    header = rest[:brace] if brace >= 0 else rest
    if header.count("\n") > 1 or (brace < 0 and complete):
        return ShowUntil(end)
    if brace < 0:
        return WAIT_FOR_MORE
    address = _CALL_ADDRESS.match(header)
    name = address[1] if address is not None else ""
    if position.names.is_known(name) or name.lower().startswith(("functions.", "tools.")):
        return HideUntil(position.at + brace, "harmony", MarkedCall(None))
    return ShowUntil(end)
