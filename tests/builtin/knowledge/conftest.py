"""A folder of notes, and a house that has it as its knowledge base."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.llm import ChatModel
from fingerpost.settings import Settings

NOTES: Mapping[str, str] = {
    "garden/tomatoes.md": """\
---
title: "Tomatoes: what worked"
tags: [garden, food]
aliases:
  - Tomato notes
date: 2026-05-01
---
# Tomatoes: what worked

Water them in the evening, never over the leaves. See [[Watering]] and [soil](soil.md).

## Pruning

Side shoots go every week.

```python
# not a heading, and [[Not A Link]]
```
""",
    "garden/watering.md": "Watering\n========\n\nThe drip hose runs at six in the evening. #summer\n",
    "garden/soil.md": "# Soil\n\nCompost goes on the beds in April.\n",
    "car.txt": "The car service is due in May.\n\nTyres were changed in March.\n",
    "contexts/kos.md": """\
---
description: How I work
---
I plan on Sundays.

- [[Tomato notes]]
- [[Nowhere]]
- search: car service
""",
}


class OpenHouse(Protocol):
    """Opens a router with the knowledge base, connected."""

    def __call__(
        self, model: ChatModel | None = None, *, meaning: bool = False, **knowledge: Any
    ) -> AbstractAsyncContextManager[Router]: ...


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    for path, text in NOTES.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def open_house(notes: Path, settings: Settings, tmp_path: Path) -> OpenHouse:
    @asynccontextmanager
    async def opened(
        model: ChatModel | None = None, *, meaning: bool = False, **knowledge: Any
    ) -> AsyncGenerator[Router]:
        told = settings.model_dump(exclude_unset=True)
        told["builtin"] = {"enabled": ["knowledge"], "knowledge": knowledge}
        told["flags"] = {"dense_scores": meaning}  # by words alone it is quicker
        told["narrow"] = {"vectors": str(tmp_path / "vectors")}
        made = Settings.model_validate(told)
        async with open_router(settings=made, folder=notes.parent, model=model) as router:
            await router.connect()
            yield router

    return opened


async def said(router: Router, tool: str, **arguments: Any) -> str:
    """What a tool answers; it must work."""
    outcome = await router.call(f"knowledge/{tool}", arguments)
    assert outcome.success, outcome.content
    return outcome.content


async def refused(router: Router, tool: str, **arguments: Any) -> str:
    """What a tool says that does not work."""
    outcome = await router.call(f"knowledge/{tool}", arguments)
    assert not outcome.success, outcome.content
    return outcome.content
