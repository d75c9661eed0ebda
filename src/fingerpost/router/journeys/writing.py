"""The final answer: written by the prime model, guarded while it streams, with its sources named."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import anyio.to_thread

from fingerpost.choose.answering import AT_THE_CAP, answer_request, direct_request, with_rules
from fingerpost.choose.certain import keyless_answer
from fingerpost.choose.guard import Guard, Invented
from fingerpost.choose.single import turn_request
from fingerpost.choose.sources import names_source, sources_line, sources_of
from fingerpost.choose.turns import read_turn
from fingerpost.errors import ModelError
from fingerpost.events import SyntaxStopped
from fingerpost.frozen import frozen
from fingerpost.llm import ModelReply, ModelRequest, Role
from fingerpost.records import JsonObject, Message, Selection, SystemTask, as_valid_text
from fingerpost.router.journeys import endings
from fingerpost.router.journeys.briefing import Briefing, brief
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.route import Route

LONGEST_ANSWER: Final = 200_000  # characters; what comes after them is not even looked at
_LARGE: Final = 20_000  # characters: looking at more takes a while, so a thread does it
IN_SHAPE = "Write your answer now, in the format that was asked for. No tool can be called any more."
PLAINLY = "Your last answer held nothing but tool syntax. Answer in plain words; no tool can be called now."


@frozen
class Written:
    """What a model wrote, without what it should not have written."""

    text: str
    reply: ModelReply
    call: Selection | None = None  # a call of a real tool that stood in the text
    handed: tuple[JsonObject, ...] = ()  # calls of the caller's own tools


async def conclude(journey: Journey) -> Route | Selection:
    """The answer. A `Selection` is a call the model wrote into it, to be considered properly."""
    written = await _draft(journey)
    if isinstance(written, Route):
        return written
    if written.call is not None and not written.handed and journey.packet.tool_routing.reinjections_left:
        return written.call
    return ended_with(journey, written)


async def conclude_for_good(journey: Journey) -> Route:
    """The answer, whatever else the model would like to do."""
    written = await _draft(journey)
    return written if isinstance(written, Route) else ended_with(journey, written)


async def _draft(journey: Journey) -> Route | Written:
    """What the prime model writes; a route where there is nothing for it to write about."""
    journey.schedule(SystemTask.GENERATE_DRAFT)
    routing = journey.packet.tool_routing
    if routing.steps and not routing.worked and journey.failures and not journey.brought.tools:
        return endings.failed(journey)
    told = await brief(journey, ())
    native = await journey.takes_tools()
    request = _request(journey, told, native=native)
    try:
        written = await _answer(journey, request, native=native)
        if not written.text and written.call is None and not written.handed:
            again = replace(request, messages=(*request.messages, _plainly()))
            written = await _answer(journey, again, native=native)
    except ModelError as error:
        return unwritten(journey, error)
    return written


async def _answer(journey: Journey, request: ModelRequest, *, native: bool) -> Written:
    """What was written, the calls of the caller's tools read out of it."""
    written = await write(journey, request, quiet=request.schema is not None)
    if not journey.brought.tools:
        return written
    said = replace(written.reply, text=written.text)
    turn = read_turn(said, (), tools=native or is_in_shape(journey, request), callers=journey.brought.names)
    if request.schema is not None and not turn.handed:
        return await spoken(journey, request, replace(written, text=turn.text))
    return replace(written, text=turn.text, handed=turn.handed)


def is_in_shape(journey: Journey, request: ModelRequest) -> bool:
    """Whether the reply is in the shape the caller asked for, and in none of ours."""
    return request.schema is None and journey.brought.is_shaped


async def spoken(journey: Journey, request: ModelRequest, written: Written) -> Written:
    """The answer out of a turn in a shape of ours; once more in the caller's, where they asked for one."""
    if request.schema is not None and journey.brought.is_shaped:
        messages = (*request.messages, Message(role="user", text=IN_SHAPE))
        return await write(journey, replace(request, schema=None, messages=messages))
    journey.say(written.text)
    return written


def _request(journey: Journey, told: Briefing, *, native: bool) -> ModelRequest:
    packet, settings, note = journey.packet, journey.settings.choose, journey.note
    brought, steps = journey.brought, packet.tool_routing.steps
    if brought.tools or brought.since:
        return turn_request(
            packet,
            (),
            system=with_rules(told.system, brought),
            history=told.history,
            settings=settings,
            final=True,
            tools=native,
            note=note,
            brought=brought,
        )
    if steps and not packet.tool_routing.reinjections_left:
        note = f"{note} {AT_THE_CAP}".strip()
    if not steps and not note:
        return direct_request(
            packet, system=told.system, history=told.history, settings=settings, brought=brought
        )
    return answer_request(
        packet, system=told.system, history=told.history, settings=settings, note=note, brought=brought
    )


def ended_with(journey: Journey, written: Written) -> Route:
    """The journey's end with this text, its sources named; or with the calls of the caller's tools."""
    if written.handed:
        return endings.handed_back(journey, written.handed, written.text, by=written.reply.model)
    good = journey.packet.tool_routing.worked
    text = written.text
    if not text:
        return endings.declined(
            journey, "The model gave no answer in words. Ask again, or ask another model."
        )
    if good and not journey.brought.is_shaped and not names_source(text, good):
        line = sources_line(good, language=language_of(journey))
        journey.say(f"\n\n{line}")
        text = f"{text}\n\n{line}"
    finish = written.reply.finish
    return endings.answered(journey, text, by=written.reply.model, sources=sources_of(good), finish=finish)


async def write(
    journey: Journey, request: ModelRequest, *, purpose: str = "answer", quiet: bool = False
) -> Written:
    """Have the prime model write, with the guard between it and everybody else."""
    if quiet or not journey.streams:
        return await cleaned(journey, await journey.asks(Role.PRIME, purpose)(request))
    if not _is_guarded(journey):
        reply = await journey.asks(Role.PRIME, purpose, on_text=journey.say)(request)
        return Written(text=_bounded(reply.text).strip(), reply=reply)
    guard, about = _guard(journey)
    stream = guard.stream(about_syntax=about)
    shown: list[str] = []
    read = 0

    def pass_on(piece: str) -> None:
        if piece:
            shown.append(piece)
            journey.say(as_valid_text(piece))

    def take(piece: str) -> None:
        nonlocal read
        piece = piece[: max(0, LONGEST_ANSWER - read)]
        read += len(piece)
        pass_on(stream.feed(piece))

    ask = journey.asks(Role.PRIME, purpose, on_text=take)
    reply = await ask(request)
    pass_on(stream.end())
    return _written(journey, as_valid_text("".join(shown)), stream.stopped, reply)


def _is_guarded(journey: Journey) -> bool:
    """Whether invented tool syntax is taken out. Of an answer in the caller's shape nothing is."""
    return journey.settings.flags.syntax_guard and not journey.brought.is_shaped


def _guard(journey: Journey) -> tuple[Guard, bool]:
    """What knows tool syntax, and whether the request is about such syntax: then it may be shown."""
    guard = Guard(journey.house.snapshot().cards)
    return guard, guard.is_about_syntax(journey.packet.content.original_prompt)


def _bounded(text: str) -> str:
    return as_valid_text(text[:LONGEST_ANSWER])


async def cleaned(journey: Journey, reply: ModelReply) -> Written:
    """The reply without invented tool syntax."""
    said = _bounded(reply.text)
    if not _is_guarded(journey):
        return Written(text=said.strip(), reply=reply)
    guard, about = _guard(journey)
    look = partial(guard.clean, said, about_syntax=about)
    found = await anyio.to_thread.run_sync(look) if len(said) > _LARGE else look()
    return _written(journey, found.text, found.stopped, reply)


def _written(journey: Journey, text: str, stopped: tuple[Invented, ...], reply: ModelReply) -> Written:
    call = next((_selection(one) for one in stopped if one.name and one.arguments is not None), None)
    for syntax in dict.fromkeys(one.syntax for one in stopped):
        count = sum(one.syntax == syntax for one in stopped)
        rerouted = call.tool if call is not None else None
        journey.tell(
            SyntaxStopped(packet_id=journey.packet.packet_id, syntax=syntax, count=count, rerouted=rerouted)
        )
    return Written(text=text.strip(), reply=reply, call=call)


def _selection(one: Invented) -> Selection:
    assert one.name is not None
    return Selection(
        tool=one.name,
        arguments=one.arguments or {},
        reasoning="the model wrote this call into its answer",
        confidence=0.5,
    )


def unwritten(journey: Journey, error: ModelError) -> Route:
    """The model is gone but the tools have answered: their own words are better than none."""
    good = journey.packet.tool_routing.worked
    if not good:
        return endings.broken(journey, error)
    text = keyless_answer(good, language_of(journey), configured=True)
    journey.say(text)
    route = endings.answered(journey, text, by=endings.NO_MODEL, sources=sources_of(good), detail=str(error))
    return replace(route, failure=error)


def so_far(journey: Journey) -> str:
    """What the tools have said until now, for a journey that ends before its answer."""
    good = journey.packet.tool_routing.worked
    return keyless_answer(good, language_of(journey), configured=True) if good else ""


def _plainly() -> Message:
    return Message(role="user", text=PLAINLY)


def language_of(journey: Journey) -> str:
    """The language the person wrote in."""
    return journey.narrowing.signals.language if journey.narrowing is not None else "en"
