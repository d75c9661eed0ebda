"""How long a request may take to arrive, and how large its head may be: what uvicorn does not bound."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from fingerpost.surfaces.web.cycle import WholeCycle
from fingerpost.surfaces.web.heads import Heads

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

HEAD_BYTES: Final = 64 * 1024


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

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._heads = Heads()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        between = not self._arriving and self.cycle.response_complete and not self.pipeline
        if between and self._is_served(data):
            return
        begun = self._begun
        super().data_received(data)
        if not self._arriving or self.transport.is_closing():
            if between and self._begun == begun + 1 and self.cycle.keep_alive:
                self._heads.learn(data, self.cycle.scope)
            return
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > HEAD_BYTES:
                self._cut_off(431)
                return
        if self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._begun += 1
        self._arriving = self._in_head = True
        self._head_size = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving = False
        self._stop_timer()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.__class__ = WholeCycle  # uvicorn names its own class where it makes one
        super()._start_asgi_task(cycle, app)

    def _is_served(self, data: bytes) -> bool:
        """Whether this was a whole request with a known head, and is being answered."""
        found = self._heads.find(data)
        if found is None or self.limit_concurrency is not None:
            return False
        head, digits, body = found
        self._unset_keepalive_if_required()
        self.scope = head.scope_for(digits, self.app_state.copy())
        self.cycle = cycle = WholeCycle(
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
        self._timer = self.loop.call_later(self.arrival_seconds, self._cut_off, 408)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut_off(self, status: int) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._in_head or not self.cycle.response_started:
            self.transport.write(STATUS_LINE[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()


def guarded(arrival_seconds: float) -> type[GuardedProtocol]:
    """The protocol with this patience."""
    return type("PatientProtocol", (GuardedProtocol,), {"arrival_seconds": arrival_seconds})
