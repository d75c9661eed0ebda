"""Calls of the workspace's tools."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from fingerpost import Router
from fingerpost.records import Json, Outcome


class WorkspaceCaller:
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

    async def expect_success(self, operation: str, **arguments: Json) -> str:
        """What a file operation that must work says."""
        outcome = await self.files(operation, **arguments)
        assert outcome.success, outcome.content
        return outcome.content

    async def expect_error(self, operation: str, **arguments: Json) -> str:
        """What a file operation that must not work says."""
        outcome = await self.files(operation, **arguments)
        assert not outcome.success, outcome.content
        return outcome.content


OpenWorkspace = Callable[..., AbstractAsyncContextManager[WorkspaceCaller]]

COMMANDS_ALLOWED = {"verdict": "allow", "tool": "workspace/terminal_operations"}


def names_in(folder: Path) -> list[str]:
    """The names of everything below."""
    return sorted(path.name for path in folder.rglob("*"))
