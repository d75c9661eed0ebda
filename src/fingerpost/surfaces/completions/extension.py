"""What an answer tells beyond the chat API: the field `fingerpost`, and headers."""

from __future__ import annotations

from typing import Final

from fingerpost.events import RequestNarrowed
from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.completions.turns import Ended
from fingerpost.surfaces.web.asgi import Header

LONGEST_HEADER: Final = 1000


def extension_of(ended: Ended) -> JsonObject:
    """What was decided on the way to the answer."""
    route = ended.route
    shortlist = None if route.narrowing is None else route.narrowing.shortlist
    told: dict[str, Json] = {
        "packet_id": route.packet_id,
        "outcome": route.outcome.value,
        "mode": route.mode.value,
        "tools_considered": 0 if shortlist is None else shortlist.considered,
        "tools_offered": list(route.packet.context.available_tools),
        "tools_used": list(tools_used(ended)),
        "saved_tokens": saved_tokens(ended),
        "sources": list(route.sources),
        "profile": route.packet.context.profile,
        "directives": list(route.directives),
        "milliseconds": round(ended.milliseconds, 1),
        "model_milliseconds": round(ended.model_milliseconds, 1),
    }
    if route.left_out:
        told["shortened"] = {"messages_left_out": route.left_out}
    if ended.approve_at is not None and route.pending is not None:
        told["pending_id"] = route.pending.pending_id
        told["approve_at"] = ended.approve_at
    return told


def tools_used(ended: Ended) -> tuple[str, ...]:
    """Each tool that was called, once, in order."""
    return tuple(dict.fromkeys(step.tool for step in ended.route.packet.tool_routing.steps))


def saved_tokens(ended: Ended) -> int:
    """What the definitions of all tools would have cost beyond those that were offered."""
    for part in ended.parts:
        for event in part.events:
            if isinstance(event, RequestNarrowed):
                return max(0, event.tokens_all - event.tokens_offered)
    return 0


def id_headers(packet_id: str) -> tuple[Header, ...]:
    """By which an answer is found again."""
    value = packet_id.encode()
    return ((b"x-request-id", value), (b"x-fingerpost-packet", value))


def end_headers(ended: Ended) -> tuple[Header, ...]:
    """What is known only at the end, so not in streams."""
    used = ", ".join(tools_used(ended)).encode("ascii", "replace")[:LONGEST_HEADER]
    return (
        *id_headers(ended.route.packet_id),
        (b"x-fingerpost-tools-used", used),
        (b"x-fingerpost-saved-tokens", str(saved_tokens(ended)).encode()),
    )
