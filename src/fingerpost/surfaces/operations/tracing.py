"""The caller's trace, noted for everything that is done for a request."""

from __future__ import annotations

from fingerpost.surfaces.web.asgi import AsgiScope, Receive, Send
from fingerpost.surfaces.web.port import ServedApp
from fingerpost.telemetry.caller import TRACEPARENT, TRACESTATE, use_trace_carrier

_TRACE_HEADERS = {TRACEPARENT.encode(): TRACEPARENT, TRACESTATE.encode(): TRACESTATE}


class TracedApp:
    """Hands requests on to the app behind it; only there when spans are on."""

    def __init__(self, app: ServedApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        carrier = {
            _TRACE_HEADERS[name]: value.decode("latin-1")
            for name, value in scope.get("headers", ())
            if name in _TRACE_HEADERS
        }
        with use_trace_carrier(carrier):
            await self._app(scope, receive, send)

    async def drain(self, seconds: float) -> None:
        await self._app.drain(seconds)
