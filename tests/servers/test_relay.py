"""Connections of a gateway that a command uses: everything a server may do passes through, both ways."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteStream

from fingerpost.errors import ResponseTooLarge, ServerUnavailable, ToolFailed
from fingerpost.records import ServerSpec, ServerState
from fingerpost.servers import RequestContext, Server, ServerPool
from fingerpost.servers.errors import RequestNotExecuted
from fingerpost.servers.relay import PROGRAM_VERSION, fingerprint_configuration, lend_connections
from tests.kit.full_server import NOTES, FullServer, serve_full_server
from tests.kit.server_callers import RecordingCaller
from tests.kit.server_pools import PATIENCE, arguments_of, eventually, names, open_pool, text_of
from tests.kit.sleepy_server import SleepyServer
from tests.requirements import proves

pytestmark = pytest.mark.process

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
async def open_pair(sockets: Path, spec: ServerSpec, **limits: Any) -> AsyncGenerator[Pair]:
    notes: list[str] = []
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(open_pool(spec, **limits))
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
        told: list[str] = []
        pair.command.subscribe_to_notifications(lambda server, method, params, caller: told.append(method))
        await pair.command.ask("talk", "resources/subscribe", {"uri": NOTES}, timeout=PATIENCE)
        await talkative.touch(NOTES)
        await eventually(lambda: "notifications/resources/updated" in told)
        await pair.command.ask("talk", "resources/unsubscribe", {"uri": NOTES}, timeout=PATIENCE)
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


@proves("S5")
async def test_a_call_outlasts_a_change_of_the_entry_at_the_gateway_and_the_next_is_not_sent_there(
    sockets: Path, tmp_path: Path
) -> None:
    sleepy = SleepyServer(tmp_path)
    async with open_pair(sockets, sleepy.spec) as pair, anyio.create_task_group() as tasks:
        answers: list[str] = []

        async def call() -> None:  # longer than a server that ended is waited for
            answers.append(text_of(await pair.command.call("sleepy", "look", {"seconds": 2.5})))

        tasks.start_soon(call)
        await eventually(lambda: sleepy.calls == 1)
        await pair.gateway.replace(replace(sleepy.spec, env={"ACCOUNT": "another"}))
        with pytest.raises(RequestNotExecuted, match="does not run sleepy any more"):
            await pair.command.call("sleepy", "look", {})
        await eventually(lambda: bool(answers))
        assert (answers, sleepy.calls) == (["found"], 1)


@proves("S5")
async def test_a_call_for_which_the_gateway_cannot_start_its_server_is_known_not_to_have_run(
    sockets: Path, tmp_path: Path
) -> None:
    sleepy = SleepyServer(tmp_path)
    async with (
        open_pool(replace(sleepy.spec, idle_seconds=0.1)) as gateway,
        lend_connections(gateway, sockets),
        open_pool(sleepy.spec, start=False) as command,
    ):
        notes: list[str] = []
        command.use_gateways(sockets, notes.append)
        await command.ensure("sleepy", timeout=PATIENCE)
        await eventually(lambda: gateway.get_status("sleepy").state is ServerState.ASLEEP)
        sleepy.set_fault("refuse")
        with pytest.raises(RequestNotExecuted, match="does not start today"):
            await command.call("sleepy", "look", {})


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


@asynccontextmanager
async def open_line(sockets: Path) -> AsyncGenerator[BufferedByteStream]:
    """A connection to the gateway, as a program has it that knows bytes."""
    [path] = sockets.parent.glob("*.sock")
    async with await anyio.connect_unix(path) as stream:
        yield BufferedByteStream(stream)


async def read_answer(stream: BufferedByteStream) -> Any:
    with anyio.fail_after(PATIENCE):
        return json.loads(await stream.receive_until(b"\n", 10_000))


@proves("S5")
async def test_what_is_not_a_command_is_refused_and_disturbs_nobody(sockets: Path, tmp_path: Path) -> None:
    spec = SleepyServer(tmp_path).spec
    async with open_pair(sockets, spec) as pair:
        [key] = sockets.parent.glob("*.key")
        known = {"secret": key.read_text("ascii"), "version": PROGRAM_VERSION}
        right = {
            **known,
            "server": "sleepy",
            "configuration": fingerprint_configuration(spec, known["secret"]),
        }
        for hello, why in (
            ({"secret": "\ud800"}, "secret"),
            ({**known, "version": "7.0"}, "version"),
            ({**known, "server": "other"}, "server"),
            ({**right, "configuration": "0"}, "configuration"),
        ):
            async with open_line(sockets) as line:
                await line.send(json.dumps(hello).encode() + b"\n")
                answer = await read_answer(line)
                assert (answer["ok"], answer["why"]) == (False, why)
        for nonsense in (b"[]\n", b"{\n", b"x" * 70_000):
            async with open_line(sockets) as line:
                await line.send(nonsense)
                with (
                    anyio.fail_after(PATIENCE),
                    pytest.raises((anyio.IncompleteRead, anyio.BrokenResourceError)),
                ):
                    await line.receive_until(b"\n", 10)
        async with open_line(sockets) as line:
            await line.send(json.dumps(right).encode() + b"\n")
            assert [await read_answer(line), (await read_answer(line))["ok"]] == [{"ok": True}, True]
            await line.send(b"this is not a message\n")
            with anyio.fail_after(PATIENCE), pytest.raises((anyio.IncompleteRead, anyio.BrokenResourceError)):
                await line.receive_until(b"\n", 10)
        assert text_of(await pair.command.call("sleepy", "look", {})) == "found"


@proves("S5")
async def test_a_gateway_that_ends_while_a_command_writes_ends_quietly(sockets: Path, tmp_path: Path) -> None:
    async with open_pool(SleepyServer(tmp_path).spec, start=False) as gateway:
        async with lend_connections(gateway, sockets):
            [path] = sockets.parent.glob("*.sock")
            stream = await anyio.connect_unix(path)
            await anyio.wait_all_tasks_blocked()  # the gateway waits for the first line
            await stream.send(b"{")
            await anyio.lowlevel.checkpoint()  # this turn of the event loop finds both: bytes, and the end
        await stream.aclose()


@pytest.mark.parametrize("nonsense", [b"nonsense\n", b'"' + b"x" * 9_000_000 + b'"\n', b""], ids=len)
@proves("S5")
async def test_a_gateway_that_talks_nonsense_is_left_for_a_connection_of_its_own(
    sockets: Path, tmp_path: Path, nonsense: bytes
) -> None:
    sleepy = SleepyServer(tmp_path)
    sockets.parent.mkdir(mode=0o700)
    sockets.with_name("store-0.key").write_text(token_urlsafe(32), "ascii")
    notes: list[str] = []
    greeted: list[bytes] = []

    async def answer(stream: SocketStream) -> None:
        async with stream:
            greeted.append(await stream.receive())
            if len(greeted) > 1:
                await stream.send(b'{"ok": false, "why": "version", "version": "7.0"}\n')
                return
            await stream.send(b'{"ok": true}\n{"ok": true}\n')
            with suppress(anyio.BrokenResourceError):
                await stream.send(nonsense)

    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(sockets.with_name("store-0.sock")))
    bound.listen()
    async with (
        await SocketListener.from_socket(bound) as listener,
        anyio.create_task_group() as tasks,
        open_pool(sleepy.spec, start=False) as command,
    ):
        tasks.start_soon(listener.serve, answer)
        command.use_gateways(sockets, notes.append)
        command.start("sleepy")
        await eventually(lambda: command.get_status("sleepy").state is ServerState.READY)
        await command.reconnect("sleepy")
        await command.ensure("sleepy", timeout=PATIENCE)
        assert notes == [
            f"the running gateway is Fingerpost 7.0, and this is {PROGRAM_VERSION}: it is not used"
        ]
        assert sleepy.starts == 2
        tasks.cancel_scope.cancel()


@proves("S5")
async def test_a_reply_that_is_too_large_for_the_gateway_is_so_for_the_command(sockets: Path) -> None:
    async with serve_full_server(FullServer()) as (url, _):
        spec = Server.http("talk", url, era="2025-11-25")
        async with open_pair(sockets, spec, response_bytes=20_000) as pair:
            with pytest.raises(ResponseTooLarge, match="more than 20,000 bytes") as failed:
                await pair.command.call("talk", "meta", {}, context=RequestContext(meta={"x": "y" * 30_000}))
            assert "raise limits.response_bytes" in (failed.value.hint or "")


@proves("S5")
async def test_a_call_that_is_given_up_while_its_question_is_open_takes_it_back(sockets: Path) -> None:
    caller = RecordingCaller(thinks=PATIENCE)
    async with open_full_pair(sockets, "2025-11-25") as (pair, _, _):
        async with anyio.create_task_group() as tasks:
            context = RequestContext(caller=caller)
            tasks.start_soon(partial(pair.command.call, "talk", "ask", {}, context=context))
            await eventually(lambda: bool(caller.asked))
            tasks.cancel_scope.cancel()
        assert text_of(await pair.command.call("talk", "report", {})) == "reported"
