"""The caller of one request, as a server sees them while it works for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

import anyio

from fingerpost.errors import ToolFailed
from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.asking.capabilities import ELICIT, missing
from fingerpost.surfaces.gateway.asking.origin import marked
from fingerpost.surfaces.gateway.exchange import ClientRequest, Exchange, Refusal

METHOD_NOT_FOUND: Final = -32601
MISSING_CAPABILITY: Final = -32021
REQUEST_TIMEOUT: Final = -32001

PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"
# Of a connection, not of a request: those of a server's connection say nothing about the caller's.
_NOT_PASSED: Final = frozenset({"notifications/cancelled", "notifications/initialized"})
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

Put = Callable[[str, JsonObject], Awaitable[JsonObject]]


class Side:
    """Implements `CallerSide` for one request.

    `put` carries a question to a caller who cannot be asked inside of their request
    (2026-07-28); None: they cannot be asked at all. Callers with a session are asked directly.
    """

    def __init__(
        self,
        request: ClientRequest,
        exchange: Exchange,
        *,
        server: str,
        seconds: float,
        log_level: str | None = None,
        put: Put | None = None,
    ) -> None:
        self.request = request
        self.server = server
        self._seconds = seconds
        self._log_level = log_level
        self._put = put if request.modern else self._put_directly
        self.exchange: Exchange | None = exchange  # None while the caller is away with a question

    @property
    def key(self) -> str:
        return self.request.caller_key

    @property
    def capabilities(self) -> JsonObject:
        return self.request.capabilities

    @property
    def takes_rounds(self) -> bool:
        return self.request.modern

    @property
    def authorization(self) -> str | None:
        return self.request.authorization

    def carry_by(self, put: Put) -> None:
        """From now on questions go this way."""
        self._put = put

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Put a server's question to the caller, as far as they said that they take such questions."""
        needed = missing(self.capabilities, method, params)
        if needed is not None:
            raise self._cannot(method, needed)
        if self._put is None:
            message = f"the client cannot be asked for {method} in this call"
            raise ToolFailed(message, server=self.server, code=METHOD_NOT_FOUND)
        return await self._put(method, marked(self.server, method, params))

    def _cannot(self, method: str, needed: JsonObject) -> ToolFailed:
        message = f"the client does not offer what {method} needs"
        if self.request.modern and needed:
            data = {"requiredCapabilities": needed}
            return ToolFailed(message, server=self.server, code=MISSING_CAPABILITY, data=data)
        return ToolFailed(message, server=self.server, code=METHOD_NOT_FOUND)

    async def _put_directly(self, method: str, params: JsonObject) -> JsonObject:
        if self.exchange is None:
            return unanswered(method, self.server)
        with anyio.move_on_after(self._seconds):
            try:
                return await self.exchange.ask(method, params)
            except Refusal as refused:
                raise ToolFailed(
                    refused.message, server=self.server, code=refused.code, data=refused.data
                ) from None
        return unanswered(method, self.server)

    async def tell(self, method: str, params: JsonObject) -> None:
        """Pass a notification on, under the caller's own token and from the level they asked for."""
        if self.exchange is None or method in _NOT_PASSED:
            return
        if method == PROGRESS:
            token = self._progress_token()
            if token is None:
                return
            params = {**params, "progressToken": token}
        elif method == MESSAGE and not self._wants(params.get("level")):
            return
        await self.exchange.notify(method, params)

    def _progress_token(self) -> Json:
        meta = self.request.params.get("_meta")
        return cast("JsonObject", meta).get("progressToken") if isinstance(meta, Mapping) else None

    def _wants(self, level: Json) -> bool:
        """A caller without a session gets log messages only when they asked for them."""
        if self._log_level not in _LEVELS:
            return not self.request.modern
        return level not in _LEVELS or _LEVELS.index(str(level)) >= _LEVELS.index(self._log_level)


def unanswered(method: str, server: str) -> JsonObject:
    """What a server is told when nobody answered: elicitation has a word for it, the others do not."""
    if method == ELICIT:
        return {"action": "cancel"}
    message = f"nobody answered {method} in time"
    raise ToolFailed(message, server=server, code=REQUEST_TIMEOUT)
