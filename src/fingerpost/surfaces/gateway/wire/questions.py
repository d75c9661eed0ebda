"""What we asked a client, and who waits for the answer (handshake era)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, cast

import anyio

from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import JsonRpcError
from fingerpost.surfaces.gateway.wire.codec import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    encode_notification,
    encode_request,
)

MAX_OPEN: Final = 100  # questions of one session at once
_CANCEL_TIMEOUT_S: Final = 1.0


def build_cannot_ask_error(method: str) -> JsonRpcError:
    return JsonRpcError(METHOD_NOT_FOUND, f"This client cannot be asked ({method}) while its request runs.")


@dataclass(slots=True)
class _OpenQuestion:
    answered: anyio.Event = field(default_factory=anyio.Event)
    response: JsonObject | None = None

    def get_result(self) -> JsonObject:
        if self.response is None:
            raise JsonRpcError(INTERNAL_ERROR, "The client left before it answered.")
        result = self.response.get("result")
        if isinstance(result, dict):
            return result
        error = self.response.get("error")
        said = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
        code = said.get("code")
        raise JsonRpcError(
            code if isinstance(code, int) else INTERNAL_ERROR,
            str(said.get("message") or "The client's answer was neither a result nor an error."),
            said.get("data"),
        )


class ClientQuestions:
    """The open questions of one session. Ids are ours, so answers cannot be confused with requests."""

    __slots__ = ("_ids", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, _OpenQuestion] = {}
        self._ids = count(1)

    async def ask_client(
        self, send: Callable[[bytes], Awaitable[None]], method: str, params: JsonObject
    ) -> JsonObject:
        """Ask, and wait as long as the caller does."""
        if len(self._waiting) >= MAX_OPEN:
            raise JsonRpcError(INTERNAL_ERROR, f"{MAX_OPEN} questions to this client are open already.")
        number = f"fingerpost-{next(self._ids)}"
        question = self._waiting[number] = _OpenQuestion()
        try:
            await send(encode_request(number, method, params))
            await question.answered.wait()
        except anyio.get_cancelled_exc_class():
            withdrawn = encode_notification("notifications/cancelled", {"requestId": number})
            with anyio.move_on_after(_CANCEL_TIMEOUT_S, shield=True):
                await send(withdrawn)
            raise
        finally:
            self._waiting.pop(number, None)
        return question.get_result()

    def accept_response(self, response: JsonObject) -> None:
        """Give a response to whoever waits for it; one that nobody waits for is dropped."""
        question = self._waiting.get(str(response.get("id")))
        if question is not None and question.response is None:
            question.response = response
            question.answered.set()

    def cancel_all(self) -> None:
        """The client is gone."""
        for question in self._waiting.values():
            question.answered.set()
