"""Builds the `Route` for every way a run can end, with a readable text."""

from __future__ import annotations

from dataclasses import replace

from fingerpost.call.outcomes import build_guidance, get_failure_reason
from fingerpost.choose.answer import list_sources
from fingerpost.choose.keyless.replies import build_keyless_answer
from fingerpost.choose.prompts import to_tool_messages
from fingerpost.errors import FingerpostError, ModelError
from fingerpost.events import AnswerGiven, BudgetReached, QuestionAsked, RouteEnded
from fingerpost.events.route import NO_MODEL_NAME
from fingerpost.llm import ModelReply
from fingerpost.llm.content import as_mapping
from fingerpost.records import (
    ErrorKind,
    JsonObject,
    Mode,
    Outcome,
    PacketState,
    Pending,
    Question,
    RouteOutcome,
    Selection,
    SystemTask,
)
from fingerpost.router.modes.elicitation import build_question
from fingerpost.router.modes.run_state import RunBudgetExceeded, RunState
from fingerpost.router.route import Route

NO_ANSWER_TEXT = "The model gave no answer. Ask again, or use another model."
_LIMIT_ADVICE = "Ask for a smaller part of it, or raise that limit."
SYNTAX_ONLY_TEXT = (
    "The model gave no answer: it only wrote calls of a tool that does not exist, also when asked again. "
    "Rephrase the request, or use another model."
)
_CALL_FINISHES = ("tool_calls", "function_call")  # finish reasons


def end_answered(
    run: RunState,
    text: str,
    *,
    by: str,
    sources: tuple[str, ...] = (),
    detail: str = "",
    finish: str | None = None,
) -> Route:
    """End the run with an answer. `finish` is the model's finish reason; "tool_calls" becomes "stop".

    If a person rejected the call and nothing else was done, the outcome is "declined".
    """
    routing = run.packet.tool_routing
    outcome = RouteOutcome.DECLINED if routing.cancelled and not routing.worked else RouteOutcome.ANSWERED
    route = _end_run(run, outcome, text, by=by, sources=sources, detail=detail)
    return route if finish is None or finish in _CALL_FINISHES else replace(route, finish=finish)


def end_handed_back(run: RunState, calls: tuple[JsonObject, ...], text: str, *, by: str) -> Route:
    """End the run with calls of the caller's own tools. Steps that ran before are kept as hidden messages."""
    run.schedule(None, PacketState.ANSWERED)
    names = tuple(str(as_mapping(call.get("function")).get("name", "")) for call in calls)
    _emit_ended(run, RouteOutcome.HANDED_BACK, handed_back=names)
    steps = run.packet.tool_routing.steps
    answer = run.complete_answer(text)
    route = _build_route(run, RouteOutcome.HANDED_BACK, answer, by=by, sources=list_sources(steps))
    hidden = to_tool_messages(steps, run.get_cards())
    return replace(route, tool_calls=calls, hidden=hidden, finish="tool_calls")


def end_declined(run: RunState, text: str, *, detail: str = "") -> Route:
    """End the run without any action, with a text that says why."""
    return _end_run(run, RouteOutcome.DECLINED, text, by=NO_MODEL_NAME, detail=detail)


def end_without_tools(run: RunState, text: str) -> Route:
    """End the run because no server with tools could be reached."""
    return _end_run(run, RouteOutcome.FAILED, text, by=NO_MODEL_NAME)


def end_unanswered(run: RunState, reply: ModelReply, *, syntax_alone: bool = False) -> Route:
    """End the run with the model's refusal, or with a standard text if there is no answer.

    If the model wrote nothing, callers of `/v1` get an empty answer. Invented syntax is always replaced by
    the standard text.
    """
    if reply.refusal:
        route = _end_run(run, RouteOutcome.DECLINED, reply.refusal, by=reply.model, silent=True)
    elif syntax_alone or run.has_streamed:
        text = SYNTAX_ONLY_TEXT if syntax_alone else NO_ANSWER_TEXT
        route = _end_run(run, RouteOutcome.DECLINED, text, by=NO_MODEL_NAME)
    else:
        route = _end_run(run, RouteOutcome.DECLINED, NO_ANSWER_TEXT, by=NO_MODEL_NAME, silent=True)
        route = replace(route, wordless=True)
    finish = route.finish if reply.finish in _CALL_FINISHES else reply.finish or route.finish
    return replace(route, refusal=reply.refusal, finish=finish)


def end_failed(run: RunState) -> Route:
    """End the run after all attempts failed. The text lists the attempts and what the person can change."""
    last = run.failures[-1] if run.failures else None
    attempts = [attempt for outcome in run.failures for attempt in outcome.attempts]
    guidance = build_guidance(
        attempts,
        (last.error if last is not None else None) or ErrorKind.UNAVAILABLE,
        tool=last.tool if last is not None else "",
        detail=last.detail or last.content if last is not None else "",
        fix=_get_fix(last),
        reason="" if last is None else get_failure_reason(last),
    )
    text = guidance.render()
    if last is not None and _get_fix(last):  # a specific fix is known, not only general advice
        text = f"This could not be done: {last.content.rstrip('.')}.\n\n{text}"
    return _end_run(run, RouteOutcome.FAILED, text, by=NO_MODEL_NAME, detail="\n".join(guidance.technical))


def _get_fix(outcome: Outcome | None) -> str:
    return "" if outcome is None else str(outcome.metadata.get("fix", ""))


def end_broken(run: RunState, error: FingerpostError) -> Route:
    """End the run after an internal error. The text contains the error's hint, not its trace."""
    hint = f" {error.hint}" if error.hint else ""
    text = f"This could not be answered: {error}.{hint}"
    detail = f"{type(error).__name__}: {error}"
    route = _end_run(run, RouteOutcome.FAILED, text, by=NO_MODEL_NAME, detail=detail, silent=True)
    return replace(route, failure=error)


def end_limited(run: RunState, reached: RunBudgetExceeded, so_far: str = "") -> Route:
    """End the run because a budget is spent. The text has the results so far, the limit and advice."""
    run.emit(BudgetReached(packet_id=run.packet.packet_id, limit=reached.limit, detail=reached.detail))
    lines = [f"Stopped early: {reached.detail}."]
    if so_far:
        lines += ["", "What was found so far:", so_far]
    is_loop = reached.limit == "loop"
    advice = "Ask for the missing part in other words." if is_loop else _LIMIT_ADVICE
    text = "\n".join([*lines, "", advice])
    if so_far and reached.limit in ("turns", "loop") and not run.depth:
        # Results count as an answer for a person. For a subagent, the parent decides.
        sources = list_sources(run.packet.tool_routing.worked)
        return end_answered(run, text, by=NO_MODEL_NAME, sources=sources, detail=reached.detail)
    route = _end_run(run, RouteOutcome.LIMITED, text, by=NO_MODEL_NAME, detail=reached.detail)
    return replace(route, finish="length")


async def end_waiting(run: RunState, outcome: Outcome, selection: Selection) -> Route:
    """End the run until a person approves the call or answers its tool's question, and return its route.

    Nothing stays open: `Router.resume` and `Router.reply` continue from the journal.
    """
    if outcome.pending_id is None:
        return end_asked(run, build_question(outcome, selection, run.options.conversation))
    pending = await run.deps.calls.approvals.get(outcome.pending_id)
    return end_waiting_for(run, pending) if pending is not None else end_failed(run)


def end_waiting_for(run: RunState, pending: Pending) -> Route:
    text = f"{pending.tool} needs your approval ({pending.pending_id}): {pending.reason}"
    return end_asked(run, Question(text=text, tool=pending.tool, pending_id=pending.pending_id), pending)


def end_asked(run: RunState, question: Question, pending: Pending | None = None) -> Route:
    """End the run until a person answers a question or decides about a call, and return its route."""
    run.schedule(SystemTask.DECISION, PacketState.WAITING)
    run.emit(QuestionAsked(packet_id=run.packet.packet_id, question=question))
    outcome = RouteOutcome.ASKED if pending is None else RouteOutcome.WAITING
    _emit_ended(run, outcome)
    read = _format_results(run)
    text = f"{run.complete_answer(read)}\n\n{question.text}" if read else question.text
    return _build_route(run, outcome, text, pending=pending, question=question)


def _format_results(run: RunState) -> str:
    """Return the tools' results in keyless mode, where no model will report them later."""
    good = run.packet.tool_routing.worked
    if run.mode is not Mode.KEYLESS or not good:
        return ""
    language = "en" if run.narrowing is None else run.narrowing.signals.language
    return build_keyless_answer(good, language, configured=run.deps.pool.ready)


def build_finished(run: RunState, outcome: RouteOutcome, text: str, *, by: str) -> Route:
    """Build the route of a run that has ended already. No events are emitted."""
    return _build_route(run, outcome, text, by=by, sources=list_sources(run.packet.tool_routing.steps))


def add_model_error(route: Route, error: ModelError) -> Route:
    """Return the route with the model error that caused the keyless fallback."""
    detail = f"{error}".strip() if not route.detail else f"{route.detail}\n{error}"
    return replace(route, detail=detail, failure=error)


def _end_run(
    run: RunState,
    outcome: RouteOutcome,
    text: str,
    *,
    by: str,
    sources: tuple[str, ...] = (),
    detail: str = "",
    silent: bool = False,
) -> Route:
    """Record the end of the run and build its route. With `silent`, the text is not streamed."""
    text = text if silent else run.complete_answer(text)
    run.emit(AnswerGiven(packet_id=run.packet.packet_id, text=text, by=by, sources=sources))
    good = outcome in (RouteOutcome.ANSWERED, RouteOutcome.DECLINED)
    run.schedule(None, PacketState.ANSWERED if good else PacketState.FAILED)
    _emit_ended(run, outcome)
    return _build_route(run, outcome, text, by=by, sources=sources, detail=detail)


def record_interrupted_run(run: RunState, *, left: bool) -> None:
    """Record the end of a run that produces no route. Otherwise it would appear to run for ever."""
    _emit_ended(run, RouteOutcome.LEFT if left else RouteOutcome.FAILED)


def _emit_ended(run: RunState, outcome: RouteOutcome, *, handed_back: tuple[str, ...] = ()) -> None:
    spent = run.budget.spent
    run.emit(
        RouteEnded(
            packet_id=run.packet.packet_id,
            outcome=outcome,
            milliseconds=run.budget.milliseconds,
            model_milliseconds=spent.milliseconds,
            tokens=spent.prompt_tokens + spent.completion_tokens,
            cost=spent.cost,
            handed_back=handed_back,
        )
    )


def _build_route(
    run: RunState,
    outcome: RouteOutcome,
    text: str,
    *,
    by: str = "",
    sources: tuple[str, ...] = (),
    pending: Pending | None = None,
    question: Question | None = None,
    detail: str = "",
) -> Route:
    spent = run.budget.spent
    return Route(
        packet=run.packet,
        outcome=outcome,
        mode=run.mode,
        answer=text,
        answered_by=by,
        sources=sources,
        pending=pending,
        question=question,
        narrowing=run.narrowing,
        left_out=0 if run.fitted is None else run.fitted.left_out,
        milliseconds=run.budget.milliseconds,
        model_milliseconds=spent.milliseconds,
        model_calls=spent.calls,
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        cost=spent.cost,
        detail=detail,
    )
