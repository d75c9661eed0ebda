"""A bound for what stands in a result beside its text, its data and what is attached.

Those three are counted elsewhere. The rest is small in every ordinary result: notes for clients
(`_meta`, `annotations`), links, members nobody knows. It goes out whole as long as it is; of what is
too much the result says that it was left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.offers.encoding import encoded

MOST_BESIDE: Final = 1024 * 1024  # bytes
MOST_NAMED: Final = 5  # of what was left out
LONGEST_NAME: Final = 60
_COUNTED: Final = frozenset({"content", "structuredContent", "isError"})
_PLAIN_BLOCK: Final = frozenset({"type", "text"})
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {  # without which it is no block
    "text": ("type", "text"),
    "image": ("type", "data", "mimeType"),
    "audio": ("type", "data", "mimeType"),
    "resource_link": ("type", "uri", "name", "mimeType"),
    "resource": ("type", "resource"),
}
_NEEDED_INSIDE: Final = ("uri", "mimeType", "text", "blob")


@dataclass(slots=True)
class _Room:
    """What is left of the bound, and what had no place in it."""

    left: int = MOST_BESIDE
    names: list[str] = field(default_factory=list[str])
    blocks: int = 0

    def holds(self, value: Json) -> bool:
        size = len(encoded(value))
        if size > self.left:
            return False
        self.left -= size
        return True


def within_bounds(result: JsonObject, *, way: str = "") -> JsonObject:
    """The very same result, unless too much stands in it. `way` says how to read what is kept of it all."""
    if _is_plain(result) or len(encoded(result)) <= MOST_BESIDE:
        return result
    room = _Room()
    made: dict[str, Json] = {}
    for key, value in result.items():
        if key in _COUNTED or room.holds(value):
            made[key] = value
        else:
            room.names.append(f"`{key[:LONGEST_NAME]}`")
    content = result.get("content")
    if isinstance(content, list | tuple):
        made["content"] = _bounded(cast("Sequence[Json]", content), room)
        if said := _said(room):
            made["content"].append(
                {"type": "text", "text": f"[Left out, because it is too large: {said}.{way}]"}
            )
    return made


def slight(data: Json) -> Json:
    """What a server said with its error, unless it is too much."""
    if data is None or len(encoded(data)) <= MOST_BESIDE:
        return data
    return {"fingerpost/left_out": f"more than {MOST_BESIDE // 1024:,} KiB of data came with this error"}


def _is_plain(result: JsonObject) -> bool:
    """Whether nothing stands in it that would have to be counted: a quick yes for most."""
    if not result.keys() <= _COUNTED:
        return False
    content = result.get("content")
    if not isinstance(content, list) or len(content) != 1:
        return False
    [block] = content
    return isinstance(block, dict) and block.keys() <= _PLAIN_BLOCK


def _bounded(content: Sequence[Json], room: _Room) -> list[Json]:
    kept: list[Json] = []
    for block in content:
        if not isinstance(block, Mapping) or room.holds(_light(block)):
            kept.append(block)
            continue
        bare = _bare(block)
        if bare is not None and room.holds(_light(bare)):
            kept.append(bare)
            room.names.append("notes beside a block")
        else:
            room.blocks += 1
    return kept


def _light(block: JsonObject) -> JsonObject:
    """The block without what is counted elsewhere: its text by the digest, bytes as what is attached."""
    counted = ("text", "data") if block.get("type") == "text" else ("data",)
    light = _without(block, counted)
    resource = block.get("resource")
    if isinstance(resource, Mapping):
        light["resource"] = _without(resource, ("text", "blob"))
    return light


def _without(members: JsonObject, counted: Sequence[str]) -> dict[str, Json]:
    return {key: "" if key in counted and isinstance(value, str) else value for key, value in members.items()}


def _bare(block: JsonObject) -> JsonObject | None:
    """The block with nothing but what it must have; None where nobody knows what that is."""
    needed = _NEEDED.get(str(block.get("type")))
    if needed is None:
        return None
    bare: dict[str, Json] = {key: block[key] for key in needed if key in block}
    resource = bare.get("resource")
    if isinstance(resource, Mapping):
        bare["resource"] = {key: resource[key] for key in _NEEDED_INSIDE if key in resource}
    return bare


def _said(room: _Room) -> str:
    names = list(dict.fromkeys(room.names))
    shown = names[:MOST_NAMED]
    if len(names) > MOST_NAMED:
        shown.append(f"{len(names) - MOST_NAMED:,} more members")
    if room.blocks:
        shown.append(f"{room.blocks:,} blocks")
    return ", ".join(shown)
