"""Markers that are words: what is left of a call when its special tokens were already taken away."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.guard.brackets import value_end
from fingerpost.choose.guard.modes import Body, Until
from fingerpost.choose.guard.values import examine_json, has_call_shape
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
SPOKEN: Final = re.compile(
    "|".join(map(re.escape, LITERALS)) + rf"|\b(?:{'|'.join(map(re.escape, LABELS))})", re.IGNORECASE
)
_ADDRESS: Final = re.compile(r"[a-z ]{0,30}to=([\w.]{2,120})", re.IGNORECASE)
_LONGEST_HEADER: Final = 260
_FLOWER_CLOSER: Final = re.compile(r"✿RESULT✿|✿RETURN✿:?", re.IGNORECASE)
_RETURN: Final = re.compile(r"✿RETURN✿:?", re.IGNORECASE)
_THOUGHT_END: Final = re.compile("◁/think▷")


def examine_spoken(place: Place) -> Verdict:
    """What the word at this place begins."""
    found = SPOKEN.match(place.text, place.at)
    word = found[0].casefold() if found is not None else ""
    end = place.at + max(1, len(word))
    if place.about or not word:
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
    rest, complete = place.ahead(end, 12)
    if not rest.strip(" *`") and not complete:
        return WAIT
    start = end + len(rest) - len(rest.lstrip(" *`"))
    if place.text[start : start + 1] not in ("{", "["):
        return Show(end)
    verdict = examine_json(replace(place, at=start))
    if isinstance(verdict, Hide) or verdict is WAIT:
        return verdict
    length = value_end(place.text[start : place.limit], 0)
    said = re.search(r"tool|function", place.text[place.at : end], re.IGNORECASE) and place.takes_unknown
    if length is None or not said or not has_call_shape(place.text[start : start + length]):
        return Show(end)
    return Hide(start + length, "json")


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
