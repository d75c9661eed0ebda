"""Results of tool calls for clients: limited in size, with resource links that refer to their server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

import anyio.to_thread

from fingerpost.call.digest import StructuredFit, escape_invisible, fit_structured
from fingerpost.call.digest.results import parse_asset_handle
from fingerpost.call.outcomes import build_cached_note
from fingerpost.catalog.resources import ResourceCollection, build_alias
from fingerpost.records import Json, JsonObject, Outcome, ToolCard
from fingerpost.records.json import is_large_value
from fingerpost.surfaces.gateway.listing.pages import encode_json, needs_wrapping, wrap_result
from fingerpost.surfaces.gateway.listing.tools import READ_RESULT_NAME
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from fingerpost.tasks import run_in_thread

MAX_EXTRA_BYTES: Final = 1024 * 1024
MAX_NAMES_LISTED: Final = 5  # names of omitted members
MAX_MEMBER_NAME_LENGTH: Final = 60
_STANDARD_MEMBERS: Final = frozenset({"content", "structuredContent", "isError"})
_PLAIN_BLOCK_MEMBERS: Final = frozenset({"type", "text"})
_REQUIRED_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {  # by block type
    "text": ("type", "text"),
    "image": ("type", "data", "mimeType"),
    "audio": ("type", "data", "mimeType"),
    "resource_link": ("type", "uri", "name", "mimeType"),
    "resource": ("type", "resource"),
}
_REQUIRED_RESOURCE_MEMBERS: Final = ("uri", "mimeType", "text", "blob")


@dataclass(slots=True)
class _ExtraBudget:
    """The remaining bytes of the limit, and what did not fit."""

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
    """Return the result, reduced if it is too large. `hint` says how to read the stored whole."""
    if _has_no_extras(result) or len(encode_json(result)) <= MAX_EXTRA_BYTES:
        return result
    room = _ExtraBudget()
    made: dict[str, Json] = {}
    for key, value in result.items():
        if key in _STANDARD_MEMBERS or room.take(value):
            made[key] = value
        else:
            room.names.append(f"`{key[:MAX_MEMBER_NAME_LENGTH]}`")
    content = result.get("content")
    if isinstance(content, list | tuple):
        made["content"] = _bound_blocks(cast("Sequence[Json]", content), room)
        if dropped := _describe_dropped(room):
            made["content"].append(
                {"type": "text", "text": f"[Left out because it is too large: {dropped}.{hint}]"}
            )
    return made


def bound_error_data(data: Json) -> Json:
    """Return the data of a server's error, or a note if it is too large."""
    if data is None or len(encode_json(data)) <= MAX_EXTRA_BYTES:
        return data
    return {"fingerpost/left_out": f"more than {MAX_EXTRA_BYTES // 1024:,} KiB of data came with this error"}


def _has_no_extras(result: JsonObject) -> bool:
    """Return whether the result is one plain text block with standard members only, as most results are."""
    if not result.keys() <= _STANDARD_MEMBERS:
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
    """Return the block without what is counted elsewhere: text in the digest, bytes as attachments."""
    counted = ("text", "data") if block.get("type") == "text" else ("data",)
    light = _blank_members(block, counted)
    resource = block.get("resource")
    if isinstance(resource, Mapping):
        light["resource"] = _blank_members(resource, ("text", "blob"))
    return light


def _blank_members(members: JsonObject, counted: Sequence[str]) -> dict[str, Json]:
    return {key: "" if key in counted and isinstance(value, str) else value for key, value in members.items()}


def _reduce_block(block: JsonObject) -> JsonObject | None:
    """Return the block with required members only, or None for an unknown type."""
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


MAX_LOOKUPS_INLINE: Final = 8  # more are looked up in a thread
MAX_LINKS: Final = 1000  # URIs looked up per result

_LINK_TYPES: Final = ("resource_link", "resource")

LinkNames = Mapping[str, str]  # the gateway's URIs by the server's


def has_links(content: Json) -> bool:
    """Return whether the content of a result contains a URI. Fast, because every result is checked."""
    if not isinstance(content, list | tuple):
        return False
    return any(isinstance(block, dict) and block.get("type") in _LINK_TYPES for block in content)


async def rewrite_result_links(result: JsonObject, collection: ResourceCollection, server: str) -> JsonObject:
    """Rewrite the links of a tool result so that a viewer of this collection can follow them."""
    content = result.get("content")
    names = await _resolve_links(_iterate_uris(content), collection, server)
    return {**result, "content": _rewrite_content(content, names)} if names else result


async def rewrite_prompt_links(result: JsonObject, collection: ResourceCollection, server: str) -> JsonObject:
    """Rewrite the links of a `prompts/get` result."""
    messages = result.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return result
    valid_messages = [message for message in messages if isinstance(message, Mapping)]
    uris = (uri for message in valid_messages for uri in _iterate_uris(message.get("content")))
    names = await _resolve_links(uris, collection, server)
    if not names:
        return result
    return {**result, "messages": [_rewrite_message(message, names) for message in messages]}


async def _resolve_links(uris: Iterator[str], collection: ResourceCollection, server: str) -> LinkNames:
    """Return the gateway's URI for every URI that differs from the server's own."""
    # Stored results have the gateway's own URIs and need no rewriting.
    given = [uri for uri in dict.fromkeys(uris) if parse_asset_handle(uri) is None]
    if len(given) <= MAX_LOOKUPS_INLINE:
        return _look_up_links(given, collection, server)
    return await anyio.to_thread.run_sync(_look_up_links, given, collection, server)


def _look_up_links(given: Sequence[str], collection: ResourceCollection, server: str) -> LinkNames:
    names = {uri: collection.get_listed_uri(server, uri) for uri in given[:MAX_LINKS]}
    if server in collection.servers:  # the long form is always valid
        names |= {uri: build_alias(server, uri) for uri in given[MAX_LINKS:]}
    return {uri: name for uri, name in names.items() if name != uri}


def _iterate_uris(content: Json) -> Iterator[str]:
    for block in _get_blocks(content):
        if isinstance(block, Mapping):
            uri = _get_link_holder(block).get("uri")
            if isinstance(uri, str):
                yield uri


def _get_blocks(content: Json) -> Sequence[Json]:
    """Return the blocks of a message, which has one or several."""
    if isinstance(content, list | tuple):
        return content
    return (content,)


_NOTHING: Final[JsonObject] = {}


def _get_link_holder(block: JsonObject) -> JsonObject:
    """Return the object that holds a block's URI: the link itself, or its embedded resource."""
    kind = block.get("type")
    if kind == "resource_link":
        return block
    resource = block.get("resource") if kind == "resource" else None
    return resource if isinstance(resource, Mapping) else _NOTHING


def _rewrite_content(content: Json, names: LinkNames) -> Json:
    if isinstance(content, list | tuple):
        return [_rewrite_block(block, names) for block in content]
    return _rewrite_block(content, names)


def _rewrite_block(block: Json, names: LinkNames) -> Json:
    if not isinstance(block, Mapping):
        return block
    named = _get_link_holder(block)
    uri = named.get("uri")
    if not isinstance(uri, str) or uri not in names:
        return block
    renamed: JsonObject = {**named, "uri": names[uri]}
    return renamed if named is block else {**block, "resource": renamed}


def _rewrite_message(message: Json, names: LinkNames) -> Json:
    if not isinstance(message, Mapping):
        return message
    return {**message, "content": _rewrite_content(message.get("content"), names)}


MAX_ATTACHED_LENGTH: Final = 4 * 1024 * 1024  # characters of images, audio and files per result
MAX_STRUCTURED_BYTES: Final = 1024 * 1024  # data that a client validates against the tool's outputSchema
MAX_BLOCKS: Final = 1_000  # blocks other than text, in a shortened result
MAX_INPUT_REQUEST_BYTES: Final = 4 * 1024 * 1024  # of a server's questions
# Members of blocks that programs read.
_EXACT_MEMBERS: Final = frozenset({"blob", "data", "uri", "mimeType", "type", "_meta"})
# Members of results, with the members that stay unchanged.
_ESCAPED_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "content": _EXACT_MEMBERS,  # of tools
    "structuredContent": frozenset(),
    "description": frozenset(),  # of prompts
    "messages": _EXACT_MEMBERS,
    "contents": _EXACT_MEMBERS,  # of resources
}
_META_KEY: Final = "_meta"
_CALL_META_KEY: Final = "fingerpost/call"
# Metadata of the outcome: the error, and what a call that waits for an approval needs.
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
    """Return the result of `tools/call`. Raises `JsonRpcError` with the server's own error, if it sent one.

    `budget` limits the tokens of structured content when a result is shortened.
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
    """Return the result with invisible characters in its texts and data escaped.

    For results of `tools/call`, `prompts/get` and `resources/read`. Large ones are processed in a thread.
    """
    return await run_in_thread(_escape_members, result) if is_large_value(result) else _escape_members(result)


def _escape_members(result: JsonObject) -> JsonObject:
    if result.get("resultType") == "input_required":
        return result
    parts = {
        key: _escape_part(result[key], exact) for key, exact in _ESCAPED_MEMBERS.items() if key in result
    }
    return result if all(parts[key] is result[key] for key in parts) else {**result, **parts}


def _escape_part(part: Json, exact: frozenset[str]) -> Json:
    """Escape a part, except for members in `exact`. Return the same object if nothing changes."""
    if isinstance(part, str):
        escaped = escape_invisible(part)
        return part if escaped == part else escaped
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
    if trimmed or sum(map(_measure_block, content)) > MAX_ATTACHED_LENGTH:
        cut = await _render_trimmed(outcome, result, content, card, budget)
        return cut if modern else _adapt_to_legacy(cut, card)
    return _add_call_meta(bound_result(result if modern else _adapt_to_legacy(result, card)), outcome)


def _adapt_to_legacy(result: JsonObject, card: ToolCard | None) -> JsonObject:
    """Wrap structured content that is not an object. Clients before 2026-07-28 would reject it."""
    structured = result.get("structuredContent", _EMPTY_OBJECT)
    if isinstance(structured, Mapping):
        return result
    if structured is not None or (card is not None and needs_wrapping(card.definition.get("outputSchema"))):
        return {**result, "structuredContent": wrap_result(structured)}
    return {key: value for key, value in result.items() if key != "structuredContent"}


_EMPTY_OBJECT: Final[JsonObject] = {}


async def _render_trimmed(
    outcome: Outcome, result: JsonObject, content: Sequence[JsonObject], card: ToolCard | None, budget: int
) -> JsonObject:
    handle = None if outcome.digest is None else outcome.digest.handle
    kept: dict[str, Json] = {
        key: value for key, value in result.items() if key not in ("content", "structuredContent")
    }
    text_blocks = [_build_text_block(outcome.content)]
    schema = None if card is None else card.definition.get("outputSchema")
    if card is not None and isinstance(schema, Mapping) and result.get("structuredContent") is not None:
        fitting = partial(fit_structured, result, card, schema, budget=budget, handle=handle)
        fit = await run_in_thread(fitting)
        if not fit.left_out and len(encode_json(fit.structured)) > MAX_STRUCTURED_BYTES:
            return _build_structured_too_large(outcome, handle)
        kept["structuredContent"] = fit.structured
        rest = outcome.metadata.get("rest")  # why there is no handle
        lost = f"[{rest}]" if rest is not None else ""
        text_blocks = [
            _build_text_block(text)
            for text in (fit.additional_text, _describe_structured(fit, handle), lost)
            if text
        ]
        if fit.left_out:
            kept[_META_KEY] = {**_copy_meta(result), "fingerpost/left_out": list(fit.left_out)}
    kept["content"] = [*text_blocks, *_select_attachments(content)]
    hint = f" What is kept of the whole: {READ_RESULT_NAME}(handle={handle!r})" if handle else ""
    return _add_call_meta(bound_result(kept, hint=hint), outcome)


def _describe_structured(fit: StructuredFit, handle: str | None) -> str:
    """Return the structured content as text with what is left out, or where to find it if it is too long."""
    way = f"{READ_RESULT_NAME}(handle={handle!r})" if handle else ""
    if fit.left_out:
        return f"{fit.text}\n[Left out: {'; '.join(fit.left_out)}.{f' All of it: {way}' if way else ''}]"
    if fit.text:
        return fit.text
    pages = f", and in pages: {way}" if way else ""
    return f"[The result is too long to be repeated as text. It is whole in `structuredContent`{pages}]"


def _build_input_too_large(outcome: Outcome) -> JsonObject:
    message = (
        f"{outcome.tool} asks for input with more than {MAX_INPUT_REQUEST_BYTES // 1024:,} "
        "KiB: that is not passed on."
    )
    return _add_call_meta({"content": [_build_text_block(message)], "isError": True}, outcome)


def _build_structured_too_large(outcome: Outcome, handle: str | None) -> JsonObject:
    """Build the error for data that must be complete to be valid and is too large to send."""
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
    """Return images, audio, files and links within the limits. Texts are in the digest."""
    room = MAX_ATTACHED_LENGTH
    kept: list[JsonObject] = []
    for index, block in enumerate(content):
        if len(kept) >= MAX_BLOCKS:
            kept.append(
                _build_text_block(
                    f"[up to {len(content) - index:,} more blocks left out: there are too many]"
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
    """Return the size of a block without its text, which the digest counts."""
    data, blob = block.get("data"), _get_resource(block).get("blob")
    return (len(data) if isinstance(data, str) else 0) + (len(blob) if isinstance(blob, str) else 0)


def _get_resource(block: JsonObject) -> JsonObject:
    resource = block.get("resource")
    return cast("JsonObject", resource) if isinstance(resource, Mapping) else _EMPTY_OBJECT


def _render_failure(outcome: Outcome) -> JsonObject:
    lines = [outcome.content]
    if outcome.advice and outcome.pending_id is None:  # a waiting call says itself what to do
        lines.append(outcome.advice)
    result: JsonObject = {"content": [_build_text_block("\n".join(lines))], "isError": True}
    return _add_call_meta(result, outcome)


def _add_call_meta(result: JsonObject, outcome: Outcome) -> JsonObject:
    """Add metadata to `result`: the id of the call, and what the gateway changed."""
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
    return {**result, _META_KEY: meta}


def _copy_meta(result: JsonObject) -> dict[str, Json]:
    before = result.get(_META_KEY)
    return dict(cast("JsonObject", before)) if isinstance(before, Mapping) else {}


def _add_substitute_note(stand_in: Json, result: JsonObject) -> JsonObject:
    """Add a text block that names the tool that answered. Models do not see the metadata."""
    note = _build_text_block(f"[This is the answer of {stand_in}, because the called tool failed.]")
    return {**result, "content": [*_get_content_blocks(result), note]}


def _build_text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
