"""Which model a caller means, and the list of those there are."""

from __future__ import annotations

from typing import Final

from fingerpost.records import JsonObject, Mode
from fingerpost.router import Router
from fingerpost.surfaces.completions.faults import build_unknown_model_error
from fingerpost.surfaces.completions.manner import split_model
from fingerpost.surfaces.completions.upstream import UpstreamModels

OWN_MODEL: Final = "fingerpost"
_CREATED_AT: Final = 1_700_000_000  # when "our" model was made: clients want to read some time


class ModelList:
    """The configured models, and others at the same address."""

    def __init__(self, router: Router) -> None:
        self._router = router
        settings = router.settings.models
        self._upstream = UpstreamModels(settings.prime or settings.lite)

    @property
    def default_model(self) -> str:
        """Who answers where nobody asks for another; empty without a model."""
        return self._router.models.prime

    def resolve_model(self, name: str) -> str | None:
        """The model to ask instead of the configured one, if another is meant. Raises `CompletionError`."""
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
        """Entries of `/v1/models`: ours with its modes, then those of the upstream server."""
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
        """One entry. Raises `CompletionError`."""
        for entry in await self.list_models():
            if entry["id"] == name:
                return entry
        raise build_unknown_model_error(name)

    async def aclose(self) -> None:
        await self._upstream.aclose()


def _build_entry(name: str) -> JsonObject:
    return {"id": name, "object": "model", "created": _CREATED_AT, "owned_by": OWN_MODEL}
