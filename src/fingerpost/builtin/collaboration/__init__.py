"""Our own way to the person: questions and approvals, on whichever surface they are."""

from __future__ import annotations

from fingerpost.builtin.collaboration.asking import collaboration_tool
from fingerpost.builtin.kit import OwnServer
from fingerpost.builtin.premises import Premises

INSTRUCTIONS = (
    "Ask the person (user_collaboration) what only they can know or decide, one question at a time."
)


def make(premises: Premises) -> OwnServer:
    """The server, not open yet."""
    return OwnServer(
        "collaboration",
        (collaboration_tool(premises),),
        instructions=INSTRUCTIONS,
        context_of=premises.context_of,
    )
