"""What a tool is doing, in words for the person who waits: "Reading notes.md…".

Made from the verb in the tool's name and the one argument that tells most. When a
name has no verb we know, the tool is named: "Running get_sum…".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.words import split_words
from fingerpost.records import Json, JsonObject, ToolCard
from fingerpost.redaction import is_secret_name, scrub

MAX_ACTION_LENGTH: Final = 120
_MAX_VALUE_LENGTH: Final = 60

_PARTICIPLES: Final[Mapping[str, str]] = {
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

_PATH_PARAMETERS: Final = (
    "path",
    "file_path",
    "filepath",
    "filename",
    "file",
    "source",
    "directory",
    "folder",
)
_QUERY_PARAMETERS: Final = (
    "query",
    "q",
    "search_query",
    "search",
    "pattern",
    "question",
    "keywords",
    "term",
    "text",
)
_URL_PARAMETERS: Final = ("url", "uri", "link", "address", "href")
_NAME_PARAMETERS: Final = (
    "title",
    "name",
    "repo",
    "repository",
    "subject",
    "city",
    "location",
    "table",
    "id",
)


def describe_action(card: ToolCard, arguments: JsonObject) -> str:
    """One short line; no secrets, nothing invisible, never longer than `MAX_ACTION_LENGTH`."""
    spoken = split_words(card.name)
    verb = next((word for word in spoken if word in _PARTICIPLES), None)
    said = (
        _compose_action(card, spoken, verb, arguments)
        if verb is not None
        else f"Running {_format_tool_name(card)}"
    )
    said = escape_invisible_except(" ".join(said.split()))
    return (said if len(said) < MAX_ACTION_LENGTH else said[: MAX_ACTION_LENGTH - 2].rstrip()) + "…"


def _compose_action(card: ToolCard, spoken: Sequence[str], verb: str, arguments: JsonObject) -> str:
    doing = _PARTICIPLES[verb]
    query = _find_value(arguments, _QUERY_PARAMETERS)
    if doing in _WITH:
        return f"{doing} with {_find_brand(card, spoken, verb)}"
    if doing in _SEARCHING:
        where = _describe_search(card, doing, spoken)
        return f"{doing}{where} for “{query}”" if query else f"{doing}{where}"
    if path := _find_value(arguments, _PATH_PARAMETERS):
        return f"{doing} {_get_last_segment(path)}"
    if place := _find_value(arguments, _URL_PARAMETERS):
        return f"{doing} {_get_host(place)}"
    if name := _find_value(arguments, _NAME_PARAMETERS) or query:
        thing = " ".join(word for word in spoken[spoken.index(verb) + 1 :])
        return f"{doing} {thing + ' ' if thing else ''}“{name}”"
    thing = " ".join(spoken[spoken.index(verb) + 1 :])
    return f"{doing} {thing}" if thing else f"Running {_format_tool_name(card)}"


def _describe_search(card: ToolCard, doing: str, spoken: Sequence[str]) -> str:
    if doing == "Searching" and card.intelligence.category.value == "web_search":
        return " the web"
    things = [word for word in spoken if word not in _PARTICIPLES and word not in split_words(card.server)]
    if doing == "Searching":
        return f" {' '.join(things)}" if things else ""
    return f" {_clean_value(card.server)}"


def _find_brand(card: ToolCard, spoken: Sequence[str], verb: str) -> str:
    """Whose tool it is: the word before the verb (`perplexity_research`), else the server."""
    before = spoken[: spoken.index(verb)]
    return before[-1].capitalize() if before else _clean_value(card.server).capitalize()


def _format_tool_name(card: ToolCard) -> str:
    annotations = card.definition.get("annotations")
    hinted = annotations.get("title") if isinstance(annotations, Mapping) else None
    title = card.definition.get("title") or hinted
    return _clean_value(title if isinstance(title, str) and title.strip() else card.name)


def _find_value(arguments: JsonObject, names: Sequence[str]) -> str:
    """The first telling argument of these names, short and without secrets."""
    for name in names:
        found = arguments.get(name)
        if is_secret_name(name) or not isinstance(found, str | int) or isinstance(found, bool):
            continue
        if said := _clean_value(found):
            return said
    return ""


def _clean_value(value: Json) -> str:
    # Masked before it is shortened: the beginning of a secret is a secret too.
    said = " ".join(scrub(str(value)[:4_000]).split())
    return said if len(said) <= _MAX_VALUE_LENGTH else said[: _MAX_VALUE_LENGTH - 1].rstrip() + "…"


def _get_last_segment(path: str) -> str:
    return path.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or path


def _get_host(address: str) -> str:
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address
