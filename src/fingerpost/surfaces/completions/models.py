"""Which model a caller means, and the list of those there are."""

from __future__ import annotations

from typing import Final

from fingerpost.records import JsonObject, Mode
from fingerpost.router import Router
from fingerpost.surfaces.completions.faults import unknown_model
from fingerpost.surfaces.completions.manner import split_model
from fingerpost.surfaces.completions.upstream import Upstream

OURS: Final = "fingerpost"
_SINCE: Final = 1_700_000_000  # when "our" model was made: clients want to read some time


class Models:
    """The configured models, and others at the same address."""

    def __init__(self, router: Router) -> None:
        self._router = router
        settings = router.settings.models
        self._upstream = Upstream(settings.prime or settings.lite)

    @property
    def prime(self) -> str:
        """Who answers where nobody asks for another; empty without a model."""
        return self._router.models.prime

    def meant(self, name: str) -> str | None:
        """The model to ask instead of the configured one, if another is meant. Raises `ApiFault`."""
        base, _ = split_model(name)
        if base == OURS or (self.prime and base == self.prime):
            return None
        if not self.prime:
            hint = f"No language model is configured, so only `{OURS}` answers; set models.prime for others."
            raise unknown_model(base, hint)
        return base

    async def listed(self) -> list[JsonObject]:
        """Entries of `/v1/models`: ours with its modes, then those of the upstream server."""
        modes = Mode if self.prime else (Mode.KEYLESS,)
        own: list[JsonObject] = [_entry(name) for name in (OURS, *(f"{OURS}:{mode}" for mode in modes))]
        if not self.prime:
            return own
        others = await self._upstream.models()
        known = {str(entry["id"]) for entry in others}
        if self.prime not in known:
            own.append(_entry(self.prime))
        return [*own, *others]

    async def find(self, name: str) -> JsonObject:
        """One entry. Raises `ApiFault`."""
        for entry in await self.listed():
            if entry["id"] == name:
                return entry
        raise unknown_model(name)

    async def aclose(self) -> None:
        await self._upstream.aclose()


def _entry(name: str) -> JsonObject:
    return {"id": name, "object": "model", "created": _SINCE, "owned_by": OURS}
