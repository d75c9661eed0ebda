"""`logging/setLevel`: how much a session hears, and how much servers have to say for that."""

from __future__ import annotations

from typing import Final

from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError
from fingerpost.records import JsonObject, ServerState, ServerStatus
from fingerpost.router import Router
from fingerpost.surfaces.gateway.exchange import MODERN_VERSION, ClientExchange, ClientRequest, JsonRpcError
from fingerpost.surfaces.gateway.methods.levels import DEFAULT_LEVEL, LOG_LEVELS, LogLevels
from fingerpost.tasks import run_contained

INVALID_PARAMS: Final = -32602
SET_LEVEL_METHOD: Final = "logging/setLevel"
_CONNECTED_STATES: Final = frozenset((ServerState.READY, ServerState.DEGRADED))


class LoggingMethods:
    """Sets levels. Servers are shared, so they are asked for the most that anybody wants to hear.

    Never for less than those want who did not say: each session's own level is kept to by us.
    """

    def __init__(self, router: Router, *, levels: LogLevels, tasks: TaskGroup, seconds: float) -> None:
        self._router = router
        self._levels = levels
        self._tasks = tasks
        self._seconds = seconds
        self._told: dict[str, str] = {}

    async def set_level(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        level = request.params.get("level")
        if level not in LOG_LEVELS:
            raise JsonRpcError(INVALID_PARAMS, f"`level` must be one of {', '.join(LOG_LEVELS)}")
        self._levels.set_level(request.session or request.caller_key, str(level))
        self._send_levels()
        return {}

    def forget_session(self, session: str) -> None:
        """A session ended: what only it wanted to hear need not be said any more."""
        if self._levels.forget(session):
            self._send_levels()

    def on_server_change(self, server: str) -> None:
        """A server came or went: a new connection knows nothing of what the last one was told."""
        connected = {one.name for one in self._router.servers.statuses if one.state in _CONNECTED_STATES}
        if server in connected:
            self._send_levels()
        else:
            self._told.pop(server, None)

    def _send_levels(self) -> None:
        lowest = self._levels.lowest
        for status in self._router.servers.statuses:
            told = self._told.get(status.name)
            # A server that was never told says what it thinks right, and those who never said hear that.
            level = lowest or (None if told is None else DEFAULT_LEVEL)
            if level is not None and level != told and self._supports_levels(status):
                self._told[status.name] = level
                self._tasks.start_soon(run_contained, self._send_level, status.name, level)

    def _supports_levels(self, status: ServerStatus) -> bool:
        """Whether it logs, and is told once from which level: since 2026-07-28 each request says that."""
        if status.protocol is not None and status.protocol >= MODERN_VERSION:
            return False
        materials = self._router.servers.get_resources(status.name)
        return materials is not None and "logging" in materials.capabilities

    async def _send_level(self, server: str, level: str) -> None:
        """A server that cannot be told now says what it says; the session hears no more than it asked for."""
        try:
            await self._router.servers.ask(server, SET_LEVEL_METHOD, {"level": level}, timeout=self._seconds)
        except FingerpostError:
            self._told.pop(server, None)
