"""The final answer: written by the prime model, guarded while it streams, with its sources named."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import anyio.to_thread

from fingerpost.choose.answering import AT_THE_CAP, answer_request, direct_request, with_rules
from fingerpost.choose.brought import called_by_name
from fingerpost.choose.certain import keyless_answer
from fingerpost.choose.definitions import names
from fingerpost.choose.definitions import written as written_out
from fingerpost.choose.guard import Guard, Invented, is_announcement
from fingerpost.choose.single import MOST_CALLS, turn_request
from fingerpost.choose.sources import names_source, sources_line, sources_of
from fingerpost.choose.turns import read_turn
from fingerpost.errors import ModelError
from fingerpost.events import SyntaxStopped
from fingerpost.frozen import frozen
from fingerpost.llm import ModelReply, ModelRequest, Role
from fingerpost.records import JsonObject, Message, Mode, Selection, SystemTask, ToolCall, as_valid_text
from fingerpost.router.journeys import acting, endings
from fingerpost.router.journeys.briefing import Briefing, brief
from fingerpost.router.journeys.budget import OutOfBudget
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.trimming import Trimmed
from fingerpost.router.route import Route

LONGEST_ANSWER: Final = 4_000_000  # characters, for the sake of memory: what comes after them is cut off
CUT_SHORT: Final = "length"
FILTERED: Final = "content_filter"
_LARGE: Final = 20_000  # characters: looking at more takes a while, so a thread does it
IN_SHAPE = "Write your answer now, in the format that was asked for. No tool can be called any more."
LOOPED: Final = {
    "en": "{tool} was called again and again with the same result",
    "he": "{tool} נקרא שוב ושוב עם אותה תוצאה",
}
_STOPPED: Final = {
    "en": f"No more tools were called: {LOOPED['en']}. Ask for what is missing in other words.",
    "he": f"לא נקראו כלים נוספים: {LOOPED['he']}. אפשר לשאול במילים אחרות על מה שחסר.",
}
PLAINLY = (
    "Your last reply held the syntax of a tool call and no answer. There is no such tool, and no tool can be "
    "called now. Answer the request in plain words, and say so where you cannot."
)
PLAINLY_FROM_RESULTS = (
    "Your last reply held a tool call and no answer. No tool can be called any more for this request. Answer "
    "it in plain words with what is known by now, and say plainly what is missing."
)


@frozen
class Written:
    """What a model wrote, without what it should not have written."""

    text: str
    reply: ModelReply
    call: Selection | None = None  # a call of a real tool that stood in the text
    handed: tuple[JsonObject, ...] = ()  # calls of the caller's own tools
    pages: tuple[ToolCall, ...] = ()  # calls of `read_result`
    had_call: bool = False  # a call was taken out of it

    @property
    def is_refusal(self) -> bool:
        """The model will not answer, or something between it and us did not let it: asking on is no use."""
        return not self.text and (bool(self.reply.refusal) or self.reply.finish == FILTERED)


async def conclude(journey: Journey) -> Route | Selection:
    """The answer. A `Selection` is a call the model wrote into it, to be considered properly."""
    written = await _draft(journey, may_call=journey.can_call)
    if isinstance(written, Route):
        return written
    if written.call is not None and not written.handed and journey.can_call:
        journey.end_part()
        return written.call
    return ended_with(journey, written)


async def conclude_for_good(journey: Journey) -> Route:
    """The answer, whatever else the model would like to do."""
    written = await _draft(journey)
    return written if isinstance(written, Route) else ended_with(journey, written)


async def answer_without_tools(journey: Journey) -> Route:
    """The answer of a model that wants more tools and may not have them: it is asked once more, without any.

    Where it still has no words, the answer is what the tools said.
    """
    if journey.rejection:
        return endings.declined(journey, journey.rejection)
    in_json = journey.mode is Mode.REACT or not await journey.takes_tools()
    in_json = in_json and not journey.brought.is_shaped  # it may go on in the form of the turns before
    written = await _draft(journey, quiet=in_json)
    if isinstance(written, Route):
        return written
    if in_json:
        said = replace(written.reply, text=written.text, tool_calls=())
        written = replace(written, text=read_turn(said, (), tools=False).text)
    if written.text or written.handed or written.is_refusal:
        return ended_with(journey, written)
    return endings.limited(journey, _limit_reached(journey), so_far(journey))


def _limit_reached(journey: Journey) -> OutOfBudget:
    if journey.looping_tool:
        return OutOfBudget(limit="loop", detail=LOOPED["en"].format(tool=journey.looping_tool))
    rounds = journey.packet.tool_routing.max_reinjections
    if journey.packet.tool_routing.reinjections_left:
        detail = "the model wants more tools than it may call here, and writes no answer"
    else:
        detail = f"the {rounds} rounds of tools it may have are over"
    return OutOfBudget(limit="turns", detail=detail)


def loop_note(journey: Journey) -> str:
    """What the model is told when its calls go round in circles; empty where they do not."""
    tool = journey.looping_tool
    return f"{LOOPED['en'].format(tool=tool)}, so no tool can be called any more." if tool else ""


async def _draft(journey: Journey, *, quiet: bool = False, may_call: bool = False) -> Route | Written:
    """What the prime model writes; a route where there is nothing for it to write about.

    `may_call`: a call of a real tool in it can still be made, so no answer is asked for in its place.
    """
    journey.schedule(SystemTask.GENERATE_DRAFT)
    routing = journey.packet.tool_routing
    answered = routing.worked or routing.cancelled  # by a tool, or by a person's no
    if routing.steps and not answered and journey.failures and not journey.brought.tools:
        return endings.failed(journey)
    told = await brief(journey)
    native = await journey.takes_tools()
    request = _request(journey, told, native=native)
    try:
        written = await _answer(journey, request, native=native, quiet=quiet)
        while written.pages:
            await acting.read_pages(journey, written.pages)
            request = _request(journey, told, native=native)
            written = await _answer(journey, request, native=native, quiet=quiet)
        made = written.call is not None and may_call
        if not made and not written.handed and lacks_answer(written):
            written = await write_plainly(journey, request, written)
    except ModelError as error:
        return unwritten(journey, error)
    return written


async def _answer(journey: Journey, request: ModelRequest, *, native: bool, quiet: bool) -> Written:
    """What was written, the calls of the caller's tools read out of it."""
    written = await write(journey, request, quiet=quiet or request.schema is not None)
    own = names(journey.own_tools)
    if not journey.brought.tools and not own:
        return written
    said, in_words = replace(written.reply, text=written.text), native or is_in_shape(journey, request)
    turn = read_turn(said, (), tools=in_words, own=own, callers=journey.brought.names)
    if turn.calls:
        return replace(written, text=turn.text, pages=turn.calls)
    if request.schema is not None and not turn.handed:
        return await spoken(journey, request, replace(written, text=turn.text))
    return replace(written, text=turn.text, handed=turn.handed or written.handed)


def held_syntax_alone(written: Written) -> bool:
    """Whether nothing is left of the reply though something was written."""
    return not written.text and not written.is_refusal and bool(written.reply.text.strip())


def lacks_answer(written: Written) -> bool:
    """Whether nothing is left of the reply, or only the announcement of a call that was taken out of it."""
    return held_syntax_alone(written) or (written.had_call and is_announcement(written.text))


async def write_plainly(journey: Journey, request: ModelRequest, first: Written) -> Written:
    """The answer to the same request once more, in plain words and without tools.

    Empty where there is none again, as in the `first`: an announcement of one more call is no answer.
    """
    journey.schedule(SystemTask.REFINE)
    journey.end_part()
    told = PLAINLY if first.call is None else PLAINLY_FROM_RESULTS
    messages = (*request.messages, Message(role="user", text=told))
    again = replace(request, messages=messages, schema=None, tools=(), tool_choice=None)
    written = await write(journey, again, quiet=True)  # only what is an answer may be streamed now
    lacking = lacks_answer(written) or (first.call is not None and not written.text)
    return replace(written, text="", call=written.call or first.call) if lacking else written


def is_in_shape(journey: Journey, request: ModelRequest) -> bool:
    """Whether the reply is in the shape the caller asked for, and in none of ours."""
    return request.schema is None and journey.brought.is_shaped


async def spoken(journey: Journey, request: ModelRequest, written: Written) -> Written:
    """The answer out of a turn in a shape of ours; once more in the caller's, where they asked for one."""
    if request.schema is not None and journey.brought.is_shaped:
        journey.schedule(SystemTask.REFINE)
        messages = (*request.messages, Message(role="user", text=IN_SHAPE))
        return await write(journey, replace(request, schema=None, messages=messages))
    return written


def _request(journey: Journey, told: Briefing, *, native: bool) -> ModelRequest:
    packet, settings, note = journey.packet, journey.settings.choose, journey.note
    brought, steps = journey.brought, packet.tool_routing.steps
    own = journey.own_tools
    if brought.tools or brought.since or own:
        return turn_request(
            packet,
            (),
            system=with_rules(told.system, brought),
            history=told.history,
            settings=settings,
            final=True,
            tools=native,
            note=note,
            own=own,
            brought=brought,
        )
    if steps and not journey.can_call:
        note = " ".join(part for part in (note, loop_note(journey), AT_THE_CAP) if part)
    if not steps and not note:
        return direct_request(
            packet, system=told.system, history=told.history, settings=settings, brought=brought
        )
    return answer_request(
        packet, system=told.system, history=told.history, settings=settings, note=note, brought=brought
    )


def ended_with(journey: Journey, written: Written) -> Route:
    """The journey's end with this text, its sources named; or with the calls of the caller's tools."""
    return replace(_ended_with(journey, written), reasoning=written.reply.reasoning)


def _ended_with(journey: Journey, written: Written) -> Route:
    if written.handed:
        return endings.handed_back(journey, written.handed, written.text, by=written.reply.model)
    good = journey.packet.tool_routing.worked
    text, said = written.text, "he" if language_of(journey) == "he" else "en"
    if not text and written.call is not None and not written.is_refusal:
        return endings.limited(journey, _limit_reached(journey), so_far(journey))
    if not text:
        return endings.unanswered(journey, written.reply, syntax_alone=held_syntax_alone(written))
    if good and not journey.brought.is_shaped and not names_source(text, good):
        text = f"{text}\n\n{sources_line(good, language=language_of(journey))}"
    if journey.looping_tool and not journey.brought.is_shaped:
        text = f"{text}\n\n{_STOPPED[said].format(tool=journey.looping_tool)}"
    finish = written.reply.finish
    return endings.answered(journey, text, by=written.reply.model, sources=sources_of(good), finish=finish)


async def write(
    journey: Journey, request: ModelRequest, *, purpose: str = "answer", quiet: bool = False
) -> Written:
    """Have the prime model write, with the guard between it and everybody else."""
    if quiet or not journey.streams:
        return await cleaned(journey, await journey.asks(Role.PRIME, purpose)(request))
    journey.schedule(SystemTask.STREAM)
    asked = journey.packet.content.original_prompt
    stream = _guard(journey).stream(request=asked) if _is_guarded(journey) else None
    shown: list[str] = []
    say = Trimmed(journey.say)
    read = 0

    def pass_on(piece: str) -> None:
        if piece:
            shown.append(piece)
            say(as_valid_text(piece))

    def take(piece: str) -> None:
        nonlocal read
        piece = piece[: max(0, LONGEST_ANSWER - read)]
        read += len(piece)
        pass_on(piece if stream is None else stream.feed(piece))

    reply = _bounded(await journey.asks(Role.PRIME, purpose, on_text=take)(request))
    if stream is None:
        return Written(text=reply.text.strip(), reply=reply)
    pass_on(stream.end())
    return _written(journey, as_valid_text("".join(shown)), stream.stopped, reply)


def _is_guarded(journey: Journey) -> bool:
    """Whether invented tool syntax is taken out. Of an answer in the caller's shape nothing is."""
    return journey.settings.flags.syntax_guard and not journey.brought.is_shaped


def _guard(journey: Journey) -> Guard:
    return Guard(journey.house.snapshot().cards, others=journey.brought.names)


def _bounded(reply: ModelReply) -> ModelReply:
    """The reply as far as it is kept. One that was cut off here says so, like one cut off elsewhere."""
    whole = len(reply.text) <= LONGEST_ANSWER
    text = as_valid_text(reply.text[:LONGEST_ANSWER])
    return replace(reply, text=text, finish=reply.finish if whole else CUT_SHORT)


async def cleaned(journey: Journey, reply: ModelReply) -> Written:
    """The reply without invented tool syntax."""
    reply = _bounded(reply)
    if not _is_guarded(journey):
        return Written(text=reply.text.strip(), reply=reply)
    look = partial(_guard(journey).clean, reply.text, request=journey.packet.content.original_prompt)
    found = await anyio.to_thread.run_sync(look) if len(reply.text) > _LARGE else look()
    return _written(journey, found.text, found.stopped, reply)


def _written(journey: Journey, text: str, stopped: tuple[Invented, ...], reply: ModelReply) -> Written:
    theirs = journey.brought.names
    real = [one for one in stopped if one.name and one.arguments is not None]
    call = next((_selection(one) for one in real if one.name not in theirs), None)
    wanted = () if journey.brought.wants_text else theirs
    handed = tuple(_handed(one) for one in real if one.name in wanted)[:MOST_CALLS]
    for syntax in dict.fromkeys(one.syntax for one in stopped):
        count = sum(one.syntax == syntax for one in stopped)
        rerouted = call.tool if call is not None else real[0].name if real else None
        journey.tell(
            SyntaxStopped(packet_id=journey.packet.packet_id, syntax=syntax, count=count, rerouted=rerouted)
        )
    had_call = any(one.is_call for one in stopped)
    return Written(text=text.strip(), reply=reply, call=call, handed=handed, had_call=had_call)


def _handed(one: Invented) -> JsonObject:
    assert one.name is not None
    return called_by_name(one.name, written_out(one.arguments or {}))


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
    if not good and journey.rejection:
        return replace(endings.declined(journey, journey.rejection, detail=str(error)), failure=error)
    if not good:
        return endings.broken(journey, error)
    text = keyless_answer(good, language_of(journey), configured=True)
    route = endings.answered(journey, text, by=endings.NO_MODEL, sources=sources_of(good), detail=str(error))
    return replace(route, failure=error)


def so_far(journey: Journey) -> str:
    """What the tools have said until now, for a journey that ends before its answer."""
    good = journey.packet.tool_routing.worked
    return keyless_answer(good, language_of(journey), configured=True) if good else ""


def language_of(journey: Journey) -> str:
    """The language the person wrote in."""
    return journey.narrowing.signals.language if journey.narrowing is not None else "en"
