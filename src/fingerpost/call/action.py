"""What a tool is doing, in words for the person who waits: "Reading notes.md…".

Made from the verb in the tool's name and the one argument that tells most. When a
name has no verb we know, the tool is named: "Running get_sum…".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from fingerpost.catalog import visible
from fingerpost.catalog.words import words
from fingerpost.records import Json, JsonObject, ToolCard
from fingerpost.redaction import names_secret, scrub

LONGEST: Final = 120
_LONGEST_VALUE: Final = 60

_DOING: Final[Mapping[str, str]] = {
    "read": "Reading", "open": "Opening", "view": "Reading", "load": "Loading", "download": "Downloading",
    "fetch": "Fetching", "browse": "Opening", "navigate": "Opening", "visit": "Opening", "scrape": "Reading",
    "crawl": "Crawling", "extract": "Extracting", "search": "Searching", "find": "Searching",
    "lookup": "Looking up", "grep": "Searching", "query": "Querying", "research": "Researching",
    "ask": "Asking", "reason": "Thinking", "list": "Listing", "write": "Writing", "create": "Creating",
    "add": "Adding", "update": "Updating", "edit": "Editing", "delete": "Deleting", "remove": "Removing",
    "move": "Moving", "rename": "Renaming", "copy": "Copying", "send": "Sending", "upload": "Uploading",
    "translate": "Translating", "summarize": "Summarising", "summarise": "Summarising",
    "generate": "Generating", "convert": "Converting", "analyze": "Analysing", "analyse": "Analysing",
    "calculate": "Calculating", "check": "Checking", "validate": "Checking", "transcribe": "Transcribing",
    "screenshot": "Taking a screenshot of", "commit": "Committing", "clone": "Cloning",
}  # fmt: skip
_SEARCHING: Final = frozenset({"Searching", "Querying", "Looking up"})
_WITH: Final = frozenset({"Researching", "Thinking", "Asking"})

_PATHS: Final = ("path", "file_path", "filepath", "filename", "file", "source", "directory", "folder")
_QUERIES: Final = ("query", "q", "search_query", "search", "pattern", "question", "keywords", "term", "text")
_PLACES: Final = ("url", "uri", "link", "address", "href")
_NAMES: Final = ("title", "name", "repo", "repository", "subject", "city", "location", "table", "id")


def action_words(card: ToolCard, arguments: JsonObject) -> str:
    """One short line; no secrets, nothing invisible, never longer than `LONGEST`."""
    spoken = words(card.name)
    verb = next((word for word in spoken if word in _DOING), None)
    said = _said(card, spoken, verb, arguments) if verb is not None else f"Running {_tool_name(card)}"
    said = visible(" ".join(said.split()))
    return (said if len(said) < LONGEST else said[: LONGEST - 2].rstrip()) + "…"


def _said(card: ToolCard, spoken: Sequence[str], verb: str, arguments: JsonObject) -> str:
    doing = _DOING[verb]
    query = _value(arguments, _QUERIES)
    if doing in _WITH:
        return f"{doing} with {_brand(card, spoken, verb)}"
    if doing in _SEARCHING:
        where = _searched(card, doing, spoken)
        return f"{doing}{where} for “{query}”" if query else f"{doing}{where}"
    if path := _value(arguments, _PATHS):
        return f"{doing} {_last(path)}"
    if place := _value(arguments, _PLACES):
        return f"{doing} {_host(place)}"
    if name := _value(arguments, _NAMES) or query:
        thing = " ".join(word for word in spoken[spoken.index(verb) + 1 :])
        return f"{doing} {thing + ' ' if thing else ''}“{name}”"
    thing = " ".join(spoken[spoken.index(verb) + 1 :])
    return f"{doing} {thing}" if thing else f"Running {_tool_name(card)}"


def _searched(card: ToolCard, doing: str, spoken: Sequence[str]) -> str:
    if doing == "Searching" and card.intelligence.category.value == "web_search":
        return " the web"
    things = [word for word in spoken if word not in _DOING and word not in words(card.server)]
    if doing == "Searching":
        return f" {' '.join(things)}" if things else ""
    return f" {_clean(card.server)}"


def _brand(card: ToolCard, spoken: Sequence[str], verb: str) -> str:
    """Whose tool it is: the word before the verb (`perplexity_research`), else the server."""
    before = spoken[: spoken.index(verb)]
    return before[-1].capitalize() if before else _clean(card.server).capitalize()


def _tool_name(card: ToolCard) -> str:
    annotations = card.definition.get("annotations")
    hinted = annotations.get("title") if isinstance(annotations, Mapping) else None
    title = card.definition.get("title") or hinted
    return _clean(title if isinstance(title, str) and title.strip() else card.name)


def _value(arguments: JsonObject, names: Sequence[str]) -> str:
    """The first telling argument of these names, short and without secrets."""
    for name in names:
        found = arguments.get(name)
        if names_secret(name) or not isinstance(found, str | int) or isinstance(found, bool):
            continue
        if said := _clean(found):
            return said
    return ""


def _clean(value: Json) -> str:
    # Masked before it is shortened: the beginning of a secret is a secret too.
    said = " ".join(scrub(str(value)[:4_000]).split())
    return said if len(said) <= _LONGEST_VALUE else said[: _LONGEST_VALUE - 1].rstrip() + "…"


def _last(path: str) -> str:
    return path.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or path


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address
