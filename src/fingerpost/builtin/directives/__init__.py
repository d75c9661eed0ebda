"""Directives for a VR or AR client: what shall happen in the person's scene, said as data.

Nothing happens here. A directive is checked, numbered and handed back; the client that asked
carries directives out in the order they were given, and may refuse any of them.
"""

from __future__ import annotations

from typing import Final

from fingerpost.builtin.directives.kinds import KINDS
from fingerpost.builtin.directives.making import tool_of
from fingerpost.builtin.kit import OwnServer
from fingerpost.builtin.premises import Premises
from fingerpost.settings import OwnRule

NAME: Final = "directives"
_INSTRUCTIONS: Final = (
    "Directives for a VR or AR client. Each tool gives one directive back, and the client carries it out: "
    "nothing happens before. Distances are metres, angles degrees, y points up."
)


def make(premises: Premises) -> OwnServer:
    """The server. It needs nothing of the house."""
    return OwnServer(
        NAME,
        (tool_of(kind) for kind in KINDS),
        instructions=_INSTRUCTIONS,
        # They change the scene of whoever asked, at their own client: not something to be asked about.
        rules=(OwnRule(verdict="allow", server=NAME, reason="the client decides what it carries out"),),
        context_of=premises.context_of,
    )
