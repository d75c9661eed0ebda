"""The final answer: written by the prime model, guarded while it streams, with its sources."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import anyio.to_thread

from fingerpost.choose.answer import (
    LIMIT_REACHED_NOTE,
    append_answer_rules,
    build_answer_request,
    format_sources,
    has_source_name,
    list_sources,
)
from fingerpost.choose.client_options import build_client_call
from fingerpost.choose.keyless.replies import build_keyless_answer
from fingerpost.choose.offered_tools import dump_stable_json as written_out
from fingerpost.choose.offered_tools import get_tool_names
from fingerpost.choose.syntax_guard.scanner import FoundSyntax, SyntaxGuard
from fingerpost.choose.syntax_guard.vocabulary import is_announcement
from fingerpost.choose.tool_loop import MAX_CALLS_PER_TURN, build_turn_request, parse_turn
from fingerpost.errors import ModelError
from fingerpost.events import SyntaxStopped
from fingerpost.events.route import NO_MODEL_NAME
from fingerpost.frozen import frozen
from fingerpost.llm import ModelReply, ModelRequest, OnText, Role
from fingerpost.records import JsonObject, Message, Mode, Selection, SystemTask, ToolCall, to_valid_text
from fingerpost.router.modes.prompts import PromptStart, build_prompt
from fingerpost.router.modes.routes import (
    end_answered,
    end_broken,
    end_declined,
    end_failed,
    end_handed_back,
    end_limited,
    end_unanswered,
)
from fingerpost.router.modes.run_state import RunBudgetExceeded, RunState
from fingerpost.router.modes.tool_step import read_pages
from fingerpost.router.route import Route


class StripStream:
    """Passes on pieces of text without leading and trailing white space."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self._held: list[str] = []
        self._has_started = False

    def __call__(self, piece: str) -> None:
        piece = piece if self._has_started else piece.lstrip()
        kept = piece.rstrip()
        if not kept:
            self._held.append(piece)
            return
        self._on_text(f"{''.join(self._held)}{kept}")
        self._held = [piece[len(kept) :]]
        self._has_started = True


MAX_ANSWER_LENGTH: Final = 4_000_000  # characters; the rest is cut to limit memory
LENGTH_FINISH: Final = "length"
FILTERED_FINISH: Final = "content_filter"
_LONG_REPLY_LENGTH: Final = 20_000  # characters; longer replies are cleaned in a worker thread
FORMAT_NOTE = "Write your answer now, in the format that was asked for. No tool can be called any more."
LOOP_NOTES: Final = {
    "en": "{tool} was called again and again with the same result",
    "he": "{tool} נקרא שוב ושוב עם אותה תוצאה",
}
_STOP_REASONS: Final = {
    "en": f"No more tools were called: {LOOP_NOTES['en']}. Ask for the missing part in other words.",
    "he": f"לא נקראו כלים נוספים: {LOOP_NOTES['he']}. אפשר לשאול במילים אחרות על מה שחסר.",
}
PLAIN_NOTE = (
    "Your last reply held the syntax of a tool call and no answer. There is no such tool, and no tool can be "
    "called now. Answer the request in plain words, and say so where you cannot."
)
PLAIN_RESULTS_NOTE = (
    "Your last reply held a tool call and no answer. No tool can be called any more for this request. Answer "
    "it in plain words with what is known by now, and say plainly what is missing."
)


@frozen
class WrittenReply:
    """A model's reply after invented tool syntax was removed."""

    text: str
    reply: ModelReply
    call: Selection | None = None  # a call of an existing tool in the text
    handed: tuple[JsonObject, ...] = ()  # calls of the caller's own tools
    pages: tuple[ToolCall, ...] = ()  # calls of `read_result`
    had_call: bool = False  # a call was removed from the text

    @property
    def is_refusal(self) -> bool:
        """Whether the model or a content filter refused to answer. A retry is useless."""
        return not self.text and (bool(self.reply.refusal) or self.reply.finish == FILTERED_FINISH)


async def write_answer(run: RunState) -> Route | Selection:
    """Return the answer, or the `Selection` of a tool call that the model wrote into its text."""
    written = await _draft_answer(run, may_call=run.can_call)
    if isinstance(written, Route):
        return written
    if written.call is not None and not written.handed and run.can_call:
        run.end_text_part()
        return written.call
    return end_with_text(run, written)


async def write_final_answer(run: RunState) -> Route:
    """Return the answer. Tool calls in the model's text are ignored."""
    written = await _draft_answer(run)
    return written if isinstance(written, Route) else end_with_text(run, written)


async def answer_without_tools(run: RunState) -> Route:
    """Ask a model that wants more tools than allowed once more, without tools.

    If it still writes no answer, return the tools' results as the answer.
    """
    if run.rejection:
        return end_declined(run, run.rejection)
    in_json = run.mode is Mode.REACT or not await run.can_take_definitions()
    # The model may continue in the JSON format of earlier turns.
    in_json = in_json and not run.client_options.has_response_format
    written = await _draft_answer(run, quiet=in_json)
    if isinstance(written, Route):
        return written
    if in_json:
        reply = replace(written.reply, text=written.text, tool_calls=())
        written = replace(written, text=parse_turn(reply, (), has_tool_support=False).text)
    if written.text or written.handed or written.is_refusal:
        return end_with_text(run, written)
    return end_limited(run, _build_limit_error(run), describe_results(run))


def _build_limit_error(run: RunState) -> RunBudgetExceeded:
    if run.looping_tool:
        return RunBudgetExceeded(limit="loop", detail=LOOP_NOTES["en"].format(tool=run.looping_tool))
    rounds = run.packet.tool_routing.max_reinjections
    if run.packet.tool_routing.reinjections_left:
        detail = "the model wants more tools than it may call here, and writes no answer"
    else:
        detail = f"the {rounds} rounds of tools it may have are over"
    return RunBudgetExceeded(limit="turns", detail=detail)


def build_loop_note(run: RunState) -> str:
    """Return the note for the model when its calls repeat without progress, else an empty text."""
    tool = run.looping_tool
    return f"{LOOP_NOTES['en'].format(tool=tool)}, so no tool can be called any more." if tool else ""


async def _draft_answer(
    run: RunState, *, quiet: bool = False, may_call: bool = False
) -> Route | WrittenReply:
    """Return the prime model's reply, or a route if all calls failed and nothing can be answered.

    `may_call`: a tool call in the text can still be run, so no answer is requested in its place.
    """
    run.schedule(SystemTask.GENERATE_DRAFT)
    routing = run.packet.tool_routing
    answered = routing.worked or routing.cancelled  # a tool succeeded, or a person rejected a call
    if routing.steps and not answered and run.failures and not run.client_options.tools:
        return end_failed(run)
    prompt = await build_prompt(run)
    native = await run.can_take_definitions()
    request = _build_request(run, prompt, native=native)
    try:
        written = await _write_and_read(run, request, native=native, quiet=quiet)
        while written.pages:
            await read_pages(run, written.pages)
            request = _build_request(run, prompt, native=native)
            written = await _write_and_read(run, request, native=native, quiet=quiet)
        has_call = written.call is not None and may_call
        if not has_call and not written.handed and lacks_answer(written):
            written = await write_plainly(run, request, written)
    except ModelError as error:
        return answer_from_results(run, error)
    return written


async def _write_and_read(run: RunState, request: ModelRequest, *, native: bool, quiet: bool) -> WrittenReply:
    """Ask the prime model and parse calls of the caller's tools from its reply."""
    written = await ask_prime(run, request, quiet=quiet or request.schema is not None)
    own = get_tool_names(run.own_tools)
    if not run.client_options.tools and not own:
        return written
    reply, in_words = replace(written.reply, text=written.text), native or has_client_format(run, request)
    turn = parse_turn(
        reply, (), has_tool_support=in_words, own_names=own, client_tools=run.client_options.tool_names
    )
    if turn.calls:
        return replace(written, text=turn.text, pages=turn.calls)
    if request.schema is not None and not turn.handed:
        return await extract_answer(run, request, replace(written, text=turn.text))
    return replace(written, text=turn.text, handed=turn.handed or written.handed)


def has_only_syntax(written: WrittenReply) -> bool:
    """Return whether the reply consisted only of invented syntax, so that no text is left."""
    return not written.text and not written.is_refusal and bool(written.reply.text.strip())


def lacks_answer(written: WrittenReply) -> bool:
    """Return whether no text is left, or only the announcement of a call that was removed."""
    return has_only_syntax(written) or (written.had_call and is_announcement(written.text))


async def write_plainly(run: RunState, request: ModelRequest, first: WrittenReply) -> WrittenReply:
    """Ask the same request again, for plain text without tools.

    The text is empty if the second reply is no answer either.
    """
    run.schedule(SystemTask.REFINE)
    run.end_text_part()
    note = PLAIN_NOTE if first.call is None else PLAIN_RESULTS_NOTE
    messages = (*request.messages, Message(role="user", text=note))
    again = replace(request, messages=messages, schema=None, tools=(), tool_choice=None)
    written = await ask_prime(run, again, quiet=True)  # only an actual answer may be streamed now
    lacking = lacks_answer(written) or (first.call is not None and not written.text)
    return replace(written, text="", call=written.call or first.call) if lacking else written


def has_client_format(run: RunState, request: ModelRequest) -> bool:
    """Return whether the reply has the caller's response format and not an internal one."""
    return request.schema is None and run.client_options.has_response_format


async def extract_answer(run: RunState, request: ModelRequest, written: WrittenReply) -> WrittenReply:
    """Return the answer from a turn in an internal format. A response format is asked for again."""
    if request.schema is not None and run.client_options.has_response_format:
        run.schedule(SystemTask.REFINE)
        messages = (*request.messages, Message(role="user", text=FORMAT_NOTE))
        return await ask_prime(run, replace(request, schema=None, messages=messages))
    return written


def _build_request(run: RunState, prompt: PromptStart, *, native: bool) -> ModelRequest:
    packet, settings, note = run.packet, run.settings.choose, run.note
    client, steps = run.client_options, packet.tool_routing.steps
    own = run.own_tools
    if client.tools or client.later_messages or own:
        return build_turn_request(
            packet,
            (),
            system=append_answer_rules(prompt.system, client),
            history=prompt.history,
            settings=settings,
            final=True,
            has_tool_support=native,
            note=note,
            own_tools=own,
            client=client,
        )
    if steps and not run.can_call:
        note = " ".join(part for part in (note, build_loop_note(run), LIMIT_REACHED_NOTE) if part)
    return build_answer_request(
        packet, system=prompt.system, history=prompt.history, settings=settings, note=note, client=client
    )


def end_with_text(run: RunState, written: WrittenReply) -> Route:
    """End the run with this text and its sources, or with the calls of the caller's tools."""
    return replace(_build_text_route(run, written), reasoning=written.reply.reasoning)


def _build_text_route(run: RunState, written: WrittenReply) -> Route:
    if written.handed:
        return end_handed_back(run, written.handed, written.text, by=written.reply.model)
    good = run.packet.tool_routing.worked
    text, language = written.text, "he" if get_language(run) == "he" else "en"
    if not text and written.call is not None and not written.is_refusal:
        return end_limited(run, _build_limit_error(run), describe_results(run))
    if not text:
        return end_unanswered(run, written.reply, syntax_alone=has_only_syntax(written))
    if good and not run.client_options.has_response_format and not has_source_name(text, good):
        text = f"{text}\n\n{format_sources(good, language=get_language(run))}"
    if run.looping_tool and not run.client_options.has_response_format:
        text = f"{text}\n\n{_STOP_REASONS[language].format(tool=run.looping_tool)}"
    finish = written.reply.finish
    return end_answered(run, text, by=written.reply.model, sources=list_sources(good), finish=finish)


async def ask_prime(
    run: RunState, request: ModelRequest, *, purpose: str = "answer", quiet: bool = False
) -> WrittenReply:
    """Ask the prime model. The guard removes invented tool syntax from its reply and its stream."""
    if quiet or not run.is_streaming:
        return await clean_reply(run, await run.build_ask(Role.PRIME, purpose)(request))
    run.schedule(SystemTask.STREAM)
    asked = run.packet.content.original_prompt
    stream = _build_guard(run).stream(request=asked) if _is_guarded(run) else None
    shown: list[str] = []
    strip_stream = StripStream(run.stream_text)
    read = 0

    def pass_on(piece: str) -> None:
        if piece:
            shown.append(piece)
            strip_stream(to_valid_text(piece))

    def take(piece: str) -> None:
        nonlocal read
        piece = piece[: max(0, MAX_ANSWER_LENGTH - read)]
        read += len(piece)
        pass_on(piece if stream is None else stream.feed(piece))

    reply = _limit_length(await run.build_ask(Role.PRIME, purpose, on_text=take)(request))
    if stream is None:
        return WrittenReply(text=reply.text.strip(), reply=reply)
    pass_on(stream.finish())
    return _build_written(run, to_valid_text("".join(shown)), stream.removed, reply)


def _is_guarded(run: RunState) -> bool:
    """Return whether invented tool syntax is removed, as in all but a caller's response format."""
    return run.settings.flags.syntax_guard and not run.client_options.has_response_format


def _build_guard(run: RunState) -> SyntaxGuard:
    return SyntaxGuard(run.deps.get_snapshot().cards, others=run.client_options.tool_names)


def _limit_length(reply: ModelReply) -> ModelReply:
    """Return the reply cut to `MAX_ANSWER_LENGTH`. A cut reply has the finish reason "length"."""
    whole = len(reply.text) <= MAX_ANSWER_LENGTH
    text = to_valid_text(reply.text[:MAX_ANSWER_LENGTH])
    return replace(reply, text=text, finish=reply.finish if whole else LENGTH_FINISH)


async def clean_reply(run: RunState, reply: ModelReply) -> WrittenReply:
    """Return the reply without invented tool syntax."""
    reply = _limit_length(reply)
    if not _is_guarded(run):
        return WrittenReply(text=reply.text.strip(), reply=reply)
    look = partial(_build_guard(run).clean, reply.text, request=run.packet.content.original_prompt)
    found = await anyio.to_thread.run_sync(look) if len(reply.text) > _LONG_REPLY_LENGTH else look()
    return _build_written(run, found.text, found.removed, reply)


def _build_written(
    run: RunState, text: str, stopped: tuple[FoundSyntax, ...], reply: ModelReply
) -> WrittenReply:
    client_tool_names = run.client_options.tool_names
    real = [one for one in stopped if one.name and one.arguments is not None]
    call = next((_build_selection(one) for one in real if one.name not in client_tool_names), None)
    wanted = () if run.client_options.forbids_tools else client_tool_names
    handed = tuple(_build_handed_call(one) for one in real if one.name in wanted)[:MAX_CALLS_PER_TURN]
    for syntax in dict.fromkeys(one.syntax for one in stopped):
        count = sum(one.syntax == syntax for one in stopped)
        rerouted = call.tool if call is not None else real[0].name if real else None
        run.emit(SyntaxStopped(packet_id=run.packet.packet_id, syntax=syntax, count=count, rerouted=rerouted))
    had_call = any(one.is_call for one in stopped)
    return WrittenReply(text=text.strip(), reply=reply, call=call, handed=handed, had_call=had_call)


def _build_handed_call(one: FoundSyntax) -> JsonObject:
    assert one.name is not None
    return build_client_call(one.name, written_out(one.arguments or {}))


def _build_selection(one: FoundSyntax) -> Selection:
    assert one.name is not None
    return Selection(
        tool=one.name,
        arguments=one.arguments or {},
        reasoning="the model wrote this call into its answer",
        confidence=0.5,
    )


def answer_from_results(run: RunState, error: ModelError) -> Route:
    """Answer with the tools' results because the model failed."""
    good = run.packet.tool_routing.worked
    if not good and run.rejection:
        return replace(end_declined(run, run.rejection, detail=str(error)), failure=error)
    if not good:
        return end_broken(run, error)
    text = build_keyless_answer(good, get_language(run), configured=True)
    route = end_answered(run, text, by=NO_MODEL_NAME, sources=list_sources(good), detail=str(error))
    return replace(route, failure=error)


def describe_results(run: RunState) -> str:
    """Return the tools' results so far, for a run that ends before its answer."""
    good = run.packet.tool_routing.worked
    return build_keyless_answer(good, get_language(run), configured=True) if good else ""


def get_language(run: RunState) -> str:
    """Return the language of the request."""
    return run.narrowing.signals.language if run.narrowing is not None else "en"
