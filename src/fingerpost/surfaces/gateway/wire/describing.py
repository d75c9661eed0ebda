"""What a client is told about the gateway itself: `initialize` and `server/discover`."""

from __future__ import annotations

from typing import Final, cast

from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.exchange import HANDSHAKE_VERSIONS, ClientRequest, McpMethods

DISCOVER_TTL_MS: Final = 60_000


def negotiate_version(requested: object) -> str:
    """The version to speak: theirs where we know it, else our newest with a handshake."""
    return (
        requested
        if isinstance(requested, str) and requested in HANDSHAKE_PROTOCOL_VERSIONS
        else HANDSHAKE_VERSIONS
    )


async def build_initialize_result(methods: McpMethods, request: ClientRequest) -> JsonObject:
    described = await _describe_server(methods, request)
    return {"protocolVersion": request.version, **described}


async def build_discover_result(methods: McpMethods, request: ClientRequest) -> JsonObject:
    described = dict(await _describe_server(methods, request))
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


async def _describe_server(methods: McpMethods, request: ClientRequest) -> JsonObject:
    await methods.wait_until_ready(request.endpoint, request.principal)
    return methods.describe(request.endpoint, request.principal, request.version)
