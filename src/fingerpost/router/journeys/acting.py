"""The calls of a journey: through the call path like all others, told on the packet, injected into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from fingerpost.call import reread
from fingerpost.call.digest import digest, needs_summary, suspicious
from fingerpost.call.digest.tokens import count_tokens
from fingerpost.call.reply import tool_message
from fingerpost.choose.summaries import summarise_result
from fingerpost.errors import FingerpostError
from fingerpost.events import (
    ExecutionStatusChanged,
    PacketReinjected,
    ShortlistWidened,
    ToolResultInjected,
    ToolSelected,
)
from fingerpost.llm import Role
from fingerpost.records import (
    CallContext,
    Effect,
    ErrorKind,
    ExecutionStatus,
    JsonObject,
    Outcome,
    Selection,
    Step,
    SystemTask,
    ToolCall,
    ToolCard,
    ToolResult,
    new_id,
)
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.questions import understood

DIRECTIVES: Final = "directives"  # our own server whose results are for the client
WIDER: Final = 3  # times as many tools, when the choice was not certain
LEAST_WORDS: Final = 3  # of a description of tools: fewer say less than the request
LEAST_ROOM = 1_000  # tokens: a result that gets a share of less says nothing


def selected(journey: Journey, chosen: Selection, *, alternatives: Sequence[Selection] = (),
             beside: Sequence[Selection] = ()) -> None:  # fmt: skip
    """A tool was chosen: from here its status is told step by step."""
    journey.tell(
        ToolSelected(
            packet_id=journey.packet.packet_id,
            selection=_planned(journey, chosen),
            alternatives=tuple(_planned(journey, one) for one in alternatives),
            beside=tuple(_planned(journey, one) for one in beside),
        )
    )
    status(journey, ExecutionStatus.PENDING)


def _planned(journey: Journey, chosen: Selection) -> Selection:
    """The selection with whether it only reads, as far as its tool is known."""
    effect = effect_of(journey, wish_of(chosen))
    return chosen if effect is None else replace(chosen, read_only=effect is Effect.READ)


def effect_of(journey: Journey, wish: ToolCall) -> Effect | None:
    """What the call would do to the world; None where its tool is not known."""
    card = journey.house.snapshot().find(wish.name)
    known = None if card is None else _effect(card, wish)
    return Effect.READ if wish.name == reread.NAME else known


def schedule_calls(journey: Journey, wishes: Sequence[ToolCall]) -> None:
    """The calls are next: as research where they only read, as an action where they change something."""
    journey.schedule(SystemTask.TOOL_EXECUTION)
    reads = {effect_of(journey, wish) is Effect.READ for wish in wishes}
    if True in reads:
        journey.schedule(SystemTask.RESEARCH)
    if False in reads:
        journey.schedule(SystemTask.TRIGGER_ACTION)


def status(journey: Journey, now: ExecutionStatus, reason: str = "") -> None:
    journey.tell(ExecutionStatusChanged(packet_id=journey.packet.packet_id, status=now, reason=reason))


async def call(journey: Journey, chosen: Selection, *, doubt: str = "") -> Outcome:
    """Run one call, as far as the rules and a person allow."""
    wish = wish_of(chosen)
    schedule_calls(journey, (wish,))
    context = context_of(journey, wish, tokens_left=room(journey))
    outcome = await journey.house.calls.call(wish, replace(context, doubt=doubt or context.doubt))
    return await summarised(journey, understood(outcome))


async def call_all(journey: Journey, wishes: Sequence[ToolCall]) -> tuple[Outcome, ...]:
    """Independent calls, side by side."""
    schedule_calls(journey, wishes)
    tokens_left = room(journey)
    contexts = [context_of(journey, wish, tokens_left=tokens_left) for wish in wishes]
    outcomes = await journey.house.calls.call_many(list(zip(wishes, contexts, strict=True)))
    return tuple([await summarised(journey, understood(outcome)) for outcome in outcomes])


async def summarised(journey: Journey, outcome: Outcome) -> Outcome:
    """The same outcome, summarised by a model where its tool needs that and its result is long.

    A result that may try to give orders is not: its warnings have to stay with it.
    """
    card = journey.house.snapshot().get(outcome.tool)
    cut, result, most = outcome.digest, outcome.result, journey.settings.digest.summary_tokens
    if card is None or cut is None or result is None or not outcome.success or cut.tokens <= most:
        return outcome
    if (
        not journey.house.pool.ready
        or not needs_summary(card, journey.settings)
        or suspicious(outcome.content)
    ):
        return outcome
    request = journey.packet.content.original_prompt
    try:
        ask = journey.asks(Role.LITE, "result_summary")
        made = await summarise_result(ask, request, card.exposed_name, outcome.content, tokens=most)
    except FingerpostError:  # told by the ask itself; the result is cut instead
        made = None
    if made is None:
        short = digest(result, card, budget=most, request=request, handle=cut.handle)
    else:
        note = f"[A summary by {made.by} of {cut.original_tokens:,} tokens. All of it: fingerpost result "
        text = f"{made.text}\n{note}{cut.handle}, or the tool read_result]"
        dropped = ("all but a summary",)
        short = replace(cut, text=text, content_type="text", tokens=count_tokens(text), dropped=dropped)
    return replace(outcome, content=short.text, content_type=short.content_type, digest=short)


def asking_approval(journey: Journey, cards: Sequence[ToolCard]) -> frozenset[str]:
    """The keys of the tools whose calls wait for a person's approval."""
    context = context_of(journey, ToolCall(name="", arguments={}), tokens_left=None)
    return frozenset(card.key for card in cards if journey.house.calls.asks_approval(card, context))


def wish_of(chosen: Selection) -> ToolCall:
    return ToolCall(name=chosen.tool, arguments=chosen.arguments)


def context_of(journey: Journey, wish: ToolCall, *, tokens_left: int | None) -> CallContext:
    """Everything the call path should know about who calls and why. `tokens_left` is `room`'s."""
    asking, packet = journey.asking, journey.packet
    seconds = journey.budget.seconds_left
    if seconds <= 0:
        raise journey.budget.too_late()
    return CallContext(
        call_id=new_id("cal"),
        packet_id=packet.packet_id,
        conversation=asking.get("conversation"),
        caller=packet.header.caller,
        profile=packet.context.profile,
        scopes=asking.get("scopes", ()),
        request=packet.content.original_prompt,
        working_directory=packet.context.working_directory,
        seconds=seconds,
        tokens_left=tokens_left,
        dry_run=asking.get("dry_run", False),
        summarises=journey.house.pool.ready,
        doubt=_wariness(journey, wish),
        authorization=asking.get("authorization"),
        cancelled=tuple(step.tool for step in packet.tool_routing.cancelled),
    )


def _wariness(journey: Journey, wish: ToolCall) -> str:
    """Why a person should look: what changes something, after a result that tries to give orders."""
    orders = [(step.tool, step.warnings[0]) for step in journey.packet.tool_routing.steps if step.warnings]
    card = journey.house.snapshot().find(wish.name)
    if not orders or card is None or _effect(card, wish) is Effect.READ:
        return ""
    tool, what = orders[-1]
    return f"the result of {tool} may try to give orders: it {what}"


def _effect(card: ToolCard, wish: ToolCall) -> Effect:
    operation = wish.arguments.get("operation")
    return card.effect_of(operation if isinstance(operation, str) else None)


def room(journey: Journey) -> int | None:
    """What is left of the answering model's window after what it has to read already."""
    if not journey.house.pool.ready:
        return None
    window = journey.house.pool.window(Role.PRIME)
    packet = journey.packet
    texts = [packet.content.original_prompt]
    texts += [message.text for message in (*packet.context.history, *journey.brought.since)]
    texts += [step.text for step in packet.tool_routing.steps]
    used = sum(count_tokens(text) for text in texts) + journey.settings.choose.answer_tokens
    return max(LEAST_ROOM, window - used)


def inject(journey: Journey, chosen: Selection, outcome: Outcome) -> None:
    """The result becomes part of the packet, as data and as a step the model reads."""
    if not outcome.success:
        journey.failures.append(outcome)
    tried = sum(attempt.milliseconds for attempt in outcome.attempts)
    journey.tell(
        ToolResultInjected(
            packet_id=journey.packet.packet_id,
            result=ToolResult(
                success=outcome.success,
                output=outcome.content if outcome.success else None,
                error=None if outcome.success else outcome.content,
                milliseconds=round(tried),
                tool=outcome.tool or chosen.tool,
                parameters=chosen.arguments,
                content_type=outcome.content_type,
            ),
            step=Step(
                tool=outcome.tool or chosen.tool,
                arguments=chosen.arguments,
                success=outcome.success,
                text=str(tool_message(outcome)["content"]),
                call_id=outcome.call_id,
                error=None if outcome.error is None else outcome.error.value,
                warnings=suspicious(outcome.content),
                directive=_directive(journey, outcome),
                handle=None if outcome.digest is None else outcome.digest.handle,
            ),
        )
    )
    if chosen.tool != reread.NAME:
        journey.house.learn(outcome, journey.packet)


async def read_pages(journey: Journey, wishes: Sequence[ToolCall]) -> None:
    """Pages of results that were cut become part of the packet. It is no round of tools."""
    outcomes = await call_all(journey, wishes)
    for wish, outcome in zip(wishes, outcomes, strict=True):
        inject(journey, Selection(tool=wish.name, arguments=wish.arguments), outcome)


def _directive(journey: Journey, outcome: Outcome) -> JsonObject | None:
    """What the client shall do. From our own server of directives alone: others give it no orders."""
    ours = DIRECTIVES in journey.settings.builtin.enabled and outcome.tool.startswith(f"{DIRECTIVES}/")
    if not ours or not outcome.success or outcome.result is None:
        return None
    given = outcome.result.get("structuredContent")
    return cast("JsonObject", given) if isinstance(given, Mapping) else None


def inject_problem(journey: Journey, chosen: Selection, error: ErrorKind, problem: str) -> None:
    """A call that could not even be made is told like one that failed, so that it can be put right."""
    journey.tell(
        ToolResultInjected(
            packet_id=journey.packet.packet_id,
            result=ToolResult(success=False, error=problem, tool=chosen.tool, parameters=chosen.arguments),
            step=Step(
                tool=chosen.tool,
                arguments=chosen.arguments,
                success=False,
                text=f"{error.value}: {problem}",
                call_id=new_id("cal"),
                error=error.value,
            ),
        )
    )


async def find_others(journey: Journey, wish: ToolCall) -> str:
    """A model takes none of its tools (`find_tools`): what it is told, with others or with none."""
    wanted = wish.arguments.get("request")
    text = wanted if isinstance(wanted, str) and len(wanted.split()) >= LEAST_WORDS else None
    before = journey.packet.context.available_tools
    if not await widen_servers(journey, text):
        return "There are no other tools for this. Use one you know, or answer and say what is missing."
    new = [card.exposed_name for card in journey.cards() if card.key not in before]
    return f"These tools can be called now, too: {', '.join(new)}. If none of them fits, answer without."


async def widen_servers(journey: Journey, text: str | None = None) -> bool:
    """The model took no tool: look at those of the servers left out, once. Whether there were any."""
    if not journey.can_widen:
        return False
    await journey.narrow_wider(text)
    return widen(journey, "none of the offered tools was taken")


def widen(journey: Journey, reason: str) -> bool:
    """Look at more tools, once, before a person is bothered. Whether there were any."""
    if journey.widened or not journey.settings.flags.widen or journey.narrowing is None:
        return False
    journey.widened = True
    offered = journey.packet.context.available_tools
    most = WIDER * journey.settings.narrow.max_tools
    more = [candidate.tool for candidate in journey.narrowing.shortlist.candidates]
    tools = tuple(dict.fromkeys((*offered, *more)))[: max(most, len(offered))]
    if len(tools) == len(offered):
        return False
    if journey.packet.tool_routing.execution_status in (
        ExecutionStatus.PENDING,
        ExecutionStatus.AWAITING_CONFIDENCE,
    ):
        status(journey, ExecutionStatus.SKIPPED, "looking at more tools first")
    journey.tell(ShortlistWidened(packet_id=journey.packet.packet_id, tools=tools, reason=reason))
    return True


def is_to_be_refined(journey: Journey) -> bool:
    """Whether the latest call could not be made with its arguments, so that the model writes them again."""
    steps = journey.packet.tool_routing.steps
    return bool(steps) and steps[-1].error == ErrorKind.INVALID_PARAMETERS.value


def reinject(journey: Journey) -> bool:
    """Send the packet round once more; False at the cap, where it is answered with what there is."""
    if not journey.packet.tool_routing.reinjections_left:
        return False
    journey.tell(PacketReinjected(packet_id=journey.packet.packet_id))
    return True
