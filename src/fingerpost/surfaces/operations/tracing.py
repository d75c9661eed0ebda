"""The caller's trace, noted for everything that is done for a request."""

from __future__ import annotations

from fingerpost.surfaces.web.asgi import AsgiScope, Receive, Send
from fingerpost.surfaces.web.port import Served
from fingerpost.telemetry.caller import TRACEPARENT, TRACESTATE, caller_trace

_NAMES = {TRACEPARENT.encode(): TRACEPARENT, TRACESTATE.encode(): TRACESTATE}


class Traced:
    """Hands requests on to the app behind it; only there when spans are on."""

    def __init__(self, app: Served) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        carrier = {
            _NAMES[name]: value.decode("latin-1")
            for name, value in scope.get("headers", ())
            if name in _NAMES
        }
        with caller_trace(carrier):
            await self._app(scope, receive, send)

    async def drain(self, seconds: float) -> None:
        await self._app.drain(seconds)
