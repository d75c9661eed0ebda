"""Every way a run can end, as a `Route` that a person can read."""

from __future__ import annotations

from dataclasses import replace

from fingerpost.call.outcomes import build_guidance
from fingerpost.choose.answer import list_sources
from fingerpost.choose.keyless.replies import build_keyless_answer
from fingerpost.choose.prompts import to_tool_messages
from fingerpost.errors import FingerpostError, ModelError
from fingerpost.events import AnswerGiven, BudgetReached, QuestionAsked, RouteEnded
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

NO_MODEL_NAME = "no model"
NO_ANSWER_TEXT = "The model gave no answer in words. Ask again, or ask another model."
_LIMIT_ADVICE = "Ask for a smaller part of it, or raise that limit."
SYNTAX_ONLY_TEXT = (
    "The model gave no answer: it only wrote calls of a tool that does not exist, also when asked again. "
    "Put the request in other words, or ask another model."
)
_CALL_FINISHES = ("tool_calls", "function_call")  # as a reason to end


def build_answered(
    run: RunState,
    text: str,
    *,
    by: str,
    sources: tuple[str, ...] = (),
    detail: str = "",
    finish: str | None = None,
) -> Route:
    """`finish` is the model's own word for why it ended; a call it could not make is an end like any.

    Where a person did not allow what was to be done and nothing else came of it, nothing was done.
    """
    routing = run.packet.tool_routing
    outcome = RouteOutcome.DECLINED if routing.cancelled and not routing.worked else RouteOutcome.ANSWERED
    route = _end_run(run, outcome, text, by=by, sources=sources, detail=detail)
    return route if finish is None or finish in _CALL_FINISHES else replace(route, finish=finish)


def build_handed_back(run: RunState, calls: tuple[JsonObject, ...], text: str, *, by: str) -> Route:
    """The model calls tools of the caller's own. What was done here before goes along, unseen."""
    run.schedule(None, PacketState.ANSWERED)
    names = tuple(str(as_mapping(call.get("function")).get("name", "")) for call in calls)
    _emit_ended(run, RouteOutcome.HANDED_BACK, handed_back=names)
    steps = run.packet.tool_routing.steps
    answer = run.complete_answer(text)
    route = _build_route(run, RouteOutcome.HANDED_BACK, answer, by=by, sources=list_sources(steps))
    hidden = to_tool_messages(steps, run.get_cards())
    return replace(route, tool_calls=calls, hidden=hidden, finish="tool_calls")


def build_declined(run: RunState, text: str, *, by: str = NO_MODEL_NAME, detail: str = "") -> Route:
    """Nothing was done, and the person is told why."""
    return _end_run(run, RouteOutcome.DECLINED, text, by=by, detail=detail)


def build_unanswered(run: RunState, reply: ModelReply, *, syntax_alone: bool = False) -> Route:
    """The model refuses in its own words, or gives no answer: then the words a person reads are ours.

    Where it wrote nothing at all, callers of `/v1` get just that; invented syntax is never left as nothing.
    """
    if reply.refusal:
        route = _end_run(run, RouteOutcome.DECLINED, reply.refusal, by=reply.model, silent=True)
    elif syntax_alone or run.has_streamed:
        route = _end_run(
            run, RouteOutcome.DECLINED, SYNTAX_ONLY_TEXT if syntax_alone else NO_ANSWER_TEXT, by=NO_MODEL_NAME
        )
    else:
        route = _end_run(run, RouteOutcome.DECLINED, NO_ANSWER_TEXT, by=NO_MODEL_NAME, silent=True)
        route = replace(route, wordless=True)
    finish = route.finish if reply.finish in _CALL_FINISHES else reply.finish or route.finish
    return replace(route, refusal=reply.refusal, finish=finish)


def build_failed(run: RunState) -> Route:
    """Everything was tried: what was tried, and what the person can change."""
    last = run.failures[-1] if run.failures else None
    attempts = [attempt for outcome in run.failures for attempt in outcome.attempts]
    told = build_guidance(
        attempts,
        (last.error if last is not None else None) or ErrorKind.UNAVAILABLE,
        tool=last.tool if last is not None else "",
        detail=last.detail or last.content if last is not None else "",
        fix=_get_fix(last),
    )
    text = told.render()
    if last is not None and _get_fix(last):  # just this is known, and not only what holds for such errors
        text = f"This could not be done: {last.content.rstrip('.')}.\n\n{text}"
    return _end_run(run, RouteOutcome.FAILED, text, by=NO_MODEL_NAME, detail="\n".join(told.technical))


def _get_fix(outcome: Outcome | None) -> str:
    return "" if outcome is None else str(outcome.metadata.get("fix", ""))


def build_broken(run: RunState, error: FingerpostError) -> Route:
    """A part of the house failed; the person gets its hint, not its trace."""
    hint = f" {error.hint}" if error.hint else ""
    text = f"This could not be answered: {error}.{hint}"
    detail = f"{type(error).__name__}: {error}"
    route = _end_run(run, RouteOutcome.FAILED, text, by=NO_MODEL_NAME, detail=detail, silent=True)
    return replace(route, failure=error)


def build_limited(run: RunState, reached: RunBudgetExceeded, so_far: str = "") -> Route:
    """A budget ran out: what there is, which limit it was, and what to do."""
    run.emit(BudgetReached(packet_id=run.packet.packet_id, limit=reached.limit, detail=reached.detail))
    lines = [f"I stopped before I was done: {reached.detail}."]
    if so_far:
        lines += ["", "What was found so far:", so_far]
    is_loop = reached.limit == "loop"
    advice = "Ask for what is missing in other words." if is_loop else _LIMIT_ADVICE
    text = "\n".join([*lines, "", advice])
    if so_far and reached.limit in ("turns", "loop") and not run.depth:
        # A person's request whose rounds are over is answered; a subagent's parent decides what to do.
        sources = list_sources(run.packet.tool_routing.worked)
        return build_answered(run, text, by=NO_MODEL_NAME, sources=sources, detail=reached.detail)
    route = _end_run(run, RouteOutcome.LIMITED, text, by=NO_MODEL_NAME, detail=reached.detail)
    return replace(route, finish="length")


async def build_waiting(run: RunState, outcome: Outcome, selection: Selection) -> Route:
    """A call waits for a person: for their leave, or for an answer its tool wants of them.

    Nothing is held open: `Router.resume` and `Router.reply` go on from what is recorded.
    """
    if outcome.pending_id is None:
        return build_asked(run, build_question(outcome, selection, run.options.get("conversation")))
    pending = await run.deps.calls.approvals.get(outcome.pending_id)
    return build_waiting_for(run, pending) if pending is not None else build_failed(run)


def build_waiting_for(run: RunState, pending: Pending) -> Route:
    text = f"{pending.tool} waits for your approval as {pending.pending_id}: {pending.reason}"
    return build_asked(run, Question(text=text, tool=pending.tool, pending_id=pending.pending_id), pending)


def build_asked(run: RunState, question: Question, pending: Pending | None = None) -> Route:
    """The person has to say something first."""
    run.schedule(SystemTask.DECISION, PacketState.WAITING)
    run.emit(QuestionAsked(packet_id=run.packet.packet_id, question=question))
    outcome = RouteOutcome.ASKED if pending is None else RouteOutcome.WAITING
    _emit_ended(run, outcome)
    read = _show_results(run)
    text = f"{run.complete_answer(read)}\n\n{question.text}" if read else question.text
    return _build_route(run, outcome, text, pending=pending, question=question)


def _show_results(run: RunState) -> str:
    """What tools have returned where no model is there to tell it later: it is shown at once."""
    good = run.packet.tool_routing.worked
    if run.mode is not Mode.KEYLESS or not good:
        return ""
    language = "en" if run.narrowing is None else run.narrowing.signals.language
    return build_keyless_answer(good, language, configured=run.deps.pool.ready)


def build_finished(run: RunState, outcome: RouteOutcome, text: str, *, by: str) -> Route:
    """The journey is over already; nothing new is told."""
    return _build_route(run, outcome, text, by=by, sources=list_sources(run.packet.tool_routing.steps))


def add_model_error(route: Route, error: ModelError) -> Route:
    """The same route, which was gone without a model because none answered."""
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
    """The end of a journey. `silent`: whoever listens to the answer does not hear this text."""
    text = text if silent else run.complete_answer(text)
    run.emit(AnswerGiven(packet_id=run.packet.packet_id, text=text, by=by, sources=sources))
    good = outcome in (RouteOutcome.ANSWERED, RouteOutcome.DECLINED)
    run.schedule(None, PacketState.ANSWERED if good else PacketState.FAILED)
    _emit_ended(run, outcome)
    return _build_route(run, outcome, text, by=by, sources=sources, detail=detail)


def record_interrupted_run(run: RunState, *, left: bool) -> None:
    """No route comes of this journey; without a word about it, it would seem to go on for ever."""
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
