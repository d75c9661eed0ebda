"""Continues a run that waited for a person, from its record in the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from fingerpost.events import (
    ApprovalRequested,
    ConfidenceJudged,
    QuestionAsked,
    RequestNarrowed,
    RouteBegan,
    RouteEnded,
    RouteResumed,
    ToolResultInjected,
    rebuild_packet,
)
from fingerpost.frozen import frozen
from fingerpost.records import (
    Confidence,
    Decision,
    ExecutionStatus,
    JsonObject,
    Narrowing,
    Packet,
    PacketState,
    Pending,
    Question,
    RouteOutcome,
    Scope,
    Selection,
    Step,
    ToolCall,
    ToolResult,
)
from fingerpost.router.modes.elicitation import is_waiting, parse_answer, refuse_if_unanswerable
from fingerpost.router.modes.routes import (
    build_finished,
    end_asked,
    end_declined,
    end_waiting,
    end_waiting_for,
)
from fingerpost.router.modes.run_state import RunState
from fingerpost.router.modes.staged import record_confidence_sample
from fingerpost.router.modes.tool_step import (
    add_result,
    build_context,
    compute_tokens_left,
    emit_call_status,
    emit_status,
    record_selection,
    schedule_calls,
)
from fingerpost.router.options import RouteOptions
from fingerpost.router.pipeline import continue_request
from fingerpost.router.route import Route
from fingerpost.router.store_sync import hold_claim
from fingerpost.servers.requests import RequestContext
from fingerpost.store import JournalEntry, Store


@frozen
class RecordedRun:
    """A packet as recorded, with its latest results."""

    packet: Packet | None
    narrowing: Narrowing | None
    confidence: Confidence | None
    question: Question | None  # the last question to the person
    outcome: RouteOutcome | None  # the last outcome of the run
    pending_ids: tuple[str, ...]  # ids of all calls that ever waited, oldest first
    scopes: tuple[Scope, ...] = ()  # the caller's permissions
    trail: str | None = None  # see `RouteBegan`

    def add_trail(self, options: RouteOptions) -> RouteOptions:
        """Return the options with the trail of the run."""
        return replace(options, trail=options.trail or self.trail)


async def read_recorded_run(store: Store, packet_id: str) -> RecordedRun:
    """Read a packet's record from the journal."""
    await store.journal.flush()
    events = [entry.event async for entry in _iterate_events(store, packet_id)]
    narrowings = [event.narrowing for event in events if isinstance(event, RequestNarrowed)]
    judged = [event.confidence for event in events if isinstance(event, ConfidenceJudged)]
    questions = [event.question for event in events if isinstance(event, QuestionAsked)]
    outcomes = [event.outcome for event in events if isinstance(event, RouteEnded)]
    began = [event for event in events if isinstance(event, RouteBegan)]
    return RecordedRun(
        packet=rebuild_packet(events),
        narrowing=narrowings[-1] if narrowings else None,
        confidence=judged[-1] if judged else None,
        question=questions[-1] if questions else None,
        outcome=outcomes[-1] if outcomes else None,
        pending_ids=tuple(event.pending_id for event in events if isinstance(event, ApprovalRequested)),
        scopes=tuple(scope for event in began for scope in event.scopes),
        trail=next((event.trail for event in began if event.trail), None),
    )


async def _iterate_events(store: Store, packet_id: str) -> AsyncIterator[JournalEntry]:
    after = 0
    while page := await store.journal.list_events(packet_id=packet_id, after_seq=after):
        for entry in page:
            yield entry
        after = page[-1].seq


async def resume_run(run: RunState, pending: Pending, known: RecordedRun) -> Route:
    """Run the approved calls, record the rejected ones, and continue to the answer."""
    if pending.decision is Decision.WAITING:
        return end_waiting_for(run, pending)
    if _is_result_recorded(run, pending) and (ended_route := _build_ended_route(run, known)) is not None:
        return ended_route
    packet_id, instance = run.packet.packet_id, run.deps.instance
    run.emit(RouteResumed(packet_id=packet_id, pending_id=pending.pending_id, instance=instance))
    waiting: Pending | None = None
    calls = (pending, *await _find_other_pending(run, pending, known))
    for each in calls:
        if each.decision is Decision.WAITING:
            waiting = waiting or each
        elif not _is_result_recorded(run, each):
            stopped = await _execute_decision(run, each)
            if stopped is not None:
                return stopped
    if waiting is not None:
        return end_waiting_for(run, waiting)
    rejections = (_describe_rejection(each) for each in calls if each.decision is not Decision.APPROVED)
    run.record_rejections("\n".join(rejections))
    rejected = any(each.decision is Decision.REJECTED for each in calls)
    if run.rejection and not rejected and not run.packet.tool_routing.worked:
        return end_declined(run, run.rejection)  # the approval expired: a model has nothing to add
    return await continue_request(run)


def _is_result_recorded(run: RunState, pending: Pending) -> bool:
    """Return whether the packet contains the call's result."""
    return any(step.call_id == pending.call_id for step in run.packet.tool_routing.steps)


def _build_ended_route(run: RunState, known: RecordedRun) -> Route | None:
    """Return the route if the run has ended already. None if it was interrupted or waits for another call."""
    state = run.packet.status.state
    if state is PacketState.WAITING and known.question is not None and known.question.pending_id is None:
        return end_asked(run, known.question)
    answer = next((field for field in run.packet.content.data_fields if field.key == "answer"), None)
    if answer is None or state not in (PacketState.ANSWERED, PacketState.FAILED):
        return None
    outcome = known.outcome or RouteOutcome.ANSWERED
    return build_finished(run, outcome, str(answer.value), by=answer.source or "")


async def _find_other_pending(run: RunState, pending: Pending, known: RecordedRun) -> list[Pending]:
    """Return the packet's other calls that needed approval, in their current state."""
    approvals = run.deps.calls.approvals
    ids = [each for each in dict.fromkeys(known.pending_ids) if each != pending.pending_id]
    others = [await approvals.get(each) for each in ids]
    return [each for each in others if each is not None]


async def resume_with_answer(run: RunState, question: Question, answer: str) -> Route:
    """Continue the call whose tool asked the person, then continue to the answer.

    If the text does not answer the question, it is asked again.
    """
    assert question.call is not None and question.tool is not None
    asked, content = question.call, parse_answer(question.call.schema, answer)
    if content is None:
        return end_asked(run, question)
    tool_call = ToolCall(name=question.tool, arguments=asked.arguments)
    schedule_calls(run, (tool_call,))
    context = build_context(run, tool_call, tokens_left=compute_tokens_left(run))
    context = replace(context, call_id=asked.call_id)  # one trace for the question and its answer
    responses: JsonObject = {asked.name: {"action": "accept", "content": content}}
    request_context = RequestContext(input_responses=responses, request_state=asked.state)
    outcome = refuse_if_unanswerable(await run.deps.calls.call(tool_call, context, request_context))
    selection = Selection(tool=question.tool, arguments=asked.arguments)
    if is_waiting(outcome):
        return await end_waiting(run, outcome, selection)
    if run.packet.tool_routing.execution_status is ExecutionStatus.APPROVED:
        emit_call_status(run, outcome)
    record_confidence_sample(run, outcome)
    add_result(run, selection, outcome)
    return await continue_request(run)


async def _execute_decision(run: RunState, pending: Pending) -> Route | None:
    """Execute the decision about one call, once for all requests that wait for it.

    Return a route if the call has to wait again.
    """
    if not pending.joined:
        return await _execute_decision_alone(run, pending)
    deps = run.deps
    async with hold_claim(deps.store, f"call {pending.pending_id}", deps.instance):
        made = await _find_shared_result(run, pending)
        if made is None:
            return await _execute_decision_alone(run, pending)
        result, step = made
        selection = Selection(tool=pending.tool, arguments=step.arguments)
        _emit_status(run, pending, selection, success=step.success)
        note = f"This call was made once for {len(pending.packets)} requests that waited for its approval."
        noted_step = replace(step, text=f"{note}\n{step.text}")
        context = build_context(run, ToolCall(name=pending.tool, arguments={}), tokens_left=None)
        text = str(result.output if result.success else result.error)
        await deps.calls.note_shared_result(step.tool, context, text)
        run.emit(ToolResultInjected(packet_id=run.packet.packet_id, result=result, step=noted_step))
    return None


async def _find_shared_result(run: RunState, pending: Pending) -> tuple[ToolResult, Step] | None:
    """Return the result of this call if another request has run it already."""
    if pending.decision is not Decision.APPROVED:
        return None
    journal, kinds = run.deps.store.journal, (ToolResultInjected.kind,)
    for packet_id in pending.packets:
        for entry in await journal.list_events(packet_id=packet_id, kinds=kinds):
            event = entry.event
            if isinstance(event, ToolResultInjected) and event.step and event.step.call_id == pending.call_id:
                return event.result, event.step
    return None


async def _execute_decision_alone(run: RunState, pending: Pending) -> Route | None:
    tool_call = ToolCall(name=pending.tool, arguments=pending.arguments)
    if pending.decision is Decision.APPROVED:
        schedule_calls(run, (tool_call,))
    context = build_context(run, tool_call, tokens_left=compute_tokens_left(run))
    outcome = refuse_if_unanswerable(await run.deps.calls.resume(pending.pending_id, context))
    arguments = pending.arguments if pending.edited_arguments is None else pending.edited_arguments
    selection = Selection(tool=pending.tool, arguments=arguments)
    if is_waiting(outcome):
        return await end_waiting(run, outcome, selection)
    _emit_status(run, pending, selection, success=outcome.success)
    record_confidence_sample(run, outcome)
    add_result(run, selection, outcome)
    return None


def _emit_status(run: RunState, pending: Pending, selection: Selection, *, success: bool) -> None:
    status = run.packet.tool_routing.execution_status
    if status not in (ExecutionStatus.AWAITING_CONFIDENCE, ExecutionStatus.APPROVED):
        record_selection(run, selection)  # the turn's first call has ended: this is the next one
        emit_status(run, ExecutionStatus.AWAITING_CONFIDENCE)
        status = ExecutionStatus.AWAITING_CONFIDENCE
    if pending.decision is not Decision.APPROVED:
        emit_status(run, ExecutionStatus.USER_DENIED, pending.decision_reason or pending.decision.value)
        return
    if status is ExecutionStatus.AWAITING_CONFIDENCE:
        emit_status(run, ExecutionStatus.APPROVED, f"approved by {pending.decided_by}")
    emit_status(run, ExecutionStatus.EXECUTED if success else ExecutionStatus.FAILED)


def _describe_rejection(pending: Pending) -> str:
    """Return a sentence for the person about a call that was rejected or expired."""
    if pending.decision is Decision.EXPIRED:
        return f"{pending.tool} was not approved in time and did not run."
    reason = f": {pending.decision_reason}" if pending.decision_reason else ""
    return f"{pending.tool} was rejected by {pending.decided_by or 'a person'} and was not done{reason}"
