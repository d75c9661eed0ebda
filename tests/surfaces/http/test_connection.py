"""Requests in any pieces are read as by uvicorn alone; an upgrade that is not supported changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from fingerpost.surfaces.http.server import GuardedProtocol

PLAIN = b"POST /mcp?a=%20b HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\nX-Name: one\r\n\r\n"
TOKEN = b"POST /mcp HTTP/1.1\r\nhost: here\r\nauthorization: Bearer abc\r\ncontent-length: %d\r\n\r\n"
HEADS = [
    PLAIN,
    TOKEN,
    PLAIN.replace(b"one", b"two"),
    PLAIN.replace(b"%d", b"00%d"),
    PLAIN.replace(b"%d", b" %d  "),
    PLAIN.replace(b"POST", b"PUT"),
    PLAIN.replace(b"one", b"one\r\nConnection: Keep-Alive"),
    PLAIN.replace(b"one", b"content-length: 3"),
    PLAIN.replace(b"X-Name: one", b"Content-Length: 3"),
    PLAIN.replace(b"one", b"one\r\nExpect: 100-continue"),
    PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
    b"\r\n" + PLAIN,
    PLAIN.replace(b"\r\nX-Name: one", b""),
    PLAIN.replace(b": here", b": here\r\nTransfer-Encoding: chunked"),
]
LAST = [PLAIN.replace(b"one", b"one\r\nConnection: close")]


class ConnectionFixture(asyncio.Transport):
    """A connection without a network: keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 6)})
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class ProtocolFixture:
    """One end of a connection, and what its app was asked."""

    def __init__(self, kind: type[HttpToolsProtocol]) -> None:
        config = uvicorn.Config(
            self._app, ws="none", log_config=None, log_level="critical", interface="asgi3"
        )
        config.load()
        self.line = ConnectionFixture()
        self.asked: list[tuple[dict[str, Any], bytes]] = []
        self.protocol = kind(config, ServerState(), {}, asyncio.get_running_loop())
        self.protocol.connection_made(self.line)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        self.asked.append(({**scope, "headers": list(scope["headers"])}, body))
        scope["headers"].clear()  # an app may do with it what it likes
        answer = b"%d bytes" % len(body)
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def hear(self, data: bytes) -> None:
        if not self.line.closed:
            self.protocol.data_received(data)
            for _ in range(6):
                await asyncio.sleep(0)

    def close(self) -> None:
        self.protocol.connection_lost(None)


@contextmanager
def open_protocol(kind: type[HttpToolsProtocol]) -> Generator[ProtocolFixture]:
    listener = ProtocolFixture(kind)
    try:
        yield listener
    finally:
        listener.close()


def request(head: bytes, body: bytes) -> bytes:
    return head.replace(b"%d", b"%d" % len(body)) + body


_BODIES = st.sampled_from([b"", b"{}", b'{"a":1}', b"0\r\n\r\n", b"x" * 11])
_REQUESTS = st.lists(
    st.tuples(st.one_of(st.sampled_from(HEADS[:3]), st.sampled_from(HEADS)), _BODIES), min_size=1, max_size=9
)
_CUTS = st.lists(st.integers(0, 400), max_size=3)


@pytest.mark.slow
@settings(max_examples=150)
@given(_REQUESTS, st.booleans(), _CUTS)
def test_any_requests_in_any_pieces_are_heard_as_by_the_parser_alone(
    requests: list[tuple[bytes, bytes]], at_end: bool, cuts: list[int]
) -> None:
    messages = [request(head, body) for head, body in requests]
    messages += [request(head, b"{}") for head in LAST if at_end]
    pieces = [piece for message in messages for piece in _cut(message, cuts)]

    async def both() -> None:
        with open_protocol(GuardedProtocol) as ours, open_protocol(HttpToolsProtocol) as other:
            for piece in pieces:
                await ours.hear(piece)
                await other.hear(piece)
            assert _comparable(ours) == _comparable(other)

    asyncio.run(both())


UPGRADE = b"\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings"
_ASKED_AND_PLAIN = st.sampled_from([PLAIN, TOKEN, HEADS[-1]])


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(_ASKED_AND_PLAIN, _BODIES, st.booleans()), min_size=1, max_size=5), _CUTS)
def test_an_unsupported_upgrade_changes_nothing(
    requests: list[tuple[bytes, bytes, bool]], cuts: list[int]
) -> None:
    """What follows the head is the request's body, and never another request."""

    async def both() -> None:
        with open_protocol(GuardedProtocol) as ours, open_protocol(HttpToolsProtocol) as other:
            for head, body, upgrade in requests:
                sent = b"2\r\n{}\r\n0\r\n\r\n" if b"chunked" in head else body
                asking = head.replace(b": here", b": here" + UPGRADE) if upgrade else head
                for piece in _cut(request(asking, sent), cuts):
                    await ours.hear(piece)
                await other.hear(request(head, sent))
            assert _without_upgrade(ours) == _without_upgrade(other)

    asyncio.run(both())


def _without_upgrade(listener: ProtocolFixture) -> tuple[Any, ...]:
    asked = [
        ([header for header in scope["headers"] if header[0] not in (b"upgrade", b"connection")], body)
        for scope, body in listener.asked
    ]
    return asked, listener.line.written, listener.line.closed


def _cut(message: bytes, places: list[int]) -> list[bytes]:
    """Some messages whole, some in pieces."""
    if len(message) % 3:
        return [message]
    edges = sorted({0, len(message), *(place for place in places if place < len(message))})
    return [message[start:end] for start, end in pairwise(edges)]


def _comparable(listener: ProtocolFixture) -> tuple[Any, ...]:
    return listener.asked, listener.line.written, listener.line.closed
