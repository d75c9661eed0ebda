"""Asking a server for its tools: page after page, within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from fingerpost.errors import ServerReplyInvalid
from fingerpost.records import Listing, ServerSpec
from fingerpost.servers.definitions import DefinitionFilter
from fingerpost.servers.spec import get_package
from fingerpost.settings.model import LimitSettings
from fingerpost.tasks import run_in_thread

THREAD_PAGE_SIZE = 200  # definitions on one page: looking at each takes the event loop too long

PageReader = Callable[[str | None], Awaitable[dict[str, Any]]]


async def read_listing(
    spec: ServerSpec, read_page: PageReader, limits: LimitSettings, *, modern: bool, instructions: str | None
) -> Listing:
    """Everything the server offers, each definition checked on its own."""
    server = spec.name
    intake = DefinitionFilter(server, limits, modern=modern)
    truncated = await _read_pages(server, read_page, limits, intake)
    return Listing(
        server=server,
        definitions=tuple(intake.kept),
        dropped=tuple(intake.dropped),
        instructions=instructions,
        prefix=spec.prefix,
        package=get_package(spec),
        trust_hints=spec.trust_hints or spec.in_process is not None,
        new_tools="allow" if spec.in_process is not None else spec.new_tools,
        truncated=truncated,
    )


async def _read_pages(
    server: str, read_page: PageReader, limits: LimitSettings, accepted: DefinitionFilter
) -> str | None:
    """Fill the intake. Returns why the list was cut, or None when it was read to its end."""
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(limits.list_pages):
        page = await read_page(cursor)
        tools: object = page.get("tools")
        if not isinstance(tools, list):
            message = f"{server} answered tools/list without a list of tools"
            raise ServerReplyInvalid(message, server=server, hint="report this to the server's author")
        found = cast("list[object]", tools)
        if not (
            accepted.add_page(found)
            if len(found) <= THREAD_PAGE_SIZE
            else await run_in_thread(accepted.add_page, found)
        ):
            return f"the server lists more than {limits.tools_per_server:,} tools; the rest was left out"
        following: object = page.get("nextCursor")
        if following is None or following == "":  # some servers spell "no more" as empty text
            return None
        if not isinstance(following, str):
            return "the cursor of the next page is not text; later pages could not be read"
        if following in seen:
            return "the server handed out the same page cursor twice; reading stopped there"
        seen.add(following)
        cursor = following
    return f"the list has more than {limits.list_pages} pages; the rest was left out"
