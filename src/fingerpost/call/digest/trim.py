"""Builds a digest within its token budget from a raw result: whole, summarised or trimmed."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, islice
from pathlib import PurePosixPath
from typing import Final, cast

from fingerpost.call.digest.blocks import (
    MAX_REFERENCES,
    ResultPart,
    TextShape,
    count_header_rows,
    detect_shape,
    find_additional_texts,
    get_sentence,
    read_parts,
    write_json,
)
from fingerpost.call.digest.json_trim import ELLIPSIS, find_unused_key, to_compact_json, trim_json
from fingerpost.call.digest.results import build_handle
from fingerpost.call.digest.text_trim import (
    LINE_STYLE,
    LOG_STYLE,
    TrimmedText,
    TrimStyle,
    extract_page_text,
    extract_stems,
    trim_text,
)
from fingerpost.call.digest.tokens import clip_to_tokens, count_tokens, count_tokens_within, estimate_tokens
from fingerpost.catalog.words import split_words
from fingerpost.frozen import frozen
from fingerpost.records import CallContext, Digest, Json, JsonObject, ToolCard
from fingerpost.records.json import is_large_value
from fingerpost.schemas.validator import SchemaValidator, StepBudget, StepBudgetExceeded
from fingerpost.settings import Settings
from fingerpost.settings.model import DigestSettings
from fingerpost.tasks import run_in_thread

_MAX_KINDS: Final = 12
_SNIPPET_LENGTH: Final = 240
_MIN_SNIPPET_LENGTH: Final = 20
_HIT_LENGTH: Final = 90  # characters of a title with its address
_MAX_TEXT_LENGTH: Final = 4_000_000
_MAX_ENTRIES: Final = 20_000


@frozen
class ResultSummary:
    """The lines that come first, the lines that follow if there is room, and what is omitted."""

    head: str
    body: str
    dropped: str


Summariser = Callable[[str, Json, int], ResultSummary | None]


def summarise_result(card: ToolCard, text: str, value: Json, room: int) -> ResultSummary | None:
    """Return the summary for this tool's kind of result, for `room` tokens, or None if there is none."""
    if len(text) > _MAX_TEXT_LENGTH:
        return None
    words = frozenset(split_words(card.name))
    category = card.intelligence.category.value
    for fits, summariser in _SUMMARISERS:
        if fits(words, category) and (found := summariser(text, value, room)) is not None:
            return found
    return None


_TITLE_KEYS: Final = ("title", "name", "headline")
_ADDRESS_KEYS: Final = ("url", "link", "href", "uri")
_SNIPPET_KEYS: Final = ("snippet", "description", "summary", "content", "text", "body")


def summarise_search_results(text: str, value: Json, room: int) -> ResultSummary | None:
    """Summarise search results: numbered, with title, address and the beginning of the snippet."""
    del text
    items = _find_records(value)
    if not items:
        return None
    # All titles come before long snippets.
    snippet = min(_SNIPPET_LENGTH, max(0, room * 3 // len(items) - _HIT_LENGTH))
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
    """Return the list of objects in a result: the result itself, or the longest list under its keys."""
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


_LISTED_ENTRY = re.compile(r"\s*\[(FILE|DIR)\]\s+(.+)")


def summarise_listing(text: str, value: Json, room: int) -> ResultSummary | None:
    """Summarise a folder: counts by kind, then the names."""
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
    marked = [(match[2].strip(), match[1] == "DIR") for line in lines if (match := _LISTED_ENTRY.match(line))]
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


_DIFF_FILE = re.compile(r"^diff --git a/(\S+) b/(\S+)", re.MULTILINE)
_COMMIT = re.compile(r"^commit:? '?([0-9a-f]{7,40})'?[^\n]*\n", re.MULTILINE | re.IGNORECASE)
_FIELD = re.compile(r"^[ \t]*(author|date|message):\s*(.*)$", re.MULTILINE | re.IGNORECASE)


def summarise_diff(text: str, value: Json, room: int) -> ResultSummary | None:
    """Summarise a diff: lines added and removed in each file, then the diff itself."""
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
    """Summarise a commit log: one line per commit."""
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
_LISTING_WORDS: Final = frozenset(
    {"directory", "directories", "folder", "files", "tree", "ls", "dir", "glob"}
)
_SUMMARISERS: Final[tuple[tuple[_ToolTest, Summariser], ...]] = (
    (lambda spoken, category: category == "web_search" or "search" in spoken, summarise_search_results),
    (
        lambda spoken, category: bool(_LISTING_WORDS & spoken) and category in ("files", "code", "system"),
        summarise_listing,
    ),
    (lambda spoken, category: bool({"diff", "show", "patch"} & spoken) or category == "code", summarise_diff),
    (
        lambda spoken, category: bool({"log", "commits", "history"} & spoken) or category == "code",
        summarise_history,
    ),
)


MIN_BUDGET: Final = 50
NOTE_TOKENS: Final = 60  # tokens reserved for the last line; it may use more if available
_MAX_REQUEST_LENGTH: Final = 4_000


def compute_budget(
    card: ToolCard, context: CallContext, settings: DigestSettings, *, summary: bool = False
) -> int:
    """Return the token budget of this result: the lowest limit of tool, settings and context.

    `summary`: use the limit for summaries.
    """
    allowed = min(card.intelligence.response.max_tokens.value, settings.max_tokens)
    if context.tokens_left is not None:
        allowed = min(allowed, int(settings.context_share * context.tokens_left))
    return max(MIN_BUDGET, min(allowed, settings.summary_tokens) if summary else allowed)


def needs_summary(card: ToolCard, settings: Settings) -> bool:
    """Return whether long results of this tool are summarised. Data is trimmed as data instead."""
    response = card.intelligence.response
    return settings.flags.result_summaries and response.needs_summary.value and not response.structured.value


def build_digest(
    result: JsonObject, card: ToolCard, *, budget: int, request: str = "", handle: str | None = None
) -> Digest:
    """Trim the result to `budget` tokens and keep what is relevant to the request.

    `handle` identifies the stored full result. It is included only if the result contains more than the text.
    """
    parts = read_parts(result)
    prices = _count_part_tokens(parts, budget)
    whole = _digest_whole_parts(parts, prices, budget)
    if whole is not None:
        return whole
    references = tuple(part.reference for part in parts if part.reference is not None)
    original = sum(prices) + max(0, len(parts) - 1)
    digest = Digest(text="", original_tokens=original, references=references[:100])
    room = budget - min(NOTE_TOKENS, budget // 2)
    looked_for = extract_stems(request[:_MAX_REQUEST_LENGTH])
    if original <= room and len(references) <= MAX_REFERENCES:
        return _append_note_line(digest, _join_parts(parts), budget, handle)
    if len(parts) == 1 and (tree := _find_only_json(parts[0], card, room)) is not None:
        return _cut_tree(digest, tree, budget, room, looked_for, handle)
    body = _cut_parts(parts, prices, card, room, looked_for)
    return _append_note_line(replace(digest, dropped=body.dropped), body.text, budget, handle)


def digest_sentence(result: JsonObject, *, budget: int) -> Digest | None:
    """Return the digest of a result that is one or two lines of text, else None."""
    text = get_sentence(result)
    if text is None or (tokens := math.ceil(estimate_tokens(text))) > budget:
        return None
    return Digest(text=text, content_type="text", tokens=tokens, original_tokens=tokens)


def digest_whole(result: JsonObject, *, budget: int) -> Digest | None:
    """Return the digest of a result that fits unchanged, or None if it has to be trimmed."""
    parts = read_parts(result)
    return _digest_whole_parts(parts, _count_part_tokens(parts, budget), budget)


def _count_part_tokens(parts: Sequence[ResultPart], budget: int) -> list[int]:
    return [count_tokens_within(part.text, budget) for part in parts]


def _digest_whole_parts(parts: Sequence[ResultPart], prices: Sequence[int], budget: int) -> Digest | None:
    if any(part.reference is not None for part in parts):
        return None
    original = sum(prices) + max(0, len(parts) - 1)
    if original > budget:
        return None
    text = _join_parts(parts)
    kind = _get_content_type(parts[0]) if len(parts) == 1 else "text"
    tokens = original if len(parts) == 1 else math.ceil(estimate_tokens(text))
    return Digest(text=text, content_type=kind, tokens=tokens, original_tokens=original)


def _join_parts(parts: Sequence[ResultPart]) -> str:
    return parts[0].text if len(parts) == 1 else "\n".join(part.text for part in parts)


def _get_content_type(part: ResultPart) -> str:
    if part.value is not None:
        return "json"
    shape = detect_shape(part.text)
    return shape.value if shape in (TextShape.PAGE, TextShape.TABLE) else "text"


def _find_only_json(part: ResultPart, card: ToolCard, room: int) -> Json:
    """Return the value of a result that is one JSON text, unless a summary is better."""
    if part.value is None:
        return None
    data = card.intelligence.response.structured.value
    return part.value if data or summarise_result(card, part.text, part.value, room) is None else None


def _cut_tree(
    digest: Digest, value: Json, budget: int, room: int, stems: Sequence[str], handle: str | None
) -> Digest:
    cut, dropped = trim_json(value, room, stems)
    text = to_compact_json(cut)
    digest = replace(digest, dropped=dropped)
    if isinstance(cut, dict | list):
        if dropped:
            note = _build_note(digest, budget - count_tokens(text), handle)
            noted = to_compact_json(_append_note(cut, note))
            text = noted if count_tokens(noted) <= budget else text
        tokens = count_tokens(text)
        if tokens <= budget:
            return _finish_digest(replace(digest, content_type="json"), text, handle)
    digest = replace(digest, dropped=dropped or ("almost all of it",))
    return _append_note_line(digest, clip_to_tokens(text, room), budget, handle)


def _append_note(cut: dict[str, Json] | list[Json], note: str) -> Json:
    """Append the note as the last member, so that the result is still JSON."""
    return {**cut, find_unused_key(cut): note} if isinstance(cut, dict) else [*cut, note]


def _cut_parts(
    parts: Sequence[ResultPart], prices: Sequence[int], card: ToolCard, room: int, stems: Sequence[str]
) -> TrimmedText:
    dropped: list[str] = []
    aside = [part for part in parts if part.reference is not None]
    if len(aside) > MAX_REFERENCES:
        left_out = frozenset(part.number for part in aside[MAX_REFERENCES:])
        stay = [part.reference is None or part.number not in left_out for part in parts]
        parts, prices = [*compress(parts, stay)], [*compress(prices, stay)]
        dropped.append(f"the names of {len(left_out):,} of {len(aside):,} attached parts")
    shares = _share_room(prices, room - len(parts))
    shown: list[str] = []
    for part, needed, share in zip(parts, prices, shares, strict=True):
        whole = needed <= share
        trimmed = TrimmedText(text=part.text) if whole else _cut_part(part, card, share, stems)
        shown.append(trimmed.text)
        where = f" of part {part.number}" if len(parts) > 1 else ""
        dropped += [f"{what}{where}" for what in trimmed.dropped]
    return TrimmedText(text="\n".join(shown), dropped=tuple(dropped))


def _share_room(prices: Sequence[int], room: int) -> list[int]:
    """Distribute the room: small parts get all they need, large parts equal shares of the rest."""
    shares = [0] * len(prices)
    for position, index in enumerate(sorted(range(len(prices)), key=prices.__getitem__)):
        shares[index] = min(prices[index], max(0, room) // (len(prices) - position))
        room -= shares[index]
    return shares


def _cut_part(part: ResultPart, card: ToolCard, room: int, stems: Sequence[str]) -> TrimmedText:
    if part.reference is not None:
        return TrimmedText(text=clip_to_tokens(part.text, room), dropped=("the name",))
    data = part.value is not None and card.intelligence.response.structured.value
    summary = None if data else summarise_result(card, part.text, part.value, room)
    if summary is not None:
        head = trim_text(summary.head, max(room // 2, 1))
        body = trim_text(summary.body, room - count_tokens(head.text) - 1, stems)
        left_out = tuple(filter(None, (summary.dropped, *head.dropped, *body.dropped)))
        return TrimmedText(text=f"{head.text}\n{body.text}", dropped=left_out)
    if part.value is not None:
        cut, dropped = trim_json(part.value, room, stems)
        text = to_compact_json(cut)
        return (
            TrimmedText(text=text, dropped=dropped)
            if count_tokens(text) <= room
            else TrimmedText(text=clip_to_tokens(text, room), dropped=("almost all of it",))
        )
    return _cut_text(part.text, room, stems)


def _cut_text(text: str, room: int, stems: Sequence[str]) -> TrimmedText:
    shape = detect_shape(text)
    if shape is TextShape.PAGE:
        trimmed = trim_text(extract_page_text(text), room, stems)
        return TrimmedText(text=trimmed.text, dropped=("the markup of the page", *trimmed.dropped))
    if shape is TextShape.TABLE:
        return trim_text(text, room, stems, _choose_table_style(text))
    return trim_text(text, room, stems, LOG_STYLE if shape is TextShape.LOG else LINE_STYLE)


def _choose_table_style(text: str) -> TrimStyle:
    beginning = text[:6_000].splitlines()
    blank = next((index for index, line in enumerate(beginning) if line.strip()), 0)
    header = count_header_rows([line for line in beginning if line.strip()])
    return TrimStyle(noun="rows", pinned=blank + header, context=0)


def _append_note_line(digest: Digest, body: str, budget: int, handle: str | None) -> Digest:
    """Append the note as the last line, if there is room for it."""
    if digest.dropped or digest.references:
        noted = f"{body}\n[{_build_note(digest, budget - count_tokens(body), handle)}]"
        body = noted if count_tokens(noted) <= budget else clip_to_tokens(body, budget)
    elif count_tokens(body) > budget:
        body, digest = clip_to_tokens(body, budget), replace(digest, dropped=("the end",))
    return _finish_digest(digest, body, handle)


def _finish_digest(digest: Digest, text: str, handle: str | None) -> Digest:
    more = bool(digest.dropped or digest.references)
    return replace(
        digest, text=text, tokens=math.ceil(estimate_tokens(text)), handle=handle if more else None
    )


def _build_note(digest: Digest, room: int, handle: str | None) -> str:
    """Describe what is missing, in as much detail as fits, and how to get it."""
    aside = "" if digest.dropped else " --part N"
    how = f" All of it: fingerpost result {handle}{aside}, or the tool read_result" if handle else ""
    shown = list(digest.dropped[:6])
    while shown:
        more = "; and more" if len(shown) < len(digest.dropped) else ""
        note = f"Left out: {'; '.join(shown)}{more}.{how}"
        if count_tokens(note) + 5 <= room:  # plus brackets, or JSON syntax
            return note
        shown.pop()
    return f"Cut to fit.{how}" if digest.dropped else f"Kept aside: {len(digest.references)} attached.{how}"


LARGE_BLOCK_COUNT: Final = 100  # results with more blocks are trimmed in a thread


async def build_fitted_digest(
    result: JsonObject, card: ToolCard, context: CallContext, settings: Settings, *, kept: bool = True
) -> Digest:
    """Build the digest. A large result is trimmed in a thread.

    `kept`: the full result is stored under the handle.
    """
    summary = needs_summary(card, settings)
    budget = compute_budget(card, context, settings.digest, summary=summary and not context.summarises)
    budget = budget if settings.flags.digest else sys.maxsize
    if (sentence := digest_sentence(result, budget=budget)) is not None:
        return sentence
    large = _is_large(result)
    handle = build_handle(context.call_id) if kept else None
    if not large and (whole := digest_whole(result, budget=budget)) is not None:
        # Stored, because it will be summarised.
        long = summary and whole.tokens > settings.digest.summary_tokens
        return replace(whole, handle=handle) if long else whole
    cutting = partial(build_digest, result, card, budget=budget, request=context.request, handle=handle)
    return await run_in_thread(cutting) if large else cutting()


def _is_large(result: JsonObject) -> bool:
    """Return whether trimming this result would block the event loop. This is a cheap estimate."""
    content = result.get("content")
    parts = content if isinstance(content, list | tuple) else ()
    return len(parts) > LARGE_BLOCK_COUNT or is_large_value(
        [*map(_get_readable, parts), result.get("structuredContent")]
    )


def _get_readable(part: Json) -> Json:
    """Return the part of a block that becomes text. Bytes are only named, and links take one line."""
    match part:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case (
            {"type": "resource_link"}
            | {"type": "image" | "audio", "data": str()}
            | {"type": "resource", "resource": {"blob": str()}}
        ):
            return None
        case _:
            return part  # written unchanged


_TEXT_LENGTHS: Final = (2_000, 600, 200, 80)  # text lengths to try, if longer ones leave no room for items
_ENOUGH_ITEMS: Final = 5
_MIN_KEPT_MEMBERS: Final = 64  # a larger object is a list by name, not a record
_MAX_WORD_LENGTH: Final = 2_000  # addresses, dates and ids are useless if cut
_MAX_ROUNDS: Final = 6

ValuePath = tuple[str | int, ...]


@frozen
class StructuredFit:
    """A trimmed result for a client, as text and as structured content."""

    structured: Json
    left_out: tuple[str, ...]  # empty: the structured content is complete
    text: str  # the structured content as text; empty if it is too long and must not be cut
    additional_text: str  # texts that the structured content does not contain


def fit_structured(
    result: JsonObject, card: ToolCard, schema: JsonObject, *, budget: int, handle: str | None
) -> StructuredFit:
    """Return the structured content and the text of this result, within the budget if the schema allows."""
    value = result.get("structuredContent")
    text_blocks = [{"type": "text", "text": text} for text in find_additional_texts(result)]
    half = max(MIN_BUDGET, budget // 2)
    beside = (
        build_digest({"content": text_blocks}, card, budget=half, handle=handle).text if text_blocks else ""
    )
    room = budget - count_tokens(beside)
    try:
        pruned = _prune(value, schema, room)
    except (RecursionError, StepBudgetExceeded):
        pruned = None
    if pruned is None:
        return StructuredFit(structured=value, left_out=(), text="", additional_text=beside)
    return StructuredFit(
        structured=pruned.value,
        left_out=pruned.left_out,
        text=write_json(pruned.value),
        additional_text=beside,
    )


def _prune(value: Json, schema: JsonObject, budget: int) -> _Pruning | None:
    """Return the largest part of the value that fits and is valid. Raises `StepBudgetExceeded`."""
    check = _SchemaCheck(schema)
    best: _Pruning | None = None
    for characters in (budget * 3, *(length for length in _TEXT_LENGTHS if length < budget * 3)):
        found = _keep_most_items(value, budget, characters, check)
        if found is None:
            continue
        if best is None or found.items > best.items:
            best = found
        if not found.lists_cut or found.items >= _ENOUGH_ITEMS:
            break
    return best


def _keep_most_items(value: Json, budget: int, characters: int, check: _SchemaCheck) -> _Pruning | None:
    """Keep as many items as fit, with texts of this length. What must stay whole is found in steps."""
    whole: set[ValuePath] = set()
    for _ in range(_MAX_ROUNDS):
        found = _search_item_count(value, budget, characters, frozenset(whole))
        if found is None:
            return None
        wrong = check.find_invalid(found.value)
        if not wrong:
            return found
        if wrong <= whole or () in wrong:
            return None
        whole |= wrong
    return None


def _search_item_count(
    value: Json, budget: int, characters: int, whole: frozenset[ValuePath]
) -> _Pruning | None:
    fits, over = 0, min(max(budget, 1), 4_000) + 1
    best: _Pruning | None = None
    while over - fits > 1:
        items = (fits + over) // 2
        tried = _Pruning(items, characters, budget, whole).prune(value)
        if tried.fits:
            fits, best = items, tried
            if not tried.lists_cut:
                break
        else:
            over = items
    return best


class _SchemaCheck:
    """Validates values against the schema, with a limit on the work."""

    def __init__(self, schema: JsonObject) -> None:
        self._validator = SchemaValidator(schema)
        self._budget = StepBudget(reserved=0)

    def find_invalid(self, value: Json) -> set[ValuePath]:
        """Return the paths of invalid values. Raises `StepBudgetExceeded`."""
        errors, complete = self._validator.find_errors(value, self._budget)
        if not complete:
            raise StepBudgetExceeded
        return {tuple(error.absolute_path) for error in errors}


class _Pruning:
    """One attempt with limits on list items and text length. Values in `whole` are not trimmed."""

    def __init__(self, items: int, characters: int, budget: int, whole: frozenset[ValuePath]) -> None:
        self.items = items
        self.value: Json = None
        self.fits = False
        self._characters = characters
        self._budget = budget
        self._room = budget * 12 + 1_000  # characters; longer ordinary text does not fit
        self._whole = whole
        self._left = self._texts = 0
        self._largest = (0, 0)

    def prune(self, value: Json) -> _Pruning:
        self.value = self._prune_value(value, (), 0)
        self.fits = self._room > 0 and count_tokens(write_json(self.value)) <= self._budget
        return self

    @property
    def lists_cut(self) -> bool:
        return bool(self._left)

    @property
    def left_out(self) -> tuple[str, ...]:
        missing, total = self._largest
        more = self._left - missing
        descriptions = [f"the last {missing:,} of {total:,} items"] if missing else []
        descriptions += [f"{more:,} items of other lists"] if more else []
        descriptions += [f"{self._texts:,} long texts in part"] if self._texts else []
        return tuple(descriptions)

    def _prune_value(self, value: Json, path: ValuePath, lists: int) -> Json:
        self._room -= 2
        if self._room <= 0:
            return None
        if path in self._whole:
            self._room -= _estimate_length(value, self._room)
            return value
        if isinstance(value, str):
            return self._shorten_text(value)
        if isinstance(value, Mapping):
            kept = list(value)[: self._count_kept(len(value), _MIN_KEPT_MEMBERS, lists)]
            self._count_left_out(len(value), len(kept))
            self._room -= sum(map(len, kept))
            return {name: self._prune_value(value[name], (*path, name), lists) for name in kept}
        if isinstance(value, list | tuple):
            items = cast("Sequence[Json]", value)
            kept_items = items[: self._count_kept(len(items), 1, lists)]
            self._count_left_out(len(items), len(kept_items))
            return [
                self._prune_value(item, (*path, place), lists + 1) for place, item in enumerate(kept_items)
            ]
        self._room -= len(str(value))
        return value

    def _count_kept(self, length: int, least: int, lists: int) -> int:
        return min(length, max(least, self.items >> lists))

    def _count_left_out(self, length: int, kept: int) -> None:
        self._left += length - kept
        self._largest = max(self._largest, (length - kept, length))

    def _shorten_text(self, text: str) -> str:
        most = (
            self._characters if len(text.split(maxsplit=1)) > 1 else max(self._characters, _MAX_WORD_LENGTH)
        )
        if len(text) > most + 20:
            self._texts += 1
            text = f"{text[:most].rstrip()}{ELLIPSIS} ({len(text):,} characters)"
        self._room -= len(text)
        return text


def _estimate_length(value: Json, limit: int) -> int:
    """Estimate the characters of the value's text. Stop as soon as `limit` is exceeded."""
    length, todo = 0, [value]
    while todo and length <= limit:
        node = todo.pop()
        length += 2
        if isinstance(node, str):
            length += len(node)
        elif isinstance(node, Mapping):
            length += sum(map(len, islice(node, limit)))
            todo.extend(islice(node.values(), limit))
        elif isinstance(node, list | tuple):
            todo.extend(islice(node, limit))
        else:
            length += len(str(node))
    return length
