"""Structured content cut to what fits, so that it still keeps to the tool's output schema.

Clients check structured content against the schema, so nothing may stand in it that says what is
missing: lists and large objects lose what is at their end, long texts are shortened. Whatever the schema
does not allow to be cut (an `enum`, `minItems`, a member that is required) stays whole. How much stays
is searched for as in `tree`; where nothing that fits is valid, the whole stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, cast

from fingerpost.call.arguments.effort import StepBudget, StepBudgetExceeded
from fingerpost.call.arguments.validation import SchemaValidator
from fingerpost.call.digest.cut import MIN_BUDGET, build_digest
from fingerpost.call.digest.parts import find_additional_texts, write_json
from fingerpost.call.digest.tokens import count_tokens
from fingerpost.call.digest.tree import ELLIPSIS
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, ToolCard

_TEXT_LENGTHS: Final = (2_000, 600, 200, 80)  # of texts to try, where longer ones leave no room for items
_MAX_ITEMS: Final = 5
_MIN_MEMBERS: Final = 64  # an object with more is not a record but a list by name
_MAX_WORD_LENGTH: Final = 2_000  # addresses, dates and ids are of no use in part
_ROUNDS: Final = 6

ValuePath = tuple[str | int, ...]


@frozen
class StructuredFit:
    """What a client gets of a result that is too long: the same as text and as structured content."""

    structured: Json
    left_out: tuple[str, ...]  # nothing: the structured content is whole
    text: str  # what the structured content says; empty where that is too long and may not be cut
    beside: str  # what only the texts said


def fit_structured(
    result: JsonObject, card: ToolCard, schema: JsonObject, *, budget: int, handle: str | None
) -> StructuredFit:
    """The structured content of this result, and its text, within `budget` tokens where the schema allows."""
    value = result.get("structuredContent")
    said = [{"type": "text", "text": text} for text in find_additional_texts(result)]
    half = max(MIN_BUDGET, budget // 2)
    beside = build_digest({"content": said}, card, budget=half, handle=handle).text if said else ""
    room = budget - count_tokens(beside)
    try:
        pruned = _prune(value, schema, room)
    except (RecursionError, StepBudgetExceeded):
        pruned = None
    if pruned is None:
        return StructuredFit(structured=value, left_out=(), text="", beside=beside)
    return StructuredFit(
        structured=pruned.value, left_out=pruned.left_out, text=write_json(pruned.value), beside=beside
    )


def _prune(value: Json, schema: JsonObject, budget: int) -> _Pruning | None:
    """The most of the value that fits and is valid. Raises `Spent`."""
    check = _SchemaCheck(schema)
    best: _Pruning | None = None
    for characters in (budget * 3, *(length for length in _TEXT_LENGTHS if length < budget * 3)):
        found = _keep_most_items(value, budget, characters, check)
        if found is None:
            continue
        if best is None or found.items > best.items:
            best = found
        if not found.lists_cut or found.items >= _MAX_ITEMS:
            break
    return best


def _keep_most_items(value: Json, budget: int, characters: int, check: _SchemaCheck) -> _Pruning | None:
    """With texts of this length: as many items as fit, with what must stay whole found out round by round."""
    whole: set[ValuePath] = set()
    for _ in range(_ROUNDS):
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
    """Whether values keep to the schema, with a bound on the work."""

    def __init__(self, schema: JsonObject) -> None:
        self._validation = SchemaValidator(schema)
        self._effort = StepBudget(reserved=0)

    def find_invalid(self, value: Json) -> set[ValuePath]:
        """Where the value does not. Raises `Spent`."""
        errors, complete = self._validation.find_errors(value, self._effort)
        if not complete:
            raise StepBudgetExceeded
        return {tuple(error.absolute_path) for error in errors}


class _Pruning:
    """One try: so many items to a list, so many characters to a text; what is in `whole` is not cut."""

    def __init__(self, items: int, characters: int, budget: int, whole: frozenset[ValuePath]) -> None:
        self.items = items
        self.value: Json = None
        self.fits = False
        self._characters = characters
        self._budget = budget
        self._room = budget * 12 + 1_000  # characters; ordinary text that long does not fit
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
        said = [f"the last {missing:,} of {total:,} items"] if missing else []
        said += [f"{more:,} items of other lists"] if more else []
        said += [f"{self._texts:,} long texts in part"] if self._texts else []
        return tuple(said)

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
            kept = list(value)[: self._count_kept(len(value), _MIN_MEMBERS, lists)]
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
    """About as many characters as its text has; no more is looked at than it takes to pass `most`."""
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
