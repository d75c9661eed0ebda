"""The ReAct agent: it says what it thinks, acts once, looks at what came back, and thinks again."""

from __future__ import annotations

from dataclasses import replace

from fingerpost.call import reread
from fingerpost.catalog.names import FIND_TOOLS
from fingerpost.choose.definitions import get_tool_names
from fingerpost.choose.react import build_react_request
from fingerpost.choose.react_reading import ReactTurn, parse_react_turn
from fingerpost.events import ReplyRejected, ThoughtNoted
from fingerpost.llm import ModelReply, ModelRequest, Role
from fingerpost.records import ToolCard
from fingerpost.router.journeys import acting, agents, endings
from fingerpost.router.journeys.agents import get_find_tools, is_final, run_turn_calls, schedule_turn
from fingerpost.router.journeys.briefing import build_offered_guides, build_prompt
from fingerpost.router.journeys.journey import RunState
from fingerpost.router.journeys.writing import (
    WrittenReply,
    answer_without_tools,
    build_loop_note,
    clean_reply,
    end_with_text,
    lacks_answer,
    write_plainly,
)
from fingerpost.router.route import Route

MAX_UNREADABLE_TURNS = 2  # replies in a row that say nothing usable


async def run_react(run: RunState) -> Route:
    """From the request to the answer."""
    await run.narrow()
    return await run_react_turns(run)


async def run_react_turns(run: RunState) -> Route:
    """Think, act, observe, until there is an answer.

    A turn of this agent has a shape of its own, in which there is no room for tools of the caller's and
    for the shape their answer is to have: with these it thinks beside its calls.
    """
    brought = run.client_options
    if brought.tools or brought.later_messages or brought.has_response_format:
        return await agents.run_agent_turns(run)
    junk, note = 0, ""
    while True:
        cards = run.get_cards()
        last = is_final(run, cards)
        request = await _build_request(run, cards, last=last, note=note)
        reply, turn = await _run_turn(run, request, cards, last=last)
        if turn.call is None and turn.answer:
            written = await clean_reply(run, replace(reply, text=turn.answer))
            if lacks_answer(written):
                written = await write_plainly(run, request, written)
            return end_with_text(run, written)
        silent = WrittenReply(text="", reply=reply)
        if turn.call is None and not reply.text.strip() and silent.is_refusal:
            return end_with_text(run, silent)
        reads = turn.call is not None and turn.call.name == reread.READ_RESULT_TOOL_NAME
        if (last and not reads) or junk >= MAX_UNREADABLE_TURNS:
            return await answer_without_tools(run)
        if turn.call is not None and turn.call.name == FIND_TOOLS:  # seeing other tools is no round
            note = await acting.find_other_tools(run, turn.call)
            continue
        junk, note = (0, "") if turn.call is not None else (junk + 1, turn.problem)
        waiting = await run_turn_calls(run, () if turn.call is None else (turn.call,))
        note = build_loop_note(run) or note
        if not reads:  # reading on in a result that was cut is no round
            acting.begin_next_round(run)
        if waiting is not None:
            return await endings.build_waiting(run, *waiting)


async def _build_request(
    run: RunState, cards: tuple[ToolCard, ...], *, last: bool, note: str
) -> ModelRequest:
    schedule_turn(run, final=last, note=note)
    told = await build_prompt(run, cards, tools=True)
    return build_react_request(
        run.packet,
        cards,
        system=told.system,
        history=told.history,
        settings=run.settings.choose,
        last=last,
        order=run.packet.context.available_tools,
        own_tools=run.own_tools,
        find_tools=get_find_tools(run),
        guides=await build_offered_guides(run, cards),
        note=note,
        client=run.client_options,
    )


async def _run_turn(
    run: RunState, request: ModelRequest, cards: tuple[ToolCard, ...], *, last: bool
) -> tuple[ModelReply, ReactTurn]:
    number = run.packet.tool_routing.reinjection_count + 1
    reply = await run.build_ask(Role.PRIME, "turn")(request)
    own = get_tool_names((*run.own_tools, *(() if last else get_find_tools(run))))
    turn = parse_react_turn(reply.text, () if last else cards, own_names=own, last=last and not own)
    if turn.thought:
        run.emit(ThoughtNoted(packet_id=run.packet.packet_id, turn=number, text=turn.thought))
    if turn.problem:
        run.emit(ReplyRejected(packet_id=run.packet.packet_id, purpose="turn", problem=turn.problem))
    return reply, turn
