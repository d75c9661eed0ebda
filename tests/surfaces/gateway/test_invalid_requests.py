"""What strangers, slow and broken clients get from the wire."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import anyio
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fingerpost.surfaces.gateway.protocol import InvalidJsonBody, decode_json
from tests.kit.gateway_client import (
    MODERN,
    ask,
    modern_headers,
    old,
    open_raw_connection,
    open_session,
    tool_call,
)
from tests.kit.small_gateway import open_small_gateway
from tests.kit.tables import table
from tests.requirements import proves


@proves("F5")
@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"POST /mcp HTTP/1.1\r\nhost: x\r\nx-slow: ",
        b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{",
    ],
    ids=["silent", "headers", "body"],
)
async def test_a_slow_client_is_cut_off_and_others_are_served(beginning: bytes):
    async with open_small_gateway(request_seconds=0.3) as gateway, open_raw_connection(gateway) as slow:
        began = time.monotonic()
        if beginning:
            await slow.stream.send(beginning)
        body, headers = tool_call("echo", text="quick")
        assert (await ask(gateway, body, {**headers, "mcp-param-text": "quick"})).status == 200
        with anyio.fail_after(30):
            status, _ = await slow.head()
        assert status == 408
        assert time.monotonic() - began > 0.2


@proves("F5")
async def test_a_slow_second_request_on_a_connection_is_cut_off_too():
    async with open_small_gateway(request_seconds=0.3) as gateway, open_raw_connection(gateway) as line:
        body, headers = tool_call("echo")
        assert (await line.ask(body, headers)).status == 200
        await line.stream.send(b"POST /mcp HT")
        with anyio.fail_after(30):
            assert (await line.head())[0] == 408


async def test_endless_headers_are_cut_off():
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        await line.stream.send(b"POST /mcp HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 200_000)
        with anyio.fail_after(30):
            assert (await line.head())[0] == 431


async def test_a_body_that_is_too_large_is_refused_while_it_arrives():
    async with open_small_gateway(body_bytes=2048) as gateway:
        got = await ask(gateway, b"x" * 3000)
        assert got.status == 413
        async with open_raw_connection(gateway) as line:
            head = b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            await line.stream.send(head + b"transfer-encoding: chunked\r\n\r\n")
            await line.stream.send(b"400\r\n" + b"x" * 1024 + b"\r\n800\r\n" + b"x" * 2048 + b"\r\n")
            assert (await line.head())[0] == 413
        assert not gateway.methods.requests


@proves("G11")
async def test_a_refused_caller_gets_the_reason_of_the_gate():
    async with open_small_gateway() as gateway:
        body, headers = tool_call("echo")
        got = await ask(gateway, body, {**headers, "host": "evil.example"})
        assert (got.status, got.headers["x-why"]) == (403, "host")
        assert got.json["error"]["message"] == "This host is not ours."
        assert not gateway.methods.requests


async def test_health_documents_and_nothing_else():
    async with open_small_gateway() as gateway:
        assert (await ask(gateway, None, method="GET", path="/healthz")).json == {"status": "ok"}
        document = await ask(gateway, None, method="GET", path="/.well-known/oauth-protected-resource")
        assert document.json == {"resource": "here"}
        assert document.headers["access-control-allow-origin"] == "*"
        assert (await ask(gateway, None, method="GET", path="/")).status == 404
        session = await open_session(gateway)
        assert (await ask(gateway, None, session, method="PUT")).status == 405


async def test_pages_that_may_call_are_told_so():
    async with open_small_gateway() as gateway:
        good = {"origin": "https://good.example", "access-control-request-headers": "mcp-param-text"}
        asked = await ask(gateway, None, good, method="OPTIONS")
        assert asked.status == 204
        assert "mcp-param-text" in asked.headers["access-control-allow-headers"]
        assert (await ask(gateway, None, {"origin": "https://bad.example"}, method="OPTIONS")).status == 403
        body, headers = tool_call("echo")
        got = await ask(gateway, body, {**headers, "origin": "https://good.example"})
        assert got.headers["access-control-allow-origin"] == "https://good.example"


@given(
    st.one_of(
        st.binary(max_size=300),
        st.recursive(
            st.none() | st.booleans() | st.floats(allow_nan=True) | st.integers() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3)
            ),
        ).map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries(
            {},
            optional={
                "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
                "id": st.one_of(st.none(), st.integers(), st.text(max_size=5), st.floats(), st.booleans()),
                "method": st.sampled_from(["tools/call", "initialize", "", 5, None, "ping", "tools/list"]),
                "params": st.one_of(
                    st.none(), st.lists(st.integers()), st.dictionaries(st.text(max_size=5), st.none())
                ),
                "result": st.just({}),
            },
        ).map(lambda value: json.dumps(value).encode()),
    ),
    st.sampled_from([None, MODERN, "2025-11-25", "odd"]),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=25)
def test_any_bytes_get_an_answer(body: bytes, version: str | None):
    async def try_it() -> None:
        async with open_small_gateway() as gateway:
            headers = (
                {} if version is None else {**modern_headers("tools/call"), "mcp-protocol-version": version}
            )
            got = await ask(gateway, body, headers)
            assert got.status < 500
            if got.status != 202:
                assert orjson.loads(got.body)["jsonrpc"] == "2.0"

    anyio.run(try_it)


@given(st.binary(max_size=200))
def test_reading_json_never_fails_otherwise(body: bytes):
    with suppress(InvalidJsonBody):
        decode_json(body)


@table("body", [b"[" * 5000 + b"]" * 5000, b"NaN", b'"\\ud800"', b"\xff", b""])
def test_odd_json_is_refused(body: bytes):
    with pytest.raises(InvalidJsonBody):
        decode_json(body)


@table(
    ("body", "text"),
    [
        (b'{"a":' * 101 + b"1" + b"}" * 101, "100 levels"),
        (b"[" * 101 + b"]" * 101, "100 levels"),
        (b"[" * 5000 + b"]" * 5000, "100 levels"),
        (b'{"a":[1,' + b"1" * 5000 + b"]}", "4300 digits"),
        (b"[" * 101, "not valid JSON"),
    ],
    ids=["objects", "lists", "far too deep", "a long number", "no end"],
)
def test_deep_and_huge_json_is_refused_for_what_it_is(body: bytes, text: str):
    with pytest.raises(InvalidJsonBody, match=text):
        decode_json(body)


@table(
    "body",
    [
        b"[" * 100 + b"]" * 100,
        b'{"a":' * 99 + b"[]" + b"}" * 99,
        b"[" + b"[{}]," * 500 + b"1]",
        b'"' + b"[" * 200 + b'"',
    ],
)
def test_what_is_not_too_deep_is_taken_as_it_is(body: bytes):
    assert decode_json(body) == json.loads(body)


async def test_deep_arguments_are_refused_in_a_session():
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        deep = orjson.dumps(old("tools/call")).replace(
            b'"params":{}', b'"params":{"a":' + b"[" * 200 + b"]" * 200 + b"}"
        )
        got = await ask(gateway, deep, session)
        assert (got.status, got.code) == (400, -32700)
