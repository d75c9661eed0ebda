"""Our own HTTP client, against answers written byte by byte: every legal shape, and what is refused."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.errors import FingerpostError, LimitReached, ServerUnavailable
from fingerpost.servers import RequestContext, Server, ServerPool
from fingerpost.servers.http_client import (
    KEEP_ALIVE_SECONDS,
    may_follow_redirect,
    resolve_redirect,
    strip_secrets,
)
from tests.kit.raw_http import CLOSE, RawServer, raw_server, with_length
from tests.kit.server_pools import PATIENCE, open_pool, text_of
from tests.kit.tables import table

KIND = b"Content-Type: application/json\r\n"
OK = b"HTTP/1.1 200 OK\r\n" + KIND


@asynccontextmanager
async def open_raw_pool(
    answer: Callable[[bytes], list[bytes]],
) -> AsyncGenerator[tuple[RawServer, ServerPool]]:
    async with (
        raw_server(answer) as (server, url),
        open_pool(Server.http("raw", url, era="2025-11-25"), response_bytes=100_000) as servers,
    ):
        yield server, servers


async def call(servers: ServerPool, meta: dict[str, str] | None = None) -> str:
    passage = RequestContext(meta=meta or {})
    return text_of(await servers.call("raw", "echo", {}, timeout=PATIENCE, context=passage))


def encode_chunks(body: bytes) -> bytes:
    half = len(body) // 2
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:])) + b"0\r\n\r\n"


SHAPES: dict[str, Callable[[bytes], list[bytes]]] = {
    "in one piece": lambda body: [with_length(body)],
    "byte by byte": lambda body: [with_length(body)[n : n + 1] for n in range(len(with_length(body)))],
    "in chunks": lambda body: [OK + b"Transfer-Encoding: chunked\r\n\r\n" + encode_chunks(body)],
    "until the connection closes": lambda body: [OK + b"\r\n", body, CLOSE],
    "after a hint that it goes on": lambda body: [b"HTTP/1.1 103 Early Hints\r\n\r\n", with_length(body)],
    "compressed though nobody asked for it": lambda body: [
        with_length(gzip.compress(body), b"Content-Encoding: gzip\r\n")
    ],
    "in chunks, compressed": lambda body: [
        OK
        + b"Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n"
        + encode_chunks(zlib.compress(body))
    ],
    "with odd capitals": lambda body: [
        b"HTTP/1.1 200 OK\r\ncOnTeNt-TyPe: Application/JSON; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    ],
}


@pytest.mark.slow
@table("shape", SHAPES)
async def test_a_reply_is_read_in_every_shape_http_knows(shape: str) -> None:
    async with open_raw_pool(SHAPES[shape]) as (server, servers):
        assert [await call(servers) for _ in range(2)] == ["done", "done"]
    assert len(server.calls) == 2
    assert "accept-encoding: identity" in server.calls[0]


async def test_a_connection_is_used_again_unless_the_server_wants_it_closed() -> None:
    async with open_raw_pool(SHAPES["in chunks"]) as (server, servers):
        for _ in range(3):
            await call(servers)
    assert server.connections == 1
    async with open_raw_pool(lambda body: [with_length(body, b"Connection: close\r\n"), CLOSE]) as (
        server,
        servers,
    ):
        for _ in range(3):
            await call(servers)
    assert len(server.calls) == 3


async def test_a_server_that_closed_a_kept_connection_is_connected_to_again() -> None:
    """It says nothing of closing, and closes: nothing of the next call is lost."""
    async with open_raw_pool(lambda body: [with_length(body), CLOSE]) as (server, servers):
        for _ in range(3):
            assert await call(servers) == "done"
            for _ in range(10):  # the loop has to turn a few times until we hear of it
                await anyio.sleep(0.02)
    assert len(server.calls) == 3


@pytest.mark.slow
async def test_a_connection_that_was_idle_for_as_long_as_servers_keep_them_is_not_used_again() -> None:
    """The server may close it under the next request, which would get no answer."""
    async with open_raw_pool(SHAPES["in one piece"]) as (server, servers):
        await call(servers)
        await anyio.sleep(KEEP_ALIVE_SECONDS + 0.2)
        before = server.opened
        assert await call(servers) == "done"
        assert server.opened == before + 1
        assert await call(servers) == "done"
        assert server.opened == before + 1


async def test_configured_headers_and_credentials_of_the_url_are_sent() -> None:
    headers = {"Host": "elsewhere", "X-Team": "blue"}
    async with raw_server(SHAPES["in one piece"]) as (server, url):
        spec = Server.http(
            "raw", url.replace("//", "//me:p%40ss@") + "?q=ä b", era="2025-11-25", headers=headers
        )
        async with open_pool(spec) as servers:
            assert await call(servers) == "done"
    head = server.calls[0].lower()
    assert "?q=%c3%a4%20b http/1.1\r\n" in head
    assert "authorization: basic bwu6cebzcw==\r\n" in head
    assert "host: elsewhere\r\n" in head
    assert "x-team: blue\r\n" in head


LARGE = b'{"filler":"%b"}' % (b"x" * 200_000)
REFUSED: dict[str, tuple[Callable[[bytes], list[bytes]], type[FingerpostError], str]] = {
    "what is no HTTP": (lambda _: [b"SSH-2.0-OpenSSH\r\n\r\n"], ServerUnavailable, "not HTTP"),
    "another protocol": (
        lambda _: [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"],
        ServerUnavailable,
        "another protocol",
    ),
    "a head without end": (
        lambda _: [b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000],
        ServerUnavailable,
        "head of the answer is larger",
    ),
    "a body cut short": (
        lambda body: [OK + b"Content-Length: %d\r\n\r\n" % (len(body) + 5) + body, CLOSE],
        ServerUnavailable,
        "closed the connection",
    ),
    "no answer at all": (lambda _: [CLOSE], ServerUnavailable, "closed the connection"),
    "compression nobody asked for": (
        lambda body: [with_length(body, b"Content-Encoding: br\r\n")],
        ServerUnavailable,
        "content encoding",
    ),
    "what is not compressed as it says": (
        lambda body: [with_length(body, b"Content-Encoding: gzip\r\n")],
        ServerUnavailable,
        "cannot be unpacked",
    ),
    "more than allowed, compressed": (
        lambda _: [with_length(gzip.compress(LARGE), b"Content-Encoding: gzip\r\n")],
        LimitReached,
        "sent more than",
    ),
    "more than allowed, announced": (lambda _: [with_length(LARGE)], LimitReached, "sent more than"),
    "more than allowed, unannounced": (
        lambda _: [OK + b"Transfer-Encoding: chunked\r\n\r\n" + encode_chunks(LARGE)],
        LimitReached,
        "sent more than",
    ),
}


@pytest.mark.slow
@table("case", REFUSED)
async def test_what_cannot_be_read_is_an_error_and_the_next_call_works(case: str) -> None:
    answer, kind, words = REFUSED[case]
    answers = iter([answer, SHAPES["in one piece"]])
    async with open_raw_pool(lambda body: next(answers)(body)) as (_, servers):
        with pytest.raises(kind, match=words):
            await call(servers)
        assert await call(servers) == "done"


async def test_a_call_that_is_given_up_takes_its_connection_with_it() -> None:
    async with open_raw_pool(lambda body: [OK + b"Content-Length: 500\r\n\r\n" + body[:5]]) as (
        server,
        servers,
    ):
        for _ in range(2):
            with anyio.move_on_after(0.1) as gave_up:
                await call(servers)
            assert gave_up.cancelled_caught
    assert len(server.calls) == 2


@table(
    ("here", "location", "status", "goes"),
    [
        ("http://a/mcp", "/mcp/", 307, True),
        ("http://a:80/mcp", "http://a/x", 308, True),
        ("http://a/mcp", "https://a/mcp", 307, True),
        ("http://a:8080/mcp", "https://a:8443/mcp", 307, False),
        ("https://a/mcp", "http://a/mcp", 307, False),
        ("http://a/mcp", "http://b/mcp", 307, False),
        ("http://a/mcp", "http://a@b/mcp", 307, False),
        ("http://a/mcp", "http://user@a/mcp", 307, False),
        ("http://a/mcp", "/mcp/", 302, False),
        ("http://a/mcp", "http://a:port/", 307, False),
    ],
)
def test_the_same_request_goes_only_where_the_same_server_is(
    here: str, location: str, status: int, *, goes: bool
) -> None:
    target = resolve_redirect(here, status, location)
    assert (target is not None and may_follow_redirect(here, status, target)) is goes


@settings(max_examples=60)
@given(st.text(max_size=30), st.sampled_from([301, 307, 308]))
def test_no_location_breaks_us(location: str, status: int) -> None:
    target = resolve_redirect("http://a/mcp", status, location)
    if target is not None:
        assert "@" not in strip_secrets(target).partition("//")[2].partition("/")[0]
        assert not may_follow_redirect("http://a/mcp", 301, target)
