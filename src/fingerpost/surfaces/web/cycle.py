"""One request and its answer on a connection: an answer of known length goes out in one piece.

uvicorn writes head and body apart: two system calls, and a client that is woken for a head
it can do nothing with yet. And it sends chunks to clients of HTTP/1.0, which know none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent, HTTPResponseBodyEvent, HTTPResponseStartEvent

_STREAMING_HEADERS: Final = frozenset(
    {b"connection", b"transfer-encoding"}
)  # say how the answer is sent: uvicorn's matter


class BufferedCycle(RequestResponseCycle):
    """uvicorn's, except that a head which says how long its body is waits for that body."""

    _start: HTTPResponseStartEvent | None = None
    _until_closed = False  # where the body ends is where the connection does
    _length: int | None = None  # of the body to come
    whole_body: bytes | None = None  # of the request, where it came in one piece with its head

    async def receive(self) -> ASGIReceiveEvent:
        body = self.whole_body
        if body is None or self.disconnected or self.response_complete:
            return await super().receive()
        self.whole_body = None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message  # an app that fails before it has a body may begin anew
            self._length = _get_body_length(message)
            if self._length is not None:
                return
            if self.scope["http_version"] == "1.0" and not _has_content_length(message):
                self._until_closed = True
                self.chunked_encoding = False
        if (start := self._start) is not None:
            self._start = None
            if message["type"] == "http.response.body" and self._write_response(start, message):
                return
            await super().send(start)
            if message is start:
                return
        if self._until_closed and message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)

    def _write_response(self, start: HTTPResponseStartEvent, message: HTTPResponseBodyEvent) -> bool:
        """Whether all of the answer could be written at once."""
        body = message.get("body", b"")
        if (
            message.get("more_body")
            or len(body) != self._length
            or self.disconnected
            or self.flow.write_paused
            or self.scope["method"] == "HEAD"
        ):
            return False
        headers = [*self.default_headers, *start.get("headers", ())]
        if HEADER_RE.search(b"".join([name for name, _ in headers])) or HEADER_VALUE_RE.search(
            b"".join([value for _, value in headers])
        ):
            return False  # uvicorn says what is wrong with one of them
        parts = [STATUS_LINE[start["status"]]]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        parts.append(body)
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join(parts))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


def _has_content_length(start: HTTPResponseStartEvent) -> bool:
    return any(name == b"content-length" for name, _ in start.get("headers", ()))


def _get_body_length(start: HTTPResponseStartEvent) -> int | None:
    """How long the body will be, where the head says so and nothing of how it is sent."""
    length = None
    for name, value in start.get("headers", ()):
        if name in _STREAMING_HEADERS:
            return None
        if name == b"content-length":
            length = int(value)
    return length
