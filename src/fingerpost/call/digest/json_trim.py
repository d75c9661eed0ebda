"""Trims JSON to valid JSON: lists keep both ends and relevant items, long strings are shortened."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Final, cast

import orjson

from fingerpost.call.digest.text_trim import score_texts, trim_text
from fingerpost.call.digest.tokens import count_tokens
from fingerpost.catalog.words import parse_word_set
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject
from fingerpost.records.json import is_large_value

ELLIPSIS: Final = "…"
_MAX_DEPTH: Final = 10
_MAX_SCORED_ITEMS: Final = 200_000
_MAX_SCORED_LENGTH: Final = 4_000
_ENOUGH_ITEMS: Final = 5
_MAX_SHORT_LIST_LENGTH: Final = 60
_SCALARS: Final = (str, int, float, bool, NoneType)
_FIRST_KEYS: Final = parse_word_set("error errors message title name id url status total")


@frozen
class TrimLimits:
    """Limits on how much of a value is kept."""

    items: int
    characters: int
    keys: int
    depth: int = _MAX_DEPTH


def to_compact_json(value: Json) -> str:
    """Return the shortest JSON text."""
    if isinstance(value, dict | list) and is_large_value(value):
        # The standard library's encoder would hold the GIL ten times as long.
        with contextlib.suppress(TypeError, ValueError):
            return orjson.dumps(value).decode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def trim_json(value: Json, budget: int, stems: Sequence[str] = ()) -> tuple[Json, tuple[str, ...]]:
    """Return `value` trimmed to at most `budget` tokens of text, and descriptions of what was removed."""
    relevance = _ItemRelevance(stems)
    best: _JsonTrimming | None = None
    for characters in _choose_lengths(budget):
        found = _trim_to_most_items(value, budget, characters, relevance)
        if found is None:
            continue
        if best is None or found.limits.items > best.limits.items:
            best = found
        if found.complete or found.limits.items >= _ENOUGH_ITEMS:
            break
    if best is None:
        best = _trim_to_smallest(value, budget, relevance)
    return best.value, best.describe_left_out()


def _choose_lengths(budget: int) -> list[int]:
    """Return string lengths to try. One long text may use the whole budget, records in a list less each."""
    return [length for length in (budget * 3, budget, budget // 3, 600, 200, 80, 30) if length >= 30]


def _trim_to_most_items(
    value: Json, budget: int, characters: int, relevance: _ItemRelevance
) -> _JsonTrimming | None:
    fits, over = 0, min(budget, 4_000) + 1
    best: _JsonTrimming | None = None
    while over - fits > 1:
        items = (fits + over) // 2 if fits else min(64, (fits + over) // 2)
        tried = _JsonTrimming(
            TrimLimits(items=items, characters=characters, keys=max(8, items)), budget, relevance
        ).trim(value)
        if tried.fits:
            fits, best = items, tried
            if not tried.lists_cut:
                break
        else:
            over = items
    return best


def _trim_to_smallest(value: Json, budget: int, relevance: _ItemRelevance) -> _JsonTrimming:
    """Trim as a last resort: fewer keys and levels, down to a single marker."""
    tried = _JsonTrimming(TrimLimits(items=1, characters=30, keys=8, depth=4), budget, relevance).trim(value)
    while not tried.fits and (tried.limits.depth or tried.limits.keys > 1):
        limits = tried.limits
        smaller = replace(limits, keys=max(1, limits.keys // 2), depth=max(0, limits.depth - 1))
        tried = _JsonTrimming(smaller, budget, relevance).trim(value)
    return tried


class _ItemRelevance:
    """Relevance of list items to the request. Cached, because the same list is trimmed many times."""

    def __init__(self, stems: Sequence[str]) -> None:
        self._stems = stems
        self._ranked: dict[int, list[int]] = {}
        self._shortened: dict[tuple[int, int], str] = {}

    def rank_items(self, items: Sequence[Json]) -> list[int]:
        if not self._stems or len(items) > _MAX_SCORED_ITEMS:
            return []
        if id(items) not in self._ranked:
            texts = [_get_beginning(item).lower() for item in items]
            nearness = score_texts(texts, self._stems)
            found = [index for index, score in enumerate(nearness) if score > 0]
            self._ranked[id(items)] = sorted(found, key=lambda index: (-nearness[index], index))
        return self._ranked[id(items)]

    def shorten_text(self, text: str, characters: int) -> str:
        """Shorten a long string to its relevant passages, a shorter one to its beginning."""
        key = (id(text), characters)
        if key not in self._shortened:
            if characters >= 200:
                cut = trim_text(text, characters // 4, self._stems).text
            else:
                cut = f"{text[:characters].rstrip()}{ELLIPSIS} ({len(text):,} characters)"
            self._shortened[key] = cut
        return self._shortened[key]


def _get_beginning(value: Json) -> str:
    """Return enough of a value's text to score it."""
    if isinstance(value, str):
        return value[:_MAX_SCORED_LENGTH]
    try:
        return to_compact_json(value)[:_MAX_SCORED_LENGTH]
    except RecursionError:  # nested too deeply to be relevant
        return ""


class _JsonTrimming:
    """One attempt to trim with given limits."""

    def __init__(self, limits: TrimLimits, budget: int, relevance: _ItemRelevance) -> None:
        self.limits = limits
        self.value: Json = None
        self.fits = False
        self._budget = budget
        self._room = budget * 12 + 1_000  # characters; longer ordinary text does not fit
        self._relevance = relevance
        self._items = self._keys = self._strings = self._levels = 0
        self._largest = (0, 0)

    def trim(self, value: Json) -> _JsonTrimming:
        self.value = self._trim_value(value, 0, 0)
        self.fits = self._room > 0 and count_tokens(to_compact_json(self.value)) <= self._budget
        return self

    @property
    def lists_cut(self) -> bool:
        return bool(self._items or self._keys)

    @property
    def complete(self) -> bool:
        return not (self._items or self._keys or self._levels)

    def describe_left_out(self) -> tuple[str, ...]:
        dropped: list[str] = []
        if self._items:
            missing, total = self._largest
            more = self._items - missing
            dropped.append(
                f"{missing:,} of {total:,} items"
                + (f" of the longest list, {more:,} items of others" if more else "")
            )
        dropped += [
            f"{number:,} {what}"
            for number, what in (
                (self._keys, "keys of objects"),
                (self._strings, "long texts in part"),
                (self._levels, "deeply nested values"),
            )
            if number
        ]
        return tuple(dropped)

    def _trim_value(self, value: Json, depth: int, lists: int) -> Json:
        self._room -= 2
        if self._room <= 0:
            return None
        if isinstance(value, str):
            return self._trim_string(value)
        if isinstance(value, Mapping):
            return self._trim_object(value, depth, lists)
        if isinstance(value, list | tuple):
            return self._trim_list(cast("Sequence[Json]", value), depth, lists)
        written = str(value)
        self._room -= len(written)
        return value

    def _trim_string(self, text: str) -> str:
        if len(text) > self.limits.characters + 20:
            self._strings += 1
            text = self._relevance.shorten_text(text, self.limits.characters)
        self._room -= len(text)
        return text

    def _trim_object(self, value: JsonObject, depth: int, lists: int) -> Json:
        if depth >= self.limits.depth and value:
            self._levels += 1
            return f"{ELLIPSIS} {len(value):,} keys left out {ELLIPSIS}"
        names = list(value)
        kept = set(names)
        if len(names) > self.limits.keys:
            first = [name for name in names if name in _FIRST_KEYS]
            kept = set([*first, *names][: self.limits.keys])
        cut: dict[str, Json] = {}
        for name in names:
            if name in kept and self._room > 0:
                shown = name if len(name) <= 200 else name[:199] + ELLIPSIS
                self._room -= len(shown)
                cut[shown] = self._trim_value(value[name], depth + 1, lists)
        if missing := len(names) - len(kept):
            self._keys += missing
            cut[find_unused_key(cut)] = f"{missing:,} of {len(names):,} keys left out"
        return cut

    def _trim_list(self, items: Sequence[Json], depth: int, lists: int) -> Json:
        if depth >= self.limits.depth and items:
            self._levels += 1
            return f"{ELLIPSIS} {len(items):,} items left out {ELLIPSIS}"
        most = max(1 if self.limits.items < 4 else 2, self.limits.items >> lists)
        if len(items) <= most or _is_short(items, self.limits.characters):
            return [self._trim_value(item, depth + 1, lists + 1) for item in items if self._room > 0]
        kept = self._choose_both_ends(items, most)
        self._items += len(items) - len(kept)
        self._largest = max(self._largest, (len(items) - len(kept), len(items)))
        cut: list[Json] = []
        at = 0
        for index in [*kept, len(items)]:
            if index > at:
                cut.append(f"{ELLIPSIS} {index - at:,} of {len(items):,} items left out {ELLIPSIS}")
            if index < len(items) and self._room > 0:
                cut.append(self._trim_value(items[index], depth + 1, lists + 1))
            at = index + 1
        return cut

    def _choose_both_ends(self, items: Sequence[Json], limit: int) -> list[int]:
        near = self._relevance.rank_items(items)[: max(1, limit * 2 // 5)]
        left = limit - len(near)
        tail = left // 3
        kept = {*near, *range(left - tail), *range(len(items) - tail, len(items))}
        return sorted(kept)


def _is_short(items: Sequence[Json], characters: int) -> bool:
    """Return whether the list's text is very short: `["a", "b", "c"]`."""
    if len(items) > 12 or characters < _MAX_SHORT_LIST_LENGTH:
        return False
    return (
        all(isinstance(item, _SCALARS) for item in items)
        and sum(map(_estimate_length, items)) <= _MAX_SHORT_LIST_LENGTH
    )


def _estimate_length(value: Json) -> int:
    return len(value) if isinstance(value, str) else len(str(value)[:_MAX_SHORT_LIST_LENGTH])


def find_unused_key(entries: JsonObject) -> str:
    """Return `…`, repeated until no entry has this key."""
    mark = ELLIPSIS
    while mark in entries:
        mark += ELLIPSIS
    return mark
