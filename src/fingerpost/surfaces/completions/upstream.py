"""The models at the address of the configured one, as their server lists them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread
from pydantic_core import from_json

from fingerpost.records import JsonObject
from fingerpost.settings import ModelSettings
from fingerpost.surfaces.completions.bodies import fields_of

if TYPE_CHECKING:
    import httpx2

PATIENCE_S: Final = 3.0
KEPT_S: Final = 60.0
MOST_BYTES: Final = 2 * 1024 * 1024
MOST: Final = 2000
LONGEST_ID: Final = 300


class Upstream:
    """Asks for the list now and then. Its failure is nobody's: the list is empty then."""

    def __init__(self, model: ModelSettings | None) -> None:
        asks = model is not None and model.provider == "openai" and model.base_url is not None
        self._model = model if asks else None
        self._asking = anyio.Lock()
        self._client: httpx2.AsyncClient | None = None
        self._known: tuple[JsonObject, ...] = ()
        self._until = 0.0

    async def models(self) -> tuple[JsonObject, ...]:
        """Entries of `/v1/models`, as the server wrote them."""
        if self._model is None:
            return ()
        async with self._asking:
            if time.monotonic() >= self._until:
                self._known = await self._ask(self._model)
                self._until = time.monotonic() + KEPT_S
        return self._known

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _ask(self, model: ModelSettings) -> tuple[JsonObject, ...]:
        import httpx2

        if self._client is None:
            self._client = await anyio.to_thread.run_sync(_made, model)
        try:
            with anyio.move_on_after(PATIENCE_S):
                return _entries(await _received(self._client))
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, ValueError):
            pass
        return ()


def _made(model: ModelSettings) -> httpx2.AsyncClient:
    """Made in a thread: it reads certificates."""
    import httpx2

    headers = {"authorization": f"Bearer {model.api_key}"} if model.api_key else {}
    base = f"{(model.base_url or '').rstrip('/')}/"
    return httpx2.AsyncClient(base_url=base, headers=headers, timeout=PATIENCE_S, follow_redirects=False)


async def _received(client: httpx2.AsyncClient) -> bytes:
    async with client.stream("GET", "models") as response:
        if response.status_code != 200:
            return b"{}"
        parts: list[bytes] = []
        size = 0
        async for part in response.aiter_bytes():
            size += len(part)
            if size > MOST_BYTES:
                return b"{}"
            parts.append(part)
        return b"".join(parts)


def _entries(content: bytes) -> tuple[JsonObject, ...]:
    body: object = from_json(content)
    listed = fields_of(body).get("data")
    if not isinstance(listed, list):
        return ()
    return tuple(
        cast("JsonObject", entry) for entry in cast("list[object]", listed)[:MOST] if _is_model(entry)
    )


def _is_model(entry: object) -> bool:
    name = fields_of(entry).get("id")
    return isinstance(name, str) and 0 < len(name) <= LONGEST_ID
