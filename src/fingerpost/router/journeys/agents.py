"""Single decision and the simple agent: the model gets definitions and decides by itself.

A single decision is made once: what it calls runs, side by side where it asks for
several, and the next turn is the answer. The simple agent may go on calling until
its turns are over. Policy, approval and everything else of the call path hold for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from fingerpost.call import reread
from fingerpost.catalog.names import FIND_TOOLS
from fingerpost.choose.definitions import names
from fingerpost.choose.naming import meant
from fingerpost.choose.offer import FIND, stable_offer
from fingerpost.choose.single import turn_request
from fingerpost.choose.turns import Turn, read_turn
from fingerpost.events import ReplyRejected, ThoughtNoted
from fingerpost.records import (
    ExecutionStatus,
    JsonObject,
    Mode,
    Outcome,
    Selection,
    SystemTask,
    ToolCall,
    ToolCard,
)
from fingerpost.router.journeys import acting, endings
from fingerpost.router.journeys.briefing import brief, guides, uses
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.offers import offer_key
from fingerpost.router.journeys.questions import asks, unasked
from fingerpost.router.journeys.writing import (
    Written,
    answer_without_tools,
    ended_with,
    is_in_shape,
    lacks_answer,
    loop_note,
    spoken,
    write,
    write_plainly,
)
from fingerpost.router.route import Route

THINK_ALOUD = "Before you call a tool, say in a sentence or two what you know and what you need."


async def agent(journey: Journey) -> Route:
    """From the request to the answer."""
    await journey.narrow()
    await offer(journey)
    return await take_turns(journey)


async def offer(journey: Journey) -> None:
    """What this request is offered, beside what the conversation was offered before and has room for.

    Tools keep their places, so the prompt of the next turn begins as this one did. None stays that this
    caller may not use any more, or beside a tool that alone is offered for its intent.
    """
    if journey.depth:  # a subagent's tools are no part of its parent's prompt
        return
    known_by = offer_key(journey.asking)
    now = journey.packet.context.available_tools
    if not now or journey.narrowing is None:
        return
    shortlist, house = journey.narrowing.shortlist, journey.house
    last = () if shortlist.exclusive else house.offers.last(known_by)
    previous = await house.guide.filter_usable(house.snapshot(), last, journey.asking)
    most = journey.asking.get("max_tools") or journey.settings.narrow.max_tools
    tools = stable_offer(previous, now, most, [candidate.tool for candidate in shortlist.candidates])
    house.offers.keep(known_by, tools)
    journey.with_cards(tools, kept=tuple(key for key in tools if key not in now))


async def take_turns(journey: Journey) -> Route:
    """Decide, call, decide again; the last turn answers without tools."""
    note = ""
    while True:
        cards = journey.cards()
        final = is_final(journey, cards)
        written, turn = await _decide(journey, cards, final=final, note=note)
        if not turn.calls and (turn.handed or not turn.problems):
            return ended_with(journey, written)
        pages = tuple(call for call in turn.calls if call.name == reread.NAME)
        if final and not pages:
            words = written.text or written.handed
            return ended_with(journey, written) if words else await answer_without_tools(journey)
        if not turn.handed:
            journey.end_part()
        found = ""
        if (wish := next((call for call in turn.calls if call.name == FIND_TOOLS), None)) is not None:
            found = await acting.find_others(journey, wish)
            turn = replace(turn, calls=tuple(call for call in turn.calls if call.name != FIND_TOOLS))
            if not turn.calls and not turn.handed:  # seeing other tools is no round
                note = found
                continue
        waiting = await run_calls(journey, turn.calls)
        note = "\n\n".join(part for part in (loop_note(journey) or turn.note, found) if part)
        if pages != turn.calls or not pages:  # reading on in a result that was cut is no round
            acting.reinject(journey)
        if waiting is not None:  # what the caller is to do comes after what a person has to say
            return await endings.waiting(journey, *waiting)
        if turn.handed:
            return ended_with(journey, written)


def _note_thought(journey: Journey, turn: Turn) -> None:
    """Words beside calls are a thought of a ReAct agent."""
    if turn.text and (turn.calls or turn.handed) and journey.mode is Mode.REACT:
        number = journey.packet.tool_routing.reinjection_count + 1
        journey.tell(ThoughtNoted(packet_id=journey.packet.packet_id, turn=number, text=turn.text))


def is_final(journey: Journey, cards: Sequence[ToolCard]) -> bool:
    """Whether the model has to answer now."""
    routing = journey.packet.tool_routing
    called = any(step.tool != reread.NAME for step in routing.worked)
    decided = journey.mode is Mode.SINGLE and (called or bool(routing.cancelled))
    insists = len(routing.cancelled) > 1  # after a person's no
    return decided or insists or not journey.can_call or not cards


def finding(journey: Journey) -> tuple[JsonObject, ...]:
    """The way to tools of servers that were left out, while there is one."""
    named_so = FIND_TOOLS in journey.brought.names
    return (FIND,) if journey.can_widen and journey.packet.context.available_tools and not named_so else ()


def schedule_turn(journey: Journey, *, final: bool, note: str) -> None:
    """A turn of the model is next: to correct its last reply or arguments, to choose tools, or to answer."""
    if note or acting.is_to_be_refined(journey):
        journey.schedule(SystemTask.REFINE)
    journey.schedule(SystemTask.GENERATE_DRAFT if final else SystemTask.TOOL_ROUTING)


async def _decide(
    journey: Journey, cards: tuple[ToolCard, ...], *, final: bool, note: str
) -> tuple[Written, Turn]:
    schedule_turn(journey, final=final, note=note)
    native = await journey.takes_tools()
    told = await brief(journey, cards, tools=True)
    thinks = journey.mode is Mode.REACT
    request = turn_request(
        journey.packet,
        cards,
        system=f"{told.system}\n\n{THINK_ALOUD}".strip() if thinks else told.system,
        history=told.history,
        settings=journey.settings.choose,
        final=final,
        tools=native,
        order=journey.packet.context.available_tools,
        own=journey.own_tools,
        finding=finding(journey),
        guides="" if native else await guides(journey, cards),
        use=await uses(journey, cards) if native else {},
        note=note,
        brought=journey.brought,
    )
    quiet = thinks or request.schema is not None
    written = await write(journey, request, purpose="decision", quiet=quiet)
    callable_now = () if final else cards
    turn = _read(journey, written, callable_now, native=native or is_in_shape(journey, request))
    if turn == Turn(text=turn.text) and lacks_answer(replace(written, text=turn.text)):
        written = await write_plainly(journey, request, written)
        return written, Turn(text=written.text)
    _note_thought(journey, turn)
    if quiet and not turn.calls and not turn.handed and not turn.problems:
        written = await spoken(journey, request, replace(written, text=turn.text))
        return written, replace(turn, text=written.text)
    return replace(written, text=turn.text, handed=turn.handed), turn


def _read(journey: Journey, written: Written, cards: tuple[ToolCard, ...], *, native: bool) -> Turn:
    """What the reply says, and what is wrong with it."""
    said = replace(written.reply, text=written.text)
    own = names((*journey.own_tools, *(finding(journey) if cards else ())))
    turn = read_turn(said, cards, tools=native, own=own, callers=journey.brought.names)
    if written.is_refusal and not said.tool_calls:
        return Turn()  # in no form of ours, and none is to be asked for
    for problem in turn.problems:
        journey.tell(ReplyRejected(packet_id=journey.packet.packet_id, purpose="decision", problem=problem))
    if turn.calls or turn.handed:
        return turn
    call = None if written.call is None else meant(acting.wish_of(written.call), cards)
    return replace(turn, calls=(call,) if isinstance(call, ToolCall) else (), handed=written.handed)


async def run_calls(journey: Journey, calls: Sequence[ToolCall]) -> tuple[Outcome, Selection] | None:
    """Run what was asked for, all of it offered. What waits for a person, if something does."""
    if not calls:
        return None
    chosen = [Selection(tool=call.name, arguments=call.arguments, confidence=1.0) for call in calls]
    acting.selected(journey, chosen[0], beside=chosen[1:])
    acting.status(journey, ExecutionStatus.AWAITING_CONFIDENCE)
    acting.status(journey, ExecutionStatus.APPROVED, "the model's own choice; the rules decide")
    outcomes = await acting.call_all(journey, calls)
    waiting = _first_waiting(outcomes)
    ended: list[Outcome] = []
    for at, (selection, outcome) in enumerate(zip(chosen, outcomes, strict=True)):
        if at != waiting and outcome.pending_id is None:
            ended.append(unasked(outcome) if asks(outcome) else outcome)
            acting.inject(journey, selection, ended[-1])
    if waiting is not None:
        return outcomes[waiting], chosen[waiting]
    good = any(outcome.success for outcome in ended)
    acting.status(journey, ExecutionStatus.EXECUTED if good else ExecutionStatus.FAILED)
    return None


def _first_waiting(outcomes: Sequence[Outcome]) -> int | None:
    """What waits for leave comes before what waits for an answer."""
    pending = (at for at, outcome in enumerate(outcomes) if outcome.pending_id is not None)
    asking = (at for at, outcome in enumerate(outcomes) if asks(outcome))
    return next(chain(pending, asking), None)
