"""The way to the client, and whether an answer is on it already."""

from __future__ import annotations

from fingerpost.surfaces.web.asgi import AsgiMessage, Send


class ResponseSender:
    """The way to the client. Knows whether an answer has begun, which cannot be taken back."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: AsgiMessage) -> None:
        self.started = True
        await self._send(message)
