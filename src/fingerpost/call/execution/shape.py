"""A result as the protocol has it: what is certainly meant is mended, what cannot be meant is left out.

Clients read results by the letter, and one wrong block costs them all of it. Nearly every result is
right, and for those this is one look at each block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

from fingerpost.call.execution.dialogue import is_input_required
from fingerpost.errors import ServerReplyInvalid
from fingerpost.records import Call, Json, JsonObject

MAX_SHOWN: Final = 3  # of the blocks left out
MAX_SHOWN_LENGTH: Final = 100  # characters of each
_TEXT_KEYS: Final = {"true": True, "false": False}
_BYTE_KEYS: Final = ("image", "audio")


def normalize_result(result: JsonObject, call: Call) -> JsonObject:
    """The very same result where it is right. Raises `ServerReplyInvalid` for what is none at all."""
    if _is_valid(result):
        return result
    if is_input_required(result):
        _check_questions(result, call)
        return result
    if _is_task(result):
        message = f"{call.tool} answered with a task, and no task was asked for"
        raise ServerReplyInvalid(message, server=call.server, hint="report this to the server's author")
    return _repair_result(result)


def _is_valid(result: JsonObject) -> bool:
    content = result.get("content")
    if type(content) is not list or type(result.get("isError", False)) is not bool:
        return False
    if result.get("resultType", "complete") != "complete":
        return False
    return all(map(_is_block, cast("list[Json]", content)))


def _is_block(block: Json) -> bool:
    """Whether it is one that clients can read. Kinds nobody knows yet are for those who know them."""
    if not isinstance(block, dict):
        return False
    kind = block.get("type")
    if kind == "text":
        return isinstance(block.get("text"), str)
    if kind in _BYTE_KEYS:
        return isinstance(block.get("data"), str)
    if kind == "resource_link":
        return isinstance(block.get("uri"), str) and isinstance(block.get("name"), str)
    if kind == "resource":
        return _is_resource(block.get("resource"))
    return isinstance(kind, str)


def _is_resource(resource: Json) -> bool:
    if not isinstance(resource, Mapping) or not isinstance(resource.get("uri"), str):
        return False
    return isinstance(resource.get("text"), str) or isinstance(resource.get("blob"), str)


def _check_questions(result: JsonObject, call: Call) -> None:
    asked, state = result.get("inputRequests"), result.get("requestState")
    if state is not None and not isinstance(state, str):
        why = "its requestState is not text"
    elif asked is not None and not isinstance(asked, Mapping):
        why = "its inputRequests are not an object"
    else:
        return
    message = f"{call.tool} asked for input in a way that cannot be answered: {why}"
    raise ServerReplyInvalid(message, server=call.server, hint="report this to the server's author")


def _is_task(result: JsonObject) -> bool:
    if result.get("resultType") == "task":
        return True
    said = "content" in result or "structuredContent" in result
    return isinstance(result.get("task"), Mapping) and not said


def _repair_result(result: JsonObject) -> JsonObject:
    kept, left_out = _split_blocks(result.get("content"))
    if left_out:
        kept.append({"type": "text", "text": _build_note(left_out)})
    made: dict[str, Json] = {**result, "content": kept}
    failed = result.get("isError")
    if failed is None:
        made.pop("isError", None)
    elif not isinstance(failed, bool):  # what a server cannot say rightly did not go well
        made["isError"] = _TEXT_KEYS.get(failed, True) if isinstance(failed, str) else True
    return made


def _split_blocks(content: Json) -> tuple[list[Json], list[Json]]:
    """The blocks, and what stood among them and is none."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [{"type": "text", "text": content}], []
    entries = cast("Sequence[Json]", content) if isinstance(content, list | tuple) else (content,)
    kept: list[Json] = []
    left_out: list[Json] = []
    for entry in entries:
        block = _repair_block(entry)
        (kept if _is_block(block) else left_out).append(block)
    return kept, left_out


def _repair_block(entry: Json) -> Json:
    """A text among blocks, or a block without its type or name, where there is only one way to read it."""
    if isinstance(entry, str):
        return {"type": "text", "text": entry}
    if not isinstance(entry, Mapping):
        return entry
    if entry.get("type") is None and isinstance(entry.get("text"), str):
        return {**entry, "type": "text"}
    if entry.get("type") == "resource_link" and not isinstance(entry.get("name"), str):
        return {**entry, "name": entry.get("uri")}
    return entry if isinstance(entry, dict) else dict(entry)


def _build_note(left_out: Sequence[Json]) -> str:
    shown = [_show_beginning(entry) for entry in left_out[:MAX_SHOWN]]
    more = f" and {len(left_out) - MAX_SHOWN:,} more" if len(left_out) > MAX_SHOWN else ""
    return f"[Left out, because no client can read it: {'; '.join(shown)}{more}]"


def _show_beginning(entry: Json) -> str:
    """The beginning of it. What is long is not written out for that."""
    if isinstance(entry, Mapping):
        return f"a block of the type {json.dumps(entry.get('type'), default=str)[:MAX_SHOWN_LENGTH]}"
    if isinstance(entry, list | tuple):
        return "a list"
    return json.dumps(entry)[:MAX_SHOWN_LENGTH]
