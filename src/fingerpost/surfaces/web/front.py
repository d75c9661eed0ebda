"""Which surface answers a path."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from fingerpost.surfaces.web.asgi import AsgiScope, Receive, Send
from fingerpost.surfaces.web.port import ServedApp


class PathRouter:
    """Hands each request to a surface by the first part of its path.

    `parts` are by that first part (`v1`, `api`); everything else is for `home`.
    """

    def __init__(self, parts: Mapping[str, ServedApp], *, default: ServedApp) -> None:
        self._parts = dict(parts)
        self._home = default

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            first = scope["path"].split("/", 2)[1:2]
            part = self._parts.get(first[0], self._home) if first else self._home
            await part(scope, receive, send)

    async def drain(self, seconds: float) -> None:
        """All of them side by side: each has the whole time."""
        async with anyio.create_task_group() as tasks:
            for part in {id(part): part for part in (*self._parts.values(), self._home)}.values():
                tasks.start_soon(part.drain, seconds)
