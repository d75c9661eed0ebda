"""Connections of a gateway that a command uses: everything a server may do passes through, both ways."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest

from fingerpost.errors import ServerUnavailable, ToolFailed
from fingerpost.records import ServerSpec, ServerState
from fingerpost.servers import RequestContext, Server, ServerPool
from fingerpost.servers.relay import lend_connections
from tests.kit.full_server import NOTES, FullServer, serve_full_server
from tests.kit.server_callers import RecordingCaller
from tests.kit.server_pools import PATIENCE, arguments_of, eventually, names, open_pool, text_of
from tests.kit.sleepy_server import SleepyServer
from tests.requirements import proves

ERAS = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])


@pytest.fixture
def sockets() -> Iterator[Path]:
    with TemporaryDirectory(prefix="fp-") as folder:  # paths of sockets are short
        yield Path(folder) / "gateways" / "store"


class Pair:
    """A gateway, and a command that uses its connections."""

    def __init__(self, gateway: ServerPool, command: ServerPool, notes: list[str]) -> None:
        self.gateway = gateway
        self.command = command
        self.notes = notes


@asynccontextmanager
async def open_pair(sockets: Path, spec: ServerSpec) -> AsyncGenerator[Pair]:
    notes: list[str] = []
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(open_pool(spec))
        await stack.enter_async_context(lend_connections(gateway, sockets))
        command = await stack.enter_async_context(open_pool(spec, start=False))
        command.use_gateways(sockets, notes.append)
        command.start(spec.name)
        assert await command.wait_until_settled(timeout=PATIENCE)
        yield Pair(gateway, command, notes)


@asynccontextmanager
async def open_full_pair(sockets: Path, era: Any) -> AsyncGenerator[tuple[Pair, FullServer, Any]]:
    talkative = FullServer()
    async with (
        serve_full_server(talkative) as (url, record),
        open_pair(sockets, Server.http("talk", url, era=era)) as pair,
    ):
        yield pair, talkative, record


@ERAS
@proves("S5")
async def test_progress_questions_and_answers_pass_through(sockets: Path, era: Any) -> None:
    caller = RecordingCaller()
    context = RequestContext(caller=caller, log_level="info")
    async with open_full_pair(sockets, era) as (pair, _, _):
        assert text_of(await pair.command.call("talk", "report", {}, context=context)) == "reported"
        steps = [given["progress"] for method, given in caller.notifications if method.endswith("progress")]
        assert steps == [1, 2, 3]
        assert [given["data"] for method, given in caller.notifications if method.endswith("message")] == [
            {"at": "work"}
        ]
        answer = arguments_of(await pair.command.call("talk", "ask", {}, context=context))
        assert answer == {"action": "accept", "content": {"colour": "blue"}}
        assert [params["message"] for _, params in caller.asked] == ["Which colour?"]


@ERAS
@proves("S5")
async def test_a_question_that_nobody_answers_is_refused_and_errors_keep_code_and_data(
    sockets: Path, era: Any
) -> None:
    async with open_full_pair(sockets, era) as (pair, _, _):
        with pytest.raises(ToolFailed, match="no luck today") as failed:
            await pair.command.call("talk", "fail", {})
        assert (failed.value.code, failed.value.data) == (-32050, {"why": ["rain"]})
        refusing = RequestContext(caller=RecordingCaller(answer=None))
        with pytest.raises(ToolFailed, match="not today"):
            await pair.command.call("talk", "ask", {}, context=refusing)


@ERAS
@proves("S5")
async def test_a_borrowed_server_looks_as_it_does_to_the_gateway(sockets: Path, era: Any) -> None:
    async with open_full_pair(sockets, era) as (pair, talkative, record):
        handshakes = [body["method"] for _, body in record.requests].count("initialize")
        for servers in (pair.gateway, pair.command):
            assert await servers.wait_until_resources_read(timeout=PATIENCE)
        seen, own = pair.command.get_status("talk"), pair.gateway.get_status("talk")
        assert (seen.state, seen.product, seen.protocol, seen.tools) == (
            ServerState.READY,
            own.product,
            own.protocol,
            own.tools,
        )
        assert pair.command.get_listing("talk") == pair.gateway.get_listing("talk")
        assert pair.command.get_resources("talk") == pair.gateway.get_resources("talk")
        note = await pair.command.ask("talk", "resources/read", {"uri": NOTES}, timeout=PATIENCE)
        assert note["contents"]
        with pytest.raises(ToolFailed, match="not passed on"):
            await pair.command.ask("talk", "resources/subscribe", {"uri": NOTES}, timeout=PATIENCE)
        await pair.command.ask("talk", "logging/setLevel", {"level": "error"}, timeout=PATIENCE)
        await pair.command.probe("talk", timeout=PATIENCE)
        await talkative.change_prompts("greet", "part")
        await eventually(lambda: len(getattr(pair.command.get_resources("talk"), "prompts", ())) == 2)
        assert [body["method"] for _, body in record.requests].count("initialize") == handshakes
        assert pair.notes == []


@proves("S5")
async def test_a_call_that_is_given_up_is_cancelled_at_the_server(sockets: Path) -> None:
    async with open_full_pair(sockets, "2025-11-25") as (pair, talkative, _):
        with anyio.move_on_after(PATIENCE) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(pair.command.call, "talk", "wait", {}))
                await talkative.began.wait()
                tasks.cancel_scope.cancel()
            await talkative.cancelled.wait()
        assert not scope.cancelled_caught
        assert text_of(await pair.command.call("talk", "report", {})) == "reported"


@proves("S5")
async def test_a_command_that_ends_cancels_its_calls(sockets: Path) -> None:
    async with open_full_pair(sockets, "2025-11-25") as (pair, talkative, _):
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                with pytest.raises(ServerUnavailable):
                    await pair.command.call("talk", "wait", {})

            tasks.start_soon(call)
            await talkative.began.wait()
            await pair.command.disable("talk", "switched off")
        with anyio.fail_after(PATIENCE):
            await talkative.cancelled.wait()


@proves("S5")
async def test_a_call_whose_server_dies_is_reported_as_it_is_at_the_gateway(
    sockets: Path, tmp_path: Path
) -> None:
    sleepy = SleepyServer(tmp_path)
    async with open_pair(sockets, sleepy.spec) as pair:
        with pytest.raises(ServerUnavailable, match="disconnected before it answered") as failed:
            await pair.command.call("sleepy", "look", {"seconds": -1})
        assert "unknown" in (failed.value.hint or "")
        assert sleepy.calls == 1


@proves("S5", "S2")
async def test_a_tool_that_changed_since_the_command_listed_it_is_not_called(
    sockets: Path, tmp_path: Path
) -> None:
    sleepy = SleepyServer(tmp_path)
    async with open_pair(sockets, sleepy.spec) as pair:
        sleepy.offer("look", "other", city={"type": "string"})
        await pair.gateway.refresh("sleepy")
        with pytest.raises(ToolFailed, match="changed"):
            await pair.command.call("sleepy", "look", {})
        await eventually(lambda: names(pair.command, "sleepy") == ["look", "other"])  # it was told
        assert text_of(await pair.command.call("sleepy", "look", {})) == "found"
        assert (sleepy.starts, sleepy.calls) == (1, 1)


@proves("S5")
async def test_a_server_that_is_switched_off_at_the_gateway_is_started_by_the_command(
    sockets: Path, tmp_path: Path
) -> None:
    sleepy = SleepyServer(tmp_path)
    async with open_pair(sockets, sleepy.spec) as pair:
        await pair.gateway.disable("sleepy", "switched off")
        await eventually(lambda: sleepy.starts == 2)
        await pair.command.ensure("sleepy", timeout=PATIENCE)
        assert text_of(await pair.command.call("sleepy", "look", {})) == "found"
        await pair.gateway.remove("sleepy")
        await pair.command.reconnect("sleepy")
        await pair.command.ensure("sleepy", timeout=PATIENCE)
        assert (sleepy.starts, pair.notes) == (3, [])


@pytest.mark.parametrize("entry", [{"isolate": True}, {"forward_authorization": True}], ids=str)
@proves("S5")
async def test_connections_that_belong_to_single_callers_are_not_lent(
    sockets: Path, tmp_path: Path, entry: dict[str, Any]
) -> None:
    sleepy = SleepyServer(tmp_path)
    spec = ServerSpec(
        **{key: getattr(sleepy.spec, key) for key in ("name", "transport", "command", "args", "era")}, **entry
    )
    async with open_pair(sockets, spec):
        assert sleepy.starts == 2


@proves("S5")
async def test_a_path_that_is_too_long_or_a_folder_of_others_leaves_commands_alone(
    sockets: Path, tmp_path: Path
) -> None:
    sleepy = SleepyServer(tmp_path)
    long = sockets.parent / ("x" * 100) / "store"
    async with open_pair(long, sleepy.spec):
        assert not long.parent.exists()
        assert sleepy.starts == 2
    sockets.parent.write_text("not a folder")
    async with open_pair(sockets, sleepy.spec):
        assert sleepy.starts == 4
    sockets.parent.unlink()
    async with open_pair(sockets, sleepy.spec) as pair:
        assert sleepy.starts == 5
        sockets.parent.chmod(0o755)  # others could have put a socket there
        await pair.command.reconnect("sleepy")
        await pair.command.ensure("sleepy", timeout=PATIENCE)
        assert sleepy.starts == 6
