"""`subscriptions/listen` (2026-07-28): a request whose answer is a stream of news."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, cast

import anyio

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.exchange import ClientRequest, Exchange, Refusal
from fingerpost.surfaces.gateway.wire.answering import Answer, refused
from fingerpost.surfaces.gateway.wire.audience import News
from fingerpost.surfaces.gateway.wire.codec import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    result_message,
)
from fingerpost.surfaces.gateway.wire.premises import Premises
from fingerpost.surfaces.gateway.wire.questions import cannot_be_asked
from fingerpost.surfaces.gateway.wire.sessions import Sessions

MAX_STREAMS: Final = 1000
MAX_WAITING: Final = 256  # news a client has not taken; then its stream ends and it looks again
MAX_RESOURCES: Final = 10_000
LOOK_EVERY_S: Final = 10.0
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
_KINDS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class _NobodyThere:
    """While a subscription is agreed on there is no stream yet."""

    async def notify(self, method: str, params: JsonObject) -> None:
        del method, params

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        del params
        raise cannot_be_asked(method)


class Listening:
    """One stream: what it wants to hear and what waits to be sent."""

    def __init__(self, request: ClientRequest, honoured: JsonObject) -> None:
        self.request = request
        self.honoured = honoured
        uris = honoured.get("resourceSubscriptions")
        self._uris = frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else ()
        self._waiting: dict[bytes, News] = {}  # by content: the same news twice say no more than once
        self._woken = anyio.Event()
        self._ended = False

    @classmethod
    async def begin(cls, premises: Premises, request: ClientRequest) -> Listening | Answer:
        """Agree on what is heard. The caller goes on with `listen`, which also ends it."""
        wanted = request.params.get("notifications")
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
        if not isinstance(wanted, dict) or not _sane(uris):
            return refused(request.id, Refusal(INVALID_PARAMS, "Say in `notifications` what to listen to."))
        if premises.listening >= MAX_STREAMS or premises.closing.is_set():
            return refused(
                request.id, Refusal(INTERNAL_ERROR, f"{MAX_STREAMS} subscriptions are open already.")
            )
        request = replace(request, session=f"listen-{Sessions.new_id()}")
        try:
            result = await premises.methods.answer(request, _NobodyThere())
        except Refusal as refusal:
            if refusal.code != METHOD_NOT_FOUND:
                return refused(request.id, refusal)
            result: Any = {}
        agreed = cast("JsonObject", result).get("notifications") if isinstance(result, dict) else None
        return cls(request, agreed if isinstance(agreed, dict) else _asked_for(wanted))

    def hear(self, news: News) -> None:
        if not self._wants(news):
            return None
        if len(self._waiting) >= MAX_WAITING:
            return self.end()
        self._waiting[news.message] = news
        self._woken.set()
        return None

    def end(self) -> None:
        """What waits is still sent, then the stream ends with its result."""
        self._ended = True
        self._woken.set()

    async def next(self) -> list[News] | None:
        """The news that wait, or None at the end."""
        while not self._waiting:
            if self._ended:
                return None
            self._woken = anyio.Event()
            await self._woken.wait()
        waiting, self._waiting = list(self._waiting.values()), {}
        return waiting

    def stamped(self, params: JsonObject) -> JsonObject:
        meta = params.get("_meta")
        own: dict[str, Json] = meta if isinstance(meta, dict) else {}
        return {**params, "_meta": {**own, SUBSCRIPTION_KEY: self.request.id}}

    def last_message(self) -> bytes:
        return result_message(self.request.id, self.stamped({"resultType": "complete"}))

    def _wants(self, news: News) -> bool:
        if kind := _KINDS.get(news.method):
            return self.honoured.get(kind) is True
        return news.method == "notifications/resources/updated" and news.params.get("uri") in self._uris


async def _always() -> bool:
    return True


async def listen(
    premises: Premises,
    listening: Listening,
    exchange: Exchange,
    may_go_on: Callable[[], Awaitable[bool]] = _always,
) -> None:
    """Send the agreement, then news, until the stream is ended, may not go on, or the client leaves.

    `may_go_on` is asked before news are sent, and now and then without any.
    """
    leave = premises.audience.add(listening)
    premises.listening += 1
    end_with_us = premises.at_close(listening.end)
    try:
        await exchange.notify(
            "notifications/subscriptions/acknowledged",
            listening.stamped({"notifications": listening.honoured}),
        )
        waiting: list[News] | None = []
        while waiting is not None and await may_go_on():
            for news in waiting:
                await exchange.notify(news.method, listening.stamped(news.params))
            waiting = []
            with anyio.move_on_after(LOOK_EVERY_S):
                waiting = await listening.next()
    finally:
        premises.listening -= 1
        leave()
        end_with_us()
        premises.left(listening.request.session or "")


def _sane(uris: object) -> bool:
    if uris is None:
        return True
    if not isinstance(uris, list) or len(cast("list[object]", uris)) > MAX_RESOURCES:
        return False
    return all(isinstance(uri, str) for uri in cast("list[object]", uris))


def _asked_for(wanted: JsonObject) -> JsonObject:
    """The filter as asked, without kinds we do not know or that were not wanted."""
    honoured: JsonObject = {}
    for kind in _KINDS.values():
        if wanted.get(kind) is True:
            honoured[kind] = True
    if wanted.get("resourceSubscriptions"):
        honoured["resourceSubscriptions"] = wanted["resourceSubscriptions"]
    return honoured
