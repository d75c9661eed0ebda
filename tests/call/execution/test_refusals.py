"""Calls that surely did not run: nothing could be sent, or the server turned them away for now."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from fingerpost.call.execution.failure import MAX_RETRY_AFTER_SECONDS, Failure, compute_retry_wait, may_retry
from fingerpost.records import Effect, ErrorKind, RetryRule
from fingerpost.servers import Server
from tests.kit.call_runner import a_call, open_bench
from tests.kit.certificates import CertificateAuthority
from tests.kit.raw_http import CLOSE, raw_server, with_length
from tests.kit.tables import table


def build_refusal(status: str, retry_after: str = "") -> bytes:
    later = f"Retry-After: {retry_after}\r\n" if retry_after else ""
    return f"HTTP/1.1 {status}\r\n{later}Content-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("safe", [False, True])
async def test_a_write_for_which_no_connection_could_be_made_did_not_run(
    safe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    authority = CertificateAuthority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    tls = authority.context() if safe else None
    async with (
        raw_server(lambda body: [with_length(body), CLOSE], tls=tls) as (server, url),
        open_bench(Server.http("raw", url, era="2025-11-25"), retries=0) as running,
    ):
        await server.stop()
        execution = await running.run(a_call("raw/echo", effect=Effect.WRITE))
        while execution.error is None:  # each call ends one of the connections that are open
            await anyio.sleep(0.02)  # until we have seen that it is closed
            number = len(server.calls)
            execution = await running.run(a_call("raw/echo", {"n": number}, effect=Effect.WRITE))
    assert execution.error is ErrorKind.UNAVAILABLE
    assert "no connection to raw" in execution.detail


@pytest.mark.parametrize("safe", [False, True])
async def test_a_write_whose_connection_broke_may_have_run(
    safe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    authority = CertificateAuthority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    tls = authority.context() if safe else None
    async with (
        raw_server(lambda _: [CLOSE], tls=tls) as (server, url),
        open_bench(Server.http("raw", url, era="2025-11-25")) as running,
    ):
        execution = await running.run(a_call("raw/echo", effect=Effect.WRITE))
    assert execution.error is ErrorKind.UNKNOWN
    assert len(server.calls) == 1


@table("later", ["3600", "Fri, 01 Jan 2100 00:00:00 GMT"])
@table("effect", [Effect.READ, Effect.WRITE])
async def test_a_server_that_is_asked_too_often_did_not_run_it_and_is_left_alone(effect: Effect, later: str):
    async with (
        raw_server(lambda _: [build_refusal("429 Too Many Requests", later)]) as (server, url),
        open_bench(Server.http("raw", url, era="2025-11-25")) as running,
    ):
        execution = await running.run(a_call("raw/echo", effect=effect))
    assert execution.error is ErrorKind.UNAVAILABLE
    assert "too many requests" in execution.detail
    assert "to wait" in execution.hint
    assert len(server.calls) == 1


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_a_read_is_repeated_when_the_pause_is_over_that_the_server_asked_for(status: str):
    asked = 0

    def answer(body: bytes) -> list[bytes]:
        nonlocal asked
        asked += 1
        return [build_refusal(status, "1") if asked == 1 else with_length(body)]

    async with (
        raw_server(answer) as (server, url),
        open_bench(Server.http("raw", url, era="2025-11-25")) as running,
    ):
        execution = await running.run(a_call("raw/echo"))
    assert execution.error is None
    assert len(server.calls) == 2
    assert execution.attempts[1].waited_ms >= 1000


async def test_a_read_without_the_time_for_that_pause_is_not_repeated():
    async with (
        raw_server(lambda _: [build_refusal("503 Service Unavailable", "9")]) as (server, url),
        open_bench(Server.http("raw", url, era="2025-11-25")) as running,
    ):
        execution = await running.run(a_call("raw/echo"), seconds=5)
    assert execution.error is ErrorKind.UNAVAILABLE
    assert len(server.calls) == 1


async def test_a_write_that_a_busy_server_refuses_may_have_run():
    """A proxy may answer 503 while the server behind it was at work."""
    async with (
        raw_server(lambda _: [build_refusal("503 Service Unavailable", "1")]) as (server, url),
        open_bench(Server.http("raw", url, era="2025-11-25")) as running,
    ):
        execution = await running.run(a_call("raw/echo", effect=Effect.WRITE))
    assert execution.error is ErrorKind.UNKNOWN
    assert len(server.calls) == 1


def test_no_call_is_repeated_sooner_than_the_server_asked_for():
    failure = Failure(kind=ErrorKind.UNAVAILABLE, detail="busy", transient=True, retry_after=2.0)
    pause = compute_retry_wait(1, chance=0.5, retry_after=failure.retry_after)
    assert pause >= 2.0
    assert may_retry(failure, RetryRule(), failures=1, retries=2, pause=pause)
    assert not may_retry(failure, RetryRule(), failures=1, retries=2, pause=compute_retry_wait(1, chance=0.5))


def test_who_asks_for_too_long_a_pause_is_not_asked_again():
    asked = MAX_RETRY_AFTER_SECONDS + 1
    failure = Failure(kind=ErrorKind.UNAVAILABLE, detail="busy", transient=True, retry_after=asked)
    pause = compute_retry_wait(1, chance=0.5, retry_after=asked)
    assert not may_retry(failure, RetryRule(), failures=1, retries=2, pause=pause)
