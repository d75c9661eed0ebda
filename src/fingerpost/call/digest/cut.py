"""A raw result in, a digest within its budget out. Pure: whatever is kept aside, others keep.

Nothing is touched when it fits. Otherwise each part is cut in the way of its kind,
small parts staying whole, and the text ends with one line that says what is
missing and how to get it. That line is part of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Final

from fingerpost.call.digest.markup import extract_page_text
from fingerpost.call.digest.parts import MAX_REFERENCES, ResultPart, get_sentence, read_parts
from fingerpost.call.digest.passages import LINES, LOG, TrimmedText, TrimStyle, trim_text
from fingerpost.call.digest.relevance import extract_stems
from fingerpost.call.digest.shapes import TextShape, count_header_rows, detect_shape
from fingerpost.call.digest.summaries import summarise_result
from fingerpost.call.digest.tokens import clip_to_tokens, count_tokens, count_tokens_within, estimate_tokens
from fingerpost.call.digest.tree import find_unused_key, to_compact_json, trim_json
from fingerpost.records import CallContext, Digest, Json, JsonObject, ToolCard
from fingerpost.settings import Settings
from fingerpost.settings.model import DigestSettings

MIN_BUDGET: Final = 50
NOTE: Final = 60  # tokens set aside for the last line; it may have more where more is left
_MAX_REQUEST_LENGTH: Final = 4_000


def compute_budget(
    card: ToolCard, context: CallContext, settings: DigestSettings, *, summary: bool = False
) -> int:
    """How many tokens this result may take: the least of what tool, settings and context allow.

    `summary`: it is to be as short as a summary.
    """
    allowed = min(card.intelligence.response.max_tokens.value, settings.max_tokens)
    if context.tokens_left is not None:
        allowed = min(allowed, int(settings.context_share * context.tokens_left))
    return max(MIN_BUDGET, min(allowed, settings.summary_tokens) if summary else allowed)


def needs_summary(card: ToolCard, settings: Settings) -> bool:
    """Whether long results of this tool are summarised; data is cut as data instead."""
    response = card.intelligence.response
    return settings.flags.result_summaries and response.needs_summary.value and not response.structured.value


def build_digest(
    result: JsonObject, card: ToolCard, *, budget: int, request: str = "", handle: str | None = None
) -> Digest:
    """The result within `budget` tokens, with what the request is about.

    `handle` is where the full result will be kept. It is named in the text, and in
    the digest, only when there is more to fetch than the text says.
    """
    parts = read_parts(result)
    prices = _prices(parts, budget)
    whole = _digest_whole_parts(parts, prices, budget)
    if whole is not None:
        return whole
    references = tuple(part.reference for part in parts if part.reference is not None)
    original = sum(prices) + max(0, len(parts) - 1)
    made = Digest(text="", original_tokens=original, references=references[:100])
    room = budget - min(NOTE, budget // 2)
    looked_for = extract_stems(request[:_MAX_REQUEST_LENGTH])
    if original <= room and len(references) <= MAX_REFERENCES:
        return _append_note_line(made, _join_parts(parts), budget, handle)
    if len(parts) == 1 and (tree := _find_only_json(parts[0], card, room)) is not None:
        return _cut_tree(made, tree, budget, room, looked_for, handle)
    body = _cut_parts(parts, prices, card, room, looked_for)
    return _append_note_line(replace(made, dropped=body.dropped), body.text, budget, handle)


def digest_sentence(result: JsonObject, *, budget: int) -> Digest | None:
    """What `digest_whole` gives for a result that is a line or two of text, and nothing for all others."""
    text = get_sentence(result)
    if text is None or (tokens := math.ceil(estimate_tokens(text))) > budget:
        return None
    return Digest(text=text, content_type="text", tokens=tokens, original_tokens=tokens)


def digest_whole(result: JsonObject, *, budget: int) -> Digest | None:
    """The digest of a result that fits as it is, which most do; None when it has to be cut."""
    parts = read_parts(result)
    return _digest_whole_parts(parts, _prices(parts, budget), budget)


def _prices(parts: Sequence[ResultPart], budget: int) -> list[int]:
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


# -- JSON, which stays JSON -------------------------------------------------------------------------


def _find_only_json(part: ResultPart, card: ToolCard, room: int) -> Json:
    """The value of a result that is one JSON text, unless a summary says it better."""
    if part.value is None:
        return None
    data = card.intelligence.response.structured.value
    return part.value if data or summarise_result(card, part.text, part.value, room) is None else None


def _cut_tree(
    made: Digest, value: Json, budget: int, room: int, stems: Sequence[str], handle: str | None
) -> Digest:
    cut, dropped = trim_json(value, room, stems)
    text = to_compact_json(cut)
    made = replace(made, dropped=dropped)
    if isinstance(cut, dict | list):
        if dropped:
            note = _build_note(made, budget - count_tokens(text), handle)
            noted = to_compact_json(_append_note(cut, note))
            text = noted if count_tokens(noted) <= budget else text
        tokens = count_tokens(text)
        if tokens <= budget:
            return _finish_digest(replace(made, content_type="json"), text, handle)
    made = replace(made, dropped=dropped or ("almost all of it",))
    return _append_note_line(made, clip_to_tokens(text, room), budget, handle)


def _append_note(cut: dict[str, Json] | list[Json], note: str) -> Json:
    """With the note as its last member, so that it is still JSON."""
    return {**cut, find_unused_key(cut): note} if isinstance(cut, dict) else [*cut, note]


# -- everything else --------------------------------------------------------------------------------


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
    """What each part may take: the small ones all they need, the large ones the same of what is left."""
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
        said = tuple(filter(None, (summary.dropped, *head.dropped, *body.dropped)))
        return TrimmedText(text=f"{head.text}\n{body.text}", dropped=said)
    if part.value is not None:
        cut, dropped = trim_json(part.value, room, stems)
        text = to_compact_json(cut)
        return (
            TrimmedText(text=text, dropped=dropped)
            if count_tokens(text) <= room
            else _cut_plainly(text, room)
        )
    return _cut_text(part.text, room, stems)


def _cut_plainly(text: str, room: int) -> TrimmedText:
    return TrimmedText(text=clip_to_tokens(text, room), dropped=("almost all of it",))


def _cut_text(text: str, room: int, stems: Sequence[str]) -> TrimmedText:
    shape = detect_shape(text)
    if shape is TextShape.PAGE:
        said = trim_text(extract_page_text(text), room, stems)
        return TrimmedText(text=said.text, dropped=("the markup of the page", *said.dropped))
    if shape is TextShape.TABLE:
        return trim_text(text, room, stems, _choose_table_style(text))
    return trim_text(text, room, stems, LOG if shape is TextShape.LOG else LINES)


def _choose_table_style(text: str) -> TrimStyle:
    beginning = text[:6_000].splitlines()
    blank = next((index for index, line in enumerate(beginning) if line.strip()), 0)
    header = count_header_rows([line for line in beginning if line.strip()])
    return TrimStyle(noun="rows", pinned=blank + header, context=0)


# -- the note ---------------------------------------------------------------------------------------


def _append_note_line(made: Digest, body: str, budget: int, handle: str | None) -> Digest:
    """The body and its last line; without that line where there is no room even for it."""
    if made.dropped or made.references:
        noted = f"{body}\n[{_build_note(made, budget - count_tokens(body), handle)}]"
        body = noted if count_tokens(noted) <= budget else clip_to_tokens(body, budget)
    elif count_tokens(body) > budget:
        body, made = clip_to_tokens(body, budget), replace(made, dropped=("the end",))
    return _finish_digest(made, body, handle)


def _finish_digest(made: Digest, text: str, handle: str | None) -> Digest:
    more = bool(made.dropped or made.references)
    return replace(made, text=text, tokens=math.ceil(estimate_tokens(text)), handle=handle if more else None)


def _build_note(made: Digest, room: int, handle: str | None) -> str:
    """What is missing, as fully as there is room for, and the way to get it."""
    aside = "" if made.dropped else " --part N"
    how = f" All of it: fingerpost result {handle}{aside}, or the tool read_result" if handle else ""
    said = list(made.dropped[:6])
    while said:
        more = "; and more" if len(said) < len(made.dropped) else ""
        note = f"Left out: {'; '.join(said)}{more}.{how}"
        if count_tokens(note) + 5 <= room:  # and its brackets, or what makes it a member of JSON
            return note
        said.pop()
    return f"Cut to fit.{how}" if made.dropped else f"Kept aside: {len(made.references)} attached.{how}"
