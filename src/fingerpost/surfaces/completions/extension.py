"""What an answer tells beyond the chat API: the field `fingerpost`, and headers."""

from __future__ import annotations

from typing import Final

from fingerpost.events import RequestNarrowed
from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.completions.turns import CompletionResult
from fingerpost.surfaces.web.asgi import Header

MAX_HEADER_LENGTH: Final = 1000


def build_extension(result: CompletionResult) -> JsonObject:
    """What was decided on the way to the answer."""
    route = result.route
    shortlist = None if route.narrowing is None else route.narrowing.shortlist
    told: dict[str, Json] = {
        "packet_id": route.packet_id,
        "outcome": route.outcome.value,
        "mode": route.mode.value,
        "tools_considered": 0 if shortlist is None else shortlist.considered,
        "tools_offered": list(route.packet.context.available_tools),
        "tools_used": list(get_used_tools(result)),
        "saved_tokens": count_saved_tokens(result),
        "sources": list(route.sources),
        "profile": route.packet.context.profile,
        "directives": list(route.directives),
        "milliseconds": round(result.milliseconds, 1),
        "model_milliseconds": round(result.model_milliseconds, 1),
    }
    if route.left_out:
        told["shortened"] = {"messages_left_out": route.left_out}
    if result.approve_at is not None and route.pending is not None:
        told["pending_id"] = route.pending.pending_id
        told["approve_at"] = result.approve_at
    return told


def get_used_tools(result: CompletionResult) -> tuple[str, ...]:
    """Each tool that was called, once, in order."""
    return tuple(dict.fromkeys(step.tool for step in result.route.packet.tool_routing.steps))


def count_saved_tokens(result: CompletionResult) -> int:
    """What the definitions of all tools would have cost beyond those that were offered."""
    for part in result.parts:
        for event in part.events:
            if isinstance(event, RequestNarrowed):
                return max(0, event.tokens_all - event.tokens_offered)
    return 0


def build_id_headers(packet_id: str) -> tuple[Header, ...]:
    """By which an answer is found again."""
    value = packet_id.encode()
    return ((b"x-request-id", value), (b"x-fingerpost-packet", value))


def build_result_headers(result: CompletionResult) -> tuple[Header, ...]:
    """What is known only at the end, so not in streams."""
    used = ", ".join(get_used_tools(result)).encode("ascii", "replace")[:MAX_HEADER_LENGTH]
    return (
        *build_id_headers(result.route.packet_id),
        (b"x-fingerpost-tools-used", used),
        (b"x-fingerpost-saved-tokens", str(count_saved_tokens(result)).encode()),
    )
