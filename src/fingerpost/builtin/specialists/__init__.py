"""Specialists: a nested agent, several experts at once, subagents, and a maker of assets."""

from __future__ import annotations

from fingerpost.builtin.kit import BuiltinServer
from fingerpost.builtin.premises import BuiltinHost
from fingerpost.builtin.specialists.agent import build_agent_tool
from fingerpost.builtin.specialists.asset_tool import build_asset_rules, build_asset_tool
from fingerpost.builtin.specialists.nested import SERVER
from fingerpost.builtin.specialists.orchestration import build_panel_tool
from fingerpost.builtin.specialists.subagents import SUBAGENT_RULES, build_subagent_tools
from fingerpost.settings import OwnRule

_INSTRUCTIONS = (
    "Specialists for what one tool cannot do. Each is for explicit requests only: a task for an agent, "
    "several expert views, something to be made."
)


def make(host: BuiltinHost) -> BuiltinServer:
    """The server of this folder."""
    nesting = (build_agent_tool(host), build_panel_tool(host))
    # What a nested request calls is judged by itself, call by call.
    allowed = tuple(
        OwnRule(verdict="allow", tool=f"{SERVER}/{tool.name}", reason="its own calls are judged one by one")
        for tool in nesting
    )
    return BuiltinServer(
        SERVER,
        (*nesting, build_asset_tool(host), *build_subagent_tools(host)),
        instructions=_INSTRUCTIONS,
        rules=(*allowed, *build_asset_rules(host.settings.builtin.specialists), *SUBAGENT_RULES),
        get_context=host.get_context,
    )
