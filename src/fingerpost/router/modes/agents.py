"""Agent modes: the model gets tool definitions and decides itself. ReAct also records its thoughts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from fingerpost.call.outcomes import READ_RESULT_TOOL_NAME
from fingerpost.catalog.tool_names import FIND_TOOLS
from fingerpost.choose.offered_tools import (
    FIND_TOOLS_DEFINITION,
    get_tool_names,
    order_offered_keys,
    resolve_call,
)
from fingerpost.choose.react import ReactTurn, build_react_request, parse_react_turn
from fingerpost.choose.tool_loop import ModelTurn, build_turn_request, parse_turn
from fingerpost.events import ReplyRejected, ThoughtNoted
from fingerpost.frozen import frozen
from fingerpost.llm import ModelReply, ModelRequest, Role
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
from fingerpost.router.modes.answer import (
    WrittenReply,
    answer_without_tools,
    ask_prime,
    build_loop_note,
    clean_reply,
    end_with_text,
    extract_answer,
    has_client_format,
    lacks_answer,
    write_plainly,
)
from fingerpost.router.modes.elicitation import is_question, refuse_question
from fingerpost.router.modes.prompts import build_offered_guides, build_prompt, get_tool_uses
from fingerpost.router.modes.routes import end_waiting
from fingerpost.router.modes.run_state import RunState, build_offer_key
from fingerpost.router.modes.tool_step import (
    add_result,
    begin_next_round,
    build_tool_call,
    emit_call_status,
    emit_status,
    find_other_tools,
    record_selection,
    run_calls_in_parallel,
    should_refine_arguments,
)
from fingerpost.router.route import Route

THINK_ALOUD_NOTE = "Before you call a tool, say in a sentence or two what you know and what you need."


async def offer_tools(run: RunState) -> None:
    """Offer the tools of this request, together with earlier tools of the conversation while there is room.

    Tools keep their order, so that prompts of later turns share their beginning. Earlier tools are dropped if
    the caller may not use them any more, or if one tool is offered exclusively for its intent.
    """
    if run.depth:  # a subagent's tools do not belong to the parent's prompt
        return
    known_by = build_offer_key(run.options)
    now = run.packet.context.available_tools
    if not now or run.narrowing is None:
        return
    shortlist, deps = run.narrowing.shortlist, run.deps
    last = () if shortlist.exclusive else deps.offers.get_last(known_by)
    previous = await deps.narrower.filter_usable(deps.get_snapshot(), last, run.options)
    most = run.options.max_tools or run.settings.narrow.max_tools
    tools = order_offered_keys(previous, now, most, [candidate.tool for candidate in shortlist.candidates])
    deps.offers.keep(known_by, tools)
    run.offer_only(tools, kept=tuple(key for key in tools if key not in now))


@frozen
class AgentTurn:
    """What the model decided in one turn, and what its next turn has to know."""

    calls: tuple[ToolCall, ...] = ()
    handed: WrittenReply | None = None  # the reply, if it calls tools of the caller: they end the run
    note: str = ""  # for the next turn
    unreadable: int = 0  # replies since the last one that could be parsed


DecideTurn: TypeAlias = Callable[[RunState, AgentTurn], Awaitable[AgentTurn | Route]]


async def decide_turn(run: RunState, before: AgentTurn) -> AgentTurn | Route:
    """Let the model decide: return its calls, or the route of its answer. The last turn has no tools."""
    cards = run.get_cards()
    final = is_final(run, cards)
    written, turn = await _ask_for_turn(run, cards, final=final, note=before.note)
    if not turn.calls and (turn.handed or not turn.problems):
        return end_with_text(run, written)
    if final and not any(call.name == READ_RESULT_TOOL_NAME for call in turn.calls):
        has_answer = written.text or written.handed
        return end_with_text(run, written) if has_answer else await answer_without_tools(run)
    if not turn.handed:
        run.end_text_part()
    return AgentTurn(calls=turn.calls, handed=written if turn.handed else None, note=turn.note)


async def call_selected(run: RunState, turn: AgentTurn) -> AgentTurn | Route:
    """Make the calls of a turn. Return what the next turn has to know, or the route that ends the run."""
    find_call = next((call for call in turn.calls if call.name == FIND_TOOLS), None)
    found = "" if find_call is None else await find_other_tools(run, find_call)
    calls = tuple(call for call in turn.calls if call.name != FIND_TOOLS)
    if find_call is not None and not calls and turn.handed is None:
        return replace(turn, calls=(), note=found)  # finding other tools does not count as a round
    waiting = await run_turn_calls(run, calls)
    note = "\n\n".join(part for part in (build_loop_note(run) or turn.note, found) if part)
    if not calls or any(call.name != READ_RESULT_TOOL_NAME for call in calls):
        begin_next_round(run)  # reading more of a trimmed result does not count as a round
    if waiting is not None:  # a person's decision comes before the caller's tool calls
        return await end_waiting(run, *waiting)
    if turn.handed is not None:
        return end_with_text(run, turn.handed)
    return replace(turn, calls=(), note=note)


def is_final(run: RunState, cards: Sequence[ToolCard]) -> bool:
    """Return whether the model has to answer in this turn."""
    routing = run.packet.tool_routing
    called = any(step.tool != READ_RESULT_TOOL_NAME for step in routing.worked)
    decided = run.mode is Mode.SINGLE and (called or bool(routing.cancelled))
    insists = len(routing.cancelled) > 1  # a person has rejected a call already
    return decided or insists or not run.can_call or not cards


def get_find_tools(run: RunState) -> tuple[JsonObject, ...]:
    """Return the definition of `find_tools` if servers were left out and may still be searched."""
    is_free = FIND_TOOLS not in run.client_options.tool_names
    may_find = run.can_widen and run.packet.context.available_tools and is_free
    return (FIND_TOOLS_DEFINITION,) if may_find else ()


def schedule_turn(run: RunState, *, final: bool, note: str) -> None:
    """Schedule the model's next turn: a correction of its last reply, a choice of tools, or the answer."""
    if note or should_refine_arguments(run):
        run.schedule(SystemTask.REFINE)
    run.schedule(SystemTask.GENERATE_DRAFT if final else SystemTask.TOOL_ROUTING)


async def _ask_for_turn(
    run: RunState, cards: tuple[ToolCard, ...], *, final: bool, note: str
) -> tuple[WrittenReply, ModelTurn]:
    schedule_turn(run, final=final, note=note)
    native = await run.can_take_definitions()
    prompt = await build_prompt(run, cards, tools=True)
    thinks = run.mode is Mode.REACT
    request = build_turn_request(
        run.packet,
        cards,
        system=f"{prompt.system}\n\n{THINK_ALOUD_NOTE}".strip() if thinks else prompt.system,
        history=prompt.history,
        settings=run.settings.choose,
        final=final,
        has_tool_support=native,
        order=run.packet.context.available_tools,
        own_tools=run.own_tools,
        find_tools=get_find_tools(run),
        guides="" if native else await build_offered_guides(run, cards),
        usage=await get_tool_uses(run, cards) if native else {},
        note=note,
        client=run.client_options,
    )
    quiet = thinks or request.schema is not None
    written = await ask_prime(run, request, purpose="decision", quiet=quiet)
    callable_now = () if final else cards
    turn = _read_turn(run, written, callable_now, native=native or has_client_format(run, request))
    if turn == ModelTurn(text=turn.text) and lacks_answer(replace(written, text=turn.text)):
        written = await write_plainly(run, request, written)
        return written, ModelTurn(text=written.text)
    # The text beside calls is a thought of a ReAct agent.
    if turn.text and (turn.calls or turn.handed) and run.mode is Mode.REACT:
        number = run.packet.tool_routing.reinjection_count + 1
        run.emit(ThoughtNoted(packet_id=run.packet.packet_id, turn=number, text=turn.text))
    if quiet and not turn.calls and not turn.handed and not turn.problems:
        written = await extract_answer(run, request, replace(written, text=turn.text))
        return written, replace(turn, text=written.text)
    return replace(written, text=turn.text, handed=turn.handed), turn


def _read_turn(
    run: RunState, written: WrittenReply, cards: tuple[ToolCard, ...], *, native: bool
) -> ModelTurn:
    """Parse the reply and report its problems."""
    reply = replace(written.reply, text=written.text)
    own = get_tool_names((*run.own_tools, *(get_find_tools(run) if cards else ())))
    turn = parse_turn(
        reply, cards, has_tool_support=native, own_names=own, client_tools=run.client_options.tool_names
    )
    if written.is_refusal and not reply.tool_calls:
        return ModelTurn()  # a refusal has no format to parse
    for problem in turn.problems:
        run.emit(ReplyRejected(packet_id=run.packet.packet_id, purpose="decision", problem=problem))
    if turn.calls or turn.handed:
        return turn
    call = None if written.call is None else resolve_call(build_tool_call(written.call), cards)
    return replace(turn, calls=(call,) if isinstance(call, ToolCall) else (), handed=written.handed)


async def run_turn_calls(run: RunState, calls: Sequence[ToolCall]) -> tuple[Outcome, Selection] | None:
    """Run the calls of one turn. Return the outcome and selection that wait for a person, if any."""
    if not calls:
        return None
    chosen = [Selection(tool=call.name, arguments=call.arguments, confidence=1.0) for call in calls]
    record_selection(run, chosen[0], beside=chosen[1:])
    emit_status(run, ExecutionStatus.AWAITING_CONFIDENCE)
    emit_status(run, ExecutionStatus.APPROVED, "the model's own choice; the rules decide")
    outcomes = await run_calls_in_parallel(run, calls)
    # The first outcome that waits for a person. Approvals come before questions.
    pending = (at for at, outcome in enumerate(outcomes) if outcome.pending_id is not None)
    asking = (at for at, outcome in enumerate(outcomes) if is_question(outcome))
    waiting = next(chain(pending, asking), None)
    ended: list[Outcome] = []
    for at, (selection, outcome) in enumerate(zip(chosen, outcomes, strict=True)):
        if at != waiting and outcome.pending_id is None:
            ended.append(refuse_question(outcome) if is_question(outcome) else outcome)
            add_result(run, selection, ended[-1])
    if waiting is not None:
        return outcomes[waiting], chosen[waiting]
    emit_call_status(run, *ended)
    return None


MAX_UNREADABLE_TURNS = 2  # consecutive replies that cannot be parsed


async def decide_react_turn(run: RunState, before: AgentTurn) -> AgentTurn | Route:
    """Let the model think and decide: return its call, or the route of its answer.

    The JSON format of ReAct turns has no place for the caller's tools or response format. With these, the
    agent writes its thoughts beside its calls instead.
    """
    client = run.client_options
    if client.tools or client.later_messages or client.has_response_format:
        return await decide_turn(run, before)
    cards = run.get_cards()
    last = is_final(run, cards)
    request = await _build_request(run, cards, last=last, note=before.note)
    reply, turn = await _run_turn(run, request, cards, last=last)
    if turn.call is None and turn.answer:
        written = await clean_reply(run, replace(reply, text=turn.answer))
        if lacks_answer(written):
            written = await write_plainly(run, request, written)
        return end_with_text(run, written)
    silent = WrittenReply(text="", reply=reply)
    if turn.call is None and not reply.text.strip() and silent.is_refusal:
        return end_with_text(run, silent)
    reads = turn.call is not None and turn.call.name == READ_RESULT_TOOL_NAME
    if (last and not reads) or before.unreadable >= MAX_UNREADABLE_TURNS:
        return await answer_without_tools(run)
    if turn.call is None:
        return AgentTurn(note=turn.problem, unreadable=before.unreadable + 1)
    return AgentTurn(calls=(turn.call,), unreadable=before.unreadable if turn.call.name == FIND_TOOLS else 0)


async def _build_request(
    run: RunState, cards: tuple[ToolCard, ...], *, last: bool, note: str
) -> ModelRequest:
    schedule_turn(run, final=last, note=note)
    prompt = await build_prompt(run, cards, tools=True)
    return build_react_request(
        run.packet,
        cards,
        system=prompt.system,
        history=prompt.history,
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
