"""Arguments as they may be shown, and edited ones without the masks that were shown.

Whoever approves a call sees its arguments with secrets masked. When they change one
argument and send all of them back, the masks must not become what the tool is called
with: where a value is as it was shown, the value itself is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from fingerpost.records import Json, JsonObject
from fingerpost.redaction import MASK, scrub_json


class MaskLeft(ValueError):
    """A mask stands where we cannot tell which value is meant. `where` is its path."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


def shown(arguments: JsonObject) -> JsonObject:
    """The arguments with secrets masked."""
    return cast("JsonObject", scrub_json(arguments))


def masked_paths(arguments: JsonObject) -> tuple[str, ...]:
    """Where something is masked, such as `headers.authorization`."""
    return tuple(_differences("", arguments, shown(arguments)))


def _differences(path: str, before: Json, after: Json) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name, value in before.items():
            yield from _differences(f"{path}.{name}" if path else name, value, after[name])
    elif _is_list(before) and _is_list(after):
        pairs = zip(cast("Sequence[Json]", before), cast("Sequence[Json]", after), strict=True)
        for index, (old, new) in enumerate(pairs):
            yield from _differences(f"{path}[{index}]", old, new)
    elif before != after:
        yield path


def meant(edited: JsonObject, original: JsonObject) -> JsonObject:
    """The edited arguments with every mask that was shown put back to what it stood for.

    Raises `MaskLeft` for a mask that stood nowhere, or was moved.
    """
    return cast("JsonObject", _meant("", edited, original, shown(original)))


def _meant(path: str, edited: Json, original: Json, seen: Json) -> Json:
    if isinstance(edited, Mapping):
        olds, seens = _entries(original), _entries(seen)
        return {
            name: _meant(f"{path}.{name}" if path else name, value, olds.get(name), seens.get(name))
            for name, value in edited.items()
        }
    if _is_list(edited):
        items = cast("Sequence[Json]", edited)
        olds, seens = _items(original), _items(seen)
        return [
            _meant(f"{path}[{index}]", item, _at(olds, index), _at(seens, index))
            for index, item in enumerate(items)
        ]
    if isinstance(edited, str) and MASK in edited:
        if edited == seen:
            return original
        raise MaskLeft(path)
    return edited


def _entries(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Json) -> Sequence[Json]:
    return cast("Sequence[Json]", value) if _is_list(value) else ()


def _at(items: Sequence[Json], index: int) -> Json:
    return items[index] if index < len(items) else None


def _is_list(value: Json) -> bool:
    return isinstance(value, list | tuple)
