"""Those of the older era who call often have a session of their own at a server that speaks both eras."""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
import pytest

from fingerpost.errors import ServerUnavailable
from fingerpost.servers import RequestContext, Server, ServerPool
from fingerpost.servers.per_caller import FREQUENT_CALLS, LegacySessions, ServerRequestUnsupported
from fingerpost.testing import served
from tests.kit.full_server import SCHEMA, FullServer, Recorder, serve_full_server
from tests.kit.server_callers import RecordingCaller
from tests.kit.server_pools import PATIENCE, eventually, open_pool, text_of
from tests.kit.tables import table
from tests.requirements import proves

SESSION = "mcp-session-id"


async def call(servers: ServerPool, tool: str, caller: RecordingCaller, **more: Any) -> str:
    passage = RequestContext(caller=caller, **more)
    return text_of(await servers.call("talk", tool, {}, timeout=PATIENCE, context=passage))


def sessions(servers: ServerPool) -> LegacySessions:
    return servers._supervisors["talk"].legacy_sessions  # pyright: ignore[reportPrivateUsage] - nobody else may count them


async def settle(servers: ServerPool, record: Recorder, caller: RecordingCaller) -> None:
    """Call until the caller has a session of their own."""

    def has_opened() -> bool:
        return any(SESSION in headers for headers, _ in record.of("notifications/initialized"))

    for _ in range(FREQUENT_CALLS):
        await call(servers, "meta", caller)
    await eventually(has_opened)
    await eventually(lambda: sessions(servers)._sessions.get_open(caller.key) is not None)  # pyright: ignore[reportPrivateUsage] - as above


@proves("G8")
async def test_who_calls_often_is_asked_in_their_own_era_with_what_they_can_do() -> None:
    caller = RecordingCaller(
        capabilities={"elicitation": {"form": {}}, "roots": {"listChanged": True}, "odd": 7}
    )
    async with (
        serve_full_server(FullServer()) as (url, record),
        open_pool(Server.http("talk", url)) as servers,
    ):
        await settle(servers, record, caller)
        assert not [headers for headers, _ in record.of("tools/call") if SESSION in headers]
        answer = json.loads(await call(servers, "ask", caller))
        assert answer == {"action": "accept", "content": {"colour": "blue"}}
        headers, _ = record.of("tools/call")[-1]
        assert SESSION in headers
        ((_, opening),) = record.of("initialize")
        assert opening["params"]["capabilities"] == {"elicitation": {"form": {}}, "roots": {}}
        assert await call(servers, "report", caller) == "reported"
    assert [method for method, _ in caller.asked] == ["elicitation/create"]
    texts = [
        params["message"] for method, params in caller.notifications if method == "notifications/progress"
    ]
    assert texts == ["step 1", "step 2", "step 3"]


@pytest.mark.parametrize(("further", "enough"), [(100, 18), (2000, 1)])
async def test_where_a_server_has_many_tools_fewer_calls_are_enough(further: int, enough: int) -> None:
    """It may list them all for each call of the newer era."""
    caller, server = RecordingCaller(), FullServer(further_tools=further)
    async with serve_full_server(server) as (url, record), open_pool(Server.http("talk", url)) as servers:
        for calls in range(1, enough + 1):
            assert len(sessions(servers)) == 0, calls
            await call(servers, "meta", caller)
        await eventually(lambda: sessions(servers)._sessions.get_open(caller.key) is not None)  # pyright: ignore[reportPrivateUsage] - as above
        await call(servers, "meta", caller)
        assert SESSION in record.of("tools/call")[-1][0]


@pytest.mark.slow
async def test_two_sessions_of_callers_are_two_at_the_server() -> None:
    one, two = RecordingCaller(key="one"), RecordingCaller(key="two")
    async with (
        serve_full_server(FullServer()) as (url, record),
        open_pool(Server.http("talk", url)) as servers,
    ):
        for caller in (one, two):
            await settle(servers, record, caller)
        for caller in (one, two, one, two):
            await call(servers, "meta", caller)
        used = [headers[SESSION] for headers, _ in record.of("tools/call")[-4:]]
        assert used[0] == used[2] != used[1] == used[3]
        await servers.remove("talk")


async def test_who_never_said_which_logs_they_want_has_a_session_of_their_own_as_well() -> None:
    caller, usual = RecordingCaller(), {"log_level": "info", "is_default_log_level": True}
    async with (
        serve_full_server(FullServer()) as (url, record),
        open_pool(Server.http("talk", url)) as servers,
    ):
        for _ in range(FREQUENT_CALLS):
            sent = json.loads(await call(servers, "meta", caller, **usual))
            assert sent["io.modelcontextprotocol/logLevel"] == "info"
        await eventually(lambda: sessions(servers)._sessions.get_open(caller.key) is not None)  # pyright: ignore[reportPrivateUsage] - as above
        await call(servers, "meta", caller, **usual)
        assert SESSION in record.of("tools/call")[-1][0]


class Interrupting(FullServer):
    """Asks in the middle of a call, which it can in the older era alone."""

    async def _ask(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await ctx.session.elicit_form("Which colour?", SCHEMA, ctx.request_id)
        return types.CallToolResult(content=[types.TextContent(type="text", text=answer.action)])


@pytest.mark.slow
@proves("G8")
async def test_that_a_server_can_ask_outweighs_what_it_lacks_for_those_who_call_often() -> None:
    talkative, caller = Interrupting(), RecordingCaller()
    talkative.server.extensions["com.example/panels"] = {}  # named in the newer era alone
    async with serve_full_server(talkative) as (url, record), open_pool(Server.http("talk", url)) as servers:
        for _ in range(FREQUENT_CALLS):
            await call(servers, "meta", caller)
        await eventually(lambda: bool(record.of("initialize")) and len(sessions(servers)) == 0)
        await call(servers, "meta", caller)
        assert SESSION not in record.of("tools/call")[-1][0]
        with pytest.raises(ServerRequestUnsupported, match="the next call can be asked about"):
            await call(servers, "ask", caller)
        assert await call(servers, "ask", caller) == "accept"
        await call(servers, "meta", caller)
        assert SESSION in record.of("tools/call")[-1][0]


async def test_a_session_that_is_asked_in_its_own_era_keeps_its_level_for_logs() -> None:
    talkative, caller = Interrupting(), RecordingCaller()
    levels: list[str] = []

    async def set_level(ctx: object, params: types.SetLevelRequestParams) -> types.EmptyResult:
        levels.append(params.level)
        return types.EmptyResult()

    talkative.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    async with serve_full_server(talkative) as (url, _), open_pool(Server.http("talk", url)) as servers:
        with pytest.raises(ServerRequestUnsupported):
            await call(servers, "ask", caller, log_level="debug")
        for level in ("debug", "debug", "error"):
            assert await call(servers, "ask", caller, log_level=level) == "accept"
        assert (
            await call(
                servers, "ask", RecordingCaller(key="other"), log_level="info", is_default_log_level=True
            )
            == "accept"
        )
    assert levels == ["debug", "error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("caller", "more"),
    [
        pytest.param(RecordingCaller(accepts_input_required=True), {}, id="of the newer era"),
        pytest.param(RecordingCaller(), {"log_level": "info"}, id="with a level of their own for logs"),
    ],
)
async def test_others_share_the_connection(caller: RecordingCaller, more: dict[str, Any]) -> None:
    async with (
        serve_full_server(FullServer()) as (url, record),
        open_pool(Server.http("talk", url)) as servers,
    ):
        for _ in range(2 * FREQUENT_CALLS):
            await call(servers, "meta", caller, **more)
        assert len(sessions(servers)) == 0
        assert not record.of("initialize")


@pytest.mark.slow
async def test_a_server_that_does_not_take_the_older_era_is_asked_once() -> None:
    talkative = FullServer()
    inner: Any = talkative.server.streamable_http_app()
    refused: list[bytes] = []

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        version = dict(scope.get("headers", ())).get(b"mcp-protocol-version", b"")
        if scope["type"] != "http" or version == b"2026-07-28":
            await inner(scope, receive, send)
            return
        refused.append(scope["method"])
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    caller = RecordingCaller()
    async with served(app) as base, open_pool(Server.http("talk", f"{base}/mcp")) as servers:
        for _ in range(FREQUENT_CALLS):
            await call(servers, "meta", caller)
        await eventually(lambda: bool(refused) and len(sessions(servers)) == 0)
        tried = len(refused)
        for _ in range(FREQUENT_CALLS):
            await call(servers, "meta", caller)
        assert len(refused) == tried


@dataclass
class Eras:
    """Two applications at one address, one for each era."""

    newer: Any
    older: Any

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        version = dict(scope.get("headers", ())).get(b"mcp-protocol-version", b"")
        is_newer = scope["type"] != "http" or version == b"2026-07-28"
        await (self.newer if is_newer else self.older)(scope, receive, send)


def without_a_list() -> Any:
    """A server of the library refuses to list a tool whose result the older era does not know."""

    async def tools(ctx: object, params: object) -> types.ListToolsResult:
        numbers = {"type": "array", "items": {"type": "number"}}
        tool = types.Tool(name="meta", input_schema={"type": "object"}, output_schema=numbers)
        return types.ListToolsResult(tools=[tool])

    server = FullServer().server
    server.add_request_handler("tools/list", types.PaginatedRequestParams, tools)
    return server.streamable_http_app()


def with_fewer_capabilities() -> Any:
    """A server that offers prompts and completions in the newer era alone."""
    plain = FullServer(further_tools=1).server
    for kind in ("prompts/list", "prompts/get", "completion/complete"):
        del plain._request_handlers[kind]  # pyright: ignore[reportPrivateUsage] - the server of a test
    return plain.streamable_http_app()


def with_fewer_tools() -> Any:
    return FullServer().server.streamable_http_app()


@pytest.mark.slow
@proves("G8")
@table(
    "older",
    [
        pytest.param(
            lambda: FullServer(further_tools=1).server.streamable_http_app(stateless_http=True),
            id="no sessions",
        ),
        pytest.param(
            lambda: FullServer(further_tools=1).server.streamable_http_app(json_response=True),
            id="no streams",
        ),
        pytest.param(with_fewer_capabilities, id="fewer capabilities"),
        pytest.param(without_a_list, id="tools that cannot be listed"),
        pytest.param(with_fewer_tools, id="fewer tools"),
    ],
)
async def test_who_would_get_less_in_their_own_era_goes_on_in_the_newer(older: Callable[[], Any]) -> None:
    caller, poorer = RecordingCaller(), older()
    record = Recorder(Eras(FullServer(further_tools=1).server.streamable_http_app(), poorer))
    async with (
        poorer.router.lifespan_context(poorer),
        served(record) as base,
        open_pool(Server.http("talk", f"{base}/mcp")) as servers,
    ):
        for _ in range(FREQUENT_CALLS):
            await call(servers, "meta", caller)
        await eventually(lambda: bool(record.of("initialize")) and len(sessions(servers)) == 0)
        for _ in range(FREQUENT_CALLS):
            await call(servers, "meta", caller)
        answer = json.loads(await call(servers, "ask", caller))
        assert answer == {"action": "accept", "content": {"colour": "blue"}}
        assert len(record.of("initialize")) == 1  # it is not tried for every call
        versions = {headers["mcp-protocol-version"] for headers, _ in record.of("tools/call")}
        assert versions == {"2026-07-28"}


async def test_who_can_be_asked_nothing_needs_no_streams() -> None:
    caller = RecordingCaller(capabilities={})
    async with (
        serve_full_server(FullServer(), json_response=True) as (url, record),
        open_pool(Server.http("talk", url)) as servers,
    ):
        await settle(servers, record, caller)
        await call(servers, "meta", caller)
        assert SESSION in record.of("tools/call")[-1][0]


class ForgettingRecorder(Recorder):
    """Forgets all sessions on request."""

    forgets = False

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        known = {name for name, _ in scope.get("headers", ())}
        if self.forgets and SESSION.encode() in known:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await super().__call__(scope, receive, send)


@pytest.mark.slow
async def test_a_forgotten_session_is_replaced_and_the_shared_connection_serves_meanwhile() -> None:
    record = ForgettingRecorder(FullServer().server.streamable_http_app())
    caller = RecordingCaller()
    async with served(record) as base, open_pool(Server.http("talk", f"{base}/mcp")) as servers:
        await settle(servers, record, caller)
        record.forgets = True
        with pytest.raises(ServerUnavailable):
            await call(servers, "meta", caller)
        await call(servers, "meta", caller)  # by the shared one
        assert SESSION not in record.of("tools/call")[-1][0]
        record.forgets = False
        await eventually(lambda: len(sessions(servers)) == 0)
        await settle(servers, record, caller)
        await call(servers, "meta", caller)
        assert SESSION in record.of("tools/call")[-1][0]
