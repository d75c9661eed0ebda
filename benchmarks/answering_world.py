"""The world in which answering is measured: recorded tools in process, and a model that answers at once.

The tools are those of training/data (recorded and written for the purpose), filled up with made ones
where more are wanted. Every request is about the time in a city, so that every way ends at the same tool.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.catalog import TOOLS_PER_SERVER, definition
from fingerpost import Router, Settings
from fingerpost.evals.datasets import read_tools
from fingerpost.events import Event
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import Json, JsonObject
from fingerpost.testing import ScriptedModel, ToolServer, calls, tool_server

DATA: Final = Path(__file__).parent.parent / "training" / "data"
SETS: Final = ("packages", "everyday", "registry")  # the first begins with the time server
VECTORS_S: Final = 300.0
SEED: Final = 5

TOOL: Final = "time/get_current_time"
EXPOSED: Final = "time__get_current_time"
CITIES: Final = {
    "Tokyo": "Asia/Tokyo", "Lisbon": "Europe/Lisbon", "Berlin": "Europe/Berlin", "Paris": "Europe/Paris",
    "London": "Europe/London", "Madrid": "Europe/Madrid", "Rome": "Europe/Rome", "Vienna": "Europe/Vienna",
    "Oslo": "Europe/Oslo", "Helsinki": "Europe/Helsinki", "Warsaw": "Europe/Warsaw", "Cairo": "Africa/Cairo",
    "Nairobi": "Africa/Nairobi", "Lagos": "Africa/Lagos", "Chicago": "America/Chicago",
    "Toronto": "America/Toronto", "Lima": "America/Lima", "Singapore": "Asia/Singapore",
    "Seoul": "Asia/Seoul", "Sydney": "Australia/Sydney",
}  # fmt: skip
OPENINGS: Final = (
    "", "Please tell me, ", "Quickly: ", "I have a call soon, so ", "For my notes, ", "Before I phone them, ",
    "One more thing, ", "Could you look it up, ", "Dana wants to know, ", "I wonder, ",
)  # fmt: skip
ENDINGS: Final = ("right now?", "at the moment?")
THANKS: Final = (
    "Thank you", "Thanks a lot", "Many thanks", "Thanks again", "Thank you so much", "Thanks",
)  # fmt: skip
KINDNESS: Final = (
    "that helps", "that was quick", "you are kind", "that was kind of you", "how nice", "good night",
    "you are a great help", "see you later",
)  # fmt: skip
ANSWER: Final = (
    "It is half past nine in the evening there, so most offices are closed by now and the shops "
    "close soon. Tomorrow morning, between nine and eleven their time, would be a good moment for a call. "
    "Keep in mind that they do not change their clocks in summer.\n\n"
    "- now: 21:30\n- offices open: 09:00\n\nThis comes from time/get_current_time."
)
DIRECT: Final = "You are welcome. Say so if anything else is to be done today."
_ASKED: Final = re.compile(r"what time is it in (\w+)", re.IGNORECASE)


def requests() -> Iterator[str]:
    """Requests that need the tool, no two alike, so that nothing is answered from memory."""
    made = [
        f"{opening}what time is it in {city} {ending}"
        for opening, city, ending in itertools.product(OPENINGS, CITIES, ENDINGS)
    ]
    random.Random(SEED).shuffle(made)
    return itertools.cycle(made)


def small_talk() -> Iterator[str]:
    """Requests that need no tool."""
    made = [f"{thanks}, {kindness}." for thanks, kindness in itertools.product(THANKS, KINDNESS)]
    random.Random(SEED).shuffle(made)
    return itertools.cycle(made)


def servers(count: int) -> list[ToolServer]:
    """`count` tools on as many servers as they were recorded from."""
    recorded: dict[str, list[JsonObject]] = {}
    tools = [tool for name in SETS for tool in read_tools(DATA / f"tools-{name}.jsonl")]
    for tool in tools[:count]:
        schema: Json = dict(tool.input_schema)
        recorded.setdefault(tool.server, []).append(
            {"name": tool.name, "description": tool.description, "inputSchema": schema}
        )
    for number in range(len(tools), count):
        recorded.setdefault(f"made{number // TOOLS_PER_SERVER:03}", []).append(definition(number))
    return [tool_server(name, offered) for name, offered in recorded.items()]


def zone_of(request: ModelRequest) -> str:
    """The time zone that is asked for."""
    found = _ASKED.search(request.messages[-1].text) or next(
        match for message in request.messages if (match := _ASKED.search(message.text))
    )
    return CITIES[found[1]]


def play(request: ModelRequest) -> str | ModelReply:
    """What a good model says, whichever way it is asked."""
    if request.schema is not None:
        return json.dumps(_build_structured_reply(request.schema.name, request))
    if request.tools and request.tool_choice == "auto":
        return calls((EXPOSED, {"timezone": zone_of(request)}))
    if any(message.role == "tool" or EXPOSED in message.text for message in request.messages):
        return ANSWER
    return ANSWER if _ASKED.search(request.messages[-1].text) else DIRECT


def _build_structured_reply(shape: str, request: ModelRequest) -> JsonObject:
    if shape == "relevant_servers":
        return {"relevant_servers": ["time"], "reasoning": "it is about the time"}
    if shape == "review":
        return {"approved": True, "confidence": 0.95, "reasoning": "the city's own zone"}
    arguments: JsonObject = {"timezone": zone_of(request)}
    if shape == "selection":
        return {
            "reasoning": "it tells the time", "tool": EXPOSED, "arguments": arguments, "confidence": 0.95,
            "alternatives": [], "remaining": "",
        }  # fmt: skip
    if any(message.text.startswith("Observation:") for message in request.messages):
        return {"thought": "this is enough", "action": None, "answer": ANSWER}
    return {
        "thought": "I need the time there",
        "action": {"tool": EXPOSED, "arguments": arguments},
        "answer": None,
    }


@dataclass(slots=True)
class Marks:
    """A sink that notes when each event passed by."""

    marks: list[tuple[float, Event]] = field(default_factory=list[tuple[float, Event]])

    def emit(self, event: Event) -> None:
        self.marks.append((time.perf_counter(), event))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A router over so many tools, and the same without a model."""

    tools: int
    router: Router
    keyless: Router
    model: ScriptedModel
    server: ToolServer  # of the tool that is called
    marks: Mapping[Router, tuple[Marks, Marks]]  # before each journal and behind it


@asynccontextmanager
async def world(count: int, folder: Path, *, seconds: float = 0.0) -> AsyncGenerator[World]:
    """Connected and ready, with every vector made. Nothing is answered from memory."""
    offered = servers(count)
    model = ScriptedModel(play, seconds=seconds)
    specs = [server.spec() for server in offered]
    name = f"{count}-{seconds:g}"
    first, second, marks = Marks(), Marks(), dict[Router, tuple[Marks, Marks]]()
    async with (
        Router(specs, settings=_settings(folder, name), model=model, sinks=[first]) as router,
        Router(specs, settings=_settings(folder, f"{name}-keyless"), sinks=[second]) as keyless,
    ):
        for one, before in ((router, first), (keyless, second)):
            marks[one] = (before, Marks())
            one.events.add(marks[one][1])
        for one in (router, keyless):
            await one.connect()
            assert len(one.tools.cards) == count, f"{len(one.tools.cards)} tools instead of {count}"
            await one.settle(VECTORS_S)
        time_server = next(server for server in offered if server.name == "time")
        yield World(tools=count, router=router, keyless=keyless, model=model, server=time_server,
                    marks=marks)  # fmt: skip


def _settings(folder: Path, name: str) -> Settings:
    return Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{folder}/{name}.db"},
            "narrow": {"vectors": str(folder / "vectors")},
            "flags": {"result_cache": False, "narrow_cache": False},
        }
    )
