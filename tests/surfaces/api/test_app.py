"""The API's machine: paths, forms, problems, rates and how it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost import Router
from fingerpost.errors import ServerUnavailable, StoreUnavailable
from fingerpost.frozen import frozen
from fingerpost.records import Right
from fingerpost.settings import GatewaySettings
from fingerpost.surfaces.api.app import ApiApp
from fingerpost.surfaces.api.auth import ApiAuth
from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem, ApiRequest, ApiResponse
from fingerpost.surfaces.api.sessions import ConsoleSessions
from fingerpost.surfaces.api.streams import StreamSlots
from fingerpost.surfaces.http.access import RateLimiter
from tests.kit.api import ServedApi, build_local_authenticator, open_served_api, open_stream
from tests.kit.routers import build_settings
from tests.requirements import proves


@pytest.fixture
async def open_house(tmp_path: Path) -> AsyncGenerator[ServedApi]:
    async with open_served_api(tmp_path, gateway={"body_bytes": 2048}) as opened:
        yield opened


@proves("I1")
async def test_who_asks_is_told_what_they_may_do(open_house: ServedApi) -> None:
    me = (await open_house.get("/api/me")).json()
    assert (me["name"], me["kind"], me["signed_in"], me["csrf"]) == ("local", "local", False, None)
    assert me["rights"] == ["use", "watch"]
    assert me["address"] == open_house.address
    assert me["keyless"] is True
    assert "react" in me["modes"]


_JSON = {"content-type": "application/json"}
_DEEP = b'{"tool": "x", "arguments": {"a": ' + b"[" * 150 + b"]" * 150 + b"}}"
_WRONG: list[tuple[int, str, str, str, dict[str, Any]]] = [
    (404, "openapi.json", "GET", "/api/nothing", {}),
    (404, "openapi.json", "GET", "/api/packets/", {}),
    (404, "'a/b' that you may see", "GET", "/api/packets/a%2Fb", {}),
    (400, "UTF-8", "GET", "/api/packets/%ff", {}),
    (404, "not found", "GET", "/api/packets/%00", {}),
    (405, "GET", "POST", "/api/me", {}),
    (405, "", "HEAD", "/api/live", {}),
    (406, "application/json", "GET", "/api/me", {"headers": {"accept": "text/html"}}),
    (400, "the parameters are: limit, before", "GET", "/api/packets?colour=red", {}),
    (400, "the parameters are: none", "GET", "/api/me?x=1", {}),
    (400, "limit", "GET", "/api/packets?limit=many", {}),
    (400, "more than once", "GET", "/api/packets?limit=1&limit=2", {}),
    (400, "too many", "GET", "/api/packets?" + "&".join(["text=a"] * 200), {}),
    (400, "character", "GET", "/api/packets?text=%00", {}),
    (415, "application/json", "POST", "/api/route", {"content": b"{}"}),
    (400, "valid JSON", "POST", "/api/route", {"content": b"{", "headers": _JSON}),
    (400, "levels deep", "POST", "/api/call", {"content": _DEEP, "headers": _JSON}),
    (413, "bytes", "POST", "/api/route", {"content": b" " * 3000, "headers": _JSON}),
    (422, "request", "POST", "/api/route", {"json": {}}),
    (422, "no such field", "POST", "/api/route", {"json": {"request": "x", "colour": "red"}}),
    (422, "request", "POST", "/api/route", {"json": {"request": 7}}),
    (404, "nowhere", "POST", "/api/route", {"json": {"request": "x", "server": "nowhere"}}),
    (404, "profile", "POST", "/api/ask", {"json": {"request": "x", "profile": "nowhere"}}),
    (422, "model", "POST", "/api/ask", {"json": {"request": "x", "mode": "react"}}),
]


@proves("I1")
async def test_what_is_wrong_with_a_request_is_said(open_house: ServedApi) -> None:
    for status, problem_text, method, path, more in _WRONG:
        answer = await open_house.client.request(method, path, **more)
        assert answer.status_code == status, (path, answer.text)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-type"] == "application/problem+json"
        if method != "HEAD":
            assert answer.json()["status"] == status
            assert problem_text.lower() in answer.text.lower(), answer.text


async def test_methods_that_ask_about_a_path(open_house: ServedApi) -> None:
    head = await open_house.client.head("/api/me")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    refused = await open_house.client.post("/api/me")
    assert refused.headers["allow"] == "GET, HEAD, OPTIONS"
    options = await open_house.client.options("/api/session")
    assert (options.status_code, options.headers["allow"]) == (204, "DELETE, OPTIONS, POST")


@frozen
class _Fails:
    how: str


async def _fail(request: ApiRequest) -> ApiResponse:
    match request.query.how:
        case "store":
            message = "the database is locked: password=hunter2secret"
            raise StoreUnavailable(message, hint="Wait a moment.")
        case "server":
            message = "git went away"
            raise ServerUnavailable(message, server="git")
        case "problem":
            raise ApiProblem(409, "Changed meanwhile", "Look again.", fingerprint="abc")
        case "text":
            return ApiResponse(body=b"a,b\n", media="text/csv", status=201, headers=((b"x-own", b"1"),))
        case _:
            message = "a secret of ours"
            raise RuntimeError(message)


@proves("I1")
async def test_what_went_wrong_inside_is_told_without_its_innards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    operation = ApiOperation(
        method="GET", path="/api/fail", name="fail", summary="Fails", right=Right.USE, query=_Fails,
        answer=_fail, returns=str,
    )  # fmt: skip
    async with Router(settings=build_settings(tmp_path)) as router:
        doors = ApiAuth(
            build_local_authenticator(router),
            ConsoleSessions(router.store, hours=1),
            router.events,
            apply_user=router.users.apply,
        )
        app = ApiApp(
            [operation],
            auth=doors,
            rate_limiter=RateLimiter(100),
            streams=StreamSlots(1),
            limits=GatewaySettings(body_bytes=1024, request_seconds=1),
        )
        busy = await _answer(app, "store")
        assert (busy["status"], busy["hint"]) == (503, "Wait a moment.")
        assert "hunter2secret" not in json.dumps(busy)
        assert (await _answer(app, "server"))["status"] == 503
        assert (await _answer(app, "problem"))["fingerprint"] == "abc"
        assert await _answer(app, "text") == "a,b\n"
        ours = await _answer(app, "other")
        assert ours["status"] == 500
        assert "secret of ours" not in json.dumps(ours)
        assert ours["error_id"] in caplog.text
        assert await _answer(app, "text", interrupted=True) is None  # no second response follows the first
        assert "An API response was interrupted" in caplog.text
        await app.drain(0)
        assert (await _answer(app, "text"))["status"] == 503


async def _answer(app: ApiApp, how: str, *, interrupted: bool = False) -> Any:
    """What the app says to one request, without a port between. None if only the headers could be sent."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        if interrupted and sent:
            assert message["type"] == "http.response.body"
            raise OSError(message["type"])
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http", "method": "GET", "path": "/api/fail", "raw_path": b"/api/fail",
        "query_string": f"how={how}".encode(), "headers": [(b"host", b"127.0.0.1")],
    }  # fmt: skip
    await app(scope, receive, send)
    if interrupted:
        assert len(sent) == 1
        return None
    body = sent[1]["body"].decode()
    return json.loads(body) if body.startswith("{") else body


@proves("I6")
async def test_a_caller_over_the_rate_limit_waits_and_others_do_not(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, api={"per_minute": 3}) as opened:
        anna, bert = await opened.key("anna"), await opened.key("bert")
        answers = [await opened.get("/api/me", headers=anna) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 21
        assert (await opened.get("/api/me", headers=bert)).status_code == 200


async def test_streams_have_a_bound_and_end_in_good_order(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, api={"streams": 1}) as opened:
        async with open_stream(opened, "/api/live") as stream:
            await stream.next("lines")
            second = await opened.get("/api/live")
            assert second.status_code == 503
            assert "api.streams" in second.json()["detail"]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(opened.api.drain, 1.0)
                with pytest.raises(EOFError):
                    await stream.next("nothing of this kind")
        assert (await opened.get("/api/me")).status_code == 503
