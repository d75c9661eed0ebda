"""Specialists: a nested agent, a panel of experts, subagents, and an asset service."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, cast

from mcp_types import ResourceLink

from fingerpost.builtin.assets.builder import AssetKind, AssetRequest, produce_asset
from fingerpost.builtin.specialists.agents import (
    DEFINITIONS,
    SERVER,
    SUBAGENT_RULES,
    build_agent_tool,
    build_subagent_tool,
)
from fingerpost.builtin.specialists.panel import build_panel_tool
from fingerpost.builtin.toolkit import (
    BuiltinHost,
    BuiltinServer,
    BuiltinTool,
    ToolCaller,
    ToolRefused,
    ToolReply,
)
from fingerpost.call.digest import ResultStore
from fingerpost.call.digest.results import MAX_ASSET_BYTES, KeptAsset, keep_asset
from fingerpost.records import Effect, Json, JsonObject
from fingerpost.settings import OwnRule, SpecialistsSettings
from fingerpost.store import Store


def make(host: BuiltinHost) -> BuiltinServer:
    """Create the server."""
    nesting = (build_agent_tool(host), build_panel_tool(host))
    # The calls of a nested request are checked by the policy one by one.
    allowed = tuple(
        OwnRule(verdict="allow", tool=f"{SERVER}/{tool.name}", reason="its own calls are judged one by one")
        for tool in nesting
    )
    return BuiltinServer(
        SERVER,
        (*nesting, build_asset_tool(host), build_subagent_tool(host)),
        instructions=DEFINITIONS.instructions,
        rules=(*allowed, *build_asset_rules(host.settings.builtin.specialists), *SUBAGENT_RULES),
        get_context=host.get_context,
    )


ASSET_TOOL: Final = "use_asset_service"
MAX_PROMPT_LENGTH: Final = 20_000
MAX_SPEECH_LENGTH: Final = 4_000


def build_asset_tool(host: BuiltinHost) -> BuiltinTool:
    settings = host.settings.builtin.specialists

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        asset = await produce_asset(_build_request(arguments, caller), settings)
        if len(asset.data) > MAX_ASSET_BYTES:
            message = f"It became larger than {MAX_ASSET_BYTES:,} bytes, which is not kept."
            raise ToolRefused(message, hint="Ask for less of it.")
        async with _open_results(host) as results:
            kept = await keep_asset(results, asset, caller=caller.user)
        return ToolReply(kept.summary, links=(_build_link(kept),))

    timeouts = [one.timeout for one in (settings.images, settings.speech) if one is not None]
    timeout = round((max(timeouts, default=60.0) + 10) * 1000)
    return DEFINITIONS.build_tool(ASSET_TOOL, run, Effect.WRITE, knowledge={"timeout_ms": timeout})


def build_asset_rules(settings: SpecialistsSettings) -> tuple[OwnRule, ...]:
    """Return the rules: local assets are allowed; those of other services may cost and need approval."""
    tool = f"{SERVER}/{ASSET_TOOL}"
    costs = (("image", settings.images), ("speech", settings.speech))
    asked: list[OwnRule] = []
    for kind, service in costs:
        if service is not None:
            why = f"the {kind} is made by another service, which may cost"
            asked.append(OwnRule(verdict="ask", tool=tool, arguments={"kind": kind}, reason=why))
    return (*asked, OwnRule(verdict="allow", tool=tool, reason="what is made here is only kept"))


@asynccontextmanager
async def _open_results(host: BuiltinHost) -> AsyncGenerator[ResultStore]:
    """Open the result store: the router's, or that of the settings if this server runs alone."""
    if host.router is not None:
        yield host.router.calls.results
        return
    settings = host.settings
    async with Store.open(settings.store.url, audit=settings.flags.audit) as store:
        yield ResultStore(store.cache, keep_seconds=settings.digest.keep_seconds)


def _build_request(arguments: JsonObject, caller: ToolCaller) -> AssetRequest:
    kind, prompt = arguments.get("kind"), str(arguments.get("prompt") or "")
    if not prompt and not arguments.get("data") and caller.context is not None:
        # A call without a model has no prompt, so the request text is used.
        prompt = caller.context.request[:MAX_PROMPT_LENGTH]
    if kind == "speech" and len(prompt) > MAX_SPEECH_LENGTH:
        message = f"At most {MAX_SPEECH_LENGTH:,} characters are spoken at once."
        raise ToolRefused(message, hint="Give it part by part.")
    return AssetRequest(
        kind=cast("AssetKind | None", kind),
        prompt=prompt,
        data=arguments.get("data"),
        file_format=_get_text(arguments.get("format")),
        title=_get_text(arguments.get("title")) or "",
        width=_get_integer(arguments.get("width")),
        height=_get_integer(arguments.get("height")),
        voice=_get_text(arguments.get("voice")),
        seconds=None if caller.context is None else caller.context.seconds,
    )


def _get_text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _get_integer(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _build_link(kept: KeptAsset) -> ResourceLink:
    return ResourceLink(
        type="resource_link",
        uri=kept.uri,
        name=kept.name,
        mime_type=kept.media_type,
        description=kept.about or None,
        size=kept.size,
    )
