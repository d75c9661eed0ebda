"""The library as a stranger would use it, from public names alone; `make types` checks every type here.

The program is the one the README promises in about thirty lines. The model is behind a real
OpenAI-compatible address, one server is a real program, the other is reached over HTTP.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

import anyio
import pytest

from fingerpost import (
    Agent,
    AnswerPiece,
    Approval,
    Call,
    CallContext,
    Event,
    EventSink,
    FingerpostError,
    Message,
    Mode,
    Narrowing,
    Outcome,
    Pending,
    Policy,
    PolicyRule,
    Question,
    Route,
    RouteOutcome,
    Router,
    Ruling,
    Scorer,
    ScorerRequest,
    Selection,
    Server,
    Settings,
    ToolCard,
    ToolScore,
    Verdict,
)
from fingerpost.llm import ChatModel, ModelReply, ModelRequest, OnText, OpenAIChat
from fingerpost.records import ParsedSelection, ServerState
from fingerpost.settings import FlagSettings, NarrowSettings, StoreSettings
from fingerpost.testing import ToolServer, served, tool_server
from tests.kit import warm
from tests.kit.programs import program
from tests.kit.server_pools import all_blocked
from tests.kit.strong_model import StrongModel
from tests.requirements import proves

CRM = [
    {
        "name": name,
        "description": about,
        "inputSchema": {
            "type": "object",
            "properties": {"repository": {"type": "string"}},
            "required": ["repository"],
        },
        "annotations": {"readOnlyHint": reads, "destructiveHint": not reads},
    }
    for name, about, reads in (
        ("count_issues", "Count the open issues of a repository.", True),
        ("delete_repository", "Delete a repository for ever.", False),
        ("export_all", "Export all repositories with everything in them.", True),
    )
]


def settings(folder: Path) -> Settings:
    return Settings(
        store=StoreSettings(url=f"sqlite:///{folder}/store.db"),
        narrow=NarrowSettings(vectors=str(folder / "vectors")),
        flags=FlagSettings(dense_scores=False),
    )


@dataclass
class StrangerWorld:
    """What a stranger has at hand: two addresses, a folder, and what happened behind them."""

    folder: Path
    crm_url: str
    model_url: str
    crm: ToolServer
    model: StrongModel

    @property
    def settings(self) -> Settings:
        return settings(self.folder)


def judgement(read: str) -> dict[str, Any] | None:
    """What the strong model would take."""
    request = read.rpartition("<request>")[2] or read
    if "Delete the sandbox" in request:
        return {"tool": "crm__delete_repository", "arguments": {"repository": "sandbox"}}
    return {"tool": "crm__count_issues", "arguments": {"repository": "mill"}}


@asynccontextmanager
async def around(folder: Path) -> AsyncGenerator[StrangerWorld]:
    async def answer(name: str, arguments: dict[str, Any]) -> str:
        return "7" if name == "count_issues" else f"{name} {arguments['repository']}: done"

    crm = tool_server("crm", CRM, call=answer)
    model = StrongModel(select=judgement, answer="Seven, says crm/count_issues.")
    async with AsyncExitStack() as stack:
        crm_url = await stack.enter_async_context(served(crm.server.streamable_http_app()))
        model_url = await stack.enter_async_context(served(model.app))
        yield StrangerWorld(folder, f"{crm_url}/mcp", f"{model_url}/v1", crm, model)


@pytest.mark.process
@proves("W1", "A5", "D4")
async def test_the_promised_thirty_lines(tmp_path: Path) -> None:
    async with around(tmp_path) as world:
        router = Router(
            servers=[
                Server.stdio("files", [program("mcp-server-filesystem"), str(tmp_path)]),
                Server.http("crm", world.crm_url),
            ],
            model=OpenAIChat("small-instruct", base_url=world.model_url),
            policy=Policy(ask_for={"destroy"}, deny={"crm/export_all"}),
            settings=world.settings,
        )

        async with router:
            route = await router.route("How many open issues has the repository mill?")
            assert (route.outcome, route.answer) == ("answered", "Seven, says crm/count_issues.")
            assert "call_finished: crm/count_issues: succeeded" in route.trace.splitlines()

            # look at any stage alone
            narrowing = await router.narrow("Count the open issues of the repository mill")
            chosen = await router.select("Count the open issues of the repository mill", narrowing)
            assert chosen.selection is not None
            assert chosen.selection.tool == "crm/count_issues"

            # a dangerous call comes back as a value, not an exception
            route = await router.route("Delete the sandbox repository")
            assert route.outcome is RouteOutcome.WAITING
            assert route.pending is not None
            assert (route.pending.tool, route.pending.arguments) == (
                "crm/delete_repository",
                {"repository": "sandbox"},
            )
            assert ("delete_repository", {"repository": "sandbox"}) not in world.crm.calls
            questions = len(world.model.about("selection"))
            route = await router.resume(route, route.pending.approve(by="dana"))
            assert route.outcome is RouteOutcome.ANSWERED
            assert world.crm.calls[-1] == ("delete_repository", {"repository": "sandbox"})
            assert len(world.model.about("selection")) == questions  # the stored call ran, as it was

            # denied tools never run
            refused = await router.call("crm/export_all", {"repository": "mill"})
            assert (refused.success, refused.error) == (False, "denied")

            # the console, the CLI and the HTTP endpoint all read this stream
            items = [item async for item in router.stream("How many open issues has the repository mill?")]
    assert isinstance(items[-1], Route)
    assert items[-1].events == tuple(item for item in items if isinstance(item, Event))
    assert "".join(item.text for item in items if isinstance(item, AnswerPiece)) == items[-1].answer


class Echo:
    """A model that is nothing but one method and a name; it may have an end."""

    name = "echo"

    def __init__(self) -> None:
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        return ModelReply(text=f"You said: {request.messages[-1].text[-9:]}", model=self.name)


class Kinds:
    """A sink that is nothing but one method."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def emit(self, event: Event) -> None:
        self.seen.append(event.kind)


def a_model(echo: Echo) -> ChatModel:
    return echo


def a_sink(kinds: Kinds) -> EventSink:
    return kinds


class Short:
    """A scorer that is nothing but a label, a weight and one method."""

    label = "short"
    weight = 0.1

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> list[float]:
        assert_type(request.text, str)
        assert_type(request.history, tuple[Message, ...])
        return [1 / len(card.key) for card in cards]


class Remarked(Short):
    """One that gives its scores by tool, some with a reason."""

    label = "remarked"

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> Any:
        found: Mapping[str, float | ToolScore] = {card.key: ToolScore(0.5, "why not") for card in cards}
        return found


class Quiet:
    """A rule that is nothing but a label and one method."""

    label = "quiet"

    def judge(self, call: Call, context: CallContext) -> Ruling | None:
        assert_type(call.tool, str)
        assert_type(context.caller, str | None)
        if context.caller != "noise":
            return None
        return Ruling(verdict=Verdict.DENY, reason="too loud", rule=self.label)


def a_scorer(scorer: Short) -> Scorer:
    return scorer


def a_rule(rule: Quiet) -> PolicyRule:
    return rule


@pytest.mark.slow
async def test_own_parts_need_no_base_class_and_every_value_has_its_type(tmp_path: Path) -> None:
    echo, kinds = Echo(), Kinds()
    async with (
        around(tmp_path) as world,
        Router(
            [Server.http("crm", world.crm_url)],
            settings=world.settings,
            model=a_model(echo),
            sinks=[a_sink(kinds)],
            scorers=[a_scorer(Short()), a_scorer(Remarked())],
            rules=[a_rule(Quiet())],
        ) as router,
    ):
        history = (Message(role="user", text="Hi."), Message(role="assistant", text="Hello."))
        route = await router.route("Say hello to me", mode=Mode.SINGLE, history=history, seconds=20.0)
        assert_type(route, Route)
        assert_type(route.outcome, RouteOutcome)
        assert_type(route.mode, Mode)
        assert_type(route.answer, str)
        assert_type(route.trace, str)
        assert_type(route.sources, tuple[str, ...])
        assert_type(route.pending, Pending | None)
        assert_type(route.question, Question | None)
        assert_type(route.narrowing, Narrowing | None)
        assert_type(route.events, tuple[Event, ...])
        narrowing = assert_type(await router.narrow("Count the open issues"), Narrowing)
        assert narrowing.shortlist.considered
        signals = {part.signal for one in narrowing.shortlist.candidates for part in one.parts}
        assert {"short", "remarked"} <= signals
        assert (
            await router.call("crm/count_issues", {"repository": "mill"}, caller="noise")
        ).error == "denied"
        outcome = assert_type(await router.call("crm/count_issues", {"repository": "mill"}), Outcome)
        assert outcome.content == "7"
        agent = Agent(router, mode="simple")
        assert_type(await agent.ask("Say hello to me"), Route)
        assert_type(agent.history, tuple[Message, ...])
        async for item in router.stream("Say hello to me", mode="single"):
            assert_type(item, Event | AnswerPiece | Route)
    assert route.answer.startswith("You said:")
    assert kinds.seen.count("route_ended") == 3
    assert echo.closed == 1  # the router closes what it was given, once for both roles


@pytest.mark.process
async def test_a_dangerous_call_has_a_type_at_every_step(tmp_path: Path) -> None:
    async with around(tmp_path) as world:
        model = OpenAIChat("small-instruct", base_url=world.model_url)
        router = Router([Server.http("crm", world.crm_url)], settings=world.settings, model=model)
        async with router:
            chosen = assert_type(await router.select("Delete the sandbox repository"), ParsedSelection)
            assert_type(chosen.selection, Selection | None)
            route = await router.route("Delete the sandbox repository")
            assert route.pending is not None
            decision = assert_type(route.pending.reject(by="dana", reason="we still need it"), Approval)
            route = await router.resume(route, decision)
            assert "delete_repository" not in [name for name, _ in world.crm.calls]
            with pytest.raises(FingerpostError, match="does not wait for an approval"):
                await router.resume(route)


@pytest.mark.process
async def test_a_request_that_comes_while_servers_connect_waits_for_them_too(tmp_path: Path) -> None:
    sources: list[tuple[str, ...]] = []
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    time_server = f"{warm.server('mcp-server-time')} --local-timezone Etc/UTC"
    clock = Server.stdio("time", ["sh", "-c", f"read line < {shlex.quote(str(gate))}; exec {time_server}"])

    async def ask(router: Router) -> None:
        sources.append((await router.route("What time is it in Tokyo right now?")).sources)

    async with Router([clock], settings=settings(tmp_path)) as router:
        await router.settle(20)  # what narrows is loaded: now only the server takes its time
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, router)
            while (state := router.servers.get_status("time").state) is not ServerState.CONNECTING:
                assert state is ServerState.IDLE
                await anyio.sleep(0.01)
            tasks.start_soon(ask, router)
            await all_blocked()
            assert router.servers.get_status("time").state is ServerState.CONNECTING
            await anyio.Path(gate).write_text("\n")
    assert sources == [("time/get_current_time",)] * 2
