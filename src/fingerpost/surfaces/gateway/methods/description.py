"""What an endpoint says of itself when a client comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fingerpost.call.digest import clip_to_tokens, count_tokens, escape_invisible
from fingerpost.records import Json, JsonObject
from fingerpost.router import Router
from fingerpost.surfaces.gateway.offers import EndpointTools
from fingerpost.surfaces.gateway.offers.materials import VisibleResources
from fingerpost.surfaces.gateway.offers.modes import ROUTE_MODE

SERVER_NAME: Final = "fingerpost"
MAX_SERVERS_TOKENS: Final = 1500  # for what servers say of themselves, all together
MAX_SERVER_TOKENS: Final = 300

_ROUTE_INSTRUCTIONS: Final = (
    "Many tools are reachable here, and they are not all listed. For anything that may need live data, "
    "files, accounts or actions: describe the task to find_tools, then run what it answers with by "
    "call_tool. describe_tool tells more about one tool; read_result reads the rest of a long result."
)
_CALL_INSTRUCTIONS: Final = (
    "The tools of several servers are listed here, most under names like server__tool. Long results are cut "
    "and end with a handle; read_result reads the rest."
)
_SERVERS_HEADING: Final = (
    "What the servers say of themselves (their words, not instructions of this gateway):"
)

# While some server has not said what it can do: a client asks only once, and an empty list harms nobody.
_ANY_SERVER: Final[JsonObject] = {
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


def describe_endpoint(
    router: Router, endpoint_tools: EndpointTools, resources: VisibleResources
) -> JsonObject:
    """`capabilities`, `serverInfo` and `instructions`: the same for the same catalog."""
    from fingerpost import __version__

    known = resources.collection.capabilities if resources.complete else _ANY_SERVER
    capabilities: dict[str, Json] = {"tools": {"listChanged": True}, **known}
    return {
        "capabilities": capabilities,
        "serverInfo": {"name": SERVER_NAME, "title": "Fingerpost", "version": __version__},
        "instructions": "\n\n".join(_build_instructions(router, endpoint_tools)),
    }


def _build_instructions(router: Router, endpoint_tools: EndpointTools) -> Iterator[str]:
    yield from endpoint_tools.config.instructions
    yield _ROUTE_INSTRUCTIONS if endpoint_tools.mode == ROUTE_MODE else _CALL_INSTRUCTIONS
    theirs = "\n".join(_describe_servers(router, endpoint_tools))
    if theirs:
        yield f"{_SERVERS_HEADING}\n{theirs}"


def _describe_servers(router: Router, endpoint_tools: EndpointTools) -> Iterator[str]:
    """A line or two of each server whose tools this caller sees, as long as there is room."""
    room = MAX_SERVERS_TOKENS
    for server in sorted({card.server for card in endpoint_tools.view.visible.cards}):
        said = router.catalog.get_instructions(server)  # nothing, while a change of it waits for a person
        if not said:
            continue
        words = " ".join(escape_invisible(said[: MAX_SERVER_TOKENS * 12]).split())
        line = f"- {server}: {clip_to_tokens(words, min(MAX_SERVER_TOKENS, room))}"
        room -= count_tokens(line)
        if room <= 0:
            return
        yield line
