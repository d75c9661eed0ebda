"""From the outcome of a call to the result a client gets.

What fits goes out as the server sent it. What does not is cut, and says so, and says
how to read on; where a tool has an output schema, text and structured content are cut alike.
Our own refusals are results a model can act on, not protocol errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from fingerpost.call.digest import StructuredFit, escape_invisible, fit_structured
from fingerpost.call.reply import build_cached_note
from fingerpost.records import Json, JsonObject, Outcome, ToolCard
from fingerpost.records.json import is_large_value
from fingerpost.surfaces.gateway.exchange import JsonRpcError
from fingerpost.surfaces.gateway.methods.bounds import bound_error_data, bound_result
from fingerpost.surfaces.gateway.offers.boxing import needs_wrapping, wrap_result
from fingerpost.surfaces.gateway.offers.encoding import encode_json
from fingerpost.surfaces.gateway.offers.own import READ_RESULT_NAME
from fingerpost.tasks import run_in_thread

MAX_ATTACHED_BYTES: Final = 4 * 1024 * 1024  # characters of pictures, sound and files in one result
MAX_STRUCTURED_BYTES: Final = 1024 * 1024  # bytes of data a client checks against the tool's outputSchema
MAX_BLOCKS: Final = 1_000  # of other things than text, in a result that is cut
MAX_INPUT_REQUEST_BYTES: Final = 4 * 1024 * 1024  # bytes of what a server asks
_BINARY_MEMBERS: Final = frozenset(
    {"blob", "data", "uri", "mimeType", "type", "_meta"}
)  # of blocks: for programs
_TEXTS: Final[Mapping[str, frozenset[str]]] = {  # members of results, with what stays exact in each
    "content": _BINARY_MEMBERS,  # of tools
    "structuredContent": frozenset(),
    "description": frozenset(),  # of prompts
    "messages": _BINARY_MEMBERS,
    "contents": _BINARY_MEMBERS,  # of resources
}
_META_PREFIX: Final = "_meta"
_CALL_META_KEY: Final = "fingerpost/call"
# Of the outcome's metadata: what failed, and what a call that waits for a person needs.
_NOTE_META_KEYS: Final = (
    "error_type",
    "attemptedPath",
    "requiresAuthorization",
    "authorizationKey",
    "reason",
)


async def render_result(
    outcome: Outcome, card: ToolCard | None, *, modern: bool, budget: int = 0
) -> JsonObject:
    """The result of `tools/call`. Raises `Refusal` with the server's own error, where it sent one.

    `budget`: how many tokens the structured content of a result that is cut may take.
    """
    if outcome.result is not None:
        result = await escape_result_text(outcome.result)
        return await _render_answer(outcome, result, card, modern=modern, budget=budget)
    if outcome.code is not None:
        raise JsonRpcError(
            outcome.code, escape_invisible(outcome.detail or outcome.content), bound_error_data(outcome.data)
        )
    if outcome.success:
        return _add_call_meta({"content": [_build_text_block(outcome.content)]}, outcome)
    return _render_failure(outcome)


async def escape_result_text(result: JsonObject) -> JsonObject:
    """The result with unseen characters of its texts and data written out, as everywhere that models read.

    For results of `tools/call`, `prompts/get` and `resources/read`; small ones do not wait for large ones.
    """
    return await run_in_thread(_without_unseen, result) if is_large_value(result) else _without_unseen(result)


def _without_unseen(result: JsonObject) -> JsonObject:
    if result.get("resultType") == "input_required":
        return result
    parts = {key: _escape_part(result[key], exact) for key, exact in _TEXTS.items() if key in result}
    return result if all(parts[key] is result[key] for key in parts) else {**result, **parts}


def _escape_part(part: Json, exact: frozenset[str]) -> Json:
    """The very same object, where there is nothing to write out: nearly always. Members `exact` stay."""
    if isinstance(part, str):
        told = escape_invisible(part)
        return part if told == part else told
    if isinstance(part, Mapping):
        made = {key: value if key in exact else _escape_part(value, exact) for key, value in part.items()}
        return part if all(made[key] is part[key] for key in part) else made
    if isinstance(part, list | tuple):
        items = [_escape_part(item, exact) for item in part]
        return part if all(one is other for one, other in zip(items, part, strict=True)) else items
    return part


async def _render_answer(
    outcome: Outcome, result: JsonObject, card: ToolCard | None, *, modern: bool, budget: int
) -> JsonObject:
    if result.get("resultType") == "input_required":
        return (
            result if len(encode_json(result)) <= MAX_INPUT_REQUEST_BYTES else _build_input_too_large(outcome)
        )
    content = _get_content_blocks(result)
    trimmed = outcome.digest is not None and outcome.digest.trimmed
    if trimmed or sum(map(_measure_block, content)) > MAX_ATTACHED_BYTES:
        cut = await _render_trimmed(outcome, result, content, card, budget)
        return cut if modern else _adapt_to_legacy(cut, card)
    return _add_call_meta(bound_result(result if modern else _adapt_to_legacy(result, card)), outcome)


def _adapt_to_legacy(result: JsonObject, card: ToolCard | None) -> JsonObject:
    """Before 2026-07-28 structured content had to be an object; a list or a number would be refused."""
    structured = result.get("structuredContent", _EMPTY_TEXT)
    if isinstance(structured, Mapping):
        return result
    if structured is not None or (card is not None and needs_wrapping(card.definition.get("outputSchema"))):
        return {**result, "structuredContent": wrap_result(structured)}
    return {key: value for key, value in result.items() if key != "structuredContent"}


_EMPTY_TEXT: Final[JsonObject] = {}


async def _render_trimmed(
    outcome: Outcome, result: JsonObject, content: Sequence[JsonObject], card: ToolCard | None, budget: int
) -> JsonObject:
    handle = _get_handle(outcome)
    kept: dict[str, Json] = {
        key: value for key, value in result.items() if key not in ("content", "structuredContent")
    }
    said = [_build_text_block(outcome.content)]
    schema = None if card is None else card.definition.get("outputSchema")
    if card is not None and isinstance(schema, Mapping) and result.get("structuredContent") is not None:
        fitting = partial(fit_structured, result, card, schema, budget=budget, handle=handle)
        fit = await run_in_thread(fitting)
        if not fit.left_out and len(encode_json(fit.structured)) > MAX_STRUCTURED_BYTES:
            return _build_structured_too_large(outcome, handle)
        kept["structuredContent"] = fit.structured
        rest = outcome.metadata.get("rest")  # why there is no handle
        lost = f"[{rest}]" if rest is not None else ""
        said = [
            _build_text_block(text) for text in (fit.beside, _describe_structured(fit, handle), lost) if text
        ]
        if fit.left_out:
            kept[_META_PREFIX] = {**_copy_meta(result), "fingerpost/left_out": list(fit.left_out)}
    kept["content"] = [*said, *_select_attachments(content)]
    way = f" What is kept of the whole: {READ_RESULT_NAME}(handle={handle!r})" if handle else ""
    return _add_call_meta(bound_result(kept, hint=way), outcome)


def _describe_structured(fit: StructuredFit, handle: str | None) -> str:
    """The structured content as text, with what is missing; of one that is whole only where it is."""
    way = f"{READ_RESULT_NAME}(handle={handle!r})" if handle else ""
    if fit.left_out:
        return f"{fit.text}\n[Left out: {'; '.join(fit.left_out)}.{f' All of it: {way}' if way else ''}]"
    if fit.text:
        return fit.text
    pages = f", and in pages: {way}" if way else ""
    return f"[The result is too long to be repeated as text. It is whole in `structuredContent`{pages}]"


def _get_handle(outcome: Outcome) -> str | None:
    return None if outcome.digest is None else outcome.digest.handle


def _build_input_too_large(outcome: Outcome) -> JsonObject:
    message = (
        f"{outcome.tool} asks for input with more than {MAX_INPUT_REQUEST_BYTES // 1024:,} "
        "KiB: that is not passed on."
    )
    return _add_call_meta({"content": [_build_text_block(message)], "isError": True}, outcome)


def _build_structured_too_large(outcome: Outcome, handle: str | None) -> JsonObject:
    """Data that must be whole to be valid, and is too large to be sent whole."""
    message = (
        f"{outcome.tool} answered, but its data are larger than "
        f"{MAX_STRUCTURED_BYTES // 1024} KiB and cannot be "
        f"sent whole. Ask it for less (a filter, a page, fewer fields)"
    )
    way = f", or read the result in pages: {READ_RESULT_NAME}(handle={handle!r})." if handle else "."
    result: JsonObject = {
        "content": [_build_text_block(message + way), _build_text_block(outcome.content)],
        "isError": True,
    }
    return _add_call_meta(result, outcome)


def _select_attachments(content: Sequence[JsonObject]) -> list[JsonObject]:
    """Pictures, sound, files and links, as many as there is room for; texts are in the digest."""
    room = MAX_ATTACHED_BYTES
    kept: list[JsonObject] = []
    for place, block in enumerate(content):
        if len(kept) >= MAX_BLOCKS:
            kept.append(
                _build_text_block(
                    f"[up to {len(content) - place:,} more blocks left out: there are too many]"
                )
            )
            break
        if block.get("type") == "text" or isinstance(_get_resource(block).get("text"), str):
            continue
        size = _measure_block(block)
        if size <= room:
            room -= size
            kept.append(block)
        else:
            kept.append(
                _build_text_block(f"[{block.get('type')} of {size:,} characters left out: it is too large]")
            )
    return kept


def _get_content_blocks(result: JsonObject) -> Sequence[JsonObject]:
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return ()
    return [
        cast("JsonObject", block) for block in cast("Sequence[object]", content) if isinstance(block, dict)
    ]


def _measure_block(block: JsonObject) -> int:
    """Of what is not text: that is counted, and cut, by the digest."""
    data, blob = block.get("data"), _get_resource(block).get("blob")
    return (len(data) if isinstance(data, str) else 0) + (len(blob) if isinstance(blob, str) else 0)


def _get_resource(block: JsonObject) -> JsonObject:
    resource = block.get("resource")
    return cast("JsonObject", resource) if isinstance(resource, Mapping) else _EMPTY_TEXT


# -- our own words ----------------------------------------------------------------------------------


def _render_failure(outcome: Outcome) -> JsonObject:
    lines = [outcome.content]
    if outcome.advice and outcome.pending_id is None:  # what waits for a person says itself what to do
        lines.append(outcome.advice)
    result: JsonObject = {"content": [_build_text_block("\n".join(lines))], "isError": True}
    return _add_call_meta(result, outcome)


def _add_call_meta(result: JsonObject, outcome: Outcome) -> JsonObject:
    """`result` with our notes beside it: which call this was, and what we did to it."""
    meta = _copy_meta(result)
    meta[_CALL_META_KEY] = outcome.call_id
    if outcome.error is not None:
        meta["fingerpost/error"] = outcome.error.value
    if outcome.pending_id is not None:
        meta["fingerpost/pending"] = outcome.pending_id
    if outcome.repairs:
        meta["fingerpost/repairs"] = [f"{repair.path}: {repair.reason}" for repair in outcome.repairs]
    if outcome.digest is not None and outcome.digest.handle is not None:
        meta["fingerpost/handle"] = outcome.digest.handle
    for name in _NOTE_META_KEYS:
        if (value := outcome.metadata.get(name)) is not None:
            meta[f"fingerpost/{name}"] = value
    answered_by = outcome.metadata.get("answered_by")
    if answered_by is not None:
        meta["fingerpost/answered_by"] = answered_by
        result = _add_substitute_note(answered_by, result)
    if (cached := outcome.metadata.get("cached")) is not None:
        meta["fingerpost/cached"] = cached
        result = {
            **result,
            "content": [*_get_content_blocks(result), _build_text_block(f"[{build_cached_note(outcome)}]")],
        }
    if (first := outcome.metadata.get("replayed")) is not None:
        meta["fingerpost/replayed"] = first
    return {**result, _META_PREFIX: meta}


def _copy_meta(result: JsonObject) -> dict[str, Json]:
    before = result.get(_META_PREFIX)
    return dict(cast("JsonObject", before)) if isinstance(before, Mapping) else {}


def _add_substitute_note(stand_in: Json, result: JsonObject) -> JsonObject:
    """The result, and whose it is where a model can read it: nobody shows it the notes."""
    told = _build_text_block(f"[This is the answer of {stand_in}: the tool that was called failed.]")
    return {**result, "content": [*_get_content_blocks(result), told]}


def _build_text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
