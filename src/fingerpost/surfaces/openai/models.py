"""The models that callers can name, and the list of them (/v1/models)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread
from pydantic_core import from_json

from fingerpost.records import JsonObject, Mode
from fingerpost.router import Router
from fingerpost.settings import ModelSettings
from fingerpost.surfaces.openai.errors import build_unknown_model_error, get_fields
from fingerpost.surfaces.openai.options import split_model

if TYPE_CHECKING:
    import httpx2


LIST_TIMEOUT_S: Final = 3.0
LIST_TTL_S: Final = 60.0
MAX_LIST_BYTES: Final = 2 * 1024 * 1024
MAX_MODELS: Final = 2000
MAX_ID_LENGTH: Final = 300


class UpstreamModels:
    """Fetches the upstream server's list of models at intervals. The list is empty if that fails."""

    def __init__(self, model: ModelSettings | None) -> None:
        asks = model is not None and model.provider == "openai" and model.base_url is not None
        self._model = model if asks else None
        self._asking = anyio.Lock()
        self._client: httpx2.AsyncClient | None = None
        self._known: tuple[JsonObject, ...] = ()
        self._until = 0.0

    async def get_models(self) -> tuple[JsonObject, ...]:
        """Return entries of `/v1/models` as the upstream server sent them."""
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
    """Create the client. Runs in a thread, because it reads certificates."""
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
    entries = cast("list[object]", listed)[:MAX_MODELS] if isinstance(listed, list) else []
    named = ((entry, get_fields(entry).get("id")) for entry in entries)
    return tuple(
        cast("JsonObject", entry)
        for entry, name in named
        if isinstance(name, str) and 0 < len(name) <= MAX_ID_LENGTH
    )


OWN_MODEL: Final = "fingerpost"
_CREATED_AT: Final = 1_700_000_000  # clients require some creation time


class ModelList:
    """The configured models, and others of the same upstream server."""

    def __init__(self, router: Router) -> None:
        self._router = router
        settings = router.settings.models
        self._upstream = UpstreamModels(settings.prime or settings.lite)

    @property
    def default_model(self) -> str:
        """The model that answers by default, empty if there is none."""
        return self._router.models.prime

    def resolve_model(self, name: str) -> str | None:
        """Return the model to use instead of the configured one, or None. Raises `CompletionError`."""
        base, _ = split_model(name)
        if base == OWN_MODEL or (self.default_model and base == self.default_model):
            return None
        if not self.default_model:
            hint = (
                f"No language model is configured, so only `{OWN_MODEL}` "
                "answers; set models.prime for others."
            )
            raise build_unknown_model_error(base, hint)
        return base

    async def list_models(self) -> list[JsonObject]:
        """Return entries of `/v1/models`: our own with its modes, then those of the upstream server."""
        modes = Mode if self.default_model else (Mode.KEYLESS,)
        own: list[JsonObject] = [
            _build_entry(name) for name in (OWN_MODEL, *(f"{OWN_MODEL}:{mode}" for mode in modes))
        ]
        if not self.default_model:
            return own
        others = await self._upstream.get_models()
        known = {str(entry["id"]) for entry in others}
        if self.default_model not in known:
            own.append(_build_entry(self.default_model))
        return [*own, *others]

    async def find_model(self, name: str) -> JsonObject:
        """Return one entry. Raises `CompletionError`."""
        for entry in await self.list_models():
            if entry["id"] == name:
                return entry
        raise build_unknown_model_error(name)

    async def aclose(self) -> None:
        await self._upstream.aclose()


def _build_entry(name: str) -> JsonObject:
    return {"id": name, "object": "model", "created": _CREATED_AT, "owned_by": OWN_MODEL}
