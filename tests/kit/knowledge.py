"""A folder of notes, and calls of the tools over it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from fingerpost import Router
from fingerpost.llm import ChatModel

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


class OpenKnowledge(Protocol):
    """Opens a router with the knowledge base, connected."""

    def __call__(
        self, model: ChatModel | None = None, *, meaning: bool = False, **knowledge: Any
    ) -> AbstractAsyncContextManager[Router]: ...


async def expect_success(router: Router, tool: str, **arguments: Any) -> str:
    """What a tool answers; it must work."""
    outcome = await router.call(f"knowledge/{tool}", arguments)
    assert outcome.success, outcome.content
    return outcome.content


async def expect_error(router: Router, tool: str, **arguments: Any) -> str:
    """What a tool says that does not work."""
    outcome = await router.call(f"knowledge/{tool}", arguments)
    assert not outcome.success, outcome.content
    return outcome.content
