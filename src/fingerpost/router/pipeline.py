"""The request on one page: narrow → select → check → review → gate → call → answer.

Staged mode takes all seven steps. In the agent modes the answering model selects, too, and its calls are not
reviewed: narrow → select → call, turn by turn, → answer. Keyless mode does the same without a model. Every
call goes through `call.pipeline`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from fingerpost.errors import FingerpostError, ModelError, ModelRefused
from fingerpost.events import IntentDetected
from fingerpost.records import ErrorKind, Intent, Mode
from fingerpost.router.modes.agents import (
    AgentTurn,
    DecideTurn,
    call_selected,
    decide_react_turn,
    decide_turn,
    offer_tools,
)
from fingerpost.router.modes.answer import answer_from_results, describe_results, write_final_answer
from fingerpost.router.modes.keyless import (
    answer_with_routing_off,
    conclude_without_model,
    narrow_without_model,
    serve_needs,
)
from fingerpost.router.modes.routes import add_model_error, end_broken, end_declined, end_limited
from fingerpost.router.modes.run_state import RunBudgetExceeded, RunState
from fingerpost.router.modes.staged import (
    CheckedTool,
    GatedCall,
    NextStep,
    ReviewedTool,
    SelectedTool,
    answer,
    call,
    check,
    decide_after_result,
    gate,
    narrow,
    review,
    select,
)
from fingerpost.router.modes.tool_step import note_client_results
from fingerpost.router.route import Route

Steps: TypeAlias = Callable[[RunState], Awaitable[Route]]
StepResult: TypeAlias = NextStep | SelectedTool | CheckedTool | ReviewedTool | GatedCall | Route


async def run_request(run: RunState) -> Route:
    """Run a new request to its end, in its mode."""
    return await run_to_end(run, MODE_STEPS[run.mode] if run.settings.tool_routing.enabled else answer_only)


async def run_staged(run: RunState) -> Route:
    """Staged mode: a light model selects, the prime model reviews and answers."""
    return await take_steps(run, NextStep.NARROW)


async def take_steps(run: RunState, step: StepResult) -> Route:
    """Take the seven steps in order until there is a route.

    Each step returns the value for the next one, or which step follows instead, or the route that ends the
    run: an answer, a question, a call that waits for a person.
    """
    while not isinstance(step, Route):
        if step is NextStep.NARROW:
            step = await narrow(run)
        if step is NextStep.SELECT:
            step = await select(run)
        if isinstance(step, SelectedTool):
            step = await check(run, step)
        if isinstance(step, CheckedTool):
            step = await review(run, step)
        if isinstance(step, ReviewedTool):
            step = await gate(run, step)
        if isinstance(step, GatedCall):
            step = await call(run, step)
        if step is NextStep.ANSWER:
            step = await answer(run)
    return step


async def run_agent(run: RunState) -> Route:
    """The modes single and simple: the answering model gets tool definitions and selects itself."""
    await narrow(run)
    await offer_tools(run)
    return await take_turns(run, decide_turn)


async def run_react(run: RunState) -> Route:
    """The mode react: the model writes its thoughts before each call."""
    await narrow(run)
    return await take_turns(run, decide_react_turn)


async def take_turns(run: RunState, decide: DecideTurn) -> Route:
    """Let the model select and call until it answers. The last turn answers without tools."""
    turn: AgentTurn | Route = AgentTurn()
    while not isinstance(turn, Route):
        turn = await decide(run, turn)  # select, or answer
        if isinstance(turn, AgentTurn):
            turn = await call_selected(run, turn)
    return turn


async def run_keyless(run: RunState) -> Route:
    """The mode keyless: one need after another is served by a tool that fits without doubt."""
    narrowing = run.narrowing or await narrow_without_model(run)
    return await serve_needs(run, narrowing)


async def answer_only(run: RunState) -> Route:
    """Tool routing is switched off, in every mode. The model still gets the caller's own tools."""
    intent = Intent(name="answer", reasons=("tool routing is switched off",))
    run.emit(IntentDetected(packet_id=run.packet.packet_id, intent=intent, needs_tool=False))
    if run.mode is Mode.KEYLESS:
        return await answer_with_routing_off(run)
    return await write_final_answer(run)


MODE_STEPS: Final[Mapping[Mode, Steps]] = {
    Mode.STAGED: run_staged,
    Mode.SINGLE: run_agent,
    Mode.SIMPLE: run_agent,
    Mode.REACT: run_react,
    Mode.KEYLESS: run_keyless,
}


async def continue_request(run: RunState) -> Route:
    """Continue a request after a call for which a person was asked: from its result to the answer.

    The prompt lists the calls that a person rejected.
    """
    routing = run.packet.tool_routing
    if run.mode is Mode.KEYLESS or not run.deps.pool.ready:
        if run.rejection and not routing.worked:
            return end_declined(run, run.rejection)
        return await conclude_without_model(run)
    if run.mode is Mode.STAGED:
        last = routing.steps[-1]
        error = None if last.error is None else ErrorKind(last.error)
        return await take_steps(run, await decide_after_result(run, success=last.success, error=error))
    return await take_turns(run, decide_react_turn if run.mode is Mode.REACT else decide_turn)


async def run_to_end(run: RunState, steps: Steps) -> Route:
    """Take the steps. Limits and errors end with a route and a readable text, too."""
    try:
        await run.detect_kept_results()
        await note_client_results(run)
        return await steps(run)
    except RunBudgetExceeded as reached:
        return end_limited(run, reached, describe_results(run))
    except ModelError as error:
        return await _fall_back_to_keyless(run, error)
    except FingerpostError as error:
        return end_broken(run, error)


async def _fall_back_to_keyless(run: RunState, error: ModelError) -> Route:
    """Do what is possible without a model, because none answered. The route contains the reason."""
    if run.packet.tool_routing.steps:
        return answer_from_results(run, error)
    if not run.settings.tool_routing.enabled:
        return end_broken(run, error)  # there is no fallback without tools and without a model
    if isinstance(error, ModelRefused) and (run.client_options.model or run.client_options.options):
        return end_broken(run, error)  # the model or options that the caller requested are refused
    try:
        route = await run_keyless(run)
    except FingerpostError:
        return end_broken(run, error)
    return add_model_error(route, error)
