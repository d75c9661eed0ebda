"""Markers that are words: what is left of a call when its special tokens were already taken away."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.guard.brackets import value_end
from fingerpost.choose.guard.literals import program_calls
from fingerpost.choose.guard.modes import Body, Until
from fingerpost.choose.guard.names import distinctive
from fingerpost.choose.guard.values import ends_line, examine_json, has_call_shape
from fingerpost.choose.guard.verdicts import WAIT, Hide, Place, Show, Verdict

# The longest first: each is looked for as it stands.
LITERALS: Final = (
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
LABELS: Final = (
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
LABEL_WORDS: Final = tuple(label.removesuffix(":") for label in LABELS)
SPOKEN: Final = re.compile(
    rf"{'|'.join(map(re.escape, LITERALS))}|\b(?:{'|'.join(map(re.escape, LABELS))})"
    rf"|(?<!\w)[*_](?=(?:{'|'.join(map(re.escape, LABEL_WORDS))})[*_]?:)",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(r"[a-z ]{0,30}to=([\w.]{2,120})", re.IGNORECASE)
_LONGEST_HEADER: Final = 260
_FLOWER_CLOSER: Final = re.compile(r"✿RESULT✿|✿RETURN✿:?", re.IGNORECASE)
_RETURN: Final = re.compile(r"✿RETURN✿:?", re.IGNORECASE)
_THOUGHT_END: Final = re.compile("◁/think▷")
_DECORATED: Final = re.compile(
    rf"(?:[(\[]|[*_`]{{1,3}})(?:{'|'.join(map(re.escape, LABEL_WORDS))})(?::[*_`]{{0,3}}|[*_`]{{1,3}}:)",
    re.IGNORECASE,
)
_LONGEST_DECORATED: Final = 40
_TO_VALUE: Final = re.compile(r"[ *`]{0,6}(?:\n\s{0,9})?(?P<fence>`{3}\w{0,12}\s{1,9})?(?=[{\[])")
_TO_VALUE_BEGUN: Final = re.compile(r"[ *`]{0,6}(?:\n\s{0,9})?(?:`{1,3}|`{3}\w{0,12}\s{0,9})?")
_TO_PROGRAM: Final = re.compile(r"[ *`]{0,6}(?P<name>[^\W\d][\w.]{0,120})\(")
_TO_PROGRAM_BEGUN: Final = re.compile(r"[ *`]{0,6}(?:[^\W\d][\w.]{0,120})?")
_CLOSING: Final = re.compile(r"[ \t*_`).\]]{0,12}(?=\n|\Z)")  # to the end of the line
_FENCE_END: Final = re.compile(r"\s{0,9}`{3}")


def examine_spoken(place: Place) -> Verdict:
    """What the word at this place begins."""
    found = SPOKEN.match(place.text, place.at)
    word = found[0].casefold() if found is not None else ""
    end = place.at + max(1, len(word))
    if place.about or not word.strip("*_"):
        return Show(end)
    if word.endswith(":"):
        return _labelled(place, end)
    if word[0] == "✿":
        return _flower(place, word, end)
    if word[0] == "◁":
        return (
            Hide(end, "thought", Until(_THOUGHT_END)) if "/" not in word else Hide(end, "thought", alone=True)
        )
    if word == "functools[":
        behind, complete = place.ahead(end, 1)
        if not behind and not complete:
            return WAIT
        return Hide(end - 1, "phi", Body(None)) if behind == "{" else Show(end)
    return _addressed(place, end)


def _labelled(place: Place, end: int) -> Verdict:
    """`Let me see. tool_call: {…}`: the label goes with the value behind it."""
    program = _labelled_program(place, end)
    if program is not None:
        return program
    rest, complete = place.ahead(end, 40)
    if not complete and _TO_VALUE_BEGUN.fullmatch(rest):
        return WAIT
    found = _TO_VALUE.match(rest)
    if found is None:
        return Show(end)
    start = end + found.end()
    verdict = examine_json(replace(place, at=start))
    if isinstance(verdict, Hide) and verdict.mode is None and found["fence"]:
        return _with_fence(place, verdict)
    if isinstance(verdict, Hide) or verdict is WAIT:
        return verdict
    said = re.search(r"tool|function", place.text[place.at : end], re.IGNORECASE)
    if not said or not place.takes_unknown:
        return Show(end)
    length = value_end(place.text[start : place.limit], 0)
    if length is None:
        return Show(end) if place.closed else WAIT
    is_call: bool | None = has_call_shape(place.text[start : start + length], place.request)
    if not is_call and place.text[start] == "{":
        is_call = ends_line(place, start + length)
    if is_call is None:
        return WAIT
    return Hide(start + length, "json") if is_call else Show(end)


def _labelled_program(place: Place, end: int) -> Verdict | None:
    """`Let me see. Tool call: brew_tea(cups=2)`: the rest of the line; None: that is no call."""
    if not place.takes_unknown:
        return None
    rest, complete = place.ahead(end, 140)
    found = _TO_PROGRAM.match(rest)
    if found is None:
        return WAIT if not complete and _TO_PROGRAM_BEGUN.fullmatch(rest) else None
    opening = end + found.end() - 1
    length = value_end(place.text[opening : place.limit], 0)
    if length is None:
        return None if place.closed else WAIT
    to = opening + length
    calls = program_calls(place.text[end + found.start("name") : to])
    if not any(distinctive(call.written) or (call.keyworded and call.arguments) for call in calls):
        return None
    alone = ends_line(place, to)
    if alone is None:
        return WAIT
    closing = _CLOSING.match(place.text, to)
    return Hide(to if closing is None else closing.end(), "marker") if alone else None


def _with_fence(place: Place, value: Hide) -> Verdict:
    """The value with the end of the code block it is in."""
    rest, complete = place.ahead(value.to, 12)
    closing = _FENCE_END.match(rest)
    if closing is None and not complete and not rest.strip("` \t\n"):
        return WAIT
    return value if closing is None else replace(value, to=value.to + closing.end())


def examine_decorated(place: Place) -> Verdict | None:
    """`Let me see. **Tool call**: {…}`: such a label goes like a plain one; None: no such label."""
    if place.about:
        return None
    rest, complete = place.ahead(place.at, _LONGEST_DECORATED)
    found = _DECORATED.match(rest)
    if found is not None:
        verdict = _labelled(place, place.at + found.end())
        return None if isinstance(verdict, Show) else verdict
    written = rest.lstrip("([*_`").casefold()
    begun = (
        word.startswith(written) or (written.startswith(word) and not written[len(word) :].strip("*_`:"))
        for word in LABEL_WORDS
    )
    return WAIT if not complete and any(begun) else None


def _flower(place: Place, word: str, end: int) -> Verdict:
    if "return" in word:
        behind, complete = place.ahead(end, 1)
        if not behind and not complete:
            return WAIT
        return Hide(end + (behind == ":"), "qwen", alone=True)
    closer = _RETURN if "result" in word else _FLOWER_CLOSER
    return Hide(end, "qwen", Until(closer) if "result" in word else Body(closer))


def _addressed(place: Place, end: int) -> Verdict:
    """`to=functions.get_weather json {…}`: an address, at most one line break, and the arguments."""
    rest, complete = place.ahead(place.at, _LONGEST_HEADER)
    brace = rest.find("{")
    header = rest[:brace] if brace >= 0 else rest
    if header.count("\n") > 1 or (brace < 0 and complete):
        return Show(end)
    if brace < 0:
        return WAIT
    address = _ADDRESS.match(header)
    name = address[1] if address is not None else ""
    if place.names.knows(name) or name.lower().startswith(("functions.", "tools.")):
        return Hide(place.at + brace, "harmony", Body(None))
    return Show(end)
