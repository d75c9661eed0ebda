"""From the outcome of a call to the result a client gets.

What fits goes out as the server sent it. What does not is cut, and says so, and says
how to read on; where a tool has an output schema, text and structured content are cut alike.
Our own refusals are results a model can act on, not protocol errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from fingerpost.call.digest import StructuredFit, fit_structured, shown
from fingerpost.call.reply import cached_note
from fingerpost.records import Json, JsonObject, Outcome, ToolCard
from fingerpost.records.json import holds_much
from fingerpost.surfaces.gateway.exchange import Refusal
from fingerpost.surfaces.gateway.methods.bounds import slight, within_bounds
from fingerpost.surfaces.gateway.offers.boxing import boxed, is_boxed
from fingerpost.surfaces.gateway.offers.encoding import encoded
from fingerpost.surfaces.gateway.offers.own import READ
from fingerpost.tasks import aside

MOST_ATTACHED: Final = 4 * 1024 * 1024  # characters of pictures, sound and files in one result
MOST_STRUCTURED: Final = 1024 * 1024  # bytes of data a client checks against the tool's outputSchema
MOST_BLOCKS: Final = 1_000  # of other things than text, in a result that is cut
MOST_ASKED: Final = 4 * 1024 * 1024  # bytes of what a server asks
_NOT_TEXT: Final = frozenset({"blob", "data", "uri", "mimeType", "type", "_meta"})  # of blocks: for programs
_TEXTS: Final[Mapping[str, frozenset[str]]] = {  # members of results, with what stays exact in each
    "content": _NOT_TEXT,  # of tools
    "structuredContent": frozenset(),
    "description": frozenset(),  # of prompts
    "messages": _NOT_TEXT,
    "contents": _NOT_TEXT,  # of resources
}
_META: Final = "_meta"
_CALL: Final = "fingerpost/call"
# Of the outcome's metadata: what failed, and what a call that waits for a person needs.
_TOLD: Final = ("error_type", "attemptedPath", "requiresAuthorization", "authorizationKey", "reason")


async def rendered(outcome: Outcome, card: ToolCard | None, *, modern: bool, budget: int = 0) -> JsonObject:
    """The result of `tools/call`. Raises `Refusal` with the server's own error, where it sent one.

    `budget`: how many tokens the structured content of a result that is cut may take.
    """
    if outcome.result is not None:
        result = await without_unseen(outcome.result)
        return await _answered(outcome, result, card, modern=modern, budget=budget)
    if outcome.code is not None:
        raise Refusal(outcome.code, shown(outcome.detail or outcome.content), slight(outcome.data))
    if outcome.success:
        return _noted({"content": [_text(outcome.content)]}, outcome)
    return _failed(outcome)


async def without_unseen(result: JsonObject) -> JsonObject:
    """The result with unseen characters of its texts and data written out, as everywhere that models read.

    For results of `tools/call`, `prompts/get` and `resources/read`; small ones do not wait for large ones.
    """
    return await aside(_without_unseen, result) if holds_much(result) else _without_unseen(result)


def _without_unseen(result: JsonObject) -> JsonObject:
    if result.get("resultType") == "input_required":
        return result
    parts = {key: _shown_in(result[key], exact) for key, exact in _TEXTS.items() if key in result}
    return result if all(parts[key] is result[key] for key in parts) else {**result, **parts}


def _shown_in(part: Json, exact: frozenset[str]) -> Json:
    """The very same object, where there is nothing to write out: nearly always. Members `exact` stay."""
    if isinstance(part, str):
        told = shown(part)
        return part if told == part else told
    if isinstance(part, Mapping):
        made = {key: value if key in exact else _shown_in(value, exact) for key, value in part.items()}
        return part if all(made[key] is part[key] for key in part) else made
    if isinstance(part, list | tuple):
        items = [_shown_in(item, exact) for item in part]
        return part if all(one is other for one, other in zip(items, part, strict=True)) else items
    return part


async def _answered(
    outcome: Outcome, result: JsonObject, card: ToolCard | None, *, modern: bool, budget: int
) -> JsonObject:
    if result.get("resultType") == "input_required":
        return result if len(encoded(result)) <= MOST_ASKED else _asks_too_much(outcome)
    content = _blocks(result)
    trimmed = outcome.digest is not None and outcome.digest.trimmed
    if trimmed or sum(map(_size, content)) > MOST_ATTACHED:
        cut = await _cut(outcome, result, content, card, budget)
        return cut if modern else _for_older(cut, card)
    return _noted(within_bounds(result if modern else _for_older(result, card)), outcome)


def _for_older(result: JsonObject, card: ToolCard | None) -> JsonObject:
    """Before 2026-07-28 structured content had to be an object; a list or a number would be refused."""
    structured = result.get("structuredContent", _EMPTY)
    if isinstance(structured, Mapping):
        return result
    if structured is not None or (card is not None and is_boxed(card.definition.get("outputSchema"))):
        return {**result, "structuredContent": boxed(structured)}
    return {key: value for key, value in result.items() if key != "structuredContent"}


_EMPTY: Final[JsonObject] = {}


async def _cut(
    outcome: Outcome, result: JsonObject, content: Sequence[JsonObject], card: ToolCard | None, budget: int
) -> JsonObject:
    handle = _handle(outcome)
    kept: dict[str, Json] = {
        key: value for key, value in result.items() if key not in ("content", "structuredContent")
    }
    said = [_text(outcome.content)]
    schema = None if card is None else card.definition.get("outputSchema")
    if card is not None and isinstance(schema, Mapping) and result.get("structuredContent") is not None:
        fitting = partial(fit_structured, result, card, schema, budget=budget, handle=handle)
        fit = await aside(fitting)
        if not fit.left_out and len(encoded(fit.structured)) > MOST_STRUCTURED:
            return _too_much(outcome, handle)
        kept["structuredContent"] = fit.structured
        rest = outcome.metadata.get("rest")  # why there is no handle
        lost = f"[{rest}]" if rest is not None else ""
        said = [_text(text) for text in (fit.beside, _said_of(fit, handle), lost) if text]
        if fit.left_out:
            kept[_META] = {**_meta(result), "fingerpost/left_out": list(fit.left_out)}
    kept["content"] = [*said, *_fitting(content)]
    way = f" What is kept of the whole: {READ}(handle={handle!r})" if handle else ""
    return _noted(within_bounds(kept, way=way), outcome)


def _said_of(fit: StructuredFit, handle: str | None) -> str:
    """The structured content as text, with what is missing; of one that is whole only where it is."""
    way = f"{READ}(handle={handle!r})" if handle else ""
    if fit.left_out:
        return f"{fit.text}\n[Left out: {'; '.join(fit.left_out)}.{f' All of it: {way}' if way else ''}]"
    if fit.text:
        return fit.text
    pages = f", and in pages: {way}" if way else ""
    return f"[The result is too long to be repeated as text. It is whole in `structuredContent`{pages}]"


def _handle(outcome: Outcome) -> str | None:
    return None if outcome.digest is None else outcome.digest.handle


def _asks_too_much(outcome: Outcome) -> JsonObject:
    message = (
        f"{outcome.tool} asks for input with more than {MOST_ASKED // 1024:,} KiB: that is not passed on."
    )
    return _noted({"content": [_text(message)], "isError": True}, outcome)


def _too_much(outcome: Outcome, handle: str | None) -> JsonObject:
    """Data that must be whole to be valid, and is too large to be sent whole."""
    message = (
        f"{outcome.tool} answered, but its data are larger than {MOST_STRUCTURED // 1024} KiB and cannot be "
        f"sent whole. Ask it for less (a filter, a page, fewer fields)"
    )
    way = f", or read the result in pages: {READ}(handle={handle!r})." if handle else "."
    result: JsonObject = {"content": [_text(message + way), _text(outcome.content)], "isError": True}
    return _noted(result, outcome)


def _fitting(content: Sequence[JsonObject]) -> list[JsonObject]:
    """Pictures, sound, files and links, as many as there is room for; texts are in the digest."""
    room = MOST_ATTACHED
    kept: list[JsonObject] = []
    for place, block in enumerate(content):
        if len(kept) >= MOST_BLOCKS:
            kept.append(_text(f"[up to {len(content) - place:,} more blocks left out: there are too many]"))
            break
        if block.get("type") == "text" or isinstance(_resource(block).get("text"), str):
            continue
        size = _size(block)
        if size <= room:
            room -= size
            kept.append(block)
        else:
            kept.append(_text(f"[{block.get('type')} of {size:,} characters left out: it is too large]"))
    return kept


def _blocks(result: JsonObject) -> Sequence[JsonObject]:
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return ()
    return [
        cast("JsonObject", block) for block in cast("Sequence[object]", content) if isinstance(block, dict)
    ]


def _size(block: JsonObject) -> int:
    """Of what is not text: that is counted, and cut, by the digest."""
    data, blob = block.get("data"), _resource(block).get("blob")
    return (len(data) if isinstance(data, str) else 0) + (len(blob) if isinstance(blob, str) else 0)


def _resource(block: JsonObject) -> JsonObject:
    resource = block.get("resource")
    return cast("JsonObject", resource) if isinstance(resource, Mapping) else _EMPTY


# -- our own words ----------------------------------------------------------------------------------


def _failed(outcome: Outcome) -> JsonObject:
    lines = [outcome.content]
    if outcome.advice and outcome.pending_id is None:  # what waits for a person says itself what to do
        lines.append(outcome.advice)
    result: JsonObject = {"content": [_text("\n".join(lines))], "isError": True}
    return _noted(result, outcome)


def _noted(result: JsonObject, outcome: Outcome) -> JsonObject:
    """`result` with our notes beside it: which call this was, and what we did to it."""
    meta = _meta(result)
    meta[_CALL] = outcome.call_id
    if outcome.error is not None:
        meta["fingerpost/error"] = outcome.error.value
    if outcome.pending_id is not None:
        meta["fingerpost/pending"] = outcome.pending_id
    if outcome.repairs:
        meta["fingerpost/repairs"] = [f"{repair.path}: {repair.reason}" for repair in outcome.repairs]
    if outcome.digest is not None and outcome.digest.handle is not None:
        meta["fingerpost/handle"] = outcome.digest.handle
    for name in _TOLD:
        if (value := outcome.metadata.get(name)) is not None:
            meta[f"fingerpost/{name}"] = value
    answered_by = outcome.metadata.get("answered_by")
    if answered_by is not None:
        meta["fingerpost/answered_by"] = answered_by
        result = _with_word_of(answered_by, result)
    if (cached := outcome.metadata.get("cached")) is not None:
        meta["fingerpost/cached"] = cached
        result = {**result, "content": [*_blocks(result), _text(f"[{cached_note(outcome)}]")]}
    if (first := outcome.metadata.get("replayed")) is not None:
        meta["fingerpost/replayed"] = first
    return {**result, _META: meta}


def _meta(result: JsonObject) -> dict[str, Json]:
    before = result.get(_META)
    return dict(cast("JsonObject", before)) if isinstance(before, Mapping) else {}


def _with_word_of(stand_in: Json, result: JsonObject) -> JsonObject:
    """The result, and whose it is where a model can read it: nobody shows it the notes."""
    told = _text(f"[This is the answer of {stand_in}: the tool that was called failed.]")
    return {**result, "content": [*_blocks(result), told]}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
