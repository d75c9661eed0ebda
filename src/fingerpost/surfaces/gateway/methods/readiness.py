"""Waiting for servers, once: a client that comes first should not find an empty house."""

from __future__ import annotations

from typing import Final

from fingerpost.router import Router

PATIENCE_S: Final = 5.0  # whoever is slower joins later, and that is announced


class Readiness:
    """Whether every server has come up or failed for the first time, and said what it has."""

    def __init__(self, router: Router, *, patience: float = PATIENCE_S) -> None:
        self._router = router
        self._patience = patience
        self._met = False
        self._stocked = False

    async def wait(self) -> None:
        """Until tools are known. Returns at once, except for the first who ask."""
        if not self._met:
            servers = self._router.servers
            servers.start()
            await servers.settled(timeout=self._patience)
            self._met = True

    async def wait_for_materials(self) -> None:
        """Until resources and prompts are known, too: they are read behind the tools."""
        await self.wait()
        if not self._stocked:
            await self._router.servers.stocked(timeout=self._patience)
            self._stocked = True
