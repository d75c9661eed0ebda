"""What a model is told before the request: who it is, which tools there are, what was said before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fingerpost.call.digest.tokens import count_tokens
from fingerpost.choose.conversation import build
from fingerpost.choose.fitting import tokens_of
from fingerpost.choose.instructions import (
    BESIDE_OTHERS,
    WITH_TOOLS,
    WITHOUT_TOOLS,
    describe_use,
    directives_under,
    persona_under,
    tool_guides,
)
from fingerpost.choose.prompts import system_prompt
from fingerpost.events import HistorySummarised
from fingerpost.frozen import frozen
from fingerpost.llm import Role
from fingerpost.records import Effort, Message, ToolCard
from fingerpost.router.journeys.bringing import with_parts
from fingerpost.router.journeys.journey import Journey

OTHER_SHARE: Final = 0.4  # of the window, for tools, results and the answer
EFFORTS: Final = {
    Effort.QUICK: "This person prefers quick answers: strongly prefer a direct answer to a tool, and a fast "
    "tool to a slow one.",
    Effort.THOROUGH: "This person prefers thorough answers: look things up rather than answer from memory, "
    "and compare what several tools say where they differ.",
}
MOST_RESERVED: Final = 0.7  # of the window, where a larger answer is expected


@frozen
class Briefing:
    """The beginning of a prompt."""

    system: str
    history: tuple[Message, ...]


async def brief(journey: Journey, cards: Sequence[ToolCard] = (), *, tools: bool = False) -> Briefing:
    """The system prompt, the same in every turn of a conversation, and as much of that as fits.

    `tools`: the model may be offered some. What is said of each stands in its definition (`uses`), or
    with the request for a model that takes none (`guides`).
    """
    return Briefing(
        system=system_prompt(
            persona=_persona(journey),
            instructions=_instructions(journey, cards, tools=tools),
            guidance=guidance(journey),
            directives=_directives(journey),
        ),
        history=with_parts(await history_for(journey), journey.brought.history),
    )


def _persona(journey: Journey) -> str | None:
    """What the request says, else its profile, else (beside no words of the caller's own) the settings."""
    usual = None if journey.brought.has_system else journey.settings.choose.persona
    return persona_under(journey.profile, journey.asking.get("persona"), usual)


def guidance(journey: Journey) -> str:
    """What the profile says about how to use tools."""
    said = "" if journey.profile is None else journey.profile.guidance or ""
    effort = journey.asking.get("effort")
    return said if effort is None else f"{said}\n{EFFORTS[Effort(effort)]}".strip()


def _directives(journey: Journey) -> str:
    """What the client can act on, and the sections of the profile behind it."""
    usual = journey.settings.choose.directives
    return directives_under(journey.profile, journey.asking.get("directives"), usual)


def _instructions(journey: Journey, cards: Sequence[ToolCard], *, tools: bool) -> str:
    """What holds for all tools. Beside a caller's own words and tools no more than has to be."""
    brought = journey.brought
    if brought.has_system or brought.tools:
        general = BESIDE_OTHERS if brought.has_system else WITH_TOOLS
        return general if cards else ""
    return WITH_TOOLS if tools and journey.settings.tool_routing.enabled else WITHOUT_TOOLS


def _behind(journey: Journey) -> int:
    """Tokens of what stands behind the request: it goes out whole."""
    return sum(tokens_of(message, count_tokens) for message in journey.brought.since)


def _expected(journey: Journey, window: int) -> int:
    """Tokens to keep free for the largest answer expected of an offered tool, and the answer after it."""
    most = journey.settings.digest.max_tokens
    sizes = [min(card.intelligence.response.typical_tokens.value, most) for card in journey.cards()]
    wanted = max(sizes, default=0) + journey.settings.choose.answer_tokens
    return min(wanted, int(window * MOST_RESERVED))


async def guides(journey: Journey, cards: Sequence[ToolCard]) -> str:
    """When to use each of these tools and when not, in the order the conversation knows them."""
    order = journey.packet.context.available_tools
    return tool_guides(cards, order=order, usage=await journey.house.usage())


async def uses(journey: Journey, cards: Sequence[ToolCard]) -> dict[str, str]:
    """The same by key, for the definitions of the tools."""
    order = journey.packet.context.available_tools
    return describe_use(cards, order=order, usage=await journey.house.usage())


async def history_for(journey: Journey) -> tuple[Message, ...]:
    """The conversation: whole where it fits, its beginning in fewer words where it does not."""
    if not journey.packet.context.history:
        return ()
    if journey.fitted is None:
        window = journey.house.pool.window(Role.PRIME)
        journey.fitted = await build(
            journey.packet,
            window_tokens=window,
            reserve=max(int(window * OTHER_SHARE), _expected(journey, window)) + _behind(journey),
            count=count_tokens,
            ask=journey.asks(Role.LITE, "summary") if journey.settings.flags.summarise else None,
            summaries=journey.house.summaries,
        )
        if journey.fitted.by:
            journey.tell(
                HistorySummarised(
                    packet_id=journey.packet.packet_id,
                    messages=journey.fitted.left_out,
                    tokens_before=journey.fitted.tokens_before,
                    tokens_after=journey.fitted.tokens_after,
                    by=journey.fitted.by,
                )
            )
    return journey.fitted.history
