"""Narrowing for a command: wait a little for the vectors, then ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fingerpost.surfaces.cli.person import person
from fingerpost.surfaces.cli.screen import errors_to

if TYPE_CHECKING:
    from fingerpost.records import Message, Narrowing, ServerChoice
    from fingerpost.router import Router

VECTOR_SECONDS = 20.0  # a first run makes the vectors of all tools; after so long words alone must do


async def narrow(
    router: Router,
    text: str,
    *,
    server: str | None = None,
    max_tools: int | None = None,
    about: str | None = None,
    history: tuple[Message, ...] = (),
    servers: ServerChoice | None = None,
    profile: str | None = None,
    ask_model: bool = False,
    effort: str | None = None,
) -> Narrowing:
    """What narrowing concludes about `text` over the tools that are there now.

    No model is asked, not even for servers, unless `ask_model` says so.
    """
    await settle(router)
    return await router.narrow(
        text,
        server=server,
        max_tools=max_tools,
        about=about,
        history=history,
        chosen_servers=servers,
        profile=profile,
        effort=effort,
        caller=person(),
        ask_model=ask_model,
    )


async def settle(router: Router) -> None:
    """Wait a little until the tools can be compared by meaning, and say so to a person who waits."""
    screen = errors_to()
    if screen.is_terminal:
        with screen.status("reading the tools' meanings (kept for the next time)"):
            await router.settle(VECTOR_SECONDS)
    else:
        await router.settle(VECTOR_SECONDS)
