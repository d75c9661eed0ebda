"""Arguments that are repeated as headers (2026-07-28, `x-mcp-header`): what runs is what the headers say.

Somebody between the client and us may have routed or refused by `Mcp-Param-Region`.
So the check is on the tool that is really meant, by whatever name it was called, and
on the arguments as they will run: what a repair would change behind the header's back
is refused. The wire compares first, where the name is the listed one; it cannot know
these two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp.shared.inbound import (
    InboundLadderRejection,
    mcp_param_headers,
    validate_mcp_param_headers,
    x_mcp_header_map,
)

from fingerpost.call.arguments import PreparedArguments, prepare_arguments
from fingerpost.records import JsonObject, RepairKind, ToolCard
from fingerpost.surfaces.gateway.exchange import JsonRpcError

_EXACT_HINT: Final = (
    ", once the arguments are put right: write those that headers repeat just as the tool's schema has them"
)


def check_argument_headers(
    card: ToolCard, schema: JsonObject, arguments: JsonObject, headers: Mapping[str, str], *, repair: bool
) -> None:
    """Raises `Refusal` where the headers do not say what would run."""
    if (wrong := validate_mcp_param_headers(schema, arguments, headers)) is not None:
        raise _build_header_error(wrong)
    made = prepare_arguments(card, arguments, repair=repair)
    if made.errors or not made.repairs:  # it will not run, or it runs as it was compared
        return
    seen = {**headers, **_build_default_headers(schema, made)}
    if (wrong := validate_mcp_param_headers(schema, made.arguments, seen)) is not None:
        raise _build_header_error(wrong, _EXACT_HINT)


def _build_default_headers(schema: JsonObject, prepared: PreparedArguments) -> Mapping[str, str]:
    """Headers for what was left out and has a default: it is the schema's word, and contradicts nobody's."""
    filled = [f"{repair.path}." for repair in prepared.repairs if repair.kind is RepairKind.DEFAULT]
    ours = {
        path: token
        for path, token in x_mcp_header_map(schema).items()
        if any(f"{'.'.join(path)}.".startswith(place) for place in filled)
    }
    return mcp_param_headers(ours, prepared.arguments)


def _build_header_error(rejection: InboundLadderRejection, more: str = "") -> JsonRpcError:
    return JsonRpcError(rejection.code, rejection.message + more, rejection.data)
