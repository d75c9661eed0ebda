"""The results of `find_tools` and `describe_tool`, within a token budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from fingerpost.call.arguments.tool_schema import format_signature
from fingerpost.call.digest import clip_to_tokens, count_tokens, escape_invisible
from fingerpost.call.digest.json_trim import trim_json
from fingerpost.catalog import Snapshot
from fingerpost.frozen import frozen
from fingerpost.records import Candidate, Json, JsonObject, Narrowing, NeedVerdict, ToolCard

_DATA_MEMBERS: Final = ("inputSchema", "outputSchema", "annotations")
_DESCRIPTION_SHARE: Final = 3  # at most 1/n of the budget is used for the description


def render_description(card: ToolCard, *, budget: int) -> str:
    """Describe a tool for a model that is about to call it. The description is the server's text."""
    head = (
        f"{escape_invisible(format_signature(card))}\nserver: {escape_invisible(card.server)}; "
        f"effect: {card.effect.value.value}"
    )
    if card.doubt:
        head += f" (not certain: {escape_invisible(card.doubt)}; a person is asked before it runs)"
    title = card.definition.get("title")
    if isinstance(title, str) and title:
        head += f"\ntitle: {clip_to_tokens(escape_invisible(title), 40)}"
    description = escape_invisible(card.description)
    room = budget - count_tokens(head) - 10
    if count_tokens(description) > room // _DESCRIPTION_SHARE:
        data = _render_card(card, room)
        description = clip_to_tokens(description, max(room - count_tokens(data), room // _DESCRIPTION_SHARE))
    data = _render_card(card, room - count_tokens(description))
    return f"{head}\n\n{description or '(its server gives no description)'}\n\n{data}"


def _render_card(card: ToolCard, room: int) -> str:
    data: dict[str, Json] = {
        part: card.definition[part] for part in _DATA_MEMBERS if card.definition.get(part)
    }
    whole = _format_json(data)
    if count_tokens(whole) <= room:
        return whole
    cut, dropped = trim_json(data, max(room - 40, 20), ())
    note = f"\n(cut to fit: {'; '.join(dropped[:3]) or 'its end'})"
    return clip_to_tokens(_format_json(cut), room - count_tokens(note)) + note


def _format_json(data: Json | JsonObject) -> str:
    return escape_invisible(json.dumps(data, ensure_ascii=False, default=dict))


DOUBTFUL_FIT: Final = 0.25  # below this there is probably no suitable tool
MAX_DOUBTFUL_TOOLS: Final = 3  # still shown, because the estimate may be wrong
_SIGNATURE_LENGTHS: Final = (300, 120)  # characters: first choice, then if that does not fit
_MAX_DESCRIPTION_LENGTH: Final = 160
_MAX_REASON_LENGTH: Final = 90
_COMMON_SIGNALS: Final = {
    "words": "its text shares words with the request",
    "meaning": "its meaning is similar to the request",
    "server": "its server fits the request",
}

CALL_ONE_NOTE: Final = "Run one with call_tool(name, arguments)."
NONE_FITS_NOTE: Final = (
    "No tool here seems to fit. Try once more in other words or name the service; if that finds nothing "
    "either, say that no tool for this is available."
)
TOOL_OPTIONAL_NOTE: Final = "It may need no tool: if you can, answer it yourself."
NONE_NEEDED_NOTE: Final = "This seems to need no tool: answer it yourself."
NO_TOOLS_NOTE: Final = "No tools are available here now."
_MAX_SERVERS_NAMED: Final = 5


@frozen(kw_only=False)
class FoundTool:
    """One tool in a search result."""

    name: str
    signature: str
    description: str
    effect: str
    why: str

    @property
    def as_dict(self) -> JsonObject:
        made: dict[str, Json] = {"name": self.name, "signature": self.signature, "effect": self.effect}
        if self.description:
            made["description"] = self.description
        if self.why:
            made["why"] = self.why
        return made

    @property
    def as_text(self) -> str:
        about = "; ".join(part for part in (self.description, self.why) if part)
        return f"- {self.signature} [{self.effect}]" + (f"\n  {about}" if about else "")


def build_search_result(
    narrowing: Narrowing, visible: Snapshot, *, limit: int, budget: int, unavailable: Sequence[str] = ()
) -> JsonObject:
    """Build the result of `find_tools`. If nothing matches, it mentions the `unavailable` servers."""
    note, candidates = _select_candidates(
        narrowing, visible, limit, explain_unavailable(unavailable, budget=budget)
    )
    shown_tools: list[FoundTool] = []
    for candidate in candidates:
        card = visible.get(candidate.tool)
        if card is None:
            continue
        fitting = next(
            (
                tool
                for tool in _build_forms(card, candidate)
                if _fits_budget(note, [*shown_tools, tool], budget)
            ),
            None,
        )
        if fitting is None:
            break
        shown_tools.append(fitting)
    return _build_result(note, shown_tools)


def build_empty_result(note: str, *, budget: int) -> JsonObject:
    """Build the result when there is nothing to rank."""
    return _build_result(clip_to_tokens(note, budget // 3), [])


def explain_unavailable(unavailable: Sequence[str], *, budget: int) -> str:
    """Return one sentence about unavailable servers, without their names if these exceed the budget."""
    if not unavailable:
        return ""
    count = "1 server is" if len(unavailable) == 1 else f"{len(unavailable)} servers are"
    more = (
        f" and {len(unavailable) - _MAX_SERVERS_NAMED} more" if len(unavailable) > _MAX_SERVERS_NAMED else ""
    )
    names = ", ".join(format_one_line(name, 40) for name in unavailable[:_MAX_SERVERS_NAMED])
    status, end = f"{count} still connecting or down", "try again in a moment."
    named = f"{status} ({names}{more}): {end}"
    return named if count_tokens(named) <= budget // 6 else f"{status}: {end}"


def _select_candidates(
    narrowing: Narrowing, visible: Snapshot, limit: int, unavailable_note: str
) -> tuple[str, Sequence[Candidate]]:
    shortlist = narrowing.shortlist
    if not visible.cards:
        return f"{NO_TOOLS_NOTE} {unavailable_note}".rstrip(), ()
    offered = shortlist.offered[:limit]
    if shortlist.fit < DOUBTFUL_FIT or not offered:
        nearest = (offered or shortlist.candidates)[: min(limit, MAX_DOUBTFUL_TOOLS)]
        needless = narrowing.need.verdict is NeedVerdict.NONE
        note = NONE_NEEDED_NOTE if needless else f"{NONE_FITS_NOTE} {unavailable_note}".rstrip()
        return (f"{note} The closest matches:" if nearest else note), nearest
    if narrowing.need.verdict is NeedVerdict.NONE:
        return f"{CALL_ONE_NOTE} {TOOL_OPTIONAL_NOTE}", offered  # at least one tool suits
    return CALL_ONE_NOTE, offered


def _build_forms(card: ToolCard, candidate: Candidate) -> Sequence[FoundTool]:
    """Return the tool in full, in short, and by name only."""
    effect = card.effect.value.value
    description = format_one_line(card.description, _MAX_DESCRIPTION_LENGTH)
    long, short = (
        format_one_line(format_signature(card, limit=limit), limit) for limit in _SIGNATURE_LENGTHS
    )
    name = card.exposed_name
    return (
        FoundTool(name, long, description, effect, explain_match(candidate)),
        FoundTool(name, short, format_one_line(description, 60), effect, ""),
        FoundTool(name, f"{name}(…)", "", effect, ""),
    )


def explain_match(candidate: Candidate) -> str:
    """Return a short reason why the tool matches, or an empty text."""
    positive_parts = [part for part in candidate.parts if part.points > 0]
    special = [part for part in positive_parts if part.note and part.signal not in _COMMON_SIGNALS]
    best = max(special or positive_parts, key=lambda part: part.points, default=None)
    if best is None:
        return ""
    return format_one_line(_COMMON_SIGNALS.get(best.signal, best.note), _MAX_REASON_LENGTH)


def format_one_line(text: str, limit: int) -> str:
    """Return `text` as one line of at most `limit` characters, with invisible characters escaped."""
    line = " ".join(escape_invisible(text[: limit * 4]).split())
    return line if len(line) <= limit else line[: limit - 1].rsplit(" ", 1)[0].rstrip(" ,.;:") + "…"


def _fits_budget(note: str, tools: Sequence[FoundTool], budget: int) -> bool:
    text, data = _format_text(note, tools), _build_structured_content(note, tools)
    return count_tokens(text) + count_tokens(json.dumps(data, ensure_ascii=False)) <= budget


def _format_text(note: str, tools: Sequence[FoundTool]) -> str:
    return "\n".join([note, *(tool.as_text for tool in tools)])


def _build_structured_content(note: str, tools: Sequence[FoundTool]) -> Mapping[str, Json]:
    return {"tools": [tool.as_dict for tool in tools], "note": note}


def _build_result(note: str, tools: Sequence[FoundTool]) -> JsonObject:
    text: JsonObject = {"type": "text", "text": _format_text(note, tools)}
    return {"content": [text], "structuredContent": _build_structured_content(note, tools)}
