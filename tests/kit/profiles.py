"""Houses with profiles: our own servers, or two small ones of the test's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.settings import ProfileSettings, load
from fingerpost.settings.profiles import read_examples
from fingerpost.testing import ScriptedModel, ToolServer, tool_server
from tests.kit.routers import build_settings

OWN = ["workspace", "knowledge", "memory", "collaboration", "specialists", "directives"]
LAMP: dict[str, Any] = {"target": "lamp-1", "asset": "lamp", "position": {"x": 0, "y": 1.5, "z": -2}}


def reading_tool(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    }


def servers() -> tuple[ToolServer, ToolServer]:
    """Two servers with one tool each."""

    async def answer(name: str, arguments: dict[str, Any]) -> str:
        return f"{name} says hello"

    weather = tool_server("weather", [reading_tool("get_forecast", "The weather forecast")], call=answer)
    tickets = tool_server("tickets", [reading_tool("find_ticket", "Find a support ticket")], call=answer)
    return weather, tickets


@asynccontextmanager
async def small(
    folder: Path, model: ScriptedModel | None = None, **more: Any
) -> AsyncGenerator[tuple[Router, ToolServer, ToolServer]]:
    """A router with `weather` and `tickets`."""
    weather, tickets = servers()
    async with Router(
        [weather.spec(), tickets.spec()], settings=build_settings(folder, **more), model=model
    ) as router:
        await router.connect()
        yield router, weather, tickets


@asynccontextmanager
async def own(
    folder: Path, *names: str, model: ScriptedModel | None = None, **more: Any
) -> AsyncGenerator[Router]:
    """A router with every server of our own, and ready profiles written into its folder."""
    found = await anyio.to_thread.run_sync(_write_profiles, folder, names)
    given = build_settings(folder, **{"builtin": {"enabled": OWN}, **more})
    given = given.model_copy(update={"profiles": {**given.profiles, **found}})
    async with open_router(settings=given, folder=folder, model=model) as router:
        await router.connect()
        yield router


def _write_profiles(folder: Path, names: tuple[str, ...]) -> Mapping[str, ProfileSettings]:
    (folder / "notes").mkdir(exist_ok=True)
    (folder / "notes" / "pump.md").write_text("# The pump\nThe valve is red.\n")
    (folder / "profiles").mkdir(exist_ok=True)
    for name in names:
        (folder / "profiles" / f"{name}.toml").write_text(read_examples()[name])
    (folder / "fingerpost.toml").touch()
    return load(config=folder / "fingerpost.toml", environ={"HOME": str(folder)}).settings.profiles


def sees(router: Router, profile: str | None) -> list[str]:
    return sorted(card.key for card in router.view(profile=profile).visible.cards)


def servers_seen(router: Router, profile: str | None) -> list[str]:
    return sorted({key.partition("/")[0] for key in sees(router, profile)})


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    with anyio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110 - files tell nobody when they change
            await anyio.sleep(0.01)


def write(path: Path, text: str) -> None:
    """As editors do it: whole, or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def get_system_prompt(model: ScriptedModel) -> str:
    """The first message of the last request to the model."""
    return model.asked[-1].messages[0].text
