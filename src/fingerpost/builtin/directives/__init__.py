"""Directives for a VR or AR client: what shall happen in the person's scene, said as data.

Nothing happens here. A directive is checked, numbered and handed back; the client that asked
carries directives out in the order they were given, and may refuse any of them.
"""

from __future__ import annotations

from typing import Final

from fingerpost.builtin.directives.kinds import DIRECTIVE_KINDS
from fingerpost.builtin.directives.making import build_tool
from fingerpost.builtin.kit import BuiltinServer
from fingerpost.builtin.premises import BuiltinHost
from fingerpost.settings import OwnRule

NAME: Final = "directives"
_INSTRUCTIONS: Final = (
    "Directives for a VR or AR client. Each tool gives one directive back, and the client carries it out: "
    "nothing happens before. Distances are metres, angles degrees, y points up."
)


def make(host: BuiltinHost) -> BuiltinServer:
    """The server. It needs nothing of the house."""
    return BuiltinServer(
        NAME,
        (build_tool(kind) for kind in DIRECTIVE_KINDS),
        instructions=_INSTRUCTIONS,
        # They change the scene of whoever asked, at their own client: not something to be asked about.
        rules=(OwnRule(verdict="allow", server=NAME, reason="the client decides what it carries out"),),
        get_context=host.get_context,
    )
