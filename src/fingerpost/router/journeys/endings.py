"""How journeys end: every way leads to something a person can read."""

from __future__ import annotations

from dataclasses import replace

from fingerpost.call.guidance import guidance
from fingerpost.choose.certain import keyless_answer
from fingerpost.choose.sources import sources_of
from fingerpost.choose.steps import as_tool_messages
from fingerpost.errors import FingerpostError, ModelError
from fingerpost.events import AnswerGiven, BudgetReached, QuestionAsked, RouteEnded
from fingerpost.llm import ModelReply
from fingerpost.llm.fields import mapping
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
from fingerpost.router.journeys.budget import OutOfBudget
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.questions import question_of
from fingerpost.router.route import Route

NO_MODEL = "no model"
NO_WORDS = "The model gave no answer in words. Ask again, or ask another model."
_LESS_OR_MORE = "Ask for a smaller part of it, or raise that limit."
SYNTAX_ALONE = (
    "The model gave no answer: it only wrote calls of a tool that does not exist, also when asked again. "
    "Put the request in other words, or ask another model."
)
_CALLS = ("tool_calls", "function_call")  # as a reason to end


def answered(
    journey: Journey,
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
    routing = journey.packet.tool_routing
    outcome = RouteOutcome.DECLINED if routing.cancelled and not routing.worked else RouteOutcome.ANSWERED
    route = _over(journey, outcome, text, by=by, sources=sources, detail=detail)
    return route if finish is None or finish in _CALLS else replace(route, finish=finish)


def handed_back(journey: Journey, calls: tuple[JsonObject, ...], text: str, *, by: str) -> Route:
    """The model calls tools of the caller's own. What was done here before goes along, unseen."""
    journey.schedule(None, PacketState.ANSWERED)
    names = tuple(str(mapping(call.get("function")).get("name", "")) for call in calls)
    _tell_end(journey, RouteOutcome.HANDED_BACK, handed_back=names)
    steps = journey.packet.tool_routing.steps
    answer = journey.complete(text)
    route = _route(journey, RouteOutcome.HANDED_BACK, answer, by=by, sources=sources_of(steps))
    hidden = as_tool_messages(steps, journey.cards())
    return replace(route, tool_calls=calls, hidden=hidden, finish="tool_calls")


def declined(journey: Journey, text: str, *, by: str = NO_MODEL, detail: str = "") -> Route:
    """Nothing was done, and the person is told why."""
    return _over(journey, RouteOutcome.DECLINED, text, by=by, detail=detail)


def unanswered(journey: Journey, reply: ModelReply, *, syntax_alone: bool = False) -> Route:
    """The model refuses in its own words, or gives no answer: then the words a person reads are ours.

    Where it wrote nothing at all, callers of `/v1` get just that; invented syntax is never left as nothing.
    """
    if reply.refusal:
        route = _over(journey, RouteOutcome.DECLINED, reply.refusal, by=reply.model, silent=True)
    elif syntax_alone or journey.has_spoken:
        route = _over(journey, RouteOutcome.DECLINED, SYNTAX_ALONE if syntax_alone else NO_WORDS, by=NO_MODEL)
    else:
        route = _over(journey, RouteOutcome.DECLINED, NO_WORDS, by=NO_MODEL, silent=True)
        route = replace(route, wordless=True)
    finish = route.finish if reply.finish in _CALLS else reply.finish or route.finish
    return replace(route, refusal=reply.refusal, finish=finish)


def failed(journey: Journey) -> Route:
    """Everything was tried: what was tried, and what the person can change."""
    last = journey.failures[-1] if journey.failures else None
    attempts = [attempt for outcome in journey.failures for attempt in outcome.attempts]
    told = guidance(
        attempts,
        (last.error if last is not None else None) or ErrorKind.UNAVAILABLE,
        tool=last.tool if last is not None else "",
        detail=last.detail or last.content if last is not None else "",
        fix=_fix(last),
    )
    text = told.text()
    if last is not None and _fix(last):  # just this is known, and not only what holds for such errors
        text = f"This could not be done: {last.content.rstrip('.')}.\n\n{text}"
    return _over(journey, RouteOutcome.FAILED, text, by=NO_MODEL, detail="\n".join(told.technical))


def _fix(outcome: Outcome | None) -> str:
    return "" if outcome is None else str(outcome.metadata.get("fix", ""))


def broken(journey: Journey, error: FingerpostError) -> Route:
    """A part of the house failed; the person gets its hint, not its trace."""
    hint = f" {error.hint}" if error.hint else ""
    text = f"This could not be answered: {error}.{hint}"
    detail = f"{type(error).__name__}: {error}"
    route = _over(journey, RouteOutcome.FAILED, text, by=NO_MODEL, detail=detail, silent=True)
    return replace(route, failure=error)


def limited(journey: Journey, reached: OutOfBudget, so_far: str = "") -> Route:
    """A budget ran out: what there is, which limit it was, and what to do."""
    journey.tell(
        BudgetReached(packet_id=journey.packet.packet_id, limit=reached.limit, detail=reached.detail)
    )
    lines = [f"I stopped before I was done: {reached.detail}."]
    if so_far:
        lines += ["", "What was found so far:", so_far]
    is_loop = reached.limit == "loop"
    advice = "Ask for what is missing in other words." if is_loop else _LESS_OR_MORE
    text = "\n".join([*lines, "", advice])
    if so_far and reached.limit in ("turns", "loop") and not journey.depth:
        # A person's request whose rounds are over is answered; a subagent's parent decides what to do.
        sources = sources_of(journey.packet.tool_routing.worked)
        return answered(journey, text, by=NO_MODEL, sources=sources, detail=reached.detail)
    route = _over(journey, RouteOutcome.LIMITED, text, by=NO_MODEL, detail=reached.detail)
    return replace(route, finish="length")


async def waiting(journey: Journey, outcome: Outcome, selection: Selection) -> Route:
    """A call waits for a person: for their leave, or for an answer its tool wants of them.

    Nothing is held open: `Router.resume` and `Router.reply` go on from what is recorded.
    """
    if outcome.pending_id is None:
        return asked(journey, question_of(outcome, selection, journey.asking.get("conversation")))
    pending = await journey.house.calls.approvals.get(outcome.pending_id)
    return waiting_for(journey, pending) if pending is not None else failed(journey)


def waiting_for(journey: Journey, pending: Pending) -> Route:
    text = f"{pending.tool} waits for your approval as {pending.pending_id}: {pending.reason}"
    return asked(journey, Question(text=text, tool=pending.tool, pending_id=pending.pending_id), pending)


def asked(journey: Journey, question: Question, pending: Pending | None = None) -> Route:
    """The person has to say something first."""
    journey.schedule(SystemTask.DECISION, PacketState.WAITING)
    journey.tell(QuestionAsked(packet_id=journey.packet.packet_id, question=question))
    outcome = RouteOutcome.ASKED if pending is None else RouteOutcome.WAITING
    _tell_end(journey, outcome)
    read = _read_without_model(journey)
    text = f"{journey.complete(read)}\n\n{question.text}" if read else question.text
    return _route(journey, outcome, text, pending=pending, question=question)


def _read_without_model(journey: Journey) -> str:
    """What tools have returned where no model is there to tell it later: it is shown at once."""
    good = journey.packet.tool_routing.worked
    if journey.mode is not Mode.KEYLESS or not good:
        return ""
    language = "en" if journey.narrowing is None else journey.narrowing.signals.language
    return keyless_answer(good, language, configured=journey.house.pool.ready)


def standing(journey: Journey, outcome: RouteOutcome, text: str, *, by: str) -> Route:
    """The journey is over already; nothing new is told."""
    return _route(journey, outcome, text, by=by, sources=sources_of(journey.packet.tool_routing.steps))


def because_of(route: Route, error: ModelError) -> Route:
    """The same route, which was gone without a model because none answered."""
    detail = f"{error}".strip() if not route.detail else f"{route.detail}\n{error}"
    return replace(route, detail=detail, failure=error)


def _over(
    journey: Journey,
    outcome: RouteOutcome,
    text: str,
    *,
    by: str,
    sources: tuple[str, ...] = (),
    detail: str = "",
    silent: bool = False,
) -> Route:
    """The end of a journey. `silent`: whoever listens to the answer does not hear this text."""
    text = text if silent else journey.complete(text)
    journey.tell(AnswerGiven(packet_id=journey.packet.packet_id, text=text, by=by, sources=sources))
    good = outcome in (RouteOutcome.ANSWERED, RouteOutcome.DECLINED)
    journey.schedule(None, PacketState.ANSWERED if good else PacketState.FAILED)
    _tell_end(journey, outcome)
    return _route(journey, outcome, text, by=by, sources=sources, detail=detail)


def broken_off(journey: Journey, *, left: bool) -> None:
    """No route comes of this journey; without a word about it, it would seem to go on for ever."""
    _tell_end(journey, RouteOutcome.LEFT if left else RouteOutcome.FAILED)


def _tell_end(journey: Journey, outcome: RouteOutcome, *, handed_back: tuple[str, ...] = ()) -> None:
    spent = journey.budget.spent
    journey.tell(
        RouteEnded(
            packet_id=journey.packet.packet_id,
            outcome=outcome,
            milliseconds=journey.budget.milliseconds,
            model_milliseconds=spent.milliseconds,
            tokens=spent.prompt_tokens + spent.completion_tokens,
            cost=spent.cost,
            handed_back=handed_back,
        )
    )


def _route(
    journey: Journey,
    outcome: RouteOutcome,
    text: str,
    *,
    by: str = "",
    sources: tuple[str, ...] = (),
    pending: Pending | None = None,
    question: Question | None = None,
    detail: str = "",
) -> Route:
    spent = journey.budget.spent
    return Route(
        packet=journey.packet,
        outcome=outcome,
        mode=journey.mode,
        answer=text,
        answered_by=by,
        sources=sources,
        pending=pending,
        question=question,
        narrowing=journey.narrowing,
        left_out=0 if journey.fitted is None else journey.fitted.left_out,
        milliseconds=journey.budget.milliseconds,
        model_milliseconds=spent.milliseconds,
        model_calls=spent.calls,
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        cost=spent.cost,
        detail=detail,
    )
