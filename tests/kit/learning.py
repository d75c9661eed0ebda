"""Routers to be taught: a small one, and one with the tools of real packages."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fingerpost import Router
from fingerpost.events import MemorySink
from fingerpost.records import Narrowing
from fingerpost.testing import ScriptedModel, ToolServer, tool_server
from tests.kit.programs import ROOT
from tests.kit.routers import build_settings, open_router

PACKAGES = ROOT / "training" / "data" / "tools-packages.jsonl"
SOME = {"filesystem", "git", "kubernetes", "motherduck"}  # encoding all of them takes a while


def definition(name: str, about: str, *required: str, **annotations: bool) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in required}
    return {
        "name": name,
        "description": about,
        "inputSchema": {"type": "object", "properties": properties, "required": list(required)},
        "annotations": annotations or {"readOnlyHint": True},
    }


MAIL = [
    definition("search_mail", "Search the mailbox for messages by sender, subject or words."),
    definition("send_mail", "Send an e-mail to one or more people.", readOnlyHint=False),
]
CALENDAR = [
    definition("list_events", "List the events in the calendar between two dates."),
    definition("create_event", "Put a new event into the calendar.", readOnlyHint=False),
]
NOTES = [
    definition("find_notes", "Find notes by their words."),
    definition("delete_note", "Delete one note for ever.", destructiveHint=True),
]


@asynccontextmanager
async def open_office_router(
    folder: Path, *, model: ScriptedModel | None = None, more: int = 0, **sections: Any
) -> AsyncGenerator[tuple[Router, MemorySink]]:
    """A router over three small servers, and all its events."""
    servers = [tool_server("mail", MAIL), tool_server("calendar", CALENDAR), tool_server("notes", NOTES)]
    servers += [_archive(number) for number in range(more)]
    sink = MemorySink()
    specs = [server.spec() for server in servers]
    async with open_router(folder, specs, model, sinks=[sink], **sections) as router:
        yield router, sink


def _archive(number: int) -> ToolServer:
    tools = [definition(f"archive{number}_box{box}", f"Box {box} of archive {number}.") for box in range(12)]
    return tool_server(f"archive{number}", tools)


@asynccontextmanager
async def open_package_router(folder: Path, vectors: Path, **flags: bool) -> AsyncGenerator[Router]:
    """A router over the tools of real packages, which are compared by words and meaning."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in PACKAGES.read_text(encoding="utf-8").splitlines():
        tool = json.loads(line)
        if tool["server"] not in SOME:
            continue
        shown = {"name": tool["name"], "description": tool["description"]}
        found[tool["server"]].append({**shown, "inputSchema": tool["input_schema"]})
    specs = [tool_server(name, tools).spec() for name, tools in found.items()]
    made = build_settings(folder, narrow={"vectors": str(vectors)}, flags={"dense_scores": True, **flags})
    async with Router(specs, settings=made) as router:
        await router.connect()
        await router.settle(60)
        yield router


def first(narrowing: Narrowing) -> str:
    return narrowing.shortlist.candidates[0].tool


def order(narrowing: Narrowing) -> list[str]:
    return [candidate.tool for candidate in narrowing.shortlist.candidates]


def why(narrowing: Narrowing, tool: str) -> dict[str, tuple[float, str]]:
    """The parts of a tool's score, by signal."""
    found = next(one for one in narrowing.shortlist.candidates if one.tool == tool)
    return {part.signal: (part.points, part.note) for part in found.parts}


async def correct(router: Router, request: str, right: str, *, by: str = "dana", times: int = 1) -> None:
    """The person asks so often, and then says of each which tool it should have been."""
    asked = [await router.narrow(request) for _ in range(times)]
    for narrowing in asked:
        assert narrowing.packet_id is not None
        assert first(narrowing) != right, "it has to be a mistake"
        await router.feedback(narrowing.packet_id, "bad", by=by, should_have=right)
