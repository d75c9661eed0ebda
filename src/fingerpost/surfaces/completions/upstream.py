"""The models at the address of the configured one, as their server lists them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread
from pydantic_core import from_json

from fingerpost.records import JsonObject
from fingerpost.settings import ModelSettings
from fingerpost.surfaces.completions.bodies import get_fields

if TYPE_CHECKING:
    import httpx2

LIST_TIMEOUT_S: Final = 3.0
LIST_TTL_S: Final = 60.0
MAX_LIST_BYTES: Final = 2 * 1024 * 1024
MAX_MODELS: Final = 2000
MAX_ID_LENGTH: Final = 300


class UpstreamModels:
    """Asks for the list now and then. Its failure is nobody's: the list is empty then."""

    def __init__(self, model: ModelSettings | None) -> None:
        asks = model is not None and model.provider == "openai" and model.base_url is not None
        self._model = model if asks else None
        self._asking = anyio.Lock()
        self._client: httpx2.AsyncClient | None = None
        self._known: tuple[JsonObject, ...] = ()
        self._until = 0.0

    async def get_models(self) -> tuple[JsonObject, ...]:
        """Entries of `/v1/models`, as the server wrote them."""
        if self._model is None:
            return ()
        async with self._asking:
            if time.monotonic() >= self._until:
                self._known = await self._fetch_models(self._model)
                self._until = time.monotonic() + LIST_TTL_S
        return self._known

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _fetch_models(self, model: ModelSettings) -> tuple[JsonObject, ...]:
        import httpx2

        if self._client is None:
            self._client = await anyio.to_thread.run_sync(_build_client, model)
        try:
            with anyio.move_on_after(LIST_TIMEOUT_S):
                return _parse_entries(await _receive_list(self._client))
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, ValueError):
            pass
        return ()


def _build_client(model: ModelSettings) -> httpx2.AsyncClient:
    """Made in a thread: it reads certificates."""
    import httpx2

    headers = {"authorization": f"Bearer {model.api_key}"} if model.api_key else {}
    base = f"{(model.base_url or '').rstrip('/')}/"
    return httpx2.AsyncClient(base_url=base, headers=headers, timeout=LIST_TIMEOUT_S, follow_redirects=False)


async def _receive_list(client: httpx2.AsyncClient) -> bytes:
    async with client.stream("GET", "models") as response:
        if response.status_code != 200:
            return b"{}"
        parts: list[bytes] = []
        size = 0
        async for part in response.aiter_bytes():
            size += len(part)
            if size > MAX_LIST_BYTES:
                return b"{}"
            parts.append(part)
        return b"".join(parts)


def _parse_entries(content: bytes) -> tuple[JsonObject, ...]:
    body: object = from_json(content)
    listed = get_fields(body).get("data")
    if not isinstance(listed, list):
        return ()
    return tuple(
        cast("JsonObject", entry)
        for entry in cast("list[object]", listed)[:MAX_MODELS]
        if _is_model_entry(entry)
    )


def _is_model_entry(entry: object) -> bool:
    name = get_fields(entry).get("id")
    return isinstance(name, str) and 0 < len(name) <= MAX_ID_LENGTH
