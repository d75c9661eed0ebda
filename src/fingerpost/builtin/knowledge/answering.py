"""Who writes a synthesis: the model of the house on the caller's budget, or nobody but the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fingerpost.builtin.kit import Caller
from fingerpost.builtin.knowledge.synthesis import PERSONA
from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import Mode, RouteOutcome

if TYPE_CHECKING:
    from fingerpost.router import Router

TOKENS: Final = 20_000
SECONDS: Final = 60.0
_KEPT_BACK: Final = 0.9  # of the caller's time: the rest is for the answer without a model


@frozen(kw_only=False)
class Written:
    """What a model wrote, or why it did not."""

    text: str = ""
    by: str = ""
    problem: str = ""


async def written(router: Router, asked: str, caller: Caller) -> Written:
    """A nested request without tools: it spends what the caller's own may spend."""
    context = caller.context
    seconds = SECONDS
    if context is not None and context.seconds is not None:
        seconds = min(seconds, context.seconds * _KEPT_BACK)
    try:
        route = await router.route(
            asked,
            mode=Mode.SIMPLE,
            tool_choice="none",
            persona=PERSONA,
            parent=None if context is None else context.packet_id,
            caller=None if context is None else context.caller,
            profile=None if context is None else context.profile,
            scopes=() if context is None else context.scopes,
            tokens=TOKENS,
            seconds=seconds,
            max_turns=1,
        )
    except FingerpostError as error:
        return Written(problem=str(error)[:300])
    if route.failure is not None:
        return Written(problem=str(route.failure)[:300])
    if route.outcome is not RouteOutcome.ANSWERED:
        return Written(problem=(route.detail or route.answer)[:300])
    return Written(text=route.answer, by=route.answered_by)
