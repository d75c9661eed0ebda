"""A folder to work in, and a router that has nothing but the workspace."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fingerpost.builtin import open_router
from fingerpost.records import ServerSpec
from fingerpost.settings import Settings
from tests.kit.workspace import OpenWorkspace, WorkspaceCaller


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working directory; what lies beside it must never be touched."""
    made = tmp_path / "ground"
    made.mkdir()
    return made


@pytest.fixture
def open_workspace(settings: Settings, folder: Path) -> OpenWorkspace:
    """Opens a router over the folder; both switches are on unless said otherwise."""

    @asynccontextmanager
    async def open_root(
        *,
        write: bool = True,
        execute: bool = True,
        policy: tuple[Any, ...] = (),
        beside: tuple[str, ...] = (),
        servers: tuple[ServerSpec, ...] = (),
        confirms: bool = False,
        **workspace: Any,
    ) -> AsyncGenerator[WorkspaceCaller]:
        wanted = settings.model_dump() | {
            "builtin": {"enabled": ["workspace", *beside], "workspace": workspace},
            "tool_routing": {"allow_write": write, "allow_execute": execute},
            "policy": policy,
            "gateway": {"local_confirm": confirms},
        }
        async with open_router(servers, settings=Settings.model_validate(wanted), folder=folder) as router:
            await router.connect()
            yield WorkspaceCaller(router, folder)

    return open_root
