"""A folder of notes, and a router that has it as its knowledge base."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.llm import ChatModel
from fingerpost.settings import Settings
from tests.kit.knowledge import NOTES, OpenKnowledge


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    for path, text in NOTES.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def open_knowledge(notes: Path, settings: Settings, tmp_path: Path) -> OpenKnowledge:
    @asynccontextmanager
    async def open_base(
        model: ChatModel | None = None, *, meaning: bool = False, **knowledge: Any
    ) -> AsyncGenerator[Router]:
        settings_data = settings.model_dump(exclude_unset=True)
        settings_data["builtin"] = {"enabled": ["knowledge"], "knowledge": knowledge}
        settings_data["flags"] = {"dense_scores": meaning}  # by words alone it is quicker
        settings_data["narrow"] = {"vectors": str(tmp_path / "vectors")}
        made = Settings.model_validate(settings_data)
        async with open_router(settings=made, folder=notes.parent, model=model) as router:
            await router.connect()
            yield router

    return open_base
