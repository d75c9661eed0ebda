"""Who writes a synthesis: the model of the house on the caller's budget, or nobody but the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fingerpost.builtin.kit import ToolCaller
from fingerpost.builtin.knowledge.synthesis import PERSONA
from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import Mode, RouteOutcome

if TYPE_CHECKING:
    from fingerpost.router import Router

MAX_ANSWER_TOKENS: Final = 20_000
MAX_ANSWER_SECONDS: Final = 60.0
_RESERVED_SHARE: Final = 0.9  # of the caller's time: the rest is for the answer without a model


@frozen(kw_only=False)
class WrittenAnswer:
    """What a model wrote, or why it did not."""

    text: str = ""
    by: str = ""
    problem: str = ""


async def write_answer(router: Router, prompt: str, caller: ToolCaller) -> WrittenAnswer:
    """A nested request without tools: it spends what the caller's own may spend."""
    context = caller.context
    seconds = MAX_ANSWER_SECONDS
    if context is not None and context.seconds is not None:
        seconds = min(seconds, context.seconds * _RESERVED_SHARE)
    try:
        route = await router.route(
            prompt,
            mode=Mode.SIMPLE,
            tool_choice="none",
            persona=PERSONA,
            parent=None if context is None else context.packet_id,
            caller=None if context is None else context.caller,
            profile=None if context is None else context.profile,
            scopes=() if context is None else context.scopes,
            tokens=MAX_ANSWER_TOKENS,
            seconds=seconds,
            max_turns=1,
        )
    except FingerpostError as error:
        return WrittenAnswer(problem=str(error)[:300])
    if route.failure is not None:
        return WrittenAnswer(problem=str(route.failure)[:300])
    if route.outcome is not RouteOutcome.ANSWERED:
        return WrittenAnswer(problem=(route.detail or route.answer)[:300])
    return WrittenAnswer(text=route.answer, by=route.answered_by)
