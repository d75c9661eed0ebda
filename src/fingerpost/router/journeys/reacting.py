"""The ReAct agent: it says what it thinks, acts once, looks at what came back, and thinks again."""

from __future__ import annotations

from dataclasses import replace

from fingerpost.call import reread
from fingerpost.catalog.names import FIND_TOOLS
from fingerpost.choose.definitions import names
from fingerpost.choose.react import react_request
from fingerpost.choose.react_reading import ReactTurn, read_react
from fingerpost.events import ReplyRejected, ThoughtNoted
from fingerpost.llm import ModelReply, ModelRequest, Role
from fingerpost.records import ToolCard
from fingerpost.router.journeys import acting, agents, endings
from fingerpost.router.journeys.agents import finding, is_final, run_calls, schedule_turn
from fingerpost.router.journeys.briefing import brief, guides
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.writing import (
    Written,
    answer_without_tools,
    cleaned,
    ended_with,
    lacks_answer,
    loop_note,
    write_plainly,
)
from fingerpost.router.route import Route

MOST_JUNK = 2  # replies in a row that say nothing usable


async def reacting(journey: Journey) -> Route:
    """From the request to the answer."""
    await journey.narrow()
    return await take_turns(journey)


async def take_turns(journey: Journey) -> Route:
    """Think, act, observe, until there is an answer.

    A turn of this agent has a shape of its own, in which there is no room for tools of the caller's and
    for the shape their answer is to have: with these it thinks beside its calls.
    """
    brought = journey.brought
    if brought.tools or brought.since or brought.is_shaped:
        return await agents.take_turns(journey)
    junk, note = 0, ""
    while True:
        cards = journey.cards()
        last = is_final(journey, cards)
        request = await _request(journey, cards, last=last, note=note)
        reply, turn = await _think(journey, request, cards, last=last)
        if turn.call is None and turn.answer:
            written = await cleaned(journey, replace(reply, text=turn.answer))
            if lacks_answer(written):
                written = await write_plainly(journey, request, written)
            return ended_with(journey, written)
        silent = Written(text="", reply=reply)
        if turn.call is None and not reply.text.strip() and silent.is_refusal:
            return ended_with(journey, silent)
        reads = turn.call is not None and turn.call.name == reread.NAME
        if (last and not reads) or junk >= MOST_JUNK:
            return await answer_without_tools(journey)
        if turn.call is not None and turn.call.name == FIND_TOOLS:  # seeing other tools is no round
            note = await acting.find_others(journey, turn.call)
            continue
        junk, note = (0, "") if turn.call is not None else (junk + 1, turn.problem)
        waiting = await run_calls(journey, () if turn.call is None else (turn.call,))
        note = loop_note(journey) or note
        if not reads:  # reading on in a result that was cut is no round
            acting.reinject(journey)
        if waiting is not None:
            return await endings.waiting(journey, *waiting)


async def _request(journey: Journey, cards: tuple[ToolCard, ...], *, last: bool, note: str) -> ModelRequest:
    schedule_turn(journey, final=last, note=note)
    told = await brief(journey, cards, tools=True)
    return react_request(
        journey.packet,
        cards,
        system=told.system,
        history=told.history,
        settings=journey.settings.choose,
        last=last,
        order=journey.packet.context.available_tools,
        own=journey.own_tools,
        finding=finding(journey),
        guides=await guides(journey, cards),
        note=note,
        brought=journey.brought,
    )


async def _think(
    journey: Journey, request: ModelRequest, cards: tuple[ToolCard, ...], *, last: bool
) -> tuple[ModelReply, ReactTurn]:
    number = journey.packet.tool_routing.reinjection_count + 1
    reply = await journey.asks(Role.PRIME, "turn")(request)
    own = names((*journey.own_tools, *(() if last else finding(journey))))
    turn = read_react(reply.text, () if last else cards, own=own, last=last and not own)
    if turn.thought:
        journey.tell(ThoughtNoted(packet_id=journey.packet.packet_id, turn=number, text=turn.thought))
    if turn.problem:
        journey.tell(ReplyRejected(packet_id=journey.packet.packet_id, purpose="turn", problem=turn.problem))
    return reply, turn
