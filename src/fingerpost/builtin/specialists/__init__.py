"""Specialists: a nested agent, a panel of experts, subagents, and an asset service."""

from __future__ import annotations

from fingerpost.builtin.specialists.agents import (
    DEFINITIONS,
    SERVER,
    SUBAGENT_RULES,
    build_agent_tool,
    build_subagent_tool,
)
from fingerpost.builtin.specialists.assets import build_asset_rules, build_asset_tool
from fingerpost.builtin.specialists.panel import build_panel_tool
from fingerpost.builtin.toolkit import BuiltinHost, BuiltinServer
from fingerpost.settings import OwnRule


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
