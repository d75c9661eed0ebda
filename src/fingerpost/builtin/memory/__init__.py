"""Our own memory for models: what should be known later, by person and conversation; a place to think."""

from __future__ import annotations

from fingerpost.builtin.kit import OwnServer
from fingerpost.builtin.memory.keeper import Keeper
from fingerpost.builtin.memory.operations import RULES, memory_tool
from fingerpost.builtin.memory.thinking import think_tool
from fingerpost.builtin.premises import Premises

INSTRUCTIONS = (
    "Remember what will matter again (memory_operations) and look there before you ask the person twice. "
    "Think hard steps through in writing (think)."
)


def make(premises: Premises) -> OwnServer:
    """The server, not open yet."""
    keeper = Keeper(premises)
    return OwnServer(
        "memory",
        (memory_tool(keeper), think_tool()),
        instructions=INSTRUCTIONS,
        rules=RULES,
        open=keeper.open,
        context_of=premises.context_of,
    )
