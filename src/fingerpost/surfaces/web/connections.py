"""How long a request may take to arrive, and how large its head may be: what uvicorn does not bound.

And what it does not keep apart: a request from the next one, and from the answer to the one before it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from fingerpost.surfaces.web.cycle import BufferedCycle
from fingerpost.surfaces.web.heads import HeadCache
from fingerpost.surfaces.web.upgrades import build_parser_without_upgrade

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_READ_AHEAD: Final = 8  # requests that wait behind a running one before nothing more is read


class GuardedProtocol(HttpToolsProtocol):
    """Cuts off whoever connects and does not ask, or never comes to the end of its request.

    A request that arrives in one piece, as nearly all do, costs no timer, and with a known head no parsing.
    """

    arrival_seconds: float = 30.0
    _arriving = True  # a request is awaited or half there
    _in_head = True
    _head_size = 0
    _timer: asyncio.TimerHandle | None = None
    _begun = 0  # requests the parser has seen the start of
    _answering: RequestResponseCycle | None = None  # the one whose app was started last
    _deaf = False  # what comes is not for us; what is being answered still is

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._heads = HeadCache()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # uvicorn tells the newest request alone, which may be waiting for an older one's answer.
        if (running := self._answering) is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        between = not self._arriving and self.cycle.response_complete and not self.pipeline
        if between and self._is_served(data):
            return
        begun = self._begun
        self._parse(data)
        if not self._arriving or self.transport.is_closing():
            if between and self._begun == begun + 1 and self.cycle.keep_alive:
                self._heads.store(data, self.cycle.scope)
            return
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD_BYTES:
                self._close_with_status(431)
                return
        if self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._begun += 1
        self._arriving = self._in_head = True
        self._head_size = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head = False
        if 0 < len(self.pipeline) <= MAX_READ_AHEAD:
            self.flow.resume_reading()  # or we would not hear that the client of the running one left

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # its body is still to come
        self._arriving = False
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._is_another_answered():
            self._stop_reading()
        elif self._in_head or not self.cycle.response_started:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _parse(self, data: bytes) -> None:
        """As uvicorn does; but no other protocol is spoken here, so an upgrade changes nothing."""
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        while data:
            rest = b""
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                version = self.parser.get_http_version()
                self.parser, head = build_parser_without_upgrade(self, version, self.headers)
                rest = head + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
            data = rest

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.__class__ = BufferedCycle  # uvicorn names its own class where it makes one
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _is_served(self, data: bytes) -> bool:
        """Whether this was a whole request with a known head, and is being answered."""
        found = self._heads.find(data)
        if found is None or self.limit_concurrency is not None:
            return False
        head, digits, body = found
        self._unset_keepalive_if_required()
        self.scope = head.build_scope(digits, self.app_state.copy())
        self.cycle = cycle = BufferedCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        cycle.more_body = False
        cycle.whole_body = body
        self._start_asgi_task(cycle, cast("Any", self).app)  # uvicorn's own type of it is not complete
        return True

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.arrival_seconds, self._close_with_status, 408)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_with_status(self, status: int) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._is_another_answered():
            if status == 408:
                self._start_timer()  # it may be we who do not read meanwhile
            else:
                self._stop_reading()
            return
        if self._in_head or not self.cycle.response_started:
            self.transport.write(STATUS_LINE[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()

    def _is_another_answered(self) -> bool:
        """Whether what we write now would be read as part of the answer to an earlier request."""
        running = self._answering
        if running is None or running.response_complete:
            return False
        return self._in_head or running is not self.cycle

    def _stop_reading(self) -> None:
        """The connection ends when the requests that came whole are answered."""
        self._deaf = self._arriving = True
        self.cycle.keep_alive = False


def build_protocol(arrival_seconds: float) -> type[GuardedProtocol]:
    """The protocol with this patience."""
    return type("PatientProtocol", (GuardedProtocol,), {"arrival_seconds": arrival_seconds})
