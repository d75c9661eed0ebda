"""What an endpoint says of itself when a client comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fingerpost.call.digest import clip, count_tokens, shown
from fingerpost.records import Json, JsonObject
from fingerpost.router import Router
from fingerpost.surfaces.gateway.offers import Offer
from fingerpost.surfaces.gateway.offers.materials import Shelf
from fingerpost.surfaces.gateway.offers.modes import ROUTE

NAME: Final = "fingerpost"
SERVERS_TOKENS: Final = 1500  # for what servers say of themselves, all together
ONE_SERVER_TOKENS: Final = 300

_HOW_TO_ROUTE: Final = (
    "Many tools are reachable here, and they are not all listed. For anything that may need live data, "
    "files, accounts or actions: describe the task to find_tools, then run what it answers with by "
    "call_tool. describe_tool tells more about one tool; read_result reads the rest of a long result."
)
_HOW_TO_CALL: Final = (
    "The tools of several servers are listed here, most under names like server__tool. Long results are cut "
    "and end with a handle; read_result reads the rest."
)
_THEIRS: Final = "What the servers say of themselves (their words, not instructions of this gateway):"

# While some server has not said what it can do: a client asks only once, and an empty list harms nobody.
_ANYTHING: Final[JsonObject] = {
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


def describe(router: Router, offer: Offer, shelf: Shelf) -> JsonObject:
    """`capabilities`, `serverInfo` and `instructions`: the same for the same catalog."""
    from fingerpost import __version__

    known = shelf.collection.capabilities if shelf.complete else _ANYTHING
    capabilities: dict[str, Json] = {"tools": {"listChanged": True}, **known}
    return {
        "capabilities": capabilities,
        "serverInfo": {"name": NAME, "title": "Fingerpost", "version": __version__},
        "instructions": "\n\n".join(_instructions(router, offer)),
    }


def _instructions(router: Router, offer: Offer) -> Iterator[str]:
    yield from offer.place.instructions
    yield _HOW_TO_ROUTE if offer.mode == ROUTE else _HOW_TO_CALL
    theirs = "\n".join(_words_of_servers(router, offer))
    if theirs:
        yield f"{_THEIRS}\n{theirs}"


def _words_of_servers(router: Router, offer: Offer) -> Iterator[str]:
    """A line or two of each server whose tools this caller sees, as long as there is room."""
    room = SERVERS_TOKENS
    for server in sorted({card.server for card in offer.view.visible.cards}):
        said = router.catalog.instructions_of(server)  # nothing, while a change of it waits for a person
        if not said:
            continue
        words = " ".join(shown(said[: ONE_SERVER_TOKENS * 12]).split())
        line = f"- {server}: {clip(words, min(ONE_SERVER_TOKENS, room))}"
        room -= count_tokens(line)
        if room <= 0:
            return
        yield line
