"""Better than cutting: for some tools, what a person would note down of a long result.

A summary is tried only when the result does not fit. Each one is a pure function
from the result to a head, which stays, and a body, which is then cut like any
text. It answers None when the result is not what it knows, and cutting goes on as
usual. Tools are found by the words of their names and by their category.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, cast

from fingerpost.catalog.words import split_words
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, ToolCard

_MAX_KINDS: Final = 12
_SNIPPET_LENGTH: Final = 240
_MIN_SNIPPET_LENGTH: Final = 20
_HIT_TOKENS: Final = 90  # characters of a title with its address
_MAX_TEXT_LENGTH: Final = 4_000_000
_MAX_ENTRIES: Final = 20_000


@frozen
class ResultSummary:
    """What to say first, what to say as far as there is room, and what that leaves out."""

    head: str
    body: str
    dropped: str


Summariser = Callable[[str, Json, int], ResultSummary | None]


def summarise_result(card: ToolCard, text: str, value: Json, room: int) -> ResultSummary | None:
    """The summary for this tool's kind of result, if there is one, meant for `room` tokens."""
    if len(text) > _MAX_TEXT_LENGTH:
        return None
    spoken = frozenset(split_words(card.name))
    category = card.intelligence.category.value
    for fits, summariser in _REGISTRY:
        if fits(spoken, category) and (found := summariser(text, value, room)) is not None:
            return found
    return None


# -- search results ---------------------------------------------------------------------------------

_TITLE_KEYS: Final = ("title", "name", "headline")
_ADDRESS_KEYS: Final = ("url", "link", "href", "uri")
_SNIPPET_KEYS: Final = ("snippet", "description", "summary", "content", "text", "body")


def summarise_search_results(text: str, value: Json, room: int) -> ResultSummary | None:
    """Search results: title, address and the beginning of the snippet, numbered."""
    del text
    items = _find_records(value)
    if not items:
        return None
    snippet = min(
        _SNIPPET_LENGTH, max(0, room * 3 // len(items) - _HIT_TOKENS)
    )  # all the titles, before long snippets
    hits = [hit for item in items if (hit := _format_hit(item, snippet)) is not None]
    if len(hits) < 2 or len(hits) < 0.7 * len(items):
        return None
    body = "\n".join(f"{number}. {hit}" for number, hit in enumerate(hits, 1))
    return ResultSummary(
        head=f"{len(hits):,} results", body=body, dropped="all but title, address and beginning of each"
    )


def _format_hit(item: JsonObject, max_length: int) -> str | None:
    title, address = _get_first_text(item, _TITLE_KEYS), _get_first_text(item, _ADDRESS_KEYS)
    if not title or not address:
        return None
    snippet = _get_first_text(item, _SNIPPET_KEYS)
    short = snippet if len(snippet) <= max_length else snippet[:max_length].rstrip() + "…"
    return f"{title[:200]} <{address[:300]}>" + (f" {short}" if max_length >= _MIN_SNIPPET_LENGTH else "")


def _get_first_text(item: JsonObject, names: Sequence[str]) -> str:
    for name in names:
        if isinstance(found := item.get(name), str) and found.strip():
            return " ".join(found[:2_000].split())
    return ""


def _find_records(value: Json) -> list[JsonObject]:
    """The list of objects in a result: the result itself, or the longest list under one of its keys."""
    lists = [value]
    if isinstance(value, Mapping):
        lists = [value, *value.values()]
        lists += [inner for item in value.values() if isinstance(item, Mapping) for inner in item.values()]
    found: list[JsonObject] = []
    for one in lists:
        if isinstance(one, list | tuple):
            items = [item for item in cast("Sequence[Json]", one) if isinstance(item, Mapping)]
            found = max(found, items, key=len)
    return found[:_MAX_ENTRIES]


# -- directory listings -----------------------------------------------------------------------------

_LISTED = re.compile(r"\s*\[(FILE|DIR)\]\s+(.+)")


def summarise_listing(text: str, value: Json, room: int) -> ResultSummary | None:
    """A folder: how many of which kind, then the names."""
    del room
    entries = _read_entries(text, value)
    if not 10 <= len(entries) < _MAX_ENTRIES:
        return None
    kinds = Counter("folder" if folder else _get_file_kind(name) for name, folder in entries)
    counted = ", ".join(f"{kind} × {number:,}" for kind, number in kinds.most_common(_MAX_KINDS))
    more = f", {len(kinds) - _MAX_KINDS:,} other kinds" if len(kinds) > _MAX_KINDS else ""
    body = "\n".join(name + ("/" if folder else "") for name, folder in entries)
    return ResultSummary(
        head=f"{len(entries):,} entries: {counted}{more}", body=body, dropped="all but the names of entries"
    )


def _get_file_kind(name: str) -> str:
    return PurePosixPath(name[-100:]).suffix.lower()[:12] or "without ending"


def _read_entries(text: str, value: Json) -> list[tuple[str, bool]]:
    if isinstance(value, list | tuple):
        return [
            entry
            for item in cast("Sequence[Json]", value)[:_MAX_ENTRIES]
            if (entry := _read_entry(item)) is not None
        ]
    lines = text[: _MAX_ENTRIES * 100].splitlines()[:_MAX_ENTRIES]
    marked = [(match[2].strip(), match[1] == "DIR") for line in lines if (match := _LISTED.match(line))]
    if marked:
        return marked
    named = [line.strip() for line in lines if line.strip()]
    if any(len(name) > 300 or name.count(" ") > 4 for name in named):
        return []  # sentences, not names
    return [(name.rstrip("/"), name.endswith("/")) for name in named]


def _read_entry(item: Json) -> tuple[str, bool] | None:
    if isinstance(item, str):
        return item.rstrip("/"), item.endswith("/")
    if isinstance(item, Mapping) and isinstance(name := item.get("name") or item.get("path"), str):
        return name, item.get("type") in ("directory", "dir", "folder", "tree")
    return None


# -- version control --------------------------------------------------------------------------------

_DIFF_FILE = re.compile(r"^diff --git a/(\S+) b/(\S+)", re.MULTILINE)
_COMMIT = re.compile(r"^commit:? '?([0-9a-f]{7,40})'?[^\n]*\n", re.MULTILINE | re.IGNORECASE)
_FIELD = re.compile(r"^[ \t]*(author|date|message):\s*(.*)$", re.MULTILINE | re.IGNORECASE)


def summarise_diff(text: str, value: Json, room: int) -> ResultSummary | None:
    """A diff: lines added and removed in each file, then the diff itself."""
    del value, room
    starts = [*_DIFF_FILE.finditer(text)]
    if not starts:
        return None
    ends = [*(match.start() for match in starts[1:]), len(text)]
    lines: list[str] = []
    total_added = total_removed = 0
    for match, end in zip(starts, ends, strict=True):
        added = text.count("\n+", match.start(), end) - text.count("\n+++", match.start(), end)
        removed = text.count("\n-", match.start(), end) - text.count("\n---", match.start(), end)
        total_added, total_removed = total_added + added, total_removed + removed
        lines.append(f"{match[2]} +{added} -{removed}")
    shown = lines[:100] + ([f"… and {len(lines) - 100:,} more files"] if len(lines) > 100 else [])
    head = f"{len(lines):,} files changed, +{total_added:,} -{total_removed:,}\n" + "\n".join(shown)
    return ResultSummary(head=head, body=text[starts[0].start() :], dropped="")


def summarise_history(text: str, value: Json, room: int) -> ResultSummary | None:
    """A log of commits: one line for each."""
    del value, room
    starts = [*_COMMIT.finditer(text)]
    if len(starts) < 2:
        return None
    ends = [*(match.start() for match in starts[1:]), len(text)]
    lines = [
        _format_commit(match[1], text[match.end() : end]) for match, end in zip(starts, ends, strict=True)
    ]
    return ResultSummary(
        head=f"{len(lines):,} commits",
        body="\n".join(lines),
        dropped="all but hash, date, author and first line of each commit",
    )


def _format_commit(hash_: str, rest: str) -> str:
    fields = {match[1].lower(): match[2].strip() for match in _FIELD.finditer(rest[:4_000])}
    message = fields.get("message") or next(
        (line.strip() for line in rest.splitlines() if line.startswith("    ") and line.strip()), ""
    )
    author = fields.get("author", "").partition("<")[0].strip(' "')
    return " ".join(filter(None, (hash_[:10], fields.get("date", ""), author, message[:200])))


_ToolTest = Callable[[frozenset[str], str], bool]
_LISTS: Final = frozenset({"directory", "directories", "folder", "files", "tree", "ls", "dir", "glob"})
_REGISTRY: Final[tuple[tuple[_ToolTest, Summariser], ...]] = (
    (lambda spoken, category: category == "web_search" or "search" in spoken, summarise_search_results),
    (
        lambda spoken, category: bool(_LISTS & spoken) and category in ("files", "code", "system"),
        summarise_listing,
    ),
    (lambda spoken, category: bool({"diff", "show", "patch"} & spoken) or category == "code", summarise_diff),
    (
        lambda spoken, category: bool({"log", "commits", "history"} & spoken) or category == "code",
        summarise_history,
    ),
)
