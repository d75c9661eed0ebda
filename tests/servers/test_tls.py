"""Servers behind TLS and proxies: what goes wrong is said in plain words, and no address leaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from fingerpost.errors import ServerUnavailable
from fingerpost.records import ServerState, ServerStatus
from fingerpost.servers import Server, ServerPool
from tests.kit.certificates import CertificateAuthority
from tests.kit.raw_http import CLOSE, raw_server, with_length
from tests.kit.server_pools import PATIENCE, open_pool, text_of

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


@pytest.fixture
def trusted_authority(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> CertificateAuthority:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    return authority


def plainly(body: bytes) -> list[bytes]:
    return [with_length(body)]


async def call(servers: ServerPool) -> str:
    return text_of(await servers.call("raw", "echo", {}, timeout=PATIENCE))


@asynccontextmanager
async def down(url: str) -> AsyncGenerator[ServerStatus]:
    """What is said of a server that cannot be connected to."""
    async with open_pool(Server.http("raw", url, era="2025-11-25")) as servers:
        status = servers.get_status("raw")
        assert status.state is ServerState.DOWN
        assert "unknown" not in (status.hint or "")  # no call was made that could have taken effect
        yield status


BAD: dict[str, tuple[Callable[[bytes], list[bytes]], str]] = {
    "a long header": (
        lambda body: [with_length(body, b"X: " + b"a" * 200_000 + b"\r\n")],
        "head of the answer",
    ),
    "two lengths": (
        lambda body: [OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", body],
        "not HTTP",
    ),
    "no HTTP": (lambda _: [b"SSH-2.0-OpenSSH\r\n\r\n"], "not HTTP"),
    "a body cut short": (
        lambda body: [OK + b"Content-Length: 5000\r\n\r\n" + body, CLOSE],
        "closed the connection",
    ),
    "a body that is not packed": (
        lambda body: [with_length(body, b"Content-Encoding: gzip\r\n")],
        "cannot be unpacked",
    ),
    "nothing": (lambda _: [CLOSE], "closed the connection"),
}


@pytest.mark.parametrize("case", BAD)
async def test_an_answer_that_cannot_be_read_over_tls_is_told_without_the_address(
    case: str, trusted_authority: CertificateAuthority
):
    answer, words = BAD[case]
    answers = iter([answer, plainly])
    async with (
        raw_server(lambda body: next(answers)(body), tls=trusted_authority.context()) as (_, url),
        open_pool(Server.http("raw", f"{url}?key=hidden", era="2025-11-25")) as servers,
    ):
        with pytest.raises(ServerUnavailable, match=words) as caught:
            await call(servers)
        for word in ("hidden", "https:", "b'", "/mcp", "message="):
            assert word not in str(caught.value)
        assert await call(servers) == "done"


async def test_a_certificate_of_ones_own_authority_is_accepted(trusted_authority: CertificateAuthority):
    async with (
        raw_server(plainly, tls=trusted_authority.context()) as (_, url),
        open_pool(Server.http("raw", url, era="2025-11-25")) as servers,
    ):
        assert await call(servers) == "done"


async def test_an_untrusted_authority_is_reported_with_the_way_to_trust_it(authority: CertificateAuthority):
    async with raw_server(plainly, tls=authority.context()) as (_, url), down(url) as status:
        assert "authority that is not trusted" in (status.reason or "")
        assert "SSL_CERT_FILE" in (status.hint or "")
        assert "_ssl.c" not in (status.reason or "")


@pytest.mark.parametrize(
    ("host", "days", "self_signed", "words", "advice"),
    [
        ("127.0.0.1", (-9, -1), False, "has expired", "renew"),
        ("127.0.0.1", (1, 9), False, "is not valid yet", "clock"),
        ("127.0.0.1", (-1, 1), True, "is self-signed", "SSL_CERT_FILE"),
        ("127.0.0.2", (-1, 1), False, "is for another host", "host that its certificate names"),
    ],
)
async def test_what_is_wrong_with_a_certificate_is_told(
    trusted_authority: CertificateAuthority,
    host: str,
    days: tuple[int, int],
    self_signed: bool,
    words: str,
    advice: str,
):
    context = trusted_authority.context(host, days=days, self_signed=self_signed)
    async with raw_server(plainly, tls=context) as (_, url), down(url) as status:
        assert f"its certificate {words}" in (status.reason or "")
        assert advice in (status.hint or "")


@pytest.mark.parametrize("content", [None, "this is no certificate"])
async def test_a_file_of_authorities_that_cannot_be_read_is_named_and_concerns_tls_alone(
    content: str | None,
    authority: CertificateAuthority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    file = tmp_path / "trusted.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with (
        raw_server(plainly, tls=authority.context()) as (_, safe),
        raw_server(plainly) as (_, open_to_all),
        open_pool(
            Server.http("safe", safe, era="2025-11-25"), Server.http("raw", open_to_all, era="2025-11-25")
        ) as servers,
    ):
        status = servers.get_status("safe")
        assert status.state is ServerState.DOWN
        assert "SSL_CERT_FILE" in (status.reason or "")
        assert "unset it" in (status.hint or "")
        assert await call(servers) == "done"


async def test_http_to_a_server_with_tls_is_advised_to_use_https(authority: CertificateAuthority):
    async with (
        raw_server(plainly, tls=authority.context()) as (_, url),
        down(url.replace("https:", "http:")) as status,
    ):
        assert "https://" in (status.hint or "")


async def test_https_to_a_server_without_tls_is_advised_to_use_http():
    async def greet(stream: SocketStream) -> None:
        async with stream:
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listen_tls(greet) as port, down(f"https://127.0.0.1:{port}/mcp") as status:
        assert "not TLS" in (status.reason or "")
        assert "http://" in (status.hint or "")


@asynccontextmanager
async def listen_tls(handle: Callable[[SocketStream], object]) -> AsyncGenerator[int]:
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, handle)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


ELSEWHERE = "https://fingerpost.invalid/mcp"


@pytest.mark.parametrize("value", ["foo:bar", "gopher://127.0.0.1:70"])
async def test_a_variable_that_names_no_proxy_is_named(value: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTPS_PROXY", value)
    async with down(ELSEWHERE) as status:
        assert "HTTPS_PROXY does not hold the address of a proxy" in (status.reason or "")
        assert "HTTPS_PROXY" in (status.hint or "")


async def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch):
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:hidden@127.0.0.1:{port}")
    async with down(ELSEWHERE) as status:
        assert f"the proxy 127.0.0.1:{port} (from HTTPS_PROXY) cannot be reached" in (status.reason or "")
        assert "hidden" not in f"{status.reason} {status.hint}"
        assert "NO_PROXY" in (status.hint or "")


@pytest.mark.parametrize(
    ("text", "advice"),
    [("407 Proxy Authentication Required", "a user and a password"), ("403 Forbidden", "own rules")],
)
async def test_a_proxy_that_refuses_is_named(text: str, advice: str, monkeypatch: pytest.MonkeyPatch):
    async def refuse(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(f"HTTP/1.1 {text}\r\nContent-Length: 0\r\n\r\n".encode())

    async with listen_tls(refuse) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{port}")
        async with down(ELSEWHERE) as status:
            assert f"(from HTTPS_PROXY) refuses the connection: {text}" in (status.reason or "")
            assert advice in (status.hint or "")
