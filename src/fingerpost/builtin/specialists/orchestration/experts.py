"""The experts are asked side by side. One that fails or runs out of its share costs the others nothing."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from fingerpost.builtin.specialists.nested import NestedRequests, RequestShare, describe_problem
from fingerpost.builtin.specialists.orchestration.records import ExpertView, PanelExpert
from fingerpost.errors import FingerpostError
from fingerpost.records import Effect, Mode, Scope

OnExpertAnswered = Callable[[ExpertView], Awaitable[None]]

_PERSONA = (
    "You are an expert: {name}. {looks}You are one of several experts who answer the same question without "
    "seeing each other's answers, so speak from your own point of view alone and do not try to be balanced. "
    "Say plainly what you recommend, give your two or three strongest reasons, and name what would change "
    "your mind. At most 250 words."
)
NO_ANSWER: Final = "it gave no answer"


async def ask_experts(
    nested: NestedRequests,
    question: str,
    experts: Sequence[PanelExpert],
    share: RequestShare,
    *,
    reads: bool,
    on_answered: OnExpertAnswered,
) -> tuple[ExpertView, ...]:
    """What each of them says, in the order of the experts. `reads`: they may use tools that only read."""
    rounds = math.ceil(len(experts) / nested.max_parallel)
    own = share.take_part(1 / len(experts), 1 / rounds)
    views: list[ExpertView | None] = [None] * len(experts)
    few = anyio.CapacityLimiter(nested.max_parallel)

    async def ask(place: int, expert: PanelExpert) -> None:
        async with few:
            views[place] = view = await _ask_expert(nested, question, expert, own, reads=reads)
        await on_answered(view)

    async with anyio.create_task_group() as tasks:
        for place, expert in enumerate(experts):
            tasks.start_soon(ask, place, expert)
    return tuple(view for view in views if view is not None)


async def _ask_expert(
    nested: NestedRequests, question: str, expert: PanelExpert, share: RequestShare, *, reads: bool
) -> ExpertView:
    looks = f"You look at this: {expert.view}. " if expert.view else ""
    persona = _PERSONA.format(name=expert.name, looks=looks)
    servers = nested.servers if reads else ()
    bounds = (Scope(servers=servers, effects=(Effect.READ,)),) if servers else ()
    try:
        route = await nested.ask(
            question,
            share,
            bounds=bounds,
            mode=Mode.SIMPLE,
            persona=persona,
            tool_choice=None if servers else "none",
        )
    except FingerpostError as error:
        return ExpertView(expert=expert, problem=f"{error}")
    problem = describe_problem(route)
    return ExpertView(
        expert=expert,
        says="" if problem else route.answer,
        problem=problem or ("" if route.answer.strip() else NO_ANSWER),
        packet=route.packet_id,
        tokens=route.prompt_tokens + route.completion_tokens,
    )
