"""Tool calls of a run: selection, execution, and adding results to the packet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from fingerpost.call.digest import build_digest, needs_summary
from fingerpost.call.digest.tokens import count_tokens
from fingerpost.call.outcomes import READ_RESULT_TOOL_NAME, build_tool_message
from fingerpost.choose.context_window import summarize_result
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
    create_id,
)
from fingerpost.router.conversations import is_by_model
from fingerpost.router.modes.elicitation import refuse_if_unanswerable
from fingerpost.router.modes.run_state import RunState

DRY_RUN_REASON: Final = "dry run: nothing was called"
DIRECTIVES_SERVER: Final = "directives"  # the built-in server whose results are for the client
WIDEN_FACTOR: Final = 3  # times as many tools as usual are offered if the choice was uncertain
MIN_DESCRIPTION_WORDS: Final = 3  # with a shorter description, the request itself is searched for
MIN_TOKENS_LEFT = 1_000  # tokens; a result trimmed to less is useless


def record_selection(run: RunState, selection: Selection, *, alternatives: Sequence[Selection] = (),
             beside: Sequence[Selection] = ()) -> None:  # fmt: skip
    """Record the chosen tool. Its status is recorded from here on."""
    run.emit(
        ToolSelected(
            packet_id=run.packet.packet_id,
            selection=_mark_read_only(run, selection),
            alternatives=tuple(_mark_read_only(run, one) for one in alternatives),
            beside=tuple(_mark_read_only(run, one) for one in beside),
        )
    )
    emit_status(run, ExecutionStatus.PENDING)


def _mark_read_only(run: RunState, selection: Selection) -> Selection:
    """Return the selection marked as read-only or not, if its tool is known."""
    effect = get_effect(run, build_tool_call(selection))
    return selection if effect is None else replace(selection, read_only=effect is Effect.READ)


def get_effect(run: RunState, tool_call: ToolCall) -> Effect | None:
    """Return the effect of the call, or None if its tool is unknown."""
    card = run.deps.get_snapshot().find(tool_call.name)
    known = None if card is None else _get_card_effect(card, tool_call)
    return Effect.READ if tool_call.name == READ_RESULT_TOOL_NAME else known


def schedule_calls(run: RunState, tool_calls: Sequence[ToolCall]) -> None:
    """Schedule the calls: as research if they only read, as an action if they change something."""
    run.schedule(SystemTask.TOOL_EXECUTION)
    reads = {get_effect(run, tool_call) is Effect.READ for tool_call in tool_calls}
    if True in reads:
        run.schedule(SystemTask.RESEARCH)
    if False in reads:
        run.schedule(SystemTask.TRIGGER_ACTION)


def emit_status(run: RunState, status: ExecutionStatus, reason: str = "") -> None:
    run.emit(ExecutionStatusChanged(packet_id=run.packet.packet_id, status=status, reason=reason))


def emit_call_status(run: RunState, *outcomes: Outcome) -> None:
    """Emit the status of the calls of one turn, which have ended. A call that reached no tool was skipped."""
    ran = [one for one in outcomes if not one.is_dry_run and (one.success or one.attempts)]
    failure = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
    if any(outcome.success for outcome in ran):
        emit_status(run, ExecutionStatus.EXECUTED)
    elif failure is ErrorKind.CANCELLED:
        emit_status(run, ExecutionStatus.USER_DENIED, failure)
    elif failure is None:
        emit_status(run, ExecutionStatus.SKIPPED, DRY_RUN_REASON)
    elif ran and run.packet.tool_routing.execution_status is ExecutionStatus.APPROVED:
        emit_status(run, ExecutionStatus.FAILED, failure)
    else:
        emit_status(run, ExecutionStatus.SKIPPED, failure)


async def run_call(run: RunState, selection: Selection, *, doubt: str = "") -> Outcome:
    """Run one call, subject to the policy and a person's approval."""
    tool_call = build_tool_call(selection)
    schedule_calls(run, (tool_call,))
    context = build_context(run, tool_call, tokens_left=compute_tokens_left(run))
    if doubt:
        context = replace(context, doubt=doubt, doubt_rule="confidence")
    outcome = await run.deps.calls.call(tool_call, context)
    return await summarise_outcome(run, refuse_if_unanswerable(outcome))


async def run_calls_in_parallel(run: RunState, tool_calls: Sequence[ToolCall]) -> tuple[Outcome, ...]:
    """Run independent calls in parallel."""
    schedule_calls(run, tool_calls)
    tokens_left = compute_tokens_left(run)
    contexts = [build_context(run, tool_call, tokens_left=tokens_left) for tool_call in tool_calls]
    outcomes = await run.deps.calls.call_many(list(zip(tool_calls, contexts, strict=True)))
    return tuple([await summarise_outcome(run, refuse_if_unanswerable(outcome)) for outcome in outcomes])


async def summarise_outcome(run: RunState, outcome: Outcome) -> Outcome:
    """Return the outcome, summarised by a model if its tool requires that and its result is long.

    Results with signs of prompt injection are not summarised: their warnings have to stay.
    """
    card = run.deps.get_snapshot().get(outcome.tool)
    cut, result, most = outcome.digest, outcome.result, run.settings.digest.summary_tokens
    if card is None or cut is None or result is None or not outcome.success or cut.tokens <= most:
        return outcome
    if not run.deps.pool.ready or not needs_summary(card, run.settings) or outcome.warnings:
        return outcome
    request = run.packet.content.original_prompt
    try:
        ask = run.build_ask(Role.LITE, "result_summary")
        made = await summarize_result(ask, request, card.exposed_name, outcome.content, tokens=most)
    except FingerpostError:  # already recorded; the result is trimmed instead
        made = None
    if made is None:
        short = build_digest(result, card, budget=most, request=request, handle=cut.handle)
    else:
        note = f"[A summary by {made.model} of {cut.original_tokens:,} tokens. All of it: fingerpost result "
        text = f"{made.text}\n{note}{cut.handle}, or the tool read_result]"
        dropped = ("all but a summary",)
        short = replace(cut, text=text, content_type="text", tokens=count_tokens(text), dropped=dropped)
    return replace(outcome, content=short.text, content_type=short.content_type, digest=short)


def find_tools_needing_approval(run: RunState, cards: Sequence[ToolCard]) -> frozenset[str]:
    """Return the keys of the tools whose calls need a person's approval."""
    context = build_context(run, ToolCall(name="", arguments={}), tokens_left=None)
    return frozenset(card.key for card in cards if run.deps.calls.needs_approval(card, context))


def build_tool_call(selection: Selection) -> ToolCall:
    return ToolCall(name=selection.tool, arguments=selection.arguments)


def build_context(run: RunState, tool_call: ToolCall, *, tokens_left: int | None) -> CallContext:
    """Build the context of a call. `tokens_left` comes from `compute_tokens_left`."""
    asking, packet = run.options, run.packet
    seconds = run.budget.seconds_left
    if seconds <= 0:
        raise run.budget.build_timeout()
    return CallContext(
        call_id=create_id("cal"),
        packet_id=packet.packet_id,
        conversation=asking.conversation,
        caller=packet.header.caller,
        profile=packet.context.profile,
        scopes=asking.scopes,
        request=packet.content.original_prompt,
        working_directory=packet.context.working_directory,
        seconds=seconds,
        tokens_left=tokens_left,
        dry_run=asking.dry_run,
        summarises=run.deps.pool.ready,
        doubt=_find_injection_doubt(run, tool_call),
        doubt_rule="instructions in a result",
        authorization=asking.authorization,
        cancelled=tuple(step.tool for step in packet.tool_routing.cancelled),
        words=get_person_words(run),
        trail=asking.trail,
    )


def get_person_words(run: RunState) -> tuple[str, ...]:
    """Return what the person wrote in this conversation. The task of a subagent was written by a model.

    Words that came beside a request are not recorded; without them nothing in it is the person's.
    """
    packet = run.packet
    if run.options.words is not None:
        return run.options.words
    if is_by_model(packet):
        return ()
    said = (one.text for one in packet.context.history if one.role == "user" and not one.by_model)
    return (*said, packet.content.original_prompt)


async def note_client_results(run: RunState) -> None:
    """Record that results of the client's own tools are in the conversation: they count as untrusted."""
    messages = (*run.packet.context.history, *run.client_options.later_messages)
    results = [message.text for message in messages if message.role == "tool"]
    if results:
        context = build_context(run, ToolCall(name="", arguments={}), tokens_left=None)
        for text in results:
            await run.deps.calls.data_trails.note_untrusted("the client's own tools", context, text)


def _find_injection_doubt(run: RunState, tool_call: ToolCall) -> str:
    """Return why a person should check the call: it changes something after signs of injection."""
    orders = [(step.tool, step.warnings[0]) for step in run.packet.tool_routing.steps if step.warnings]
    card = run.deps.get_snapshot().find(tool_call.name)
    if not orders or card is None or _get_card_effect(card, tool_call) is Effect.READ:
        return ""
    tool, what = orders[-1]
    return f"the result of {tool} may contain instructions: it {what}"


def _get_card_effect(card: ToolCard, tool_call: ToolCall) -> Effect:
    operation = tool_call.arguments.get("operation")
    return card.effect_of(operation if isinstance(operation, str) else None)


def compute_tokens_left(run: RunState) -> int | None:
    """Return the tokens left in the answering model's window."""
    if not run.deps.pool.ready:
        return None
    window = run.deps.pool.window(Role.PRIME)
    packet = run.packet
    texts = [packet.content.original_prompt]
    texts += [message.text for message in (*packet.context.history, *run.client_options.later_messages)]
    texts += [step.text for step in packet.tool_routing.steps]
    used = sum(count_tokens(text) for text in texts) + run.settings.choose.answer_tokens
    return max(MIN_TOKENS_LEFT, window - used)


def add_result(run: RunState, selection: Selection, outcome: Outcome) -> None:
    """Add the result to the packet, as data and as a step for the model."""
    if not outcome.success:
        run.record_failure(outcome)
    tried = sum(attempt.milliseconds for attempt in outcome.attempts)
    run.emit(
        ToolResultInjected(
            packet_id=run.packet.packet_id,
            result=ToolResult(
                success=outcome.success,
                output=outcome.content if outcome.success else None,
                error=None if outcome.success else outcome.content,
                milliseconds=round(tried),
                tool=outcome.tool or selection.tool,
                parameters=selection.arguments,
                content_type=outcome.content_type,
            ),
            step=Step(
                tool=outcome.tool or selection.tool,
                arguments=selection.arguments,
                success=outcome.success,
                text=str(build_tool_message(outcome)["content"]),
                call_id=outcome.call_id,
                error=None if outcome.error is None else outcome.error.value,
                warnings=outcome.warnings,
                directive=_read_directive(run, outcome),
                handle=None if outcome.digest is None else outcome.digest.handle,
                ran=not outcome.is_dry_run,
            ),
        )
    )
    if selection.tool != READ_RESULT_TOOL_NAME:
        run.deps.learn(outcome, run.packet)


async def read_pages(run: RunState, tool_calls: Sequence[ToolCall]) -> None:
    """Add pages of trimmed results to the packet. This does not count as a round."""
    outcomes = await run_calls_in_parallel(run, tool_calls)
    for tool_call, outcome in zip(tool_calls, outcomes, strict=True):
        add_result(run, Selection(tool=tool_call.name, arguments=tool_call.arguments), outcome)


def _read_directive(run: RunState, outcome: Outcome) -> JsonObject | None:
    """Return the directive for the client. Only the built-in directives server may give one."""
    is_enabled = DIRECTIVES_SERVER in run.settings.builtin.enabled
    ours = is_enabled and outcome.tool.startswith(f"{DIRECTIVES_SERVER}/")
    if not ours or not outcome.success or outcome.result is None:
        return None
    given = outcome.result.get("structuredContent")
    return cast("JsonObject", given) if isinstance(given, Mapping) else None


def add_problem(run: RunState, selection: Selection, error: ErrorKind, problem: str) -> None:
    """Add a call that could not be made as a failed step, so that the model can correct it."""
    tool, arguments = selection.tool, selection.arguments
    step = Step(
        tool=tool,
        arguments=arguments,
        success=False,
        text=f"{error.value}: {problem}",
        call_id=create_id("cal"),
        error=error.value,
    )
    result = ToolResult(success=False, error=problem, tool=tool, parameters=arguments)
    run.emit(ToolResultInjected(packet_id=run.packet.packet_id, result=result, step=step))


async def find_other_tools(run: RunState, tool_call: ToolCall) -> str:
    """Handle a call of `find_tools`: offer more tools and return a message about them for the model."""
    wanted = tool_call.arguments.get("request")
    text = wanted if isinstance(wanted, str) and len(wanted.split()) >= MIN_DESCRIPTION_WORDS else None
    before = run.packet.context.available_tools
    if not await widen_servers(run, text):
        return "There are no other tools for this. Use one you know, or answer and say what is missing."
    new = [card.exposed_name for card in run.get_cards() if card.key not in before]
    return f"These tools can be called now, too: {', '.join(new)}. If none of them fits, answer without."


async def widen_servers(run: RunState, text: str | None = None) -> bool:
    """Offer tools of the servers that were left out, once. Return whether there were any."""
    if not run.can_widen:
        return False
    await run.narrow_wider(text)
    return widen(run, "none of the offered tools was taken")


def widen(run: RunState, reason: str) -> bool:
    """Offer more tools, once, before a person is asked. Return whether there were any."""
    if run.widened or not run.settings.flags.widen or run.narrowing is None:
        return False
    run.record_widening()
    offered = run.packet.context.available_tools
    most = WIDEN_FACTOR * run.settings.narrow.max_tools
    more = [candidate.tool for candidate in run.narrowing.shortlist.candidates]
    tools = tuple(dict.fromkeys((*offered, *more)))[: max(most, len(offered))]
    if len(tools) == len(offered):
        return False
    undecided = (ExecutionStatus.PENDING, ExecutionStatus.AWAITING_CONFIDENCE)
    if run.packet.tool_routing.execution_status in undecided:
        emit_status(run, ExecutionStatus.SKIPPED, "looking at more tools first")
    run.emit(ShortlistWidened(packet_id=run.packet.packet_id, tools=tools, reason=reason))
    return True


def should_refine_arguments(run: RunState) -> bool:
    """Return whether the latest call had invalid arguments, so that the model writes them again."""
    steps = run.packet.tool_routing.steps
    return bool(steps) and steps[-1].error == ErrorKind.INVALID_PARAMETERS.value


def begin_next_round(run: RunState) -> bool:
    """Start another round. Return False at the limit, where the run answers with its results so far."""
    if not run.packet.tool_routing.reinjections_left:
        return False
    run.emit(PacketReinjected(packet_id=run.packet.packet_id))
    return True
