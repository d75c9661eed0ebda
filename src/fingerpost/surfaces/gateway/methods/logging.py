"""`logging/setLevel`: how much a session hears, and how much servers have to say for that."""

from __future__ import annotations

from typing import Final

from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError
from fingerpost.records import JsonObject, ServerState, ServerStatus
from fingerpost.router import Router
from fingerpost.surfaces.gateway.exchange import MODERN, ClientRequest, Exchange, Refusal
from fingerpost.surfaces.gateway.methods.levels import LEVELS, USUAL, Levels
from fingerpost.tasks import contained

INVALID_PARAMS: Final = -32602
METHOD: Final = "logging/setLevel"
_CONNECTED: Final = frozenset((ServerState.READY, ServerState.DEGRADED))


class Logging:
    """Sets levels. Servers are shared, so they are asked for the most that anybody wants to hear.

    Never for less than those want who did not say: each session's own level is kept to by us.
    """

    def __init__(self, router: Router, *, levels: Levels, tasks: TaskGroup, seconds: float) -> None:
        self._router = router
        self._levels = levels
        self._tasks = tasks
        self._seconds = seconds
        self._told: dict[str, str] = {}

    async def set_level(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        level = request.params.get("level")
        if level not in LEVELS:
            raise Refusal(INVALID_PARAMS, f"`level` must be one of {', '.join(LEVELS)}")
        self._levels.put(request.session or request.caller_key, str(level))
        self._tell_servers()
        return {}

    def left(self, session: str) -> None:
        """A session ended: what only it wanted to hear need not be said any more."""
        if self._levels.forget(session):
            self._tell_servers()

    def moved(self, server: str) -> None:
        """A server came or went: a new connection knows nothing of what the last one was told."""
        connected = {one.name for one in self._router.servers.statuses if one.state in _CONNECTED}
        if server in connected:
            self._tell_servers()
        else:
            self._told.pop(server, None)

    def _tell_servers(self) -> None:
        lowest = self._levels.lowest
        for status in self._router.servers.statuses:
            told = self._told.get(status.name)
            # A server that was never told says what it thinks right, and those who never said hear that.
            level = lowest or (None if told is None else USUAL)
            if level is not None and level != told and self._takes_levels(status):
                self._told[status.name] = level
                self._tasks.start_soon(contained, self._tell, status.name, level)

    def _takes_levels(self, status: ServerStatus) -> bool:
        """Whether it logs, and is told once from which level: since 2026-07-28 each request says that."""
        if status.protocol is not None and status.protocol >= MODERN:
            return False
        materials = self._router.servers.materials(status.name)
        return materials is not None and "logging" in materials.capabilities

    async def _tell(self, server: str, level: str) -> None:
        """A server that cannot be told now says what it says; the session hears no more than it asked for."""
        try:
            await self._router.servers.ask(server, METHOD, {"level": level}, timeout=self._seconds)
        except FingerpostError:
            self._told.pop(server, None)
