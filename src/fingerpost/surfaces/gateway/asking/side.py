"""The caller of one request, as a server sees them while it works for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

import anyio

from fingerpost.errors import ToolFailed
from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.asking.capabilities import ELICIT_METHOD, find_missing_capability
from fingerpost.surfaces.gateway.asking.origin import mark_question
from fingerpost.surfaces.gateway.exchange import ClientExchange, ClientRequest, JsonRpcError

METHOD_NOT_FOUND: Final = -32601
MISSING_CAPABILITY_CODE: Final = -32021
REQUEST_TIMEOUT_CODE: Final = -32001

PROGRESS_METHOD: Final = "notifications/progress"
MESSAGE_METHOD: Final = "notifications/message"
# Of a connection, not of a request: those of a server's connection say nothing about the caller's.
_UNSUPPORTED_METHODS: Final = frozenset({"notifications/cancelled", "notifications/initialized"})
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

QuestionSender = Callable[[str, JsonObject], Awaitable[JsonObject]]


class GatewayCaller:
    """Implements `CallerChannel` for one request.

    `put` carries a question to a caller who cannot be asked inside of their request
    (2026-07-28); None: they cannot be asked at all. Callers with a session are asked directly.
    """

    def __init__(
        self,
        request: ClientRequest,
        exchange: ClientExchange,
        *,
        server: str,
        seconds: float,
        log_level: str | None = None,
        send_question: QuestionSender | None = None,
    ) -> None:
        self.request = request
        self.server = server
        self._seconds = seconds
        self._log_level = log_level
        self._put = send_question if request.modern else self._ask_directly
        self.exchange: ClientExchange | None = exchange  # None while the caller is away with a question

    @property
    def key(self) -> str:
        return self.request.caller_key

    @property
    def capabilities(self) -> JsonObject:
        return self.request.capabilities

    @property
    def accepts_input_required(self) -> bool:
        return self.request.modern

    @property
    def authorization(self) -> str | None:
        return self.request.authorization

    def set_question_sender(self, send_question: QuestionSender) -> None:
        """From now on questions go this way."""
        self._put = send_question

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Put a server's question to the caller, as far as they said that they take such questions."""
        needed = find_missing_capability(self.capabilities, method, params)
        if needed is not None:
            raise self._build_unsupported_error(method, needed)
        if self._put is None:
            message = f"the client cannot be asked for {method} in this call"
            raise ToolFailed(message, server=self.server, code=METHOD_NOT_FOUND)
        return await self._put(method, mark_question(self.server, method, params))

    def _build_unsupported_error(self, method: str, needed: JsonObject) -> ToolFailed:
        message = f"the client does not offer what {method} needs"
        if self.request.modern and needed:
            data = {"requiredCapabilities": needed}
            return ToolFailed(message, server=self.server, code=MISSING_CAPABILITY_CODE, data=data)
        return ToolFailed(message, server=self.server, code=METHOD_NOT_FOUND)

    async def _ask_directly(self, method: str, params: JsonObject) -> JsonObject:
        if self.exchange is None:
            return build_unanswered_reply(method, self.server)
        with anyio.move_on_after(self._seconds):
            try:
                return await self.exchange.ask(method, params)
            except JsonRpcError as refused:
                raise ToolFailed(
                    refused.message, server=self.server, code=refused.code, data=refused.data
                ) from None
        return build_unanswered_reply(method, self.server)

    async def tell(self, method: str, params: JsonObject) -> None:
        """Pass a notification on, under the caller's own token and from the level they asked for."""
        if self.exchange is None or method in _UNSUPPORTED_METHODS:
            return
        if method == PROGRESS_METHOD:
            token = self._get_progress_token()
            if token is None:
                return
            params = {**params, "progressToken": token}
        elif method == MESSAGE_METHOD and not self._wants_level(params.get("level")):
            return
        await self.exchange.notify(method, params)

    def _get_progress_token(self) -> Json:
        meta = self.request.params.get("_meta")
        return cast("JsonObject", meta).get("progressToken") if isinstance(meta, Mapping) else None

    def _wants_level(self, level: Json) -> bool:
        """A caller without a session gets log messages only when they asked for them."""
        if self._log_level not in _LEVELS:
            return not self.request.modern
        return level not in _LEVELS or _LEVELS.index(str(level)) >= _LEVELS.index(self._log_level)


def build_unanswered_reply(method: str, server: str) -> JsonObject:
    """What a server is told when nobody answered: elicitation has a word for it, the others do not."""
    if method == ELICIT_METHOD:
        return {"action": "cancel"}
    message = f"nobody answered {method} in time"
    raise ToolFailed(message, server=server, code=REQUEST_TIMEOUT_CODE)
