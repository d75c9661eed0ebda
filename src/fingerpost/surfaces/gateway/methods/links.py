"""Addresses of resources inside results: each leads back to the server that sent it.

Where two servers have the same address, it is the first one's here, and a client
that follows the other's link as it stands would be given somebody else's data without
a word. Such an address is written as it is listed. A result without links, and that is
nearly every one, is only looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import anyio.to_thread

from fingerpost.call.digest.assets import parse_asset_handle
from fingerpost.catalog.materials import ResourceCollection, build_alias
from fingerpost.records import Json, JsonObject

MAX_LOOKUPS_INLINE: Final = 8  # addresses that are looked up at once; more would keep others waiting
MAX_LINKS: Final = 1000  # addresses of one result that are looked up at all

_LINK_TYPES: Final = ("resource_link", "resource")

LinkNames = Mapping[str, str]  # what addresses are called here


def has_links(content: Json) -> bool:
    """Whether some of the content of a result has an address. Asked of every result, so it is quick."""
    if not isinstance(content, list | tuple):
        return False
    return any(isinstance(block, dict) and block.get("type") in _LINK_TYPES for block in content)


async def rewrite_result_links(result: JsonObject, collection: ResourceCollection, server: str) -> JsonObject:
    """The result of a tool of this server, as one who sees this collection can follow its links."""
    content = result.get("content")
    names = await _resolve_links(_iterate_uris(content), collection, server)
    return {**result, "content": _rewrite_content(content, names)} if names else result


async def rewrite_prompt_links(result: JsonObject, collection: ResourceCollection, server: str) -> JsonObject:
    """The same for `prompts/get`."""
    messages = result.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return result
    spoken = [message for message in messages if isinstance(message, Mapping)]
    addresses = (uri for message in spoken for uri in _iterate_uris(message.get("content")))
    names = await _resolve_links(addresses, collection, server)
    if not names:
        return result
    return {**result, "messages": [_rewrite_message(message, names) for message in messages]}


async def _resolve_links(addresses: Iterator[str], collection: ResourceCollection, server: str) -> LinkNames:
    """Those of the addresses that are called otherwise here, with what they are called."""
    # What we keep of results is at addresses of ours, and our own tools send them.
    given = [uri for uri in dict.fromkeys(addresses) if parse_asset_handle(uri) is None]
    if len(given) <= MAX_LOOKUPS_INLINE:
        return _look_up_links(given, collection, server)
    return await anyio.to_thread.run_sync(_look_up_links, given, collection, server)


def _look_up_links(given: Sequence[str], collection: ResourceCollection, server: str) -> LinkNames:
    names = {uri: collection.get_alias(server, uri) for uri in given[:MAX_LINKS]}
    if server in collection.servers:  # always right, only longer than it need be
        names |= {uri: build_alias(server, uri) for uri in given[MAX_LINKS:]}
    return {uri: name for uri, name in names.items() if name != uri}


def _iterate_uris(content: Json) -> Iterator[str]:
    for block in _get_blocks(content):
        if isinstance(block, Mapping):
            uri = _get_link_holder(block).get("uri")
            if isinstance(uri, str):
                yield uri


def _get_blocks(content: Json) -> Sequence[Json]:
    """A message has one block, or several."""
    if isinstance(content, list | tuple):
        return content
    return (content,)


_NOTHING: Final[JsonObject] = {}


def _get_link_holder(block: JsonObject) -> JsonObject:
    """Where the address of a block stands: in a link itself, or in the resource it holds."""
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
