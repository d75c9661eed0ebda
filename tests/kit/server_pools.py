"""What the tests of this package share: a pool with short waits, and waiting with a bound."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import psutil

from fingerpost.events import Event, MemorySink, ServerStateChanged
from fingerpost.records import JsonObject, ServerSpec, ServerState
from fingerpost.servers import ServerPool, SignInStore
from fingerpost.settings.model import LimitSettings

PATIENCE = 60.0  # for what takes milliseconds when the machine is idle


@asynccontextmanager
async def open_pool(
    *specs: ServerSpec,
    sink: MemorySink | None = None,
    tokens: SignInStore | None = None,
    start: bool = True,
    **limits: Any,
) -> AsyncGenerator[ServerPool]:
    """Servers with short waits between attempts; by default started and settled."""
    settings = LimitSettings.model_validate({"reconnect_max": 0.3, **limits})
    async with ServerPool(specs, events=sink or MemorySink(), limits=settings, tokens=tokens) as servers:
        servers.advertise_client_capabilities()
        if start:
            servers.start()
            assert await servers.wait_until_settled(timeout=PATIENCE)
        yield servers


async def eventually(fact: Callable[[], bool], *, within: float = PATIENCE) -> None:
    """Return when `fact` holds; fail when it does not within the time."""
    with anyio.fail_after(within):
        while not fact():  # noqa: ASYNC110 - facts about the outside world set no event
            await anyio.sleep(0.02)


async def all_blocked() -> None:
    """Return when every other task waits for something.

    anyio looks every tenth of a second, and a uvicorn in the same loop wakes as often: in step with each
    other, one would be found at work for ever. So the looking begins anew at another moment.
    """
    while True:
        with anyio.move_on_after(0.27):
            await anyio.wait_all_tasks_blocked()
            return


def states(sink: MemorySink, server: str) -> list[ServerState]:
    """The states a server went through, in order."""
    return [event.state for event in _changes(sink) if event.server == server]


def _changes(sink: MemorySink) -> list[ServerStateChanged]:
    return [event for event in sink.events if isinstance(event, ServerStateChanged)]


def of_kind(sink: MemorySink, kind: type[Event]) -> list[Event]:
    return [event for event in sink.events if isinstance(event, kind)]


def text_of(result: JsonObject) -> str:
    """The text of a tool result."""
    content = cast("list[dict[str, str]]", result["content"])
    return content[0]["text"]


def arguments_of(result: JsonObject) -> Any:
    """The arguments an echoing tool got."""
    return json.loads(text_of(result))


def names(servers: ServerPool, name: str) -> list[str]:
    listing = servers.get_listing(name)
    return [] if listing is None else [cast("str", tool["name"]) for tool in listing.definitions]


def children_of(process: int, word: str) -> list[psutil.Process]:
    """The live descendants whose command line holds `word`."""
    found: list[psutil.Process] = []
    for child in psutil.Process(process).children(recursive=True):
        try:
            if word in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def is_running(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
