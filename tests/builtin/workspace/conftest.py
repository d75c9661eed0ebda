"""A folder to work in, and a router that has nothing but the workspace."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.records import Json, Outcome
from fingerpost.settings import Settings


class Hands:
    """Calls of one caller, by the tools' short names."""

    def __init__(self, router: Router, folder: Path) -> None:
        self.router = router
        self.folder = folder

    async def files(self, operation: str, **arguments: Json) -> Outcome:
        return await self.call("file_operations", operation=operation, **arguments)

    async def terminal(self, operation: str, caller: str | None = None, **arguments: Json) -> Outcome:
        return await self.router.call(
            "workspace/terminal_operations", {"operation": operation, **arguments}, caller=caller
        )

    async def call(self, tool: str, **arguments: Json) -> Outcome:
        return await self.router.call(f"workspace/{tool}", arguments)

    async def told(self, operation: str, **arguments: Json) -> str:
        """What a file operation that must work says."""
        outcome = await self.files(operation, **arguments)
        assert outcome.success, outcome.content
        return outcome.content

    async def refused(self, operation: str, **arguments: Json) -> str:
        """What a file operation that must not work says."""
        outcome = await self.files(operation, **arguments)
        assert not outcome.success, outcome.content
        return outcome.content


House = Callable[..., AbstractAsyncContextManager[Hands]]

COMMANDS_ALLOWED = {"verdict": "allow", "tool": "workspace/terminal_operations"}


def names_in(folder: Path) -> list[str]:
    """The names of everything below."""
    return sorted(path.name for path in folder.rglob("*"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working directory; what lies beside it must never be touched."""
    made = tmp_path / "ground"
    made.mkdir()
    return made


@pytest.fixture
def house(settings: Settings, folder: Path) -> House:
    """Opens a router over the folder; both switches are on unless said otherwise."""

    @asynccontextmanager
    async def opened(
        *,
        write: bool = True,
        execute: bool = True,
        policy: tuple[Any, ...] = (),
        beside: tuple[str, ...] = (),
        confirms: bool = False,
        **workspace: Any,
    ) -> AsyncGenerator[Hands]:
        wanted = settings.model_dump() | {
            "builtin": {"enabled": ["workspace", *beside], "workspace": workspace},
            "tool_routing": {"allow_write": write, "allow_execute": execute},
            "policy": policy,
            "gateway": {"local_confirm": confirms},
        }
        async with open_router(settings=Settings.model_validate(wanted), folder=folder) as router:
            await router.connect()
            yield Hands(router, folder)

    return opened
