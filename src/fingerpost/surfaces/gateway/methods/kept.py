"""`resources/read` of what our own tools made and keep: an address of ours, for whom it was made."""

from __future__ import annotations

import base64

import anyio.to_thread

from fingerpost.call.digest import Results
from fingerpost.call.digest.assets import fetch, handle_in
from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import ClientRequest
from fingerpost.surfaces.gateway.methods.materials import not_found


async def kept_resource(results: Results, request: ClientRequest) -> JsonObject | None:
    """What is kept at the address asked for; None where the address is none of ours. Raises `Refusal`."""
    uri = request.params.get("uri")
    handle = handle_in(uri) if isinstance(uri, str) else None
    if not isinstance(uri, str) or handle is None:
        return None
    found = await fetch(results, handle, caller=request.principal.name)
    if found is None:
        raise not_found(request, uri)
    encoded = await anyio.to_thread.run_sync(base64.b64encode, found.data)
    contents: JsonObject = {"uri": uri, "mimeType": found.media_type, "blob": encoded.decode()}
    hints: JsonObject = {"ttlMs": 0, "cacheScope": "private"} if request.modern else {}
    return {"contents": [contents], **hints}
