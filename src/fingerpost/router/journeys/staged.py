"""The staged way: a light model selects, arguments are checked, the prime model reviews, a gate decides.

One round makes at most one call. Its result goes back into the packet, and the
packet goes round again while something is left to do, at most three times.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from fingerpost.call.making import Checked
from fingerpost.choose.brought import beside
from fingerpost.choose.confidence import judge
from fingerpost.choose.review import review
from fingerpost.choose.selection import select
from fingerpost.choose.single import in_words
from fingerpost.events import (
    ConfidenceJudged,
    PlanNoted,
    ReplyRejected,
    SelectionReviewed,
)
from fingerpost.llm import Role
from fingerpost.llm.content import worded
from fingerpost.records import (
    Chosen,
    Confidence,
    ErrorKind,
    ExecutionStatus,
    GateVerdict,
    Message,
    MissingArgument,
    NeedVerdict,
    Outcome,
    ParameterFault,
    Question,
    Review,
    Selection,
    Shortlist,
    SystemTask,
    ToolCard,
)
from fingerpost.router.journeys import acting, endings
from fingerpost.router.journeys.briefing import guidance, guides, history_for
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.questions import waits
from fingerpost.router.journeys.samples import note_outcome
from fingerpost.router.journeys.writing import conclude, conclude_for_good
from fingerpost.router.route import Route
from fingerpost.settings.rollouts import resolve


class Next(Enum):
    """What follows a round that did not end the journey."""

    AGAIN = auto()
    ANSWER = auto()


async def staged(journey: Journey) -> Route:
    """From the request to the answer."""
    narrowing = await journey.narrow()
    if narrowing.need.verdict is NeedVerdict.NONE or journey.brought.is_settled:
        return await finish(journey)
    return await go_round(journey)


async def go_round(journey: Journey) -> Route:
    """Rounds until nothing is left to do or the cap is reached, then the answer."""
    while journey.can_call and (cards := journey.cards()):
        chosen = await selected(journey, cards)
        following = await consider(journey, chosen, cards)
        if isinstance(following, Route):
            return following
        if following is Next.ANSWER:
            break
    return await finish(journey)


async def finish(journey: Journey) -> Route:
    """The answer; a call the model wrote into it by mistake is considered like any other, once."""
    ending = await conclude(journey)
    if isinstance(ending, Route):
        return ending
    following = await consider(journey, Chosen(selection=ending), journey.cards())
    return following if isinstance(following, Route) else await conclude_for_good(journey)


async def after_call(journey: Journey, outcome: Outcome, selection: Selection) -> Route | Next:
    """What follows a call: wait, go on with what is left, try another way, or answer."""
    if waits(outcome):
        return await endings.waiting(journey, outcome, selection)
    note_outcome(journey, outcome)
    acting.inject(journey, selection, outcome)
    return await after_result(journey, success=outcome.success, error=outcome.error)


async def after_result(journey: Journey, *, success: bool, error: ErrorKind | None) -> Next:
    """What follows a result that has become part of the packet."""
    acting.reinject(journey)
    if not success:
        return Next.ANSWER if error in _FINAL else Next.AGAIN
    remaining = _remaining(journey)
    if not remaining or not journey.settings.flags.chains:
        return Next.ANSWER
    await journey.narrow_for(remaining)
    return Next.AGAIN


# A person or a rule said no: looking for a way around would be disobedience.
_FINAL = (ErrorKind.CANCELLED, ErrorKind.DENIED)


async def selected(journey: Journey, cards: tuple[ToolCard, ...]) -> Chosen:
    """What the selecting model takes of these tools."""
    if acting.is_to_be_refined(journey):
        journey.schedule(SystemTask.REFINE)
    journey.schedule(SystemTask.TOOL_ROUTING)
    history = (*await history_for(journey), *behind(journey))
    about = (await guides(journey, cards), beside(journey.brought), guidance(journey))
    chosen = await select(
        journey.asks(Role.LITE, "selection"),
        journey.packet,
        cards,
        journey.settings.tool_routing,
        instructions="\n\n".join(part for part in about if part),
        history=history,
        asking=acting.asking_approval(journey, cards),
    )
    if chosen.problem:
        journey.tell(
            ReplyRejected(packet_id=journey.packet.packet_id, purpose="selection", problem=chosen.problem)
        )
    return chosen


def behind(journey: Journey) -> tuple[Message, ...]:
    """What came of calls the caller's tools took for this request, for models that read words alone."""
    since = in_words([worded(message) for message in journey.brought.since])
    if not since:
        return ()
    first = Message(role="user", text=journey.packet.content.original_prompt)
    return (first, *since)


async def consider(journey: Journey, chosen: Chosen, cards: tuple[ToolCard, ...]) -> Route | Next:
    """Check, review and gate what was chosen; call it if it passes."""
    selection = chosen.selection
    if selection is None:
        if chosen.problem:
            return Next.AGAIN if acting.widen(journey, chosen.problem) else Next.ANSWER
        widened = not journey.packet.tool_routing.steps and await acting.widen_servers(journey)
        return Next.AGAIN if widened else Next.ANSWER
    acting.selected(journey, selection, alternatives=chosen.alternatives)
    if chosen.remaining or _remaining(journey):
        planned = journey.packet.tool_routing.selected_tool
        reads = None if planned is None else planned.read_only
        journey.tell(
            PlanNoted(packet_id=journey.packet.packet_id, remaining=chosen.remaining, read_only=reads)
        )
    checked = journey.house.calls.check(
        acting.wish_of(selection), journey.asking.get("scopes", ()), profile=journey.asking.get("profile")
    )
    card = next((card for card in cards if card.key == checked.tool), None)
    if checked.problem or card is None:
        return _unfit(journey, selection, checked)
    confidence = await _judged(journey, replace(selection, arguments=checked.arguments), card, checked)
    return await _gate(journey, selection, confidence)


async def _judged(journey: Journey, selection: Selection, card: ToolCard, checked: Checked) -> Confidence:
    acting.status(journey, ExecutionStatus.AWAITING_CONFIDENCE)
    opinion = await _review(journey, selection, card, checked) if journey.settings.flags.review else None
    narrowing = journey.narrowing
    confidence = judge(
        selection,
        opinion,
        narrowing.shortlist if narrowing is not None else Shortlist(),
        calibration=await journey.house.calibration(),
        settings=resolve(await journey.house.settings_for(card), journey.arms),
    )
    journey.confidence = confidence
    journey.tell(ConfidenceJudged(packet_id=journey.packet.packet_id, confidence=confidence))
    return confidence


async def _review(journey: Journey, selection: Selection, card: ToolCard, checked: Checked) -> Review:
    journey.schedule(SystemTask.VALIDATE)
    opinion = await review(
        journey.asks(Role.PRIME, "review"),
        journey.packet,
        selection,
        card,
        journey.settings.tool_routing,
        notes=[f"{repair.path} was {repair.kind}: {repair.reason}" for repair in checked.repairs],
        history=(*await history_for(journey), *behind(journey)),
    )
    journey.tell(SelectionReviewed(packet_id=journey.packet.packet_id, review=opinion))
    return opinion


async def _gate(journey: Journey, selection: Selection, confidence: Confidence) -> Route | Next:
    journey.schedule(SystemTask.DECISION)
    if confidence.verdict is GateVerdict.GO:
        acting.status(journey, ExecutionStatus.APPROVED, confidence.reason)
        outcome = await acting.call(journey, selection)
        _told(journey, outcome)
        return await after_call(journey, outcome, selection)
    if acting.widen(journey, confidence.reason):
        return Next.AGAIN
    if confidence.verdict is GateVerdict.DECLINE:
        acting.status(journey, ExecutionStatus.SKIPPED, confidence.reason)
        journey.note = f"{selection.tool} was considered and not used: {confidence.reason}"
        return Next.ANSWER
    return await _ask_person(journey, selection, confidence)


async def _ask_person(journey: Journey, selection: Selection, confidence: Confidence) -> Route | Next:
    """Below the threshold nothing runs before a person has looked at exactly this call."""
    outcome = await acting.call(journey, selection, doubt=confidence.reason)
    if outcome.pending_id is None and outcome.success:  # a grant of theirs covers it already
        acting.status(journey, ExecutionStatus.APPROVED, "allowed before in this conversation")
    _told(journey, outcome)
    return await after_call(journey, outcome, selection)


def _told(journey: Journey, outcome: Outcome) -> None:
    """The status after a call that came to an end."""
    if waits(outcome):
        return
    before = journey.packet.tool_routing.execution_status
    if outcome.success:
        after = ExecutionStatus.EXECUTED
    elif outcome.error is ErrorKind.CANCELLED:
        after = ExecutionStatus.USER_DENIED
    elif before is ExecutionStatus.APPROVED:
        after = ExecutionStatus.FAILED
    else:
        after = ExecutionStatus.SKIPPED
    acting.status(journey, after, "" if outcome.success else str(outcome.error or ""))


def _unfit(journey: Journey, selection: Selection, checked: Checked) -> Route | Next:
    """Arguments that cannot be put right: the model tries again, then the person is asked."""
    acting.status(journey, ExecutionStatus.SKIPPED, "its arguments do not fit")
    before = [step for step in journey.packet.tool_routing.steps if step.tool == selection.tool]
    missing = tuple(
        MissingArgument(name=error.parameter, description=error.message)
        for error in checked.errors
        if error.fault is ParameterFault.MISSING
    )
    again = any(step.error == ErrorKind.INVALID_PARAMETERS.value for step in before)
    if missing and (again or journey.packet.tool_routing.reinjections_left <= 1):
        names = ", ".join(argument.name for argument in missing)
        text = f"To use {selection.tool} I need to know: {names}."
        return endings.asked(journey, Question(text=text, tool=selection.tool, missing=missing))
    kind = ErrorKind.INVALID_PARAMETERS if checked.tool else ErrorKind.TOOL_NOT_FOUND
    takes = f" It takes: {checked.signature}" if checked.signature else ""
    problem = checked.problem or f"{selection.tool} is not among the tools offered"
    acting.inject_problem(journey, selection, kind, problem + takes)
    acting.reinject(journey)
    return Next.AGAIN


def _remaining(journey: Journey) -> str:
    notes = journey.packet.reasoning.sketchpad
    return next((note.text for note in notes if note.key == "remaining"), "")
