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

from fingerpost.call.digest.assets import handle_in
from fingerpost.catalog.materials import Collection, alias
from fingerpost.records import Json, JsonObject

FEW: Final = 8  # addresses that are looked up at once; more would keep others waiting
MOST: Final = 1000  # addresses of one result that are looked up at all

_LINKING: Final = ("resource_link", "resource")

Names = Mapping[str, str]  # what addresses are called here


def has_links(content: Json) -> bool:
    """Whether some of the content of a result has an address. Asked of every result, so it is quick."""
    if not isinstance(content, list | tuple):
        return False
    return any(isinstance(block, dict) and block.get("type") in _LINKING for block in content)


async def linked_result(result: JsonObject, collection: Collection, server: str) -> JsonObject:
    """The result of a tool of this server, as one who sees this collection can follow its links."""
    content = result.get("content")
    names = await _names(_addresses(content), collection, server)
    return {**result, "content": _renamed(content, names)} if names else result


async def linked_prompt(result: JsonObject, collection: Collection, server: str) -> JsonObject:
    """The same for `prompts/get`."""
    messages = result.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return result
    spoken = [message for message in messages if isinstance(message, Mapping)]
    addresses = (uri for message in spoken for uri in _addresses(message.get("content")))
    names = await _names(addresses, collection, server)
    if not names:
        return result
    return {**result, "messages": [_message(message, names) for message in messages]}


async def _names(addresses: Iterator[str], collection: Collection, server: str) -> Names:
    """Those of the addresses that are called otherwise here, with what they are called."""
    # What we keep of results is at addresses of ours, and our own tools send them.
    given = [uri for uri in dict.fromkeys(addresses) if handle_in(uri) is None]
    if len(given) <= FEW:
        return _looked_up(given, collection, server)
    return await anyio.to_thread.run_sync(_looked_up, given, collection, server)


def _looked_up(given: Sequence[str], collection: Collection, server: str) -> Names:
    names = {uri: collection.shown_as(server, uri) for uri in given[:MOST]}
    if server in collection.servers:  # always right, only longer than it need be
        names |= {uri: alias(server, uri) for uri in given[MOST:]}
    return {uri: name for uri, name in names.items() if name != uri}


def _addresses(content: Json) -> Iterator[str]:
    for block in _blocks(content):
        if isinstance(block, Mapping):
            uri = _named(block).get("uri")
            if isinstance(uri, str):
                yield uri


def _blocks(content: Json) -> Sequence[Json]:
    """A message has one block, or several."""
    if isinstance(content, list | tuple):
        return content
    return (content,)


_NOTHING: Final[JsonObject] = {}


def _named(block: JsonObject) -> JsonObject:
    """Where the address of a block stands: in a link itself, or in the resource it holds."""
    kind = block.get("type")
    if kind == "resource_link":
        return block
    resource = block.get("resource") if kind == "resource" else None
    return resource if isinstance(resource, Mapping) else _NOTHING


def _renamed(content: Json, names: Names) -> Json:
    if isinstance(content, list | tuple):
        return [_block(block, names) for block in content]
    return _block(content, names)


def _block(block: Json, names: Names) -> Json:
    if not isinstance(block, Mapping):
        return block
    named = _named(block)
    uri = named.get("uri")
    if not isinstance(uri, str) or uri not in names:
        return block
    renamed: JsonObject = {**named, "uri": names[uri]}
    return renamed if named is block else {**block, "resource": renamed}


def _message(message: Json, names: Names) -> Json:
    if not isinstance(message, Mapping):
        return message
    return {**message, "content": _renamed(message.get("content"), names)}
