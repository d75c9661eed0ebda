"""Nested requests on a caller's budget: the agent tool and subagents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar, cast

from fingerpost.builtin.toolkit import (
    BuiltinHost,
    BuiltinTool,
    ToolCaller,
    ToolDefinitions,
    ToolRefused,
    ToolReply,
)
from fingerpost.events import ApprovalRequested, Event, PacketReceived
from fingerpost.frozen import frozen
from fingerpost.policy.flow import build_trail
from fingerpost.records import CallContext, Effect, Json, JsonObject, Mode, RouteOutcome, Scope
from fingerpost.router.options import RouteOptions
from fingerpost.settings import OwnRule

if TYPE_CHECKING:
    from fingerpost.router import Route


SERVER: Final = "specialists"
DEFINITIONS: Final = ToolDefinitions.load(__package__ or "")
_USABLE_TIME_SHARE: Final = 0.95  # of the caller's time; the rest is for reporting the result
_MAX_SHOWN_LENGTH: Final = 300


@frozen
class RequestShare:
    """The limits of one nested request. Its parent's limits apply as well."""

    tokens: int
    seconds: float
    turns: int

    def get_part(self, of_tokens: float, of_seconds: float) -> RequestShare:
        """Return a part of this share, which itself does not change."""
        return RequestShare(
            tokens=max(1, int(self.tokens * of_tokens)), seconds=self.seconds * of_seconds, turns=self.turns
        )


class NestedRequests:
    """The nested requests of one call."""

    def __init__(self, host: BuiltinHost, caller: ToolCaller) -> None:
        self._router = host.required_router
        self._context = caller.context
        self._limits = host.settings.builtin.subagents

    @property
    def has_model(self) -> bool:
        return bool(self._router.models.prime)

    @property
    def share(self) -> RequestShare:
        """The limits of the whole call."""
        seconds, limits = self._limits.max_seconds, self._limits
        given = None if self._context is None else self._context.seconds
        if given is not None:
            seconds = min(seconds, given * _USABLE_TIME_SHARE)
        return RequestShare(tokens=limits.max_tokens, seconds=seconds, turns=limits.max_turns)

    @property
    def max_parallel(self) -> int:
        return self._limits.at_once

    @property
    def servers(self) -> tuple[str, ...]:
        """The usable servers. The specialists are excluded to prevent endless nesting."""
        return tuple(status.name for status in self._router.servers.statuses if status.name != SERVER)

    @property
    def agent_scope(self) -> tuple[Scope, ...]:
        """The profile's scope for agents, if it defines one."""
        profile = None if self._context is None else self._context.profile
        scope = self._router.profiles.get_agent_scope(profile)
        return () if scope is None else (scope,)

    async def ask(
        self, text: str, share: RequestShare, options: RouteOptions, *, bounds: tuple[Scope, ...] = ()
    ) -> Route:
        """Run one nested request. `bounds` are applied in addition to the caller's scopes."""
        context = self._context
        options = replace(options, tokens=share.tokens, seconds=share.seconds, max_turns=share.turns)
        if context is None:
            options = replace(options, scopes=bounds)
        else:
            options = replace(
                options,
                parent=context.packet_id,
                caller=context.caller,
                profile=context.profile,
                scopes=(*context.scopes, *bounds),
                working_directory=context.working_directory,
                dry_run=context.dry_run,
                words=context.words or (),
                trail=build_trail(context, self._router.settings.call.data_flow),
            )
        return await self._router.requests.route(text, options)


def describe_problem(route: Route) -> str:
    """Return why a nested request gave no answer, or an empty text if it did."""
    if route.failure is not None:  # the model failed; a keyless result is no answer here
        return f"{route.failure}"[:_MAX_SHOWN_LENGTH]
    if route.outcome is RouteOutcome.ANSWERED:
        return ""
    if route.outcome is RouteOutcome.LIMITED:
        return f"it ran out of its share: {route.detail}"[:_MAX_SHOWN_LENGTH]
    return (route.detail or route.answer)[:_MAX_SHOWN_LENGTH]


AGENT_TOOL: Final = "use_mcp_agent"


def build_agent_tool(host: BuiltinHost) -> BuiltinTool:
    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        return await _run_agent(str(arguments["task"]), NestedRequests(host, caller))

    timeout = round((host.settings.builtin.subagents.max_seconds + 15) * 1000)
    return DEFINITIONS.build_tool(AGENT_TOOL, run, Effect.WRITE, knowledge={"timeout_ms": timeout})


async def _run_agent(task: str, nested: NestedRequests) -> ToolReply:
    servers = nested.servers
    if not servers:
        message = "There is no tool server an agent could work with."
        raise ToolRefused(message, hint="Configure one, or name workspace in builtin.enabled.")
    mode = Mode.SIMPLE if nested.has_model else Mode.KEYLESS
    bounds = (Scope(servers=servers), *nested.agent_scope)
    route = await nested.ask(task, nested.share, RouteOptions(mode=mode), bounds=bounds)
    used = tuple(dict.fromkeys(step.tool for step in route.packet.tool_routing.steps))
    good = route.outcome is RouteOutcome.ANSWERED
    text = f"{route.answer}\n\n{_describe_run(route, used)}"
    data: dict[str, Json] = {"outcome": route.outcome.value, "packet": route.packet_id, "tools": list(used)}
    if route.pending is not None:
        data["pending"] = route.pending.pending_id
    return ToolReply(text, data=data, failed=not good and route.outcome not in _PAUSED_OUTCOMES)


_PAUSED_OUTCOMES: Final = (RouteOutcome.WAITING, RouteOutcome.ASKED)


def _describe_run(route: Route, used: tuple[str, ...]) -> str:
    outcome = _OUTCOME_TEXTS.get(route.outcome, "stopped")
    text = f"The agent {outcome} and used {', '.join(used) or 'no tool'}."
    if route.pending is not None:
        text += (
            f" Once {route.pending.pending_id} is decided, call run_subagent with "
            f"resume={route.pending.pending_id!r} for what became of it."
        )
    return text


_OUTCOME_TEXTS: Final = {
    RouteOutcome.ANSWERED: "is done",
    RouteOutcome.WAITING: "waits for an approval",
    RouteOutcome.ASKED: "has a question for the user",
    RouteOutcome.DECLINED: "could not do it",
    RouteOutcome.FAILED: "failed",
    RouteOutcome.LIMITED: "ran out of its budget",
}


E = TypeVar("E", bound=Event)

SUBAGENT_TOOL: Final = "run_subagent"
MAX_ANSWER_LENGTH: Final = 50_000
SUBAGENT_TIME_SHARE: Final = 0.9  # of the caller's time, so that the result arrives before its timeout
TIMEOUT_MARGIN_MS: Final = 5_000

SUBAGENT_RULES: Final = (
    OwnRule(
        server="specialists",
        tool=SUBAGENT_TOOL,
        verdict="allow",
        reason="what a subagent calls is judged by itself, call by call",
    ),
)


def build_subagent_tool(host: BuiltinHost) -> BuiltinTool:
    timeout = round(host.settings.builtin.subagents.max_seconds * 1000) + TIMEOUT_MARGIN_MS
    run = _Subagents(host).run
    # Its effect means that it is never retried: it may cost money and change something.
    return DEFINITIONS.build_tool(SUBAGENT_TOOL, run, Effect.WRITE, knowledge={"timeout_ms": timeout})


class _Subagents:
    """Starts subagents and resumes those that waited."""

    def __init__(self, host: BuiltinHost) -> None:
        self._host = host
        self._limits = host.settings.builtin.subagents
        self._running = Counter[str]()  # running subagents by parent packet

    async def run(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        context = caller.context or CallContext(call_id="")
        waited = arguments.get("resume")
        if isinstance(waited, str):
            return await self._resume(waited, context, arguments)
        task = str(arguments.get("task") or "").strip()
        if not task:
            hint = "Say in `task` what it should do, or in `resume` which one waited."
            raise ToolRefused("A subagent needs a task.", hint=hint)
        given = str(arguments.get("context") or "").strip()
        text = f"{task}\n\nWhat you have to know:\n{given}" if given else task
        with self._count_subagent(context):
            options = self._build_options(context, arguments)
            return _build_report(await self._host.required_router.requests.route(text, options))

    @contextmanager
    def _count_subagent(self, context: CallContext) -> Generator[None]:
        """Count a running subagent of this request. Raises `ToolRefused` at the limit."""
        parent = context.packet_id or ""
        if parent and self._running[parent] >= self._limits.at_once:
            message = f"{self._limits.at_once} subagents of this request are under way, which is the most."
            hint = "Wait for one of them, or raise builtin.subagents.at_once in the settings."
            raise ToolRefused(message, hint=hint)
        self._running[parent] += 1
        try:
            yield
        finally:
            self._running[parent] -= 1
            if not self._running[parent]:
                del self._running[parent]

    def _build_options(self, context: CallContext, arguments: JsonObject) -> RouteOptions:
        """Return options with the same caller and scopes. The arguments can limit tools and turns."""
        limits, router = self._limits, self._host.required_router
        turns = arguments.get("max_turns")
        patterns = tuple(str(pattern) for pattern in cast("list[str]", arguments.get("tools") or ()))
        seconds = limits.max_seconds if context.seconds is None else context.seconds * SUBAGENT_TIME_SHARE
        return RouteOptions(
            parent=context.packet_id,
            mode=Mode.SIMPLE if router.models.prime else Mode.KEYLESS,
            caller=context.caller,
            profile=context.profile,
            conversation=context.conversation,
            working_directory=context.working_directory,
            scopes=(*context.scopes, *((Scope(tools=patterns),) if patterns else ())),
            max_turns=min(turns, limits.max_turns) if isinstance(turns, int) else limits.max_turns,
            tokens=limits.max_tokens,
            seconds=min(limits.max_seconds, seconds),
            words=context.words or (),
            trail=build_trail(context, router.settings.call.data_flow),
        )

    async def _resume(self, name: str, context: CallContext, arguments: JsonObject) -> ToolReply:
        """Resume a subagent that waited for a person, and return its report."""
        approvals = self._host.required_router.calls.approvals
        pending = await approvals.get(name) or await approvals.get(await self._find_last_pending_id(name))
        if pending is None or not await self._is_callers_own(pending.packet_id, context):
            message = f"No subagent of yours waits under {name!r:.80}."
            raise ToolRefused(message, hint="Give the pending id or packet id that run_subagent returned.")
        options = replace(self._build_options(context, arguments), mode=None)
        with self._count_subagent(context):
            route = await self._host.required_router.requests.resume(pending.pending_id, None, options)
        # Reported as failed, so that a repeated call is not refused as a duplicate write.
        return _build_report(route, failed=route.outcome is RouteOutcome.WAITING)

    async def _find_last_pending_id(self, packet_id: str) -> str:
        events = await self._read_events(packet_id, ApprovalRequested)
        return events[-1].pending_id if events else ""

    async def _is_callers_own(self, packet_id: str | None, context: CallContext) -> bool:
        """Return whether the packet belongs to a subagent of the same caller."""
        headers = [event.packet.header for event in await self._read_events(packet_id or "", PacketReceived)]
        return any(one.parent_id is not None and one.caller == context.caller for one in headers)

    async def _read_events(self, packet_id: str, kind: type[E]) -> list[E]:
        journal = self._host.required_router.store.journal
        await journal.flush()
        recorded = await journal.list_events(packet_id=packet_id, kinds=(kind.kind,))
        return [entry.event for entry in recorded if isinstance(entry.event, kind)]


def _build_report(route: Route, *, failed: bool = False) -> ToolReply:
    """Build the report: the answer first, then the outcome."""
    steps = route.packet.tool_routing.steps
    tokens = route.prompt_tokens + route.completion_tokens
    used = ", ".join(dict.fromkeys(step.tool for step in steps)) or "no tool"
    summary = f"[subagent {route.packet_id}: {route.outcome}; used {used}; {tokens:,} tokens]"
    failed = failed or route.outcome is RouteOutcome.FAILED
    return ToolReply(f"{_format_answer(route)}\n\n{summary}", failed=failed)


def _format_answer(route: Route) -> str:
    answer = route.answer[:MAX_ANSWER_LENGTH]
    if route.pending is not None:
        pending = route.pending
        return (
            f"The subagent needs a person's approval of {pending.tool} as {pending.pending_id}: "
            f"{pending.reason}. Once it is decided, call {SUBAGENT_TOOL} with "
            f"resume={pending.pending_id!r} for what became of it."
        )
    if route.outcome is RouteOutcome.ASKED:
        return (
            f"The subagent has to know something first: {answer}\nFind it out or ask the person, then begin "
            "it again with the answer in `context`."
        )
    return answer
