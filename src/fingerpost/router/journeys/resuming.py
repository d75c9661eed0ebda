"""Going on with a packet that waited for a person, from what the journal holds of it.

What was decided is carried out, once: a call whose result is part of the packet already is not made
again. Of several calls that one turn asked for, all are decided before the journey goes on.
"""

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
    rebuild,
)
from fingerpost.frozen import frozen
from fingerpost.records import (
    Confidence,
    Decision,
    ErrorKind,
    ExecutionStatus,
    JsonObject,
    Mode,
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
from fingerpost.router.elsewhere import hold_claim
from fingerpost.router.journeys import acting, agents, endings, keyless, reacting, staged
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.questions import understood, waits
from fingerpost.router.journeys.said import answer_of
from fingerpost.router.journeys.samples import note_outcome
from fingerpost.router.route import Route
from fingerpost.servers.caller import Passage
from fingerpost.store import Recorded, Store


@frozen
class Remembered:
    """A packet as it stood, and what was concluded about it last."""

    packet: Packet | None
    narrowing: Narrowing | None
    confidence: Confidence | None
    question: Question | None  # what the person was asked last
    outcome: RouteOutcome | None  # how it ended the last time, or what it waited for
    asked: tuple[str, ...]  # the ids of all calls that ever waited, the oldest first
    scopes: tuple[Scope, ...] = ()  # what the caller might use


async def remembered(store: Store, packet_id: str) -> Remembered:
    """What the journal holds of a packet."""
    await store.journal.flush()
    events = [entry.event async for entry in _all(store, packet_id)]
    narrowings = [event.narrowing for event in events if isinstance(event, RequestNarrowed)]
    judged = [event.confidence for event in events if isinstance(event, ConfidenceJudged)]
    questions = [event.question for event in events if isinstance(event, QuestionAsked)]
    outcomes = [event.outcome for event in events if isinstance(event, RouteEnded)]
    return Remembered(
        packet=rebuild(events),
        narrowing=narrowings[-1] if narrowings else None,
        confidence=judged[-1] if judged else None,
        question=questions[-1] if questions else None,
        outcome=outcomes[-1] if outcomes else None,
        asked=tuple(event.pending_id for event in events if isinstance(event, ApprovalRequested)),
        scopes=tuple(scope for event in events if isinstance(event, RouteBegan) for scope in event.scopes),
    )


async def _all(store: Store, packet_id: str) -> AsyncIterator[Recorded]:
    after = 0
    while page := await store.journal.events(packet_id=packet_id, after_seq=after):
        for entry in page:
            yield entry
        after = page[-1].seq


async def resume(journey: Journey, pending: Pending, known: Remembered) -> Route:
    """Run what was allowed (or hear that it was not), and go on to the answer."""
    if pending.decision is Decision.WAITING:
        return endings.waiting_for(journey, pending)
    if _is_done(journey, pending) and (over := _over(journey, known)) is not None:
        return over
    told = RouteResumed(
        packet_id=journey.packet.packet_id, pending_id=pending.pending_id, instance=journey.house.instance
    )
    journey.tell(told)
    waiting: Pending | None = None
    calls = (pending, *await _others(journey, pending, known))
    for each in calls:
        if each.decision is Decision.WAITING:
            waiting = waiting or each
        elif not _is_done(journey, each):
            stopped = await _carry_out(journey, each)
            if stopped is not None:
                return stopped
    if waiting is not None:
        return endings.waiting_for(journey, waiting)
    journey.rejection = "\n".join(_told(each) for each in calls if each.decision is not Decision.APPROVED)
    rejected = any(each.decision is Decision.REJECTED for each in calls)
    if journey.rejection and not rejected and not journey.packet.tool_routing.worked:
        return endings.declined(journey, journey.rejection)  # its time was over: no model has to hear of it
    return await go_on(journey)


def _is_done(journey: Journey, pending: Pending) -> bool:
    """Whether what became of the call is part of the packet."""
    return any(step.call_id == pending.call_id for step in journey.packet.tool_routing.steps)


def _over(journey: Journey, known: Remembered) -> Route | None:
    """The end the journey has come to already; None where it was interrupted, or waits for another call."""
    state = journey.packet.status.state
    if state is PacketState.WAITING and known.question is not None and known.question.pending_id is None:
        return endings.asked(journey, known.question)
    answer = next((field for field in journey.packet.content.data_fields if field.key == "answer"), None)
    if answer is None or state not in (PacketState.ANSWERED, PacketState.FAILED):
        return None
    outcome = known.outcome or RouteOutcome.ANSWERED
    return endings.standing(journey, outcome, str(answer.value), by=answer.source or "")


async def _others(journey: Journey, pending: Pending, known: Remembered) -> list[Pending]:
    """The other calls of this packet a person was asked about, as they stand."""
    approvals = journey.house.calls.approvals
    others = [await approvals.get(each) for each in dict.fromkeys(known.asked) if each != pending.pending_id]
    return [each for each in others if each is not None]


async def answered(journey: Journey, question: Question, answer: str) -> Route:
    """Go on with the call whose tool asked the person, and from its result to the answer.

    Words that do not answer what was asked change nothing: it is asked again.
    """
    assert question.call is not None and question.tool is not None
    asked, said = question.call, answer_of(question.call.schema, answer)
    if said is None:
        return endings.asked(journey, question)
    wish = ToolCall(name=question.tool, arguments=asked.arguments)
    acting.schedule_calls(journey, (wish,))
    context = acting.context_of(journey, wish, tokens_left=acting.room(journey))
    context = replace(context, call_id=asked.call_id)  # one trace from the question to the answer
    told: JsonObject = {asked.name: {"action": "accept", "content": said}}
    passage = Passage(input_responses=told, request_state=asked.state)
    outcome = understood(await journey.house.calls.call(wish, context, passage))
    selection = Selection(tool=question.tool, arguments=asked.arguments)
    if waits(outcome):
        return await endings.waiting(journey, outcome, selection)
    if journey.packet.tool_routing.execution_status is ExecutionStatus.APPROVED:
        acting.status(journey, ExecutionStatus.EXECUTED if outcome.success else ExecutionStatus.FAILED)
    note_outcome(journey, outcome)
    acting.inject(journey, selection, outcome)
    return await go_on(journey)


async def _carry_out(journey: Journey, pending: Pending) -> Route | None:
    """Do what was decided about one call, once for all requests that wait for it.

    A route where it has to wait once more.
    """
    if not pending.joined:
        return await _carry_out_alone(journey, pending)
    house = journey.house
    async with hold_claim(house.store, f"call {pending.pending_id}", house.instance):
        made = await _made_for_another(journey, pending)
        if made is None:
            return await _carry_out_alone(journey, pending)
        result, step = made
        selection = Selection(tool=pending.tool, arguments=step.arguments)
        _tell_status(journey, pending, selection, success=step.success)
        said = f"This call was made once, for {len(pending.packets)} requests that waited for its approval."
        told = replace(step, text=f"{said}\n{step.text}")
        journey.tell(ToolResultInjected(packet_id=journey.packet.packet_id, result=result, step=told))
    return None


async def _made_for_another(journey: Journey, pending: Pending) -> tuple[ToolResult, Step] | None:
    """The result of this call, where another request has it already."""
    if pending.decision is not Decision.APPROVED:
        return None
    for packet_id in pending.packets:
        found = await journey.house.store.journal.events(
            packet_id=packet_id, kinds=(ToolResultInjected.kind,)
        )
        for entry in found:
            event = entry.event
            if isinstance(event, ToolResultInjected) and event.step and event.step.call_id == pending.call_id:
                return event.result, event.step
    return None


async def _carry_out_alone(journey: Journey, pending: Pending) -> Route | None:
    wish = ToolCall(name=pending.tool, arguments=pending.arguments)
    if pending.decision is Decision.APPROVED:
        acting.schedule_calls(journey, (wish,))
    context = acting.context_of(journey, wish, tokens_left=acting.room(journey))
    outcome = understood(await journey.house.calls.resume(pending.pending_id, context))
    arguments = pending.arguments if pending.edited_arguments is None else pending.edited_arguments
    selection = Selection(tool=pending.tool, arguments=arguments)
    if waits(outcome):
        return await endings.waiting(journey, outcome, selection)
    _tell_status(journey, pending, selection, success=outcome.success)
    note_outcome(journey, outcome)
    acting.inject(journey, selection, outcome)
    return None


def _tell_status(journey: Journey, pending: Pending, selection: Selection, *, success: bool) -> None:
    status = journey.packet.tool_routing.execution_status
    if status not in (ExecutionStatus.AWAITING_CONFIDENCE, ExecutionStatus.APPROVED):
        acting.selected(journey, selection)  # the turn's first call is done: this is the next one
        acting.status(journey, ExecutionStatus.AWAITING_CONFIDENCE)
        status = ExecutionStatus.AWAITING_CONFIDENCE
    if pending.decision is not Decision.APPROVED:
        acting.status(journey, ExecutionStatus.USER_DENIED, pending.decision_reason or pending.decision.value)
        return
    if status is ExecutionStatus.AWAITING_CONFIDENCE:
        acting.status(journey, ExecutionStatus.APPROVED, f"by {pending.decided_by}")
    acting.status(journey, ExecutionStatus.EXECUTED if success else ExecutionStatus.FAILED)


async def go_on(journey: Journey) -> Route:
    """From the results to the answer. Whoever chose a call hears that a person did not allow it."""
    routing = journey.packet.tool_routing
    if journey.mode is Mode.KEYLESS or not journey.house.pool.ready:
        if journey.rejection and not routing.worked:
            return endings.declined(journey, journey.rejection)
        return keyless.conclude_keyless(journey)
    if journey.mode is Mode.STAGED:
        last = routing.steps[-1]
        error = None if last.error is None else ErrorKind(last.error)
        following = await staged.after_result(journey, success=last.success, error=error)
        return await (staged.go_round(journey) if following is staged.Next.AGAIN else staged.finish(journey))
    turns = reacting.take_turns if journey.mode is Mode.REACT else agents.take_turns
    return await turns(journey)


def _told(pending: Pending) -> str:
    """What became of a call that was not allowed, for the person who asked."""
    if pending.decision is Decision.EXPIRED:
        return f"Nobody decided about {pending.tool} in time, so it was not done."
    reason = f": {pending.decision_reason}" if pending.decision_reason else ""
    return f"{pending.tool} was rejected by {pending.decided_by or 'a person'} and was not done{reason}"
