"""Tools to choose among, and the corpus of odd replies."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from fingerpost.llm import ModelReply
from fingerpost.records import Packet, ToolCard
from tests.kit.cards import snapshot
from tests.kit.programs import ROOT

FOLDER = ROOT / "tests" / "choose" / "replies"


def _tool(name: str, *required: str, description: str = "", **more: Any) -> Mapping[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in required}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description or f"{name}.", "inputSchema": schema, **more}


OFFERED: tuple[ToolCard, ...] = snapshot(
    files=[
        _tool("read_file", "path", description="Read a text file."),
        _tool("write_file", "path", "content", description="Write a text file."),
        _tool("delete_file", "path", description="Delete a file for good."),
    ],
    web=[
        _tool("search", "query", description="Search the web."),
        _tool("fetch", "url", description="Fetch a page."),
    ],
    notes=[
        _tool("search", "query", description="Search my notes."),
        _tool("חיפוש", "query", description="חיפוש בפתקים"),
    ],
    git=[_tool("log", description="Show the latest commits.")],
    time=[_tool("get_current_time", "timezone", description="Tell the time somewhere.")],
).cards
KEYS = frozenset(card.key for card in OFFERED)


def card_of(key: str) -> ToolCard:
    return next(card for card in OFFERED if card.key == key)


def packet(text: str = "what changed lately?", **more: Any) -> Packet:
    return Packet.start(text, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A reply, and what must come out of it."""

    name: str
    reply: ModelReply
    expected: Mapping[str, Any]


def samples(*files: str, longest: int = 1_000_000) -> list[Sample]:
    """The replies of these files. Fillings have at most `longest` characters."""
    return [
        _sample(f"{file}: {entry['name']}", entry, longest)
        for file in files
        for entry in cast(
            "list[dict[str, Any]]", tomllib.loads((FOLDER / f"{file}.toml").read_text("utf-8"))["reply"]
        )
    ]


def _sample(name: str, entry: dict[str, Any], longest: int) -> Sample:
    """`§` in a text stands for `fill` (a piece, how often), closed by `close` as often."""
    piece, times = cast("tuple[str, int]", entry.get("fill", ("", 0)))
    times = min(times, longest // max(1, len(piece)))
    filling = piece * times + entry.get("close", "") * times
    filled = {key: entry.get(key, "").replace("§", filling) for key in ("text", "args")}
    calls = tuple(json.loads(entry.get("calls", "[]")))
    reply = ModelReply(text=filled["text"], model="odd", finish=entry.get("finish", "stop"), tool_calls=calls)
    return Sample(name=name, reply=reply, expected={**entry, "args": filled["args"]})
