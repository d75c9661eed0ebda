"""What `find_tools` answers: the few tools that suit, in few words, never more than there is room for.

The answer says the same twice, once for models that read and once for programs,
and both together stay within the budget. Texts of servers are shown in one line
each, with characters nobody can see written out: they are data, not ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from fingerpost.call.arguments.signature import signature
from fingerpost.call.digest import clip, count_tokens, shown
from fingerpost.catalog import Snapshot
from fingerpost.frozen import frozen
from fingerpost.records import Candidate, Json, JsonObject, Narrowing, NeedVerdict, ToolCard

DOUBTFUL_FIT: Final = 0.25  # below it there is probably no suitable tool here at all
NEAREST: Final = 3  # shown nevertheless: the judgement may be wrong
_SIGNATURES: Final = (300, 120)  # characters: at first, and where that does not fit
_LONGEST_DESCRIPTION: Final = 160
_LONGEST_WHY: Final = 90
_USUAL: Final = {
    "words": "its text shares words with the request",
    "meaning": "its meaning is near the request",
    "server": "its server suits the request",
}

CALL_ONE: Final = "Run one with call_tool(name, arguments)."
NONE_SUITS: Final = (
    "Nothing here seems to suit. Try once more in other words or name the service; if that finds nothing "
    "either, say that no tool for this is available."
)
PERHAPS_NONE: Final = "It may need no tool: if you can, answer it yourself."
NONE_NEEDED: Final = "This seems to need no tool: answer it yourself."
NO_TOOLS: Final = "No tools are available here now. Say so, and that the servers may not be running."
NO_TOOLS_YET: Final = "No tools are available here now."
_NAMED_AWAY: Final = 5


@frozen(kw_only=False)
class Found:
    """One tool, in the words it is shown in."""

    name: str
    signature: str
    description: str
    effect: str
    why: str

    @property
    def entry(self) -> JsonObject:
        made: dict[str, Json] = {"name": self.name, "signature": self.signature, "effect": self.effect}
        if self.description:
            made["description"] = self.description
        if self.why:
            made["why"] = self.why
        return made

    @property
    def lines(self) -> str:
        about = "; ".join(part for part in (self.description, self.why) if part)
        return f"- {self.signature} [{self.effect}]" + (f"\n  {about}" if about else "")


def found(
    narrowing: Narrowing, visible: Snapshot, *, limit: int, budget: int, away: Sequence[str] = ()
) -> JsonObject:
    """The result of `find_tools`. Where nothing fits, it says that servers that are `away` might."""
    note, candidates = _judged(narrowing, visible, limit, later(away, budget=budget))
    shown_tools: list[Found] = []
    for candidate in candidates:
        card = visible.get(candidate.tool)
        if card is None:
            continue
        fitting = next(
            (tool for tool in _forms(card, candidate) if _fits(note, [*shown_tools, tool], budget)), None
        )
        if fitting is None:
            break
        shown_tools.append(fitting)
    return _result(note, shown_tools)


def nothing(note: str, *, budget: int) -> JsonObject:
    """The result when there is nothing to rank."""
    return _result(clip(note, budget // 3), [])


def no_tools(hope: str) -> str:
    """What there is to say where there are no tools at all; `hope` is what `later` says."""
    return f"{NO_TOOLS_YET} {hope}" if hope else NO_TOOLS


def later(away: Sequence[str], *, budget: int) -> str:
    """One sentence about servers that are not up, without their names where these take too much room."""
    if not away:
        return ""
    count = "1 server is" if len(away) == 1 else f"{len(away)} servers are"
    more = f" and {len(away) - _NAMED_AWAY} more" if len(away) > _NAMED_AWAY else ""
    names = ", ".join(one_line(name, 40) for name in away[:_NAMED_AWAY])
    told, end = f"{count} still connecting or down", "try again in a moment."
    named = f"{told} ({names}{more}): {end}"
    return named if count_tokens(named) <= budget // 6 else f"{told}: {end}"


def _judged(
    narrowing: Narrowing, visible: Snapshot, limit: int, hope: str
) -> tuple[str, Sequence[Candidate]]:
    shortlist = narrowing.shortlist
    if not visible.cards:
        return no_tools(hope), ()
    offered = shortlist.offered[:limit]
    if shortlist.fit < DOUBTFUL_FIT or not offered:
        nearest = (offered or shortlist.candidates)[: min(limit, NEAREST)]
        needless = narrowing.need.verdict is NeedVerdict.NONE
        note = NONE_NEEDED if needless else f"{NONE_SUITS} {hope}".rstrip()
        return (f"{note} The nearest, for all that:" if nearest else note), nearest
    if narrowing.need.verdict is NeedVerdict.NONE:
        return f"{CALL_ONE} {PERHAPS_NONE}", offered  # something does suit, and tools were asked for
    return CALL_ONE, offered


def _forms(card: ToolCard, candidate: Candidate) -> Sequence[Found]:
    """The tool in full, in short, and by its name alone."""
    effect = card.effect.value.value
    description = one_line(card.description, _LONGEST_DESCRIPTION)
    long, short = (one_line(signature(card, limit=limit), limit) for limit in _SIGNATURES)
    name = card.exposed_name
    return (
        Found(name, long, description, effect, why(candidate)),
        Found(name, short, one_line(description, 60), effect, ""),
        Found(name, f"{name}(…)", "", effect, ""),
    )


def why(candidate: Candidate) -> str:
    """What speaks for the tool, in a few words."""
    telling = [part for part in candidate.parts if part.points > 0]
    special = [part for part in telling if part.note and part.signal not in _USUAL]
    best = max(special or telling, key=lambda part: part.points, default=None)
    if best is None:
        return ""
    return one_line(_USUAL.get(best.signal, best.note), _LONGEST_WHY)


def one_line(text: str, longest: int) -> str:
    """`text` as one line of at most so many characters, with everything in it visible."""
    line = " ".join(shown(text[: longest * 4]).split())
    return line if len(line) <= longest else line[: longest - 1].rsplit(" ", 1)[0].rstrip(" ,.;:") + "…"


def _fits(note: str, tools: Sequence[Found], budget: int) -> bool:
    text, data = _text(note, tools), _data(note, tools)
    return count_tokens(text) + count_tokens(json.dumps(data, ensure_ascii=False)) <= budget


def _text(note: str, tools: Sequence[Found]) -> str:
    return "\n".join([note, *(tool.lines for tool in tools)])


def _data(note: str, tools: Sequence[Found]) -> Mapping[str, Json]:
    return {"tools": [tool.entry for tool in tools], "note": note}


def _result(note: str, tools: Sequence[Found]) -> JsonObject:
    text: JsonObject = {"type": "text", "text": _text(note, tools)}
    return {"content": [text], "structuredContent": _data(note, tools)}
