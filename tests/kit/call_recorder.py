"""Servers that write down every call, and the question whether what they were called for was allowed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fingerpost import Router
from fingerpost.events import (
    AttemptStarted,
    Event,
    ExecutionStatusChanged,
    SelectionReviewed,
    ShortlistWidened,
    ToolsOffered,
    rebuild_packet,
)
from fingerpost.records import ExecutionStatus, Mode
from fingerpost.router import Route
from fingerpost.testing import ScriptedModel, ToolServer, tool_server
from tests.kit.routers import open_router

READS: Mapping[str, Any] = {"annotations": {"readOnlyHint": True}}
DESTROYS: Mapping[str, Any] = {"annotations": {"readOnlyHint": False, "destructiveHint": True}}
ENOUGH = 0.7  # the threshold of the settings
Answer = Callable[[str, dict[str, Any]], Awaitable[str]]


def tool(name: str, description: str, *required: str, **more: Any) -> Mapping[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in required}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema, **more}


def create_office_servers() -> list[ToolServer]:
    """The tools the corpus of odd replies speaks of."""
    return [
        tool_server(
            "files",
            [
                tool("read_file", "Read a text file.", "path", **READS),
                tool("write_file", "Write a text file.", "path", "content", **DESTROYS),
                tool("delete_file", "Delete a file for good.", "path", **DESTROYS),
            ],
        ),
        tool_server(
            "web",
            [
                tool("search", "Search the web.", "query", **READS),
                tool("fetch", "Fetch a page of the web.", "url", **READS),
            ],
        ),
        tool_server(
            "notes",
            [
                tool("search", "Search my notes.", "query", **READS),
                tool("חיפוש", "חיפוש בפתקים", "query", **READS),
            ],
        ),
        tool_server("git", [tool("log", "Show the latest commits of git.", **READS)]),
        tool_server("time", [tool("get_current_time", "Tell the time somewhere.", "timezone", **READS)]),
    ]


REQUEST = (
    "Search the web and my notes, show the git log, read, write and delete the file a.txt, tell the time"
)
RICH: Mapping[str, Any] = {"narrow": {"max_tools": 20}}  # all of them are offered


@asynccontextmanager
async def open_office(
    folder: Path, model: ScriptedModel | None = None, **more: Any
) -> AsyncGenerator[tuple[Router, list[ToolServer]]]:
    servers = create_office_servers()
    wishes = {"vectors": str(folder / "vectors"), **RICH["narrow"]}
    async with open_router(folder, [one.spec() for one in servers], model, narrow=wishes, **more) as router:
        yield router, servers


def list_called(servers: list[ToolServer]) -> list[str]:
    """The keys of everything that was called so far."""
    return [f"{server.name}/{name}" for server in servers for name, _ in server.calls]


def find_unauthorized(route: Route) -> list[str]:
    """Calls of this route without permission: a tool that was not offered, or (staged) not approved."""
    found: list[str] = []
    offered: set[str] = set()
    approved = reviewed = False
    for event in route.events:
        match event:
            case ToolsOffered(tools=tools) | ShortlistWidened(tools=tools):
                offered.update(tools)
            case SelectionReviewed(review=review):
                reviewed = review.approved and review.confidence >= ENOUGH
            case ExecutionStatusChanged(status=ExecutionStatus.PENDING):
                approved = reviewed = False
            case ExecutionStatusChanged(status=ExecutionStatus.APPROVED):
                approved = True
            case AttemptStarted(tool=name):
                if name not in offered:
                    found.append(f"{name} ran and was not offered")
                if not approved or (route.mode is Mode.STAGED and not reviewed):
                    found.append(f"{name} ran without approval")
            case _:
                pass
    return found


def find_unreadable(route: Route) -> list[str]:
    """What a person should not be shown, and what is missing."""
    found: list[str] = []
    if not route.answer.strip():
        found.append("there is no answer")
    if "Traceback" in route.answer:
        found.append("the answer is a trace")
    try:
        route.answer.encode()
        json.dumps(route.as_json(), allow_nan=False).encode()
    except ValueError as error:
        found.append(f"the route cannot be written down: {error}")
    return found


async def read_journal(router: Router, route: Route) -> list[Event]:
    """Everything the journal holds of this packet."""
    await router.store.journal.flush()
    events: list[Event] = []
    after = 0
    while page := await router.store.journal.list_events(packet_id=route.packet_id, after_seq=after):
        events += [entry.event for entry in page]
        after = page[-1].seq
    return events


async def matches_journal(router: Router, route: Route) -> bool:
    """Whether the journal makes the very packet the route ended with."""
    return rebuild_packet(await read_journal(router, route)) == route.packet
