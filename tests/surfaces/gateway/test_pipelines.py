"""More than one request on a connection, and requests that ask for another protocol."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import orjson
import pytest

from tests.kit.gateway_client import BOTH, INITIALIZE, old, open_raw_connection, open_session, tool_call
from tests.kit.gateway_client import ask as ask_apart
from tests.kit.small_gateway import SmallGateway, open_small_gateway
from tests.requirements import proves

PATIENCE = 30.0  # seconds

# As Java's HttpClient sends every first request that is not encrypted.
JAVA = {
    "connection": "Upgrade, HTTP2-Settings",
    "http2-settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    "upgrade": "h2c",
}


def encode_request(
    gateway: SmallGateway, body: bytes, headers: Mapping[str, str], *, version: str = "1.1"
) -> bytes:
    """A request as bytes."""
    given = {
        "host": f"{gateway.host}:{gateway.port}",
        "accept": BOTH,
        "content-type": "application/json",
        "content-length": str(len(body)),
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"POST /mcp HTTP/{version}\r\n{lines}\r\n".encode() + body


def create_call(name: str, request_id: str | int = 1) -> dict[str, object]:
    return old("tools/call", {"name": name, "arguments": {"message": "ok?"}}, request_id)


@proves("G1")
@pytest.mark.parametrize("apart", [False, True], ids=["in one piece", "the body apart"])
async def test_a_client_that_offers_http2_is_answered(apart: bool) -> None:
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        body = orjson.dumps(INITIALIZE)
        whole = encode_request(gateway, body, JAVA)
        edge = len(whole) - len(body) if apart else len(whole)
        await line.stream.send(whole[:edge])
        if apart:
            await anyio.sleep(0.2)  # so that it comes in a piece of its own
            await line.stream.send(whole[edge:])
        with anyio.fail_after(PATIENCE):
            assert (await line.got()).json["result"]["protocolVersion"] == "2025-11-25"
            assert (await line.ask(INITIALIZE)).status == 200


@proves("F50")
@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "anything/2"])
async def test_no_request_hides_in_the_body_of_another(upgrade: str) -> None:
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        body, headers = tool_call("echo")
        hidden = encode_request(gateway, orjson.dumps(body), headers)
        outer = encode_request(gateway, hidden, {"connection": "upgrade", "upgrade": upgrade})
        await line.stream.send(outer[: -len(hidden)])
        await anyio.sleep(0.2)  # so that it comes in a piece of its own
        await line.stream.send(hidden)
        with anyio.fail_after(PATIENCE):
            assert (await line.got()).code == -32700
            assert (await line.ask(INITIALIZE)).json["result"]
        assert not gateway.methods.requests


@proves("F30")
async def test_a_client_that_vanishes_with_a_request_in_line_cancels_the_running_one() -> None:
    async with open_small_gateway() as gateway:
        session = await open_session(gateway)
        async with open_raw_connection(gateway) as line:
            await line.send(create_call("wait"), session)
            await gateway.methods.entered.wait()
            await line.send(old("ping", request_id=2), session)
            await anyio.sleep(0.3)  # so that the second is in line
        with anyio.fail_after(PATIENCE):
            await gateway.methods.cancelled.wait()


async def test_many_requests_in_line_are_answered_in_order() -> None:
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        session = await open_session(gateway)
        await line.send(create_call("wait", 0), session)
        await gateway.methods.entered.wait()
        for number in range(1, 40):
            await line.send(old("ping", request_id=number), session)
        gateway.methods.may_proceed.set()
        with anyio.fail_after(PATIENCE):
            assert [(await line.got()).json["id"] for _ in range(40)] == list(range(40))


@proves("F5")
async def test_half_a_request_waits_for_the_answer_before_it() -> None:
    async with open_small_gateway(request_seconds=0.3) as gateway, open_raw_connection(gateway) as line:
        session = await open_session(gateway)
        await line.send(create_call("wait"), session)
        await gateway.methods.entered.wait()
        await line.stream.send(b"POST /mcp HT")
        await anyio.sleep(0.9)  # longer than a request may take
        gateway.methods.may_proceed.set()
        with anyio.fail_after(PATIENCE):
            assert (await line.got()).json["result"]["content"][0]["text"] == "waited"
            assert (await line.head())[0] == 408


@proves("F5")
async def test_half_a_request_does_not_end_up_in_a_stream() -> None:
    async with open_small_gateway(request_seconds=0.3) as gateway, open_raw_connection(gateway) as line:
        session = await open_session(gateway)
        await line.send(create_call("ask"), session)
        assert (await line.head())[0] == 200
        with anyio.fail_after(PATIENCE):
            question = await line.event()
            await line.stream.send(b"POST /mcp HT")
            await anyio.sleep(0.9)  # longer than a request may take
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
            assert (await ask_apart(gateway, reply, session)).status == 202
            assert (await line.event())["result"]["content"][0]["text"] == '{"action":"accept"}'
            assert await line.chunk() == b""
            assert (await line.head())[0] == 408


@pytest.mark.parametrize("rest", [b"\0\0\0\0\r\n\r\n", b"x-long: " * 40_000], ids=["garbage", "endless head"])
async def test_nonsense_behind_a_request_does_not_spoil_its_answer(rest: bytes) -> None:
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        session = await open_session(gateway)
        await line.send(create_call("wait"), session)
        await gateway.methods.entered.wait()
        await line.stream.send(b"POST /mcp HTTP/1.1\r\nhost: x\r\n" + rest)
        gateway.methods.may_proceed.set()
        with anyio.fail_after(PATIENCE):
            assert (await line.got()).json["result"]["content"][0]["text"] == "waited"
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await line.stream.receive()
        assert not gateway.methods.cancelled.is_set()


@pytest.mark.parametrize("before", [0, 1], ids=["first", "second"])
async def test_an_address_that_is_none_is_refused(before: int) -> None:
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        for _ in range(before):
            assert (await line.ask(INITIALIZE)).status == 200
        await line.stream.send(b"CONNECT elsewhere:443 HTTP/1.1\r\nhost: elsewhere\r\n\r\n")
        with anyio.fail_after(PATIENCE):
            assert (await line.got()).status == 400


async def test_a_stream_to_a_client_of_http_1_0_has_no_chunks() -> None:
    async with open_small_gateway() as gateway, open_raw_connection(gateway) as line:
        session = await open_session(gateway)
        body = orjson.dumps(create_call("tell"))
        await line.stream.send(encode_request(gateway, body, session, version="1.0"))
        received = b""
        with anyio.fail_after(PATIENCE):
            while data := await _more(line.stream):
                received += data
        head, _, events = received.partition(b"\r\n\r\n")
        assert b"connection: close" in head and b"transfer-encoding" not in head
        assert [frame.startswith(b"event: message\n") for frame in events.split(b"\n\n")] == [True] * 3 + [
            False
        ]


async def _more(stream: anyio.abc.SocketStream) -> bytes:
    try:
        return await stream.receive()
    except anyio.EndOfStream:
        return b""
