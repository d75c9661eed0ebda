"""`subscriptions/listen` (2026-07-28): a request whose answer is a stream of news."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, cast

import anyio

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.exchange import ClientExchange, ClientRequest, JsonRpcError
from fingerpost.surfaces.gateway.wire.answering import JsonRpcResponse, build_error_response
from fingerpost.surfaces.gateway.wire.audience import Notification
from fingerpost.surfaces.gateway.wire.codec import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    encode_result,
)
from fingerpost.surfaces.gateway.wire.premises import GatewayState
from fingerpost.surfaces.gateway.wire.questions import build_cannot_ask_error
from fingerpost.surfaces.gateway.wire.sessions import McpSessions

MAX_STREAMS: Final = 1000
MAX_QUEUED: Final = 256  # news a client has not taken; then its stream ends and it looks again
MAX_RESOURCES: Final = 10_000
CHECK_INTERVAL_S: Final = 10.0
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
_NOTIFICATION_KINDS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class _NoExchange:
    """While a subscription is agreed on there is no stream yet."""

    async def notify(self, method: str, params: JsonObject) -> None:
        del method, params

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        del params
        raise build_cannot_ask_error(method)


class SubscriptionStream:
    """One stream: what it wants to hear and what waits to be sent."""

    def __init__(self, request: ClientRequest, accepted: JsonObject) -> None:
        self.request = request
        self.honoured = accepted
        uris = accepted.get("resourceSubscriptions")
        self._uris = frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else ()
        self._waiting: dict[bytes, Notification] = {}  # by content: the same news twice say no more than once
        self._woken = anyio.Event()
        self._ended = False

    @classmethod
    async def open_stream(
        cls, state: GatewayState, request: ClientRequest
    ) -> SubscriptionStream | JsonRpcResponse:
        """Agree on what is heard. The caller goes on with `run_stream`, which also ends it."""
        wanted = request.params.get("notifications")
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
        if not isinstance(wanted, dict) or not _are_valid_uris(uris):
            return build_error_response(
                request.id, JsonRpcError(INVALID_PARAMS, "Say in `notifications` what to listen to.")
            )
        if state.open_streams >= MAX_STREAMS or state.closing.is_set():
            return build_error_response(
                request.id, JsonRpcError(INTERNAL_ERROR, f"{MAX_STREAMS} subscriptions are open already.")
            )
        request = replace(request, session=f"listen-{McpSessions.create_id()}")
        try:
            result = await state.methods.answer(request, _NoExchange())
        except JsonRpcError as refusal:
            if refusal.code != METHOD_NOT_FOUND:
                return build_error_response(request.id, refusal)
            result: Any = {}
        agreed = cast("JsonObject", result).get("notifications") if isinstance(result, dict) else None
        return cls(request, agreed if isinstance(agreed, dict) else _select_known_kinds(wanted))

    def receive(self, notification: Notification) -> None:
        if not self._wants_notification(notification):
            return None
        if len(self._waiting) >= MAX_QUEUED:
            return self.end()
        self._waiting[notification.message] = notification
        self._woken.set()
        return None

    def end(self) -> None:
        """What waits is still sent, then the stream ends with its result."""
        self._ended = True
        self._woken.set()

    async def take_notifications(self) -> list[Notification] | None:
        """The news that wait, or None at the end."""
        while not self._waiting:
            if self._ended:
                return None
            self._woken = anyio.Event()
            await self._woken.wait()
        waiting, self._waiting = list(self._waiting.values()), {}
        return waiting

    def add_subscription_id(self, params: JsonObject) -> JsonObject:
        meta = params.get("_meta")
        own: dict[str, Json] = meta if isinstance(meta, dict) else {}
        return {**params, "_meta": {**own, SUBSCRIPTION_KEY: self.request.id}}

    def build_result_message(self) -> bytes:
        return encode_result(self.request.id, self.add_subscription_id({"resultType": "complete"}))

    def _wants_notification(self, notification: Notification) -> bool:
        if kind := _NOTIFICATION_KINDS.get(notification.method):
            return self.honoured.get(kind) is True
        return (
            notification.method == "notifications/resources/updated"
            and notification.params.get("uri") in self._uris
        )


async def _may_always_continue() -> bool:
    return True


async def run_stream(
    state: GatewayState,
    stream: SubscriptionStream,
    exchange: ClientExchange,
    may_continue: Callable[[], Awaitable[bool]] = _may_always_continue,
) -> None:
    """Send the agreement, then news, until the stream is ended, may not go on, or the client leaves.

    `may_go_on` is asked before news are sent, and now and then without any.
    """
    leave = state.audience.add(stream)
    state.open_streams += 1
    end_with_us = state.call_at_close(stream.end)
    try:
        await exchange.notify(
            "notifications/subscriptions/acknowledged",
            stream.add_subscription_id({"notifications": stream.honoured}),
        )
        waiting: list[Notification] | None = []
        while waiting is not None and await may_continue():
            for news in waiting:
                await exchange.notify(news.method, stream.add_subscription_id(news.params))
            waiting = []
            with anyio.move_on_after(CHECK_INTERVAL_S):
                waiting = await stream.take_notifications()
    finally:
        state.open_streams -= 1
        leave()
        end_with_us()
        state.forget_session(stream.request.session or "")


def _are_valid_uris(uris: object) -> bool:
    if uris is None:
        return True
    if not isinstance(uris, list) or len(cast("list[object]", uris)) > MAX_RESOURCES:
        return False
    return all(isinstance(uri, str) for uri in cast("list[object]", uris))


def _select_known_kinds(wanted: JsonObject) -> JsonObject:
    """The filter as asked, without kinds we do not know or that were not wanted."""
    honoured: JsonObject = {}
    for kind in _NOTIFICATION_KINDS.values():
        if wanted.get(kind) is True:
            honoured[kind] = True
    if wanted.get("resourceSubscriptions"):
        honoured["resourceSubscriptions"] = wanted["resourceSubscriptions"]
    return honoured
