"""`use_mcp_agent`: a request about files, the web or commands, handed to an agent of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fingerpost.builtin.kit import BuiltinTool, ToolCaller, ToolRefused, ToolReply
from fingerpost.builtin.premises import BuiltinHost
from fingerpost.builtin.specialists.nested import NestedRequests
from fingerpost.records import Effect, Json, JsonObject, Mode, RouteOutcome, Scope

if TYPE_CHECKING:
    from fingerpost.router import Route

AGENT_TOOL: Final = "use_mcp_agent"
MAX_AGENT_TASK_LENGTH: Final = 8_000

_AGENT_DESCRIPTION = (
    "Hand a whole task to an agent that works with the connected tool servers by itself. Use this ONLY when "
    "the user explicitly asks to have an agent read or write files, look something up on the web or run "
    "commands in several steps. What changes something is still asked about. Answers with what the agent "
    "found, the tools it used, and its own trace."
)


def build_agent_tool(host: BuiltinHost) -> BuiltinTool:
    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        return await _run_agent(str(arguments["task"]), NestedRequests(host, caller))

    limits = host.settings.builtin.subagents
    return BuiltinTool(
        name=AGENT_TOOL,
        title="MCP agent",
        description=_AGENT_DESCRIPTION,
        run=run,
        effect=Effect.WRITE,
        properties={
            "task": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_AGENT_TASK_LENGTH,
                "description": "The task in full sentences: the agent sees nothing of the conversation",
            }
        },
        required=("task",),
        open_world=True,
        knowledge={
            "category": "delegation",
            "priority": 20,
            "keywords": ("mcp agent", "an agent", "delegate", "hand over to an agent"),
            "typical_ms": 15_000,
            "feedback_delay_ms": 500,
            "timeout_ms": round((limits.max_seconds + 15) * 1000),
            "purpose": "Hands a task of several steps to an agent with the other tools",
            "when": ("The user explicitly asks for an agent to do it, or to delegate it",),
            "when_not": (
                "A single tool does it: call that tool",
                "The user asks a question that needs no files, web or commands",
            ),
            "examples": (
                "Have an agent go through the files and fix the broken links",
                "Let the MCP agent fetch that page and save a summary to a file",
                "Delegate this to an agent: find all open tasks in the files and list them",
            ),
        },
    )


async def _run_agent(task: str, nested: NestedRequests) -> ToolReply:
    servers = nested.servers
    if not servers:
        message = "There is no tool server an agent could work with."
        raise ToolRefused(message, hint="Configure one, or name workspace in builtin.enabled.")
    mode = Mode.SIMPLE if nested.has_model else Mode.KEYLESS
    bounds = (Scope(servers=servers), *nested.agent_scope)
    route = await nested.ask(task, nested.share, bounds=bounds, mode=mode)
    used = tuple(dict.fromkeys(step.tool for step in route.packet.tool_routing.steps))
    good = route.outcome is RouteOutcome.ANSWERED
    text = f"{route.answer}\n\n{_describe_run(route, used)}"
    data: dict[str, Json] = {"outcome": route.outcome.value, "packet": route.packet_id, "tools": list(used)}
    if route.pending is not None:
        data["pending"] = route.pending.pending_id
    return ToolReply(text, data=data, failed=not good and route.outcome not in _STOPPED_OUTCOMES)


_STOPPED_OUTCOMES: Final = (RouteOutcome.WAITING, RouteOutcome.ASKED)


def _describe_run(route: Route, used: tuple[str, ...]) -> str:
    told = (
        f"The agent {_OUTCOME_TEXTS.get(route.outcome, 'stopped')} and used {', '.join(used) or 'no tool'}."
    )
    if route.pending is not None:
        told += (
            f" Once {route.pending.pending_id} is decided, call run_subagent with "
            f"resume={route.pending.pending_id!r} for what became of it."
        )
    return told


_OUTCOME_TEXTS: Final = {
    RouteOutcome.ANSWERED: "is done",
    RouteOutcome.WAITING: "waits for an approval",
    RouteOutcome.ASKED: "has a question for the user",
    RouteOutcome.DECLINED: "could not do it",
    RouteOutcome.FAILED: "failed",
    RouteOutcome.LIMITED: "ran out of its budget",
}
