"""What the tests of server pre-selection share: a catalog large enough, a picker, its events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fingerpost.catalog import Snapshot
from fingerpost.events import MemorySink, SmartRoutingEnd, SmartRoutingStart
from fingerpost.llm import ChatModel
from fingerpost.narrow.server_picker import ServerPicker
from fingerpost.records import Message, ServerChoice, Signals
from fingerpost.settings import SmartRoutingSettings
from tests.kit.catalogs import catalog, create_listing, tool

SERVERS = ("calendar", "github", "mail", "maps", "music", "weather")


def snapshot(servers: Sequence[str] = SERVERS, tools: int = 7) -> Snapshot:
    """Six servers of seven tools: above both thresholds."""
    made = [
        create_listing(
            name, *(tool(f"{name}_{number}", f"{name} number {number}") for number in range(tools))
        )
        for name in servers
    ]
    return catalog(*made).snapshot


def write_choice(*servers: str, reasoning: str = "they fit") -> str:
    """The reply of a model that chose these."""
    return json.dumps({"relevant_servers": servers, "reasoning": reasoning})


def build_scores(*servers: str, among: Sequence[str] = SERVERS) -> Mapping[str, Sequence[float]]:
    """Scores by which these servers are far ahead."""
    return {name: [0.8, 0.7, 0.6] if name in servers else [0.05, 0.04] for name in among}


class PickerFixture:
    """A picker with its sink, asked with few words."""

    def __init__(self, model: ChatModel | None = None, **options: Any) -> None:
        self.sink = MemorySink()
        settings = SmartRoutingSettings.model_validate(options.pop("settings", {}))
        self.picker = ServerPicker(settings, self.sink, model=model, **options)
        self.usual = build_scores(*(("calendar", "mail", "maps") if model is None else ()))
        self.asked = self.scored = 0

    async def choose(
        self,
        text: str = "book a table",
        *,
        conversation: str | None = None,
        history: Sequence[Message] = (),
        tools: Snapshot | None = None,
        scores: Mapping[str, Sequence[float]] | None = None,
        signals: Signals | None = None,
        caller: str | None = None,
    ) -> ServerChoice:
        self.asked += 1

        def read_vectors() -> Mapping[str, Sequence[float]]:
            self.scored += 1
            return self.usual if scores is None else scores

        return await self.picker.pick(
            text,
            history,
            conversation,
            snapshot() if tools is None else tools,
            read_vectors,
            f"pkt_{self.asked}",
            caller=caller,
            signals=signals,
        )

    @property
    def starts(self) -> list[SmartRoutingStart]:
        return [event for event in self.sink.events if isinstance(event, SmartRoutingStart)]

    @property
    def ends(self) -> list[SmartRoutingEnd]:
        return [event for event in self.sink.events if isinstance(event, SmartRoutingEnd)]
