"""What we asked a client, and who waits for the answer (handshake era)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, cast

import anyio

from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import Refusal
from fingerpost.surfaces.gateway.wire.codec import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    notification_message,
    request_message,
)

MAX_OPEN: Final = 100  # questions of one session at once
_WITHDRAW_S: Final = 1.0


def cannot_be_asked(method: str) -> Refusal:
    return Refusal(METHOD_NOT_FOUND, f"This client cannot be asked ({method}) while its request runs.")


@dataclass(slots=True)
class _Question:
    answered: anyio.Event = field(default_factory=anyio.Event)
    response: JsonObject | None = None

    def result(self) -> JsonObject:
        if self.response is None:
            raise Refusal(INTERNAL_ERROR, "The client left before it answered.")
        result = self.response.get("result")
        if isinstance(result, dict):
            return result
        error = self.response.get("error")
        said = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
        code = said.get("code")
        raise Refusal(
            code if isinstance(code, int) else INTERNAL_ERROR,
            str(said.get("message") or "The client's answer was neither a result nor an error."),
            said.get("data"),
        )


class Questions:
    """The open questions of one session. Ids are ours, so answers cannot be confused with requests."""

    __slots__ = ("_ids", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, _Question] = {}
        self._ids = count(1)

    async def put(
        self, send: Callable[[bytes], Awaitable[None]], method: str, params: JsonObject
    ) -> JsonObject:
        """Ask, and wait as long as the caller does."""
        if len(self._waiting) >= MAX_OPEN:
            raise Refusal(INTERNAL_ERROR, f"{MAX_OPEN} questions to this client are open already.")
        number = f"fingerpost-{next(self._ids)}"
        question = self._waiting[number] = _Question()
        try:
            await send(request_message(number, method, params))
            await question.answered.wait()
        except anyio.get_cancelled_exc_class():
            withdrawn = notification_message("notifications/cancelled", {"requestId": number})
            with anyio.move_on_after(_WITHDRAW_S, shield=True):
                await send(withdrawn)
            raise
        finally:
            self._waiting.pop(number, None)
        return question.result()

    def answer(self, response: JsonObject) -> None:
        """Give a response to whoever waits for it; one that nobody waits for is dropped."""
        question = self._waiting.get(str(response.get("id")))
        if question is not None and question.response is None:
            question.response = response
            question.answered.set()

    def abandon(self) -> None:
        """The client is gone."""
        for question in self._waiting.values():
            question.answered.set()
