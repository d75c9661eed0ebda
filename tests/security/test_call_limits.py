"""What a server asks and sends in one call is bounded, and costs that call alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.records import Era, ServerSpec
from fingerpost.servers import Server
from fingerpost.testing import served, tool_server
from tests.kit.attacks import (
    MODERN,
    OLD,
    TOOL,
    AttackedGateway,
    answer_with_stream,
    frame,
    hostile,
    open_attacked_gateway,
    result,
)
from tests.kit.plain_http import PlainRequest
from tests.requirements import proves

pytestmark = pytest.mark.anyio

FORM: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
LIMITS = {"notices_per_call": 500, "notice_bytes": 50_000}

# What is sent before the result, and the limit that ends the call.
FLOODS: dict[str, tuple[int, dict[str, Any], str]] = {
    "pings": (2040, {"id": 1, "method": "ping"}, "notices_per_call"),
    "forms": (2040, {"id": 1, "method": "elicitation/create", "params": FORM}, "questions_per_call"),
    "roots": (2040, {"id": 1, "method": "roots/list"}, "questions_per_call"),
    "unknown questions": (2040, {"id": 1, "method": "nobody/knows"}, "questions_per_call"),
    "progress": (600, {"method": "notifications/progress", "params": {"progress": 1}}, "notices_per_call"),
    "long logs": (20, {"method": "notifications/message", "params": {"data": "x" * 5000}}, "notice_bytes"),
    "a long form": (1, {"id": 1, "method": "elicitation/create", "params": {**FORM, "message": "x" * 60_000}},
                    "notice_bytes"),
}  # fmt: skip


def flood_of(kind: str, token: object) -> Iterable[dict[str, Any]]:
    count, message, _ = FLOODS[kind]
    for number in range(count):
        params = dict(message.get("params", {}))
        if message["method"] == "notifications/progress":
            params = {"progress": number, "progressToken": token}
        own = {"id": f"q{number}"} if "id" in message else {}
        yield {"jsonrpc": "2.0", "method": message["method"], "params": params, **own}


def frames_of(kind: str) -> Callable[[Any], list[bytes]]:
    return lambda token: [frame(message) for message in flood_of(kind, token)]


async def check_flooded(gateway: AttackedGateway, limit: str, *, era: Era) -> None:
    """Every kind of caller gets an error that names the limit; calls of another server are answered."""
    callers: list[tuple[Callable[[str], Awaitable[dict[str, Any]]], str]] = [
        (gateway.call_modern, "evil__look"),
        (gateway.call_old, "evil__look"),
        (gateway.call_api, "evil/look"),
    ]
    for call, name in callers:
        result = await call(name)
        assert f"limits.{limit}" in json.dumps(result), (era, result)
    assert gateway.questions <= 32
    good = await gateway.call_modern("good__look")
    assert good["result"]["isError"] is False


@pytest.mark.slow
@proves("X1")
@pytest.mark.parametrize("era", [OLD, MODERN])
@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_over_http_ends_its_own_call_alone(tmp_path: Path, kind: str, era: Era) -> None:
    async with served(hostile(answer_with_stream(frames_of(kind)), era=era)) as base:
        evil = Server.http("evil", base, era=era)
        async with open_attacked_gateway(
            tmp_path, evil, tool_server("good", [TOOL]).spec(), limits=LIMITS
        ) as gateway:
            await check_flooded(gateway, FLOODS[kind][2], era=era)


STDIO = """
import json, sys
flood = json.load(open(sys.argv[1]))
def write(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if "id" not in asked or method is None:
        continue
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "evil", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [json.loads(sys.argv[2])]}
    elif method == "tools/call":
        token = asked["params"].get("_meta", {}).get("progressToken")
        for message in flood:
            if "progressToken" in message.get("params", {}):
                message["params"]["progressToken"] = token
            write(message)
        result = {"content": [{"type": "text", "text": "done"}]}
    else:
        write({"id": asked["id"], "error": {"code": -32601, "message": "no"}})
        sys.stdout.flush()
        continue
    write({"id": asked["id"], "result": result})
    sys.stdout.flush()
"""


def program(folder: Path, flood: Iterable[dict[str, Any]]) -> ServerSpec:
    """A server of the older era over its standard streams, that sends this before each result."""
    written = folder / "flood.json"
    written.write_text(json.dumps(list(flood)))
    return Server.stdio("evil", [sys.executable, "-S", "-c", STDIO, str(written), json.dumps(TOOL)], era=OLD)


@pytest.mark.process
@proves("X1")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("kind", ["forms", "progress"])
async def test_a_flood_over_stdio_ends_its_own_call_alone(tmp_path: Path, kind: str, modern: bool) -> None:
    evil, good = program(tmp_path, flood_of(kind, 0)), tool_server("good", [TOOL]).spec()
    async with open_attacked_gateway(tmp_path, evil, good, limits=LIMITS) as gateway:
        result = await (gateway.call_modern if modern else gateway.call_old)("evil__look")
        assert f"limits.{FLOODS[kind][2]}" in json.dumps(result), result
        assert gateway.questions <= 32
        assert (await gateway.call_modern("good__look"))["result"]["isError"] is False


@pytest.mark.process
@proves("X1")
async def test_pings_beyond_number_do_not_pile_up(tmp_path: Path) -> None:
    """Over standard streams a ping belongs to no request: it is answered, or dropped where too many wait."""
    pings = ({"id": f"p{number}", "method": "ping"} for number in range(2000))  # 256 may wait
    async with open_attacked_gateway(tmp_path, program(tmp_path, pings)) as gateway:
        for _ in range(2):
            result = await gateway.call_modern("evil__look")
            assert result["result"]["content"][0]["text"] == "done"


@pytest.mark.slow
@proves("X1")
async def test_questions_asked_one_by_one_are_bounded_for_a_session(tmp_path: Path) -> None:
    async def act(asked: PlainRequest) -> None:
        await asked.begin(kind="text/event-stream")
        for number in range(2040):
            await asked.write(frame({"jsonrpc": "2.0", "id": number, "method": "roots/list"}))
            while sum("result" in message for message in server.messages) <= number:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        await asked.write(frame(result(asked.message["id"])), more=False)

    server = hostile(act)
    async with (
        served(server) as base,
        open_attacked_gateway(tmp_path, Server.http("evil", base, era=OLD)) as gateway,
    ):
        call_result = await gateway.call_old("evil__look")
        assert "asked more than 32 questions in one call" in call_result["result"]["content"][0]["text"]
        assert gateway.questions == 32


@proves("X1")
async def test_an_error_whose_data_cannot_be_passed_on_is_told_without_it(tmp_path: Path) -> None:
    async def act(asked: PlainRequest) -> None:
        error = '{"code": -32050, "message": "no luck", "data": {"n": ' + "9" * 4301 + "}}"
        await asked.begin()
        await asked.write(
            f'{{"jsonrpc": "2.0", "id": {asked.message["id"]}, "error": {error}}}'.encode(), more=False
        )

    async with (
        served(hostile(act)) as base,
        open_attacked_gateway(tmp_path, Server.http("evil", base, era=OLD)) as gateway,
    ):
        assert (await gateway.call_modern("evil__look"))["error"]["message"] == "no luck"
        assert (await gateway.call_api("evil/look"))["detail"] == "no luck"
