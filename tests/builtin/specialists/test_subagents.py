"""Subagents: nested packets within their parent's bounds and budget, seen in its trace."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost import Router
from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.builtin.registry import add_builtin_settings
from fingerpost.builtin.specialists.agents import SUBAGENT_RULES, build_subagent_tool
from fingerpost.builtin.toolkit import BuiltinHost, BuiltinServer
from fingerpost.events import CallFinished, RouteBegan, RouteEnded, SubagentBegan, SubagentEnded
from fingerpost.llm import ModelRequest
from fingerpost.records import Decision, JsonObject, RouteOutcome, Scope
from fingerpost.router import Route
from fingerpost.testing import HANG, ScriptedModel, ToolServer, calls, tool_server
from fingerpost.testing.models import ScriptLine
from tests.kit.call_recorder import DESTROYS, READS, tool
from tests.kit.routers import build_settings
from tests.requirements import proves

SUB = "specialists__run_subagent"
WISH = "Use a subagent to find which files mention the budget"
FILES = (
    tool("find_files", "Find the files that mention something.", "text", **READS),
    tool("delete_file", "Delete a file for good.", "path", **DESTROYS),
)

Script = Callable[[str, int], ScriptLine | Any]


def prompt_of(request: ModelRequest) -> str:
    """What the person (or the parent) asked in this request to the model."""
    prompt = [message.text for message in request.messages if message.role == "user"]
    behind_tools = [text.partition("# REQUEST\n")[2] for text in prompt if "# REQUEST\n" in text]
    return behind_tools[-1] if behind_tools else prompt[0]


def results_in(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages if message.role == "tool")


def by_prompt(say: Script) -> ScriptedModel:
    """A model that answers by what was asked, and by how often that was asked before."""
    turns: dict[str, int] = {}

    def play(request: ModelRequest) -> Any:
        prompt = prompt_of(request)
        turns[prompt] = turns.get(prompt, 0) + 1
        return say(prompt, turns[prompt])

    return ScriptedModel(play)


def begin(task: str, number: int = 1, **more: Any) -> Any:
    return calls((SUB, {"task": task, **more}), first=number)


@asynccontextmanager
async def open_subagent_router(
    folder: Path, model: ScriptedModel | None, *servers: ToolServer, **more: Any
) -> AsyncGenerator[Router]:
    given = build_settings(folder, **more)
    host = BuiltinHost(settings=given, folder=folder)
    own = BuiltinServer(
        "specialists", (build_subagent_tool(host),), instructions="Subagents.", rules=SUBAGENT_RULES,
        get_context=host.get_context,
    )  # fmt: skip
    specs = [own.build_spec(), *(server.spec() for server in servers)]
    async with Router(specs, settings=add_builtin_settings(given, [own]), model=model) as router:
        host.router = router
        await router.connect()
        yield router


def ask(router: Router, text: str = WISH, **more: Any) -> Any:
    return router.route(text, mode="simple", caller="dana", **more)


def child_of(route: Route) -> str:
    begun = [event.child for event in route.events if isinstance(event, SubagentBegan)]
    assert len(begun) == 1, route.trace
    return begun[0]


async def events_of(router: Router, packet_id: str, kind: type[Any]) -> list[Any]:
    await router.store.journal.flush()
    recorded = await router.store.journal.list_events(packet_id=packet_id)
    return [entry.event for entry in recorded if isinstance(entry.event, kind)]


@proves("U11", "C5")
async def test_a_subagent_is_a_packet_of_its_own_in_its_parents_trace(tmp_path: Path) -> None:
    files = tool_server("files", FILES)

    def say(prompt: str, turn: int) -> ScriptLine:
        if prompt == WISH:
            return begin("find budget", context="look in /notes") if turn == 1 else "Two files do."
        return calls(("files__find_files", {"text": "budget"})) if turn == 1 else "a.md and b.md"

    model = by_prompt(say)
    async with open_subagent_router(tmp_path, model, files) as router:
        route = await ask(router, conversation="ses_1", working_directory=str(tmp_path))
        assert route.outcome is RouteOutcome.ANSWERED, route.trace
        assert "Two files do." in route.answer
        prompt_text = results_in(model.asked[-1])
        assert "a.md and b.md" in prompt_text and "used files/find_files" in prompt_text
        child = child_of(route)
        assert child in prompt_text
        (began,) = await events_of(router, child, RouteBegan)
        assert began.working_directory == str(tmp_path)
        async with JournalReader.open(router.store, router.live) as ledger:
            of_child, of_parent = await ledger.get_packet(child), await ledger.get_packet(route.packet_id)
        assert of_child is not None and of_parent is not None
        assert of_child.line.parent == route.packet_id and of_child.line.caller == "dana"
        assert of_parent.line.children == (child,) and of_parent.line.parent is None
        # What it said is no part of the conversation, and a request that goes on finds the right one.
        (packet,) = await router.store.journal.list_session_packets("ses_1")
        assert packet.packet_id == route.packet_id
        # Its prompt holds the task and the context, and nothing of the parent's.
        asked = next(request for request in model.asked if prompt_of(request) != WISH)
        assert "/notes" in prompt_of(asked) and WISH not in str(asked.messages)
    assert files.calls == [("find_files", {"text": "budget"})]


@proves("U11")
@pytest.mark.parametrize(
    ("mine", "tools", "offered"),
    [
        ((), None, True),
        ((), ["files/find*"], False),
        ((Scope(tools=("specialists/*", "files/find*")),), None, False),
        ((Scope(tools=("specialists/*", "files/find*")),), ["files/*", "*"], False),
    ],
)
async def test_it_may_use_what_its_parent_may_and_no_more(
    tmp_path: Path, mine: tuple[Scope, ...], tools: list[str] | None, offered: bool
) -> None:
    files, seen = tool_server("files", FILES), list[str]()

    def play(request: ModelRequest) -> ScriptLine:
        if prompt_of(request) == WISH:
            return "done" if results_in(request) else begin("Delete the file a.md", tools=tools or ["*"])
        seen.append(str(request.tools))
        return calls(("files__delete_file", {"path": "a.md"}))

    async with open_subagent_router(
        tmp_path, ScriptedModel(play), files, policy=[{"verdict": "allow"}]
    ) as router:
        await ask(router, scopes=mine, max_turns=2)
    assert ("delete_file" in seen[0]) == offered
    assert bool(files.calls) == offered


@proves("U11")
async def test_it_spends_of_its_parent_whose_end_is_its_end(tmp_path: Path) -> None:
    files = tool_server("files", FILES)

    def say(prompt: str, turn: int) -> ScriptLine:
        if prompt == WISH:
            return begin("Find the files that mention tea")
        return calls(("files__find_files", {"text": f"tea {turn}"}), first=turn)

    builtin = {"subagents": {"max_turns": 50, "max_tokens": 50_000}}
    async with open_subagent_router(tmp_path, by_prompt(say), files, builtin=builtin) as router:
        route = await ask(router, tokens=3_000, max_turns=50)
        (ended,) = [event for event in route.events if isinstance(event, SubagentEnded)]
        assert (ended.outcome, route.outcome) == (RouteOutcome.LIMITED, RouteOutcome.LIMITED)
        assert ended.tokens < 6_000
    assert 1 <= len(files.calls) < 50


@proves("U11")
async def test_a_runaway_ends_with_its_budget_and_the_parent_goes_on(tmp_path: Path) -> None:
    files = tool_server("files", FILES)

    def say(prompt: str, turn: int) -> ScriptLine:
        if prompt == WISH:
            return (
                begin("Find the files that mention tea", max_turns=3) if turn == 1 else "It did not finish."
            )
        return calls(("files__find_files", {"text": f"tea {turn}"}), first=turn)

    model = by_prompt(say)
    async with open_subagent_router(tmp_path, model, files) as router:
        route = await ask(router)
        (ended,) = [event for event in route.events if isinstance(event, SubagentEnded)]
        assert ended.outcome is RouteOutcome.LIMITED
        assert route.outcome is RouteOutcome.ANSWERED and "It did not finish." in route.answer
        assert "limited" in results_in(model.asked[-1])
    assert len(files.calls) == 3


@proves("U11")
@pytest.mark.parametrize("limit", [{"max_tokens": 300}, {"max_turns": 2}])
async def test_its_tokens_count_towards_both(tmp_path: Path, limit: dict[str, int]) -> None:
    files = tool_server("files", FILES)

    def say(prompt: str, turn: int) -> ScriptLine:
        if prompt == WISH:
            return begin("Find the files that mention tea") if turn == 1 else "It did not finish."
        return calls(("files__find_files", {"text": f"tea {turn}"}), first=turn)

    builtin = {"subagents": {"max_turns": 50, **limit}}
    async with open_subagent_router(tmp_path, by_prompt(say), files, builtin=builtin) as router:
        route = await ask(router)
        (ended,) = [event for event in route.events if isinstance(event, SubagentEnded)]
        assert ended.outcome is RouteOutcome.LIMITED and "It did not finish." in route.answer
        assert route.prompt_tokens + route.completion_tokens > ended.tokens > 0
    assert 1 <= len(files.calls) < 50


@proves("U11")
async def test_one_that_begins_itself_ends_at_the_depth_that_is_allowed(tmp_path: Path) -> None:
    def say(prompt: str, turn: int) -> ScriptLine:
        deeper = f"{WISH} {prompt.count('!') + 1}{'!' * (prompt.count('!') + 1)}"
        return begin(deeper) if turn == 1 else f"level {prompt.count('!')}"

    async with open_subagent_router(tmp_path, by_prompt(say)) as router:
        route = await ask(router)
        assert route.outcome is RouteOutcome.ANSWERED and "level 0" in route.answer
        depth, packet = 0, route.packet_id
        while begun := await events_of(router, packet, SubagentBegan):
            assert len(begun) == 1
            depth, packet = depth + 1, begun[0].child
        assert depth == 2  # builtin.subagents.max_depth
        failed = await events_of(router, packet, CallFinished)
        assert [event.success for event in failed] == [False]
        assert "2 deep" in failed[0].detail


@pytest.mark.slow
@proves("U11")
async def test_what_it_waits_for_is_told_and_taken_up_later(tmp_path: Path) -> None:
    files = tool_server("files", FILES)
    texts: list[str] = []

    def play(request: ModelRequest) -> ScriptLine:
        prompt, known = prompt_of(request), results_in(request)
        if prompt.startswith("Delete the file"):
            return "The file is gone." if known else calls(("files__delete_file", {"path": "a.md"}))
        texts.append(known)
        if known:
            return "So it is."
        return calls(
            (SUB, {"resume": prompt.split()[-1]} if "resume" in prompt else {"task": "Delete the file a.md"})
        )

    async with open_subagent_router(tmp_path, ScriptedModel(play), files) as router:
        first = await ask(router, WISH, conversation="ses_1")
        assert first.outcome is RouteOutcome.ANSWERED
        pending = re.findall(r"apr_\w+", texts[-1])[0]
        assert files.calls == []

        async def take_up(what: str, caller: str = "dana") -> str:
            request = f"Use a subagent to find which files mention it, resume {what}"
            await router.route(
                request, mode="simple", caller=caller, conversation=f"ses_{caller}", history=()
            )
            return texts[-1]

        assert "needs a person's approval" in await take_up(pending) and files.calls == []
        await router.calls.decide(pending, Decision.APPROVED, by="dana")
        assert "No subagent of yours" in await take_up(pending, caller="erik")
        assert files.calls == []
        for name in (child_of(first), pending):  # once more: it is done
            assert "The file is gone." in await take_up(name)
        assert "No subagent of yours" in await take_up(first.packet_id)
    assert files.calls == [("delete_file", {"path": "a.md"})]


@proves("U11")
async def test_when_the_parent_is_cancelled_so_is_the_child(tmp_path: Path) -> None:
    under_way = anyio.Event()

    def say(prompt: str, turn: int) -> ScriptLine:
        if prompt == WISH:
            return begin("find tea")
        under_way.set()
        return HANG

    async with open_subagent_router(tmp_path, by_prompt(say)) as router:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, router)
            with anyio.fail_after(30):
                await under_way.wait()
            tasks.cancel_scope.cancel()
        await router.store.journal.flush()
        ended = [entry.event for entry in await router.store.journal.list_events(kinds=(RouteEnded.kind,))]
        outcomes = [event.outcome for event in ended if isinstance(event, RouteEnded)]
        assert outcomes == [RouteOutcome.LEFT, RouteOutcome.LEFT]


@proves("U11")
async def test_no_more_at_once_than_are_allowed(tmp_path: Path) -> None:
    """Calls of one turn follow each other; a parent in several turns at once is a program's."""
    release = anyio.Event()
    begun: list[str] = []

    async def say(request: ModelRequest) -> ScriptLine:
        prompt = prompt_of(request)
        if prompt != WISH:
            begun.append(prompt)
            await release.wait()
            return "done"
        if results_in(request):
            return "parent"
        packet = await _packet_under_way(router)
        outcomes: dict[str, Any] = {}
        async with anyio.create_task_group() as tasks:

            async def call(name: str) -> None:
                outcomes[name] = await router.call(
                    "specialists/run_subagent", {"task": name}, packet_id=packet, caller="dana"
                )
                release.set()

            for name in ("one", "two", "three"):
                tasks.start_soon(call, name)
        texts.extend(outcome.content for outcome in outcomes.values())
        return "parent"

    texts: list[str] = []
    async with open_subagent_router(
        tmp_path, ScriptedModel(say), builtin={"subagents": {"at_once": 2}}
    ) as router:
        with anyio.fail_after(60):
            route = await ask(router)
        assert route.outcome is RouteOutcome.ANSWERED
    assert len(begun) == 2
    assert sum("which is the most" in one for one in texts) == 1


async def _packet_under_way(router: Router) -> str:
    await router.store.journal.flush()
    (received,) = await router.store.journal.list_beginnings(kinds=("packet_received",))
    assert received.event.packet_id is not None
    return received.event.packet_id


@proves("U11")
async def test_without_a_model_it_does_what_can_be_done_without_one(tmp_path: Path) -> None:
    files = tool_server("files", FILES)
    async with open_subagent_router(tmp_path, None, files) as router:
        done = await router.call(
            "specialists/run_subagent", {"task": 'Find the files that mention "budget"'}, caller="dana"
        )
        assert done.success and "files/find_files" in done.content
    assert files.calls == [("find_files", {"text": "budget"})]


@proves("U11")
async def test_a_task_is_needed_and_another_arguments_shape_is_refused(tmp_path: Path) -> None:
    wrong: list[JsonObject] = [{}, {"task": "  "}, {"resume": "pkt_nothing"}, {"task": "x", "max_turns": 0}]
    async with open_subagent_router(tmp_path, None) as router:
        for arguments in wrong:
            assert not (await router.call("specialists/run_subagent", arguments)).success, arguments
