"""`resources/read` of what our own tools made and keep: an address of ours, for whom it was made."""

from __future__ import annotations

import base64

import anyio.to_thread

from fingerpost.call.digest import ResultStore
from fingerpost.call.digest.assets import fetch_asset, parse_asset_handle
from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import ClientRequest
from fingerpost.surfaces.gateway.methods.materials import build_not_found_error


async def read_kept_resource(results: ResultStore, request: ClientRequest) -> JsonObject | None:
    """What is kept at the address asked for; None where the address is none of ours. Raises `Refusal`."""
    uri = request.params.get("uri")
    handle = parse_asset_handle(uri) if isinstance(uri, str) else None
    if not isinstance(uri, str) or handle is None:
        return None
    found = await fetch_asset(results, handle, caller=request.principal.name)
    if found is None:
        raise build_not_found_error(request, uri)
    encoded = await anyio.to_thread.run_sync(base64.b64encode, found.data)
    contents: JsonObject = {"uri": uri, "mimeType": found.media_type, "blob": encoded.decode()}
    hints: JsonObject = {"ttlMs": 0, "cacheScope": "private"} if request.modern else {}
    return {"contents": [contents], **hints}
