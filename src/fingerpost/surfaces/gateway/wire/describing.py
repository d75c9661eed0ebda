"""What a client is told about the gateway itself: `initialize` and `server/discover`."""

from __future__ import annotations

from typing import Final, cast

from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.exchange import HANDSHAKE, ClientRequest, Methods

DISCOVER_TTL_MS: Final = 60_000


def negotiated(asked: object) -> str:
    """The version to speak: theirs where we know it, else our newest with a handshake."""
    return asked if isinstance(asked, str) and asked in HANDSHAKE_PROTOCOL_VERSIONS else HANDSHAKE


async def initialize_result(methods: Methods, request: ClientRequest) -> JsonObject:
    described = await _described(methods, request)
    return {"protocolVersion": request.version, **described}


async def discover_result(methods: Methods, request: ClientRequest) -> JsonObject:
    described = dict(await _described(methods, request))
    server_info = described.pop("serverInfo", None)
    result: JsonObject = {
        "resultType": "complete",
        "supportedVersions": cast("list[Json]", list(MODERN_PROTOCOL_VERSIONS)),
        "ttlMs": DISCOVER_TTL_MS,
        "cacheScope": "private",  # what is described depends on who asks
        **described,
    }
    if server_info is not None:
        meta = result.get("_meta")
        own = meta if isinstance(meta, dict) else {}
        result["_meta"] = {**own, SERVER_INFO_META_KEY: server_info}
    return result


async def _described(methods: Methods, request: ClientRequest) -> JsonObject:
    await methods.ready(request.endpoint, request.principal)
    return methods.describe(request.endpoint, request.principal, request.version)
