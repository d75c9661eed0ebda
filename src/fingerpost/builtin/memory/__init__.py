"""Our own memory for models: what should be known later, by person and conversation; a place to think."""

from __future__ import annotations

from fingerpost.builtin.kit import BuiltinServer
from fingerpost.builtin.memory.keeper import MemoryKeeper
from fingerpost.builtin.memory.operations import RULES, build_memory_tool
from fingerpost.builtin.memory.thinking import build_think_tool
from fingerpost.builtin.premises import BuiltinHost

INSTRUCTIONS = (
    "Remember what will matter again (memory_operations) and look there before you ask the person twice. "
    "Think hard steps through in writing (think)."
)


def make(host: BuiltinHost) -> BuiltinServer:
    """The server, not open yet."""
    keeper = MemoryKeeper(host)
    return BuiltinServer(
        "memory",
        (build_memory_tool(keeper), build_think_tool()),
        instructions=INSTRUCTIONS,
        rules=RULES,
        open=keeper.open,
        get_context=host.get_context,
    )
