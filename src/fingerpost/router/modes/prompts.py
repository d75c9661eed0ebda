"""The system prompt and the history that precede the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fingerpost.call.digest.tokens import count_tokens
from fingerpost.choose.context_window import count_message_tokens, fit_packet_history
from fingerpost.choose.instructions import (
    CLIENT_TOOLS_INSTRUCTIONS,
    NO_TOOLS_INSTRUCTIONS,
    TOOLS_INSTRUCTIONS,
    build_directives,
    build_system_prompt,
    build_tool_guides,
    choose_persona,
    describe_tool_usage,
)
from fingerpost.frozen import frozen
from fingerpost.llm import Role
from fingerpost.records import Effort, Message, ToolCard
from fingerpost.router.modes.run_state import RunState, restore_content_parts

OTHER_TOKEN_SHARE: Final = 0.4  # share of the window for tools, results and the answer
EFFORT_NOTES: Final = {
    Effort.QUICK: "This person prefers quick answers: strongly prefer a direct answer to a tool, and a fast "
    "tool to a slow one.",
    Effort.THOROUGH: "This person prefers thorough answers: look things up rather than answer from memory, "
    "and compare what several tools say where they differ.",
}
MAX_RESERVED_SHARE: Final = 0.7  # share of the window if a larger result is expected


@frozen
class PromptStart:
    """The system prompt and the history of a prompt."""

    system: str
    history: tuple[Message, ...]


async def build_prompt(run: RunState, cards: Sequence[ToolCard] = (), *, tools: bool = False) -> PromptStart:
    """Return the system prompt, equal in every turn of a conversation, and the history that fits.

    `tools`: the model may be offered tools. Usage hints for each tool are in its definition
    (`get_tool_uses`), or in the request for models without tool definitions (`build_offered_guides`).
    """
    usual = run.settings.choose.directives  # what the client supports; the profile's sections follow
    return PromptStart(
        system=build_system_prompt(
            persona=_get_persona(run),
            instructions=_build_instructions(run, cards, tools=tools),
            guidance=get_profile_guidance(run),
            directives=build_directives(run.profile, run.options.directives, usual),
        ),
        history=restore_content_parts(await fit_history(run), run.client_options.history),
    )


def _get_persona(run: RunState) -> str | None:
    """Return the persona of the request, else of the profile, else of the settings. The settings' persona is
    not used beside a caller's own system prompt.
    """
    usual = None if run.client_options.has_system_message else run.settings.choose.persona
    return choose_persona(run.profile, run.options.persona, usual)


def get_profile_guidance(run: RunState) -> str:
    """Return the profile's guidance on tool use, followed by the note on the requested effort."""
    guidance = "" if run.profile is None else run.profile.guidance or ""
    effort = run.options.effort
    return guidance if effort is None else f"{guidance}\n{EFFORT_NOTES[Effort(effort)]}".strip()


def _build_instructions(run: RunState, cards: Sequence[ToolCard], *, tools: bool) -> str:
    """Return the instructions for all tools. They are kept minimal beside a caller's own prompt and tools."""
    client = run.client_options
    if client.has_system_message or client.tools:
        general = CLIENT_TOOLS_INSTRUCTIONS if client.has_system_message else TOOLS_INSTRUCTIONS
        return general if cards else ""
    return TOOLS_INSTRUCTIONS if tools and run.settings.tool_routing.enabled else NO_TOOLS_INSTRUCTIONS


def _count_later_tokens(run: RunState) -> int:
    """Count the tokens of the messages after the request. They are never shortened."""
    return sum(count_message_tokens(message, count_tokens) for message in run.client_options.later_messages)


def _estimate_reserved_tokens(run: RunState, window: int) -> int:
    """Estimate the tokens to reserve for the largest result of an offered tool and for the answer."""
    most = run.settings.digest.max_tokens
    sizes = [min(card.intelligence.response.typical_tokens.value, most) for card in run.get_cards()]
    wanted = max(sizes, default=0) + run.settings.choose.answer_tokens
    return min(wanted, int(window * MAX_RESERVED_SHARE))


async def build_offered_guides(run: RunState, cards: Sequence[ToolCard]) -> str:
    """Return when to use each of these tools and when not, in the conversation's order."""
    order = run.packet.context.available_tools
    return build_tool_guides(cards, order=order, usage=await run.deps.get_usage())


async def get_tool_uses(run: RunState, cards: Sequence[ToolCard]) -> dict[str, str]:
    """Return the usage hints by tool key, for the tool definitions."""
    order = run.packet.context.available_tools
    return describe_tool_usage(cards, order=order, usage=await run.deps.get_usage())


async def fit_history(run: RunState) -> tuple[Message, ...]:
    """Return the history. If it does not fit, its beginning is summarised."""
    if not run.packet.context.history:
        return ()
    if run.fitted is None:
        window = run.deps.pool.window(Role.PRIME)
        fitted = await fit_packet_history(
            run.packet,
            window_tokens=window,
            reserve=max(int(window * OTHER_TOKEN_SHARE), _estimate_reserved_tokens(run, window))
            + _count_later_tokens(run),
            count=count_tokens,
            ask=run.build_ask(Role.LITE, "summary") if run.settings.flags.summarise else None,
            summaries=run.deps.summaries,
        )
        run.record_fitted_history(fitted)
        return fitted.history
    return run.fitted.history
