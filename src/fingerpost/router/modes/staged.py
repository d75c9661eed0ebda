"""The steps of staged mode. `router.pipeline` takes them in order.

A light model selects, arguments are checked, the prime model reviews, a gate decides.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import Final

from fingerpost.call.build import CheckedCall
from fingerpost.choose.client_options import describe_client_tools
from fingerpost.choose.confidence import score_confidence
from fingerpost.choose.review import review_selection
from fingerpost.choose.selection import select_tool
from fingerpost.choose.tool_loop import rewrite_as_text
from fingerpost.events import PlanNoted, ReplyRejected, SelectionReviewed
from fingerpost.frozen import frozen
from fingerpost.llm import Role
from fingerpost.llm.content import to_text_only
from fingerpost.records import (
    Confidence,
    ConfidenceSample,
    ErrorKind,
    ExecutionStatus,
    GateVerdict,
    Message,
    MissingArgument,
    NeedVerdict,
    Outcome,
    ParameterFault,
    ParsedSelection,
    Question,
    Review,
    Selection,
    Shortlist,
    SystemTask,
    ToolCard,
    utc_now,
)
from fingerpost.router.modes.answer import write_answer, write_final_answer
from fingerpost.router.modes.elicitation import is_waiting
from fingerpost.router.modes.prompts import build_offered_guides, fit_history, get_profile_guidance
from fingerpost.router.modes.routes import end_asked, end_waiting
from fingerpost.router.modes.run_state import RunState
from fingerpost.router.modes.tool_step import (
    add_problem,
    add_result,
    begin_next_round,
    build_tool_call,
    emit_call_status,
    emit_status,
    find_tools_needing_approval,
    record_selection,
    run_call,
    should_refine_arguments,
    widen,
    widen_servers,
)
from fingerpost.router.route import Route
from fingerpost.settings.validation import apply_arms

# Errors that show a wrong choice. An unavailable server says nothing about the choice.
_WRONG_CHOICE_ERRORS: Final = (
    ErrorKind.INVALID_PARAMETERS,
    ErrorKind.TOOL_NOT_FOUND,
    ErrorKind.OPERATION_NOT_SUPPORTED,
    ErrorKind.EXECUTION_FAILED,
    ErrorKind.CANCELLED,
)


def record_confidence_sample(run: RunState, outcome: Outcome) -> None:
    """Record whether the confidence was justified. A person's rejection counts like an error."""
    if run.confidence is not None and (outcome.success or outcome.error in _WRONG_CHOICE_ERRORS):
        sample = ConfidenceSample(raw=run.confidence.raw, right=outcome.success, tool=outcome.tool)
        run.deps.store.confidences.record_soon(sample, utc_now())


class NextStep(Enum):
    """What follows a step that has no value for the next one."""

    NARROW = auto()
    SELECT = auto()
    ANSWER = auto()


@frozen
class SelectedTool:
    """The tool that a model selected, and the tools it was offered."""

    selection: Selection
    cards: tuple[ToolCard, ...]


@frozen
class CheckedTool:
    """A selected tool whose arguments are valid. `repaired` is the selection with repaired arguments."""

    selection: Selection
    repaired: Selection
    card: ToolCard
    checked: CheckedCall


@frozen
class ReviewedTool:
    """A checked tool with the review of the prime model, if reviews are enabled."""

    tool: CheckedTool
    review: Review | None


@frozen
class GatedCall:
    """A call that may be made. With a `doubt`, a person is asked first."""

    selection: Selection
    doubt: str | None = None


async def narrow(run: RunState) -> NextStep:
    """Find the tools for the request, and whether it needs one."""
    narrowing = await run.narrow()
    needless = narrowing.need.verdict is NeedVerdict.NONE or run.client_options.excludes_routed_tools
    return NextStep.ANSWER if needless else NextStep.SELECT


async def select(run: RunState) -> SelectedTool | NextStep:
    """Let the light model select a tool, while rounds are left. If none suits, offer more tools, once."""
    if run.has_drafted or not run.can_call or not (cards := run.get_cards()):
        return NextStep.ANSWER
    chosen = await ask_for_selection(run, cards)
    if chosen.selection is not None:
        return _record_selected(run, chosen.selection, cards, chosen)
    if chosen.problem:
        return NextStep.SELECT if widen(run, chosen.problem) else NextStep.ANSWER
    widened = not run.packet.tool_routing.steps and await widen_servers(run)
    return NextStep.SELECT if widened else NextStep.ANSWER


def _record_selected(
    run: RunState, selection: Selection, cards: tuple[ToolCard, ...], chosen: ParsedSelection
) -> SelectedTool:
    record_selection(run, selection, alternatives=chosen.alternatives)
    if chosen.remaining or _describe_remaining(run):
        planned = run.packet.tool_routing.selected_tool
        reads = None if planned is None else planned.read_only
        run.emit(PlanNoted(packet_id=run.packet.packet_id, remaining=chosen.remaining, read_only=reads))
    return SelectedTool(selection=selection, cards=cards)


async def check(run: RunState, selected: SelectedTool) -> CheckedTool | NextStep | Route:
    """Repair and validate the arguments. If invalid, the model tries again; then a person is asked."""
    selection = selected.selection
    tool_call, options = build_tool_call(selection), run.options
    checked = await run.deps.calls.check(tool_call, options.scopes, profile=options.profile)
    card = next((card for card in selected.cards if card.key == checked.tool), None)
    if checked.problem or card is None:
        return _handle_invalid_arguments(run, selection, checked)
    repaired = replace(selection, arguments=checked.arguments)
    return CheckedTool(selection=selection, repaired=repaired, card=card, checked=checked)


async def review(run: RunState, tool: CheckedTool) -> ReviewedTool:
    """Let the prime model review the selection, unless reviews are disabled."""
    emit_status(run, ExecutionStatus.AWAITING_CONFIDENCE)
    if not run.settings.flags.review:
        return ReviewedTool(tool=tool, review=None)
    run.schedule(SystemTask.VALIDATE)
    opinion = await review_selection(
        run.build_ask(Role.PRIME, "review"),
        run.packet,
        tool.repaired,
        tool.card,
        run.settings.tool_routing,
        notes=[f"{repair.path} was {repair.kind}: {repair.reason}" for repair in tool.checked.repairs],
        history=(*await fit_history(run), *get_later_messages(run)),
    )
    run.emit(SelectionReviewed(packet_id=run.packet.packet_id, review=opinion))
    return ReviewedTool(tool=tool, review=opinion)


async def gate(run: RunState, reviewed: ReviewedTool) -> GatedCall | NextStep:
    """Decide by confidence: call, offer more tools, leave it, or ask a person."""
    confidence = await _compute_confidence(run, reviewed)
    run.schedule(SystemTask.DECISION)
    selection = reviewed.tool.selection
    if confidence.verdict is GateVerdict.GO:
        emit_status(run, ExecutionStatus.APPROVED, confidence.reason)
        return GatedCall(selection=selection)
    if widen(run, confidence.reason):
        return NextStep.SELECT
    if confidence.verdict is GateVerdict.DECLINE:
        emit_status(run, ExecutionStatus.SKIPPED, confidence.reason)
        run.record_declined(selection.tool, confidence.reason)
        return NextStep.ANSWER
    return GatedCall(selection=selection, doubt=confidence.reason)


async def _compute_confidence(run: RunState, reviewed: ReviewedTool) -> Confidence:
    tool, narrowing = reviewed.tool, run.narrowing
    confidence = score_confidence(
        tool.repaired,
        reviewed.review,
        narrowing.shortlist if narrowing is not None else Shortlist(),
        calibration=await run.deps.get_calibration(),
        settings=apply_arms(await run.deps.get_settings(tool.card), run.arms),
    )
    run.record_confidence(confidence)
    return confidence


async def call(run: RunState, gated: GatedCall) -> NextStep | Route:
    """Call the tool, add its result, and decide what follows. A call that waits for a person ends the run."""
    outcome = await run_call(run, gated.selection, doubt=gated.doubt or "")
    if gated.doubt is not None and outcome.success and not outcome.is_dry_run:
        # An earlier grant covers the call.
        emit_status(run, ExecutionStatus.APPROVED, "an earlier approval covers it")
    if is_waiting(outcome):
        return await end_waiting(run, outcome, gated.selection)
    emit_call_status(run, outcome)
    record_confidence_sample(run, outcome)
    add_result(run, gated.selection, outcome)
    return await decide_after_result(run, success=outcome.success, error=outcome.error)


async def answer(run: RunState) -> SelectedTool | Route:
    """Write the answer. A tool call that the model wrote into it is checked like any other, once."""
    if run.has_drafted:
        return await write_final_answer(run)
    run.record_draft()
    ending = await write_answer(run)
    if isinstance(ending, Route):
        return ending
    return _record_selected(run, ending, run.get_cards(), ParsedSelection(selection=ending))


async def decide_after_result(run: RunState, *, success: bool, error: ErrorKind | None) -> NextStep:
    """Return what follows a result that was added to the packet."""
    begin_next_round(run)
    if not success:
        return NextStep.ANSWER if error in _FINAL_ERRORS else NextStep.SELECT
    remaining = _describe_remaining(run)
    if not remaining or not run.settings.flags.chains:
        return NextStep.ANSWER
    await run.narrow_for(remaining)
    return NextStep.SELECT


# A person or a rule refused the call: other tools must not be used to bypass that.
_FINAL_ERRORS = (ErrorKind.CANCELLED, ErrorKind.DENIED)


async def ask_for_selection(run: RunState, cards: tuple[ToolCard, ...]) -> ParsedSelection:
    """Ask the selecting model which of these tools to call."""
    if should_refine_arguments(run):
        run.schedule(SystemTask.REFINE)
    run.schedule(SystemTask.TOOL_ROUTING)
    history = (*await fit_history(run), *get_later_messages(run))
    guides, guidance = await build_offered_guides(run, cards), get_profile_guidance(run)
    about = (guides, describe_client_tools(run.client_options), guidance)
    chosen = await select_tool(
        run.build_ask(Role.LITE, "selection"),
        run.packet,
        cards,
        run.settings.tool_routing,
        instructions="\n\n".join(part for part in about if part),
        history=history,
        needs_approval=find_tools_needing_approval(run, cards),
    )
    if chosen.problem:
        run.emit(ReplyRejected(packet_id=run.packet.packet_id, purpose="selection", problem=chosen.problem))
    return chosen


def get_later_messages(run: RunState) -> tuple[Message, ...]:
    """Return the results of the caller's own tool calls as text messages."""
    since = rewrite_as_text([to_text_only(message) for message in run.client_options.later_messages])
    if not since:
        return ()
    first = Message(role="user", text=run.packet.content.original_prompt)
    return (first, *since)


def _handle_invalid_arguments(run: RunState, selection: Selection, checked: CheckedCall) -> Route | NextStep:
    """Handle arguments that cannot be repaired: the model tries again, then the person is asked."""
    emit_status(run, ExecutionStatus.SKIPPED, "its arguments do not fit")
    before = [step for step in run.packet.tool_routing.steps if step.tool == selection.tool]
    absent = [error for error in checked.errors if error.fault is ParameterFault.MISSING]
    missing = tuple(MissingArgument(name=one.parameter, description=one.message) for one in absent)
    again = any(step.error == ErrorKind.INVALID_PARAMETERS.value for step in before)
    if missing and (again or run.packet.tool_routing.reinjections_left <= 1):
        names = ", ".join(argument.name for argument in missing)
        text = f"To use {selection.tool} these values are needed: {names}."
        return end_asked(run, Question(text=text, tool=selection.tool, missing=missing))
    kind = ErrorKind.INVALID_PARAMETERS if checked.tool else ErrorKind.TOOL_NOT_FOUND
    takes = f" It takes: {checked.signature}" if checked.signature else ""
    problem = checked.problem or f"{selection.tool} is not among the tools offered"
    add_problem(run, selection, kind, problem + takes)
    begin_next_round(run)
    return NextStep.SELECT


def _describe_remaining(run: RunState) -> str:
    notes = run.packet.reasoning.sketchpad
    return next((note.text for note in notes if note.key == "remaining"), "")
