"""`use_multiagent_orchestration`: several expert views of one question, and one answer out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fingerpost.builtin.kit import BuiltinTool, ToolCaller, ToolRefused, ToolReply
from fingerpost.builtin.premises import BuiltinHost
from fingerpost.builtin.specialists.nested import NestedRequests
from fingerpost.builtin.specialists.orchestration.choosing import (
    DEFAULT_EXPERTS,
    choose_experts,
    parse_experts,
)
from fingerpost.builtin.specialists.orchestration.experts import ask_experts
from fingerpost.builtin.specialists.orchestration.records import ExpertView, PanelSynthesis
from fingerpost.builtin.specialists.orchestration.synthesis import synthesize
from fingerpost.records import Effect, Json, JsonObject

PANEL_TOOL: Final = "use_multiagent_orchestration"
MAX_QUESTION_LENGTH: Final = 8_000
_CHOOSING_SHARE: Final = 0.1  # of tokens and seconds
_EXPERTS_SHARE: Final = 0.65
_SYNTHESIS_SHARE: Final = 0.25

_DESCRIPTION = (
    "Ask several experts with different points of view the same question, side by side, and get one answer "
    "out of their views, with what they disagree about named. Use this ONLY for complex questions where the "
    "user explicitly asks for several expert perspectives, a debate or a second opinion: it takes a language "
    "model several times."
)


def build_panel_tool(host: BuiltinHost) -> BuiltinTool:
    settings = host.settings.builtin

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        nested = NestedRequests(host, caller)
        if not nested.has_model:
            message = "Experts need a language model, and none is configured."
            raise ToolRefused(message, hint="Set models.prime (or models.lite): docs/models.md shows how.")
        return await _run_panel(arguments, caller, nested, settings.specialists.most_experts)

    return BuiltinTool(
        name=PANEL_TOOL,
        title="Several experts",
        description=_DESCRIPTION,
        run=run,
        effect=Effect.WRITE,
        properties={
            "question": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUESTION_LENGTH,
                "description": "The question with all facts that matter: experts see nothing else",
            },
            "experts": {
                "type": "array",
                "maxItems": 12,
                "items": {"type": "string", "minLength": 1, "maxLength": 460},
                "description": "Whom to ask, such as 'Lawyer: liability'. Left out: chosen for the question",
            },
            "use_tools": {
                "type": "boolean",
                "default": False,
                "description": "Experts may look things up with tools that only read",
            },
        },
        required=("question",),
        knowledge={
            "category": "delegation",
            "priority": 20,
            "keywords": (
                "several experts",
                "ask experts",
                "expert perspectives",
                "experts",
                "perspectives",
                "viewpoints",
                "debate",
                "second opinion",
                "panel",
            ),
            "typical_ms": 20_000,
            "feedback_delay_ms": 500,
            "timeout_ms": round((settings.subagents.max_seconds + 15) * 1000),
            "purpose": "Several expert views of one question, then one synthesis with disagreements named",
            "when": ("The user explicitly asks for several experts, perspectives, a panel or a debate",),
            "when_not": (
                "The question has a plain answer, or one tool finds it",
                "The user did not ask for more than one point of view",
            ),
            "examples": (
                "Get me several expert perspectives on moving our monolith to microservices",
                "Let a lawyer, an engineer and an economist debate this proposal",
                "Ask several experts whether we should move to the cloud",
            ),
        },
    )


async def _run_panel(
    arguments: JsonObject, caller: ToolCaller, nested: NestedRequests, most: int
) -> ToolReply:
    question, share = str(arguments["question"]), nested.share
    wanted = arguments.get("experts")
    experts = parse_experts(wanted, most)
    steps = (len(experts) or min(len(DEFAULT_EXPERTS), most)) + 1
    if not experts:
        await caller.progress(0, steps, "choosing experts")
        part = share.take_part(_CHOOSING_SHARE, _CHOOSING_SHARE)
        experts = await choose_experts(nested, question, part, min(len(DEFAULT_EXPERTS), most))
        steps = len(experts) + 1
    await caller.progress(0, steps, f"asking {', '.join(expert.name for expert in experts)}")
    done = 0

    async def told(view: ExpertView) -> None:
        nonlocal done
        done += 1
        said = "could not answer" if view.problem else "has answered"
        await caller.progress(done, steps, f"{view.expert.name} {said}")

    part = share.take_part(_EXPERTS_SHARE, _EXPERTS_SHARE)
    views = await ask_experts(
        nested, question, experts, part, reads=arguments.get("use_tools") is True, on_answered=told
    )
    good = tuple(view for view in views if not view.problem)
    if not good:
        reasons = "; ".join(f"{view.expert.name}: {view.problem}" for view in views)
        message = f"None of the experts could answer. {reasons}"
        raise ToolRefused(message, hint="`fingerpost trace` shows each of them.")
    await caller.progress(len(experts), steps, "bringing the views together")
    made = await synthesize(nested, question, good, share.take_part(_SYNTHESIS_SHARE, _SYNTHESIS_SHARE))
    left_out = len(wanted) - len(experts) if isinstance(wanted, list | tuple) else 0
    return ToolReply(_format_panel(made, views, left_out, most), data=_build_data(made, views))


def _format_panel(made: PanelSynthesis, views: Sequence[ExpertView], left_out: int, most: int) -> str:
    lines = [made.answer, ""]
    if made.disagreements:
        lines.append("Where the experts disagree:")
        for point in made.disagreements:
            lines.append(f"- {point.about}")
            lines += [f"  - {name}: {says}" for name, says in point.positions]
    elif made.read:
        lines.append("The synthesis names no disagreement between the experts.")
    good = [view.expert.name for view in views if not view.problem]
    lines += ["", f"Heard: {', '.join(good)}."]
    lines += [f"Not heard: {view.expert.name} ({view.problem})." for view in views if view.problem]
    if left_out > 0:
        lines.append(f"{left_out} more were not asked: at most {most} are (specialists.most_experts).")
    return "\n".join(lines)


def _build_data(made: PanelSynthesis, views: Sequence[ExpertView]) -> JsonObject:
    """What a program may want: whose trace is where, and who says what."""
    disagreements: list[Json] = [
        {"about": point.about, "views": [{"expert": name, "says": says} for name, says in point.positions]}
        for point in made.disagreements
    ]
    experts: list[Json] = [
        {
            "name": view.expert.name,
            "answered": not view.problem,
            "packet": view.packet,
            "tokens": view.tokens,
        }
        for view in views
    ]
    return {"experts": experts, "disagreements": disagreements, "synthesis": made.packet}
