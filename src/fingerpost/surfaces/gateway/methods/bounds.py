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
from fingerpost.surfaces.gateway.offers.encoding import encode_json

MAX_EXTRA_BYTES: Final = 1024 * 1024  # bytes
MAX_NAMES_LISTED: Final = 5  # of what was left out
MAX_MEMBER_NAME_LENGTH: Final = 60
_COUNTED_MEMBERS: Final = frozenset({"content", "structuredContent", "isError"})
_PLAIN_BLOCK_MEMBERS: Final = frozenset({"type", "text"})
_REQUIRED_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {  # without which it is no block
    "text": ("type", "text"),
    "image": ("type", "data", "mimeType"),
    "audio": ("type", "data", "mimeType"),
    "resource_link": ("type", "uri", "name", "mimeType"),
    "resource": ("type", "resource"),
}
_REQUIRED_RESOURCE_MEMBERS: Final = ("uri", "mimeType", "text", "blob")


@dataclass(slots=True)
class _ExtraBudget:
    """What is left of the bound, and what had no place in it."""

    left: int = MAX_EXTRA_BYTES
    names: list[str] = field(default_factory=list[str])
    blocks: int = 0

    def take(self, value: Json) -> bool:
        size = len(encode_json(value))
        if size > self.left:
            return False
        self.left -= size
        return True


def bound_result(result: JsonObject, *, hint: str = "") -> JsonObject:
    """The very same result, unless too much stands in it. `way` says how to read what is kept of it all."""
    if _has_no_extras(result) or len(encode_json(result)) <= MAX_EXTRA_BYTES:
        return result
    room = _ExtraBudget()
    made: dict[str, Json] = {}
    for key, value in result.items():
        if key in _COUNTED_MEMBERS or room.take(value):
            made[key] = value
        else:
            room.names.append(f"`{key[:MAX_MEMBER_NAME_LENGTH]}`")
    content = result.get("content")
    if isinstance(content, list | tuple):
        made["content"] = _bound_blocks(cast("Sequence[Json]", content), room)
        if said := _describe_dropped(room):
            made["content"].append(
                {"type": "text", "text": f"[Left out, because it is too large: {said}.{hint}]"}
            )
    return made


def bound_error_data(data: Json) -> Json:
    """What a server said with its error, unless it is too much."""
    if data is None or len(encode_json(data)) <= MAX_EXTRA_BYTES:
        return data
    return {"fingerpost/left_out": f"more than {MAX_EXTRA_BYTES // 1024:,} KiB of data came with this error"}


def _has_no_extras(result: JsonObject) -> bool:
    """Whether nothing stands in it that would have to be counted: a quick yes for most."""
    if not result.keys() <= _COUNTED_MEMBERS:
        return False
    content = result.get("content")
    if not isinstance(content, list) or len(content) != 1:
        return False
    [block] = content
    return isinstance(block, dict) and block.keys() <= _PLAIN_BLOCK_MEMBERS


def _bound_blocks(content: Sequence[Json], budget: _ExtraBudget) -> list[Json]:
    kept: list[Json] = []
    for block in content:
        if not isinstance(block, Mapping) or budget.take(_get_block_extras(block)):
            kept.append(block)
            continue
        bare = _reduce_block(block)
        if bare is not None and budget.take(_get_block_extras(bare)):
            kept.append(bare)
            budget.names.append("notes beside a block")
        else:
            budget.blocks += 1
    return kept


def _get_block_extras(block: JsonObject) -> JsonObject:
    """The block without what is counted elsewhere: its text by the digest, bytes as what is attached."""
    counted = ("text", "data") if block.get("type") == "text" else ("data",)
    light = _drop_members(block, counted)
    resource = block.get("resource")
    if isinstance(resource, Mapping):
        light["resource"] = _drop_members(resource, ("text", "blob"))
    return light


def _drop_members(members: JsonObject, counted: Sequence[str]) -> dict[str, Json]:
    return {key: "" if key in counted and isinstance(value, str) else value for key, value in members.items()}


def _reduce_block(block: JsonObject) -> JsonObject | None:
    """The block with nothing but what it must have; None where nobody knows what that is."""
    needed = _REQUIRED_MEMBERS.get(str(block.get("type")))
    if needed is None:
        return None
    bare: dict[str, Json] = {key: block[key] for key in needed if key in block}
    resource = bare.get("resource")
    if isinstance(resource, Mapping):
        bare["resource"] = {key: resource[key] for key in _REQUIRED_RESOURCE_MEMBERS if key in resource}
    return bare


def _describe_dropped(budget: _ExtraBudget) -> str:
    names = list(dict.fromkeys(budget.names))
    shown = names[:MAX_NAMES_LISTED]
    if len(names) > MAX_NAMES_LISTED:
        shown.append(f"{len(names) - MAX_NAMES_LISTED:,} more members")
    if budget.blocks:
        shown.append(f"{budget.blocks:,} blocks")
    return ", ".join(shown)
