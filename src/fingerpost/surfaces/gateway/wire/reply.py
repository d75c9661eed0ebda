"""One HTTP answer: JSON unless something streams.

The request is answered in its own task. Whether the client is still there is only
looked at when the answer takes longer than a moment: most never do.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import anyio

from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.wire.codec import PING_FRAME, encode_event, encode_notification
from fingerpost.surfaces.gateway.wire.http import McpHttpRequest
from fingerpost.surfaces.gateway.wire.premises import GatewayState
from fingerpost.surfaces.gateway.wire.questions import ClientQuestions, build_cannot_ask_error
from fingerpost.surfaces.gateway.wire.running import ActiveRequest
from fingerpost.surfaces.web.asgi import EVENT_STREAM_HEADERS, JSON_TYPE, Header, respond

log = logging.getLogger("fingerpost.gateway")

WATCH_AFTER_S: Final = 0.2
PING_INTERVAL_S: Final = 10.0


class PostResponse:
    """The way back to the client of one POST. Satisfies `Exchange`."""

    __slots__ = (
        "_headers", "_inbound", "_lock", "_over", "_questions", "_started", "_takes_events", "_takes_json",
    )  # fmt: skip

    def __init__(
        self,
        http_request: McpHttpRequest,
        *,
        accepts: tuple[bool, bool],
        headers: tuple[Header, ...] = (),
        questions: ClientQuestions | None = None,
    ) -> None:
        self._inbound = http_request
        self._takes_json, self._takes_events = accepts
        self._headers = headers
        self._questions = questions
        self._started = False  # as a stream
        self._over = False  # a ping that falls due now comes too late
        self._lock: anyio.Lock | None = None

    async def notify(self, method: str, params: JsonObject) -> None:
        """A client that takes no stream is spared: it gets the result alone."""
        if self._takes_events:
            await self._send_frame(encode_event(encode_notification(method, params)))

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        if self._questions is None or not self._takes_events:
            raise build_cannot_ask_error(method)
        return await self._questions.ask_client(self._send_message, method, params)

    async def finish(self, status: int, body: bytes) -> None:
        """The answer itself: the whole body, or the last event."""
        if self._started or not self._takes_json:
            await self._send_frame(encode_event(body), more=False)
        else:
            self._over = True
            await respond(self._inbound.send, status, body, (JSON_TYPE, *self._headers))

    async def send_ping(self) -> None:
        """Keep the connection open through proxies that close silent ones."""
        if self._takes_events:
            await self._send_frame(PING_FRAME)

    async def _send_message(self, message: bytes) -> None:
        await self._send_frame(encode_event(message))

    async def _send_frame(self, frame: bytes, *, more: bool = True) -> None:
        if self._lock is None:
            self._lock = anyio.Lock()
        async with self._lock:  # events come from several tasks, and the head must be first
            if self._over:
                return
            self._over = not more
            send = self._inbound.send
            if not self._started:
                self._started = True
                headers = [*EVENT_STREAM_HEADERS, *self._headers]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": frame, "more_body": more})


class DisconnectWatcher:
    """Ends the request when its client leaves, and pings while it waits. Free until `WATCH_AFTER_S`."""

    __slots__ = ("_inbound", "_over", "_premises", "_reply", "_running", "_timer")

    def __init__(
        self, state: GatewayState, http_request: McpHttpRequest, reply: PostResponse, active: ActiveRequest
    ) -> None:
        self._premises = state
        self._inbound = http_request
        self._reply = reply
        self._running = active
        self._over = False
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)

    def stop(self) -> None:
        self._over = True
        self._timer.cancel()

    def _start(self) -> None:
        self._premises.task_group.start_soon(self._watch_client)

    async def _watch_client(self) -> None:
        """`receive` tells of the client's leaving, or of the answer's end."""
        try:
            while True:
                with anyio.move_on_after(PING_INTERVAL_S) as patience:
                    message = await self._inbound.receive()
                    if message["type"] == "http.disconnect":
                        if not self._over:
                            self._running.cancel("The client left.")
                        return
                if patience.cancelled_caught:
                    await self._reply.send_ping()
        except Exception:
            log.exception("A client could not be watched")
            self._running.cancel("The client left.")
