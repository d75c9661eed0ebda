"""What Fingerpost knows about some well-known tools before it has used them.

Written in the same form as a person's overrides, and weaker than those; typical
latency and size also give way to what recorded use teaches. Tools are found by
their own name, `-` and `_` being the same. Fallbacks are names too: they stand
for whichever server offers such a tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.settings.model import ToolOverride

_RESEARCH: Final = ToolOverride(
    match="*",
    category="web_search",
    priority=100,
    hierarchy=("perplexity-ask", "tavily-search"),
    typical_ms=60_000,
    timeout_ms=300_000,
    typical_tokens=4000,
    needs_summary=True,
)
_ASK: Final = ToolOverride(match="*", category="web_search", priority=95, hierarchy=("tavily-search",))
_REASON: Final = ToolOverride(
    match="*",
    category="web_search",
    priority=90,
    hierarchy=("perplexity-ask", "tavily-search"),
    typical_ms=20_000,
    timeout_ms=300_000,
)
_PERPLEXITY_SEARCH: Final = ToolOverride(
    match="*", category="web_search", priority=85, hierarchy=("tavily-search",)
)
_TAVILY_SEARCH: Final = ToolOverride(
    match="*", category="web_search", priority=90, hierarchy=("perplexity-search",), typical_ms=4000
)
# Official figures come from the official source: the general searches only stand in for it.
_DATAGOV: Final = ToolOverride(
    match="*",
    category="data",
    priority=95,
    hierarchy=("perplexity-search", "tavily-search"),
    conflicts=("perplexity-search", "tavily-search"),
    typical_ms=5000,
    structured=True,
    exclusive_intent="official_data",
)
# A file that cannot be read is not to be looked for elsewhere: fail at once.
_FILE: Final = ToolOverride(match="*", category="files", priority=80, hierarchy=())

_KNOWN: Final[Mapping[str, ToolOverride]] = {
    "perplexity_research": _RESEARCH,
    "perplexity_ask": _ASK,
    "perplexity_reason": _REASON,
    "perplexity_search": _PERPLEXITY_SEARCH,
    "tavily_search": _TAVILY_SEARCH,
    "datagov_query": _DATAGOV,
    "read_file": _FILE,
    "write_file": _FILE,
}


def plain_name(name: str) -> str:
    """The form in which names are compared: small letters, `_` for `-`."""
    return name.lower().replace("-", "_")


def shipped(name: str) -> ToolOverride | None:
    """What we know of a tool of this name."""
    return _KNOWN.get(plain_name(name))
