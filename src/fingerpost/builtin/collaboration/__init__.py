"""Our own way to the person: questions and approvals, on whichever surface they are."""

from __future__ import annotations

from fingerpost.builtin.collaboration.asking import build_collaboration_tool
from fingerpost.builtin.kit import BuiltinServer
from fingerpost.builtin.premises import BuiltinHost

INSTRUCTIONS = (
    "Ask the person (user_collaboration) what only they can know or decide, one question at a time."
)


def make(host: BuiltinHost) -> BuiltinServer:
    """The server, not open yet."""
    return BuiltinServer(
        "collaboration",
        (build_collaboration_tool(host),),
        instructions=INSTRUCTIONS,
        get_context=host.get_context,
    )
