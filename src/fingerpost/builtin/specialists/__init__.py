"""Specialists: a nested agent, several experts at once, subagents, and a maker of assets."""

from __future__ import annotations

from fingerpost.builtin.kit import OwnServer
from fingerpost.builtin.premises import Premises
from fingerpost.builtin.specialists.agent import agent_tool
from fingerpost.builtin.specialists.asset_tool import asset_rules, asset_tool
from fingerpost.builtin.specialists.nested import SERVER
from fingerpost.builtin.specialists.orchestration import orchestration_tool
from fingerpost.builtin.specialists.subagents import SUBAGENT_RULES, subagent_tools
from fingerpost.settings import OwnRule

_INSTRUCTIONS = (
    "Specialists for what one tool cannot do. Each is for explicit requests only: a task for an agent, "
    "several expert views, something to be made."
)


def make(premises: Premises) -> OwnServer:
    """The server of this folder."""
    nesting = (agent_tool(premises), orchestration_tool(premises))
    # What a nested request calls is judged by itself, call by call.
    allowed = tuple(
        OwnRule(verdict="allow", tool=f"{SERVER}/{tool.name}", reason="its own calls are judged one by one")
        for tool in nesting
    )
    return OwnServer(
        SERVER,
        (*nesting, asset_tool(premises), *subagent_tools(premises)),
        instructions=_INSTRUCTIONS,
        rules=(*allowed, *asset_rules(premises.settings.builtin.specialists), *SUBAGENT_RULES),
        context_of=premises.context_of,
    )
