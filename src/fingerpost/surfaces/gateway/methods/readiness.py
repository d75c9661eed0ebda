"""Waiting for servers, once: a client that comes first should not find an empty house."""

from __future__ import annotations

from typing import Final

from fingerpost.router import Router

READY_TIMEOUT_S: Final = 5.0  # whoever is slower joins later, and that is announced


class Readiness:
    """Whether every server has come up or failed for the first time, and said what it has."""

    def __init__(self, router: Router, *, timeout: float = READY_TIMEOUT_S) -> None:
        self._router = router
        self._patience = timeout
        self._met = False
        self._stocked = False

    async def wait_for_tools(self) -> None:
        """Until tools are known. Returns at once, except for the first who ask."""
        if not self._met:
            servers = self._router.servers
            servers.start()
            await servers.wait_until_settled(timeout=self._patience)
            self._met = True

    async def wait_for_resources(self) -> None:
        """Until resources and prompts are known, too: they are read behind the tools."""
        await self.wait_for_tools()
        if not self._stocked:
            await self._router.servers.wait_until_resources_read(timeout=self._patience)
            self._stocked = True
