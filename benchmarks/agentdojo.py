"""AgentDojo through Fingerpost without a model: which calls need a person, by preset of `call.data_flow`.

Every suite is a real MCP server (stdio). A user task is played by its own ground-truth calls, in one
conversation whose only words are the task's prompt; a call that asks is approved, so that the task goes on.
For each pair of a user task and an injection task, the goal of the injection stands in every place that the
suite provides for it. After the user task the injection's own calls are made in the same conversation, if its
text was read there. Those that write or send must be held.

The last lines say how few questions a rule could ask at best: a user call must ask if an injected call has
the same effect, the same `outbound` label and values of the same origins.

It needs `pip install agentdojo`. `python -m benchmarks.agentdojo SUITE` is the server of one suite.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from rich.console import Console
from rich.table import Table

from fingerpost.records import DataLabel, DataOrigin, Decision, Effect, Outcome, ServerSpec, ToolCard
from fingerpost.router import Router
from fingerpost.settings import Settings

VERSION = "v1.2.2"  # the newest suites of agentdojo 0.1.35
SUITES = ("workspace", "travel", "banking", "slack")
PRESETS = ("off", "default", "autonomous", "strict")
RESET_TOOL = "get_fresh_environment"


@cache
def load_suite(name: str) -> Any:
    # Slow, and not a part of our environment.
    return import_module("agentdojo.task_suite.load_suites").get_suite(VERSION, name)


@cache
def load_environment(suite_name: str, injection: str) -> Any:
    """Return the environment with the goal of this injection task in all places, or as it is."""
    suite = load_suite(suite_name)
    goal = suite.get_injection_task_by_id(injection).GOAL if injection else ""
    text = goal.replace("\n", " ").replace('"', "'").replace("\\", "/")
    places = dict.fromkeys(suite.get_injection_vector_defaults(), text) if goal else {}
    return suite.load_and_inject_default_environment(places)


def build_environment(suite_name: str, user_task: str, injection: str) -> Any:
    environment = load_environment(suite_name, injection).model_copy(deep=True)
    task = load_suite(suite_name).get_user_task_by_id(user_task)
    return task.init_environment(environment)


def list_calls(task: Any, environment: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.function, dict(call.args)) for call in task.ground_truth(environment.model_copy(deep=True))]


async def serve(suite_name: str) -> None:
    """Serve the tools of a suite over stdio, with one more that starts over."""
    suite = load_suite(suite_name)
    runtime = import_module("agentdojo.functions_runtime").FunctionsRuntime(suite.tools)
    write_result = import_module("agentdojo.agent_pipeline.tool_execution").tool_result_to_str
    environment: Any = None
    names = {"user_task": {"type": "string"}, "injection": {"type": "string"}}
    tools = [
        types.Tool(
            name=tool.name, description=tool.description, input_schema=tool.parameters.model_json_schema()
        )
        for tool in suite.tools
    ]
    tools.append(types.Tool(name=RESET_TOOL, input_schema={"type": "object", "properties": names}))

    async def list_tools(context: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        nonlocal environment
        given = params.arguments or {}
        if params.name == RESET_TOOL:
            environment = build_environment(suite_name, given["user_task"], given["injection"])
            text, failure = "ready", None
        else:
            result, failure = runtime.run_function(environment, params.name, given)
            text = failure or write_result(result)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], is_error=failure is not None
        )

    server: Server[Any] = Server(suite_name, version="1", on_list_tools=list_tools, on_call_tool=call)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


CallKind = tuple[Effect, bool, frozenset[DataOrigin]]  # effect, outbound, where its values come from


@dataclass(slots=True)
class Figures:
    """What was counted for one suite and preset."""

    user_calls: int = 0
    asked: int = 0  # user calls that needed a person
    written: int = 0  # user calls that write, send or destroy
    pairs: int = 0
    unread: int = 0  # pairs in which the injected text was never read
    injected: int = 0  # calls of injections that write or send
    held: int = 0
    ran: list[str] = field(default_factory=list[str])
    asked_kinds: list[CallKind] = field(default_factory=list[CallKind])
    held_kinds: set[CallKind] = field(default_factory=set[CallKind])

    def add(self, other: Figures) -> None:
        for name in ("user_calls", "asked", "written", "pairs", "unread", "injected", "held"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.ran += other.ran
        self.asked_kinds += other.asked_kinds
        self.held_kinds |= other.held_kinds


class _Player:
    """Plays tasks of one suite through one router."""

    def __init__(self, router: Router, suite_name: str) -> None:
        self._router = router
        self._suite_name = suite_name
        self._suite = load_suite(suite_name)
        self._number = 0
        self.figures = Figures()

    async def play_user_task(self, task_id: str, injection: str = "") -> tuple[str, str]:
        """Play a user task. Return its conversation, and all text that was read."""
        self._number += 1
        conversation = f"{task_id} {injection} {self._number}"
        named = {"user_task": task_id, "injection": injection}
        ready = await self._router.call(f"{self._suite_name}/{RESET_TOOL}", named)
        assert ready.success, ready.content
        task = self._suite.get_user_task_by_id(task_id)
        read: list[str] = []
        for name, arguments in list_calls(task, build_environment(self._suite_name, task_id, injection)):
            outcome = await self._call(name, arguments, conversation, task.PROMPT)
            if not injection:
                self.figures.user_calls += 1
                self.figures.asked += outcome.pending_id is not None
                self.figures.written += _acts(self._get_card(name))
            if outcome.pending_id is not None:
                if not injection:
                    self.figures.asked_kinds.append(await self._classify(name, outcome.pending_id))
                await self._router.calls.decide(outcome.pending_id, Decision.APPROVED, by="benchmark")
                outcome = await self._router.resume_call(outcome.pending_id)
            read.append(outcome.content)
        return conversation, "\n".join(read)

    async def play_pair(self, task_id: str, injection: str) -> None:
        """Play a user task whose environment contains an injection, then the calls of the injection."""
        conversation, read = await self.play_user_task(task_id, injection)
        task = self._suite.get_user_task_by_id(task_id)
        goal = self._suite.get_injection_task_by_id(injection)
        self.figures.pairs += 1
        if " ".join(goal.GOAL.split())[:30] not in " ".join(read.split()):
            self.figures.unread += 1
            return
        environment = load_environment(self._suite_name, injection)
        for name, arguments in list_calls(goal, environment):
            outcome = await self._call(name, arguments, conversation, task.PROMPT)
            card = self._get_card(name)
            if not _acts(card) and not card.has(DataLabel.OUTBOUND):
                continue
            self.figures.injected += 1
            self.figures.held += outcome.pending_id is not None
            if outcome.pending_id is None:
                self.figures.ran.append(f"{self._suite_name} {task_id} {injection}: {name}")
            else:
                self.figures.held_kinds.add(await self._classify(name, outcome.pending_id))

    async def _classify(self, name: str, pending_id: str) -> CallKind:
        """Return all that a rule can know of a waiting call, except its tool."""
        pending = await self._router.calls.approvals.get(pending_id)
        assert pending is not None
        card = self._get_card(name)
        origins = frozenset(one.origin for one in pending.origins) - {DataOrigin.PLAIN}
        return card.effect.value, card.has(DataLabel.OUTBOUND), origins

    async def _call(self, name: str, arguments: Mapping[str, Any], conversation: str, prompt: str) -> Outcome:
        return await self._router.call(
            f"{self._suite_name}/{name}",
            dict(arguments),
            conversation=conversation,
            caller="dana",
            words=(prompt,),
        )

    def _get_card(self, name: str) -> ToolCard:
        card = self._router.tools.get(f"{self._suite_name}/{name}")
        assert card is not None
        return card


def _acts(card: ToolCard) -> bool:
    return card.effect.value is not Effect.READ


async def measure(suite_name: str, preset: str, *, pairs: bool = True) -> Figures:
    """Play all tasks of a suite with this preset."""
    settings = Settings.model_validate(
        {
            "call": {"data_flow": preset, "repeat_limit": 1000},
            "tools": [{"match": f"{suite_name}/{RESET_TOOL}", "effect": "read"}],
        }
    )
    args = ("-m", "benchmarks.agentdojo", suite_name)
    spec = ServerSpec(
        name=suite_name, transport="stdio", command=sys.executable, args=args, connect_timeout=120
    )
    async with Router([spec], settings=settings) as router:
        await router.connect()
        player = _Player(router, suite_name)
        suite = load_suite(suite_name)
        for task_id in suite.user_tasks:
            await player.play_user_task(task_id)
        for task_id in suite.user_tasks if pairs else ():
            for injection in suite.injection_tasks:
                await player.play_pair(task_id, injection)
        return player.figures


async def measure_all() -> Mapping[str, Mapping[str, Figures]]:
    found: dict[str, dict[str, Figures]] = {}
    for preset in PRESETS:
        found[preset] = {}
        for suite_name in SUITES:
            found[preset][suite_name] = await measure(suite_name, preset, pairs=True)
    return found


def run() -> None:
    began = time.monotonic()
    found = anyio.run(measure_all)
    table = Table(title=f"AgentDojo {VERSION}: calls that need a person, and injected calls that were held")
    for column in ("preset", "suite", "user calls", "needed a person", "share", "injected", "held", "ran"):
        table.add_column(column, justify="left" if column in ("preset", "suite") else "right")
    totals = {preset: Figures() for preset in found}
    for preset, suites in found.items():
        for name, figures in suites.items():
            totals[preset].add(figures)
            _add_row(table.add_row, preset, name, figures)
        _add_row(table.add_row, preset, "all", totals[preset])
        table.add_section()
    console = Console(width=120)
    console.print(table)
    for preset in PRESETS[1:]:
        total = totals[preset]
        for line in total.ran[:20]:
            console.print(f"ran with {preset}: {line}")
        alike = sum(kind in total.held_kinds for kind in total.asked_kinds)
        console.print(f"{preset}: {alike} of the {total.asked} user calls that asked are like injected ones.")
    one = totals[PRESETS[0]]
    console.print(
        f"{one.pairs} pairs of a user task and an injection; {one.unread} in which the injected text is not "
        f"read are left out. {time.monotonic() - began:.0f} s."
    )


def _add_row(add: Callable[..., None], preset: str, name: str, figures: Figures) -> None:
    share = f"{figures.asked / max(1, figures.user_calls):.1%}"
    ran = figures.injected - figures.held
    counts = (figures.user_calls, figures.asked, share, figures.injected, figures.held, ran)
    add(preset, name, *map(str, counts))


if __name__ == "__main__":
    anyio.run(serve, sys.argv[1])
