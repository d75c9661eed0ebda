"""Who calls, and what they hear when there is no such tool for them."""

from __future__ import annotations

from typing import Final

from fingerpost.call.names import ToolNotFound
from fingerpost.catalog import Snapshot
from fingerpost.records import CallContext, create_id
from fingerpost.surfaces.gateway.exchange import ClientRequest, JsonRpcError
from fingerpost.surfaces.gateway.offers import EndpointTools

INVALID_PARAMS: Final = -32602


class ToolNotFoundError(JsonRpcError):
    """A name that leads to no tool of this caller's: hidden, mistyped or made up, in the same words."""

    def __init__(self, name: str, found: ToolNotFound, seen: Snapshot) -> None:
        shown = name[:80]
        cards = (seen.get(key) for key in found.near)
        near = ", ".join(card.exposed_name for card in cards if card is not None)
        if found.ambiguous:
            message = f"Unknown tool: {shown!r} could mean {near}; name one of them"
        else:
            message = f"Unknown tool: {shown!r}" + (f"; near are {near}" if near else "")
        super().__init__(INVALID_PARAMS, message)


def build_call_context(
    request: ClientRequest, endpoint_tools: EndpointTools, intent: str = ""
) -> CallContext:
    """Who calls, where, and what they want.

    A session is the conversation that a person may approve a kind of call for; without one there is none,
    as all programs of a principal look alike. Approval of a single call is the principal's: many clients
    open a session for each call.
    """
    return CallContext(
        call_id=create_id("cal"),
        conversation=request.session,
        caller=request.principal.name,
        asker=request.principal_key,
        profile=endpoint_tools.config.profile,
        scopes=endpoint_tools.scopes,
        request=intent,
    )
