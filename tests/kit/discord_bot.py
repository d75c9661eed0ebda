"""The Discord connector with real tool servers and a scripted model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fingerpost import Router, Settings
from fingerpost.surfaces.discord import load_library
from fingerpost.testing import ScriptedModel, ToolServer, tool_server
from tests.kit.discord_api import TOKEN, FakeDiscord
from tests.kit.stores import place_empty_store

load_library()
from fingerpost.surfaces.discord.client import (  # noqa: E402
    BotConnection,
    connect_bot,
)


@dataclass(frozen=True, slots=True)
class RunningBot:
    """A running connector."""

    discord: FakeDiscord
    router: Router
    notes: ToolServer
    connection: BotConnection


@dataclass(frozen=True, slots=True)
class BotFactory:
    """Where connectors run: one Discord and one store, which outlive them."""

    discord: FakeDiscord
    folder: Path

    def build_settings(
        self, call: dict[str, Any] | None = None, profiles: dict[str, Any] | None = None, **discord: Any
    ) -> Settings:
        discord_settings = {
            "token": TOKEN,
            "api_url": self.discord.api,
            "requests_per_minute": 600,
            **discord,
        }
        return Settings.model_validate(
            {
                "store": {"url": place_empty_store(self.folder)},
                "narrow": {"vectors": str(self.folder / "vectors")},
                "flags": {"dense_scores": False},
                "choose": {"mode": "simple"},
                "call": call or {},
                "profiles": profiles or {},
                "discord": discord_settings,
            }
        )

    @asynccontextmanager
    async def open_bot(
        self, model: ScriptedModel, *, every: float = 0.0, **discord: Any
    ) -> AsyncGenerator[RunningBot]:
        notes = notes_server()
        settings = self.build_settings(**discord)
        async with Router((notes.spec(),), settings=settings, model=model) as router:
            await router.connect()
            async with connect_bot(router, settings.discord, interval=every) as arrived:
                yield RunningBot(self.discord, router, notes, arrived)


def notes_server() -> ToolServer:
    async def act(name: str, arguments: dict[str, Any]) -> str:
        return f"{name} did it: {arguments['text']}"

    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    def tool(name: str, about: str, **hints: bool) -> dict[str, Any]:
        return {"name": name, "description": about, "inputSchema": text, "annotations": hints}

    return tool_server(
        "notes",
        [
            tool("read_note", "Read a note of the garden book", readOnlyHint=True),
            tool(
                "save_note",
                "Save a text as a note in the garden book",
                readOnlyHint=False,
                destructiveHint=False,
            ),
            tool("delete_note", "Delete a note of the garden book", readOnlyHint=False, destructiveHint=True),
        ],
        call=act,
    )
