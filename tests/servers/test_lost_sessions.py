"""A server that forgets its sessions is available: it is initialized again, and no failure is recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import ServerUnavailable
from fingerpost.records import Effect, ErrorKind, Execution, JsonObject, ServerState
from fingerpost.servers import RequestContext, Server, ServerPool
from fingerpost.servers.connection_state import MAX_IMMEDIATE_RETRIES, STABLE_SECONDS, Backoff, RetryPace
from fingerpost.testing import served
from tests.kit.call_runner import RunnerFixture, a_call
from tests.kit.plain_http import PlainHttp, PlainRequest
from tests.kit.server_callers import RecordingCaller
from tests.kit.server_pools import PATIENCE, eventually, open_pool
from tests.requirements import proves

READ: JsonObject = {"uri": "a://1"}
ASKED = ["resources/read", "prompts/get", "completion/complete"]
QUESTION = {"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": {"message": "Who?"}}


class OneSessionServer(PlainHttp):
    """Knows one session at a time, until it is made to forget it."""

    def __init__(self) -> None:
        self.sessions = 0
        self.known = True
        self.forgets_always = False
        self.waits: set[str] = set()  # methods that are not answered the first time
        self.asks: set[str] = set()  # methods that ask the person the first time
        self.at_work = anyio.Event()
        methods = ("tools/list", "tools/call", "resources/list", "resources/templates/list", *ASKED)
        super().__init__({}, {"initialize": self._greet, **dict.fromkeys(methods, self._answer)})

    def forget(self) -> None:
        self.known = False

    async def _greet(self, asked: PlainRequest) -> None:
        self.sessions += 1
        self.known = True
        hello: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "completions": {}},
            "serverInfo": {"name": "forgetful", "version": "1"},
        }
        await asked.result(hello, mcp_session_id=f"s{self.sessions}")

    async def _answer(self, asked: PlainRequest) -> None:
        method = asked.message["method"]
        turned_away = self.forgets_always and method == "tools/call"
        if turned_away or not self.known or asked.headers.get("mcp-session-id") != f"s{self.sessions}":
            error = {"code": -32001, "message": "Session not found"}
            await asked.answer({"jsonrpc": "2.0", "id": None, "error": error}, 404)
        elif method in self.asks:
            self.asks.discard(method)
            await asked.begin(kind="text/event-stream")
            await asked.event(QUESTION)
            await asked.wait_for_disconnect()
        elif method in self.waits:
            self.waits.discard(method)
            self.at_work.set()
            await asked.wait_for_disconnect()
        else:
            await asked.result(RESULTS.get(method, {"method": method}))


RESULTS: dict[str, Any] = {
    "tools/list": {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
}


@asynccontextmanager
async def forgetful() -> AsyncGenerator[tuple[OneSessionServer, ServerPool]]:
    """Such a server, and a pool that would wait long before it tried again what is down."""
    server = OneSessionServer()
    async with (
        served(server) as base,
        open_pool(Server.http("lost", base, era="2025-11-25"), reconnect_max=60) as servers,
    ):
        yield server, servers


@proves("F12", "H9", "D9")
@pytest.mark.parametrize("effect", [Effect.READ, Effect.WRITE])
async def test_sessions_lost_one_after_the_other_fail_no_call(effect: Effect):
    async with forgetful() as (server, servers):
        b = RunnerFixture(servers, breaker_failures=1)
        for time in range(4):
            server.forget()
            execution = await b.run(a_call("lost/read", {"time": time}, effect=effect))
            assert execution.error is None, execution
        assert server.sessions == 5
        assert b.runner.breakers["lost"].failures == 0


@proves("F12", "D9")
@pytest.mark.parametrize("effect", [Effect.READ, Effect.WRITE])
async def test_of_many_calls_at_once_none_fails_for_a_lost_session(effect: Effect):
    """Each hears for itself that it was turned away, so that even what writes can be sent again."""
    executions: list[Execution] = []

    async def read(number: int) -> None:
        executions.append(await b.run(a_call("lost/read", {"n": number}, effect=effect)))

    async with forgetful() as (server, servers):
        b = RunnerFixture(servers, breaker_failures=1)
        for _ in range(2):
            server.forget()
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(read, number)
        assert [execution.error for execution in executions] == [None] * 40
        assert b.runner.breakers["lost"].failures == 0


@proves("F12", "D9")
async def test_what_was_under_way_when_another_found_the_session_lost_is_no_fault_of_the_server():
    async with forgetful() as (server, servers):
        b = RunnerFixture(servers, breaker_failures=1)
        executions: dict[Effect, Execution] = {}

        async def call(effect: Effect) -> None:
            executions[effect] = await b.run(a_call("lost/read", effect=effect))

        for effect in (Effect.READ, Effect.WRITE):
            server.waits.add("tools/call")
            server.at_work = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, effect)
                with anyio.fail_after(PATIENCE):
                    await server.at_work.wait()
                server.forget()
                assert (await b.run(a_call("lost/read", {"other": effect}))).error is None
        assert executions[Effect.READ].error is None
        assert executions[Effect.WRITE].error is ErrorKind.UNKNOWN  # it may have run, so it is not repeated
        assert b.runner.breakers["lost"].failures == 0


@proves("F12", "D9", "F29")
async def test_a_server_that_never_keeps_a_session_is_greeted_now_and_then_and_its_breaker_stays_closed():
    async with forgetful() as (server, servers):
        server.forgets_always = True
        b = RunnerFixture(servers, breaker_failures=1)
        with anyio.fail_after(PATIENCE):
            while servers.get_status("lost").state is not ServerState.DOWN:
                assert (await b.run(a_call("lost/read"))).error is ErrorKind.UNAVAILABLE
        assert (await b.run(a_call("lost/read"))).error is ErrorKind.UNAVAILABLE
        assert server.sessions >= MAX_IMMEDIATE_RETRIES
        assert b.runner.breakers["lost"].state == "closed"
        assert b.runner.breakers["lost"].failures == 0


@proves("H9", "F29")
@given(gaps=st.lists(st.floats(min_value=0, max_value=2 * STABLE_SECONDS), max_size=60))
def test_handshakes_a_server_asks_for_are_granted_at_once_but_only_so_many_in_a_while(gaps: list[float]):
    backoff, now = Backoff(max_delay=60), 1000.0
    granted: list[float] = []
    for gap in gaps:
        began, now = now, now + gap
        wait = backoff.next_delay(RetryPace.NOW, began=began, now=now)
        lately = [time for time in granted if now - time < STABLE_SECONDS]
        assert (wait == 0) is (len(lately) < MAX_IMMEDIATE_RETRIES)
        if wait == 0:
            granted.append(now)
        now += wait


@proves("F12", "G8")
@pytest.mark.parametrize("method", ASKED)
async def test_what_a_lost_session_turned_away_is_asked_again(method: str):
    async with forgetful() as (server, servers):
        server.forget()
        result = await servers.ask(
            "lost", method, READ, timeout=PATIENCE, context=RequestContext(caller=RecordingCaller())
        )
        assert result == {"method": method}
        assert server.sessions == 2
        assert server.asked.count(method) == 2


@proves("F12", "G8")
async def test_a_read_that_was_cut_off_is_asked_again_and_a_person_is_not():
    results: list[JsonObject] = []
    person = RecordingCaller(thinks=PATIENCE)

    async def read() -> None:
        results.append(await servers.ask("lost", "resources/read", READ, timeout=PATIENCE))

    async def prompt() -> None:
        passage = RequestContext(caller=person)
        with pytest.raises(ServerUnavailable, match="no longer knows our session"):
            await servers.ask("lost", "prompts/get", {"name": "p"}, timeout=PATIENCE, context=passage)

    async with forgetful() as (server, servers):
        server.waits.add("resources/read")
        server.asks.add("prompts/get")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(prompt)
            with anyio.fail_after(PATIENCE):
                await server.at_work.wait()
            await eventually(lambda: len(person.asked) == 1)
            server.forget()
            await servers.ask("lost", "completion/complete", {}, timeout=PATIENCE)
        assert results == [{"method": "resources/read"}]
        assert (server.asked.count("prompts/get"), len(person.asked)) == (1, 1)
