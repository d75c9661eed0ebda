"""Which way a packet goes, and what becomes of it when the way is blocked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fingerpost.errors import FingerpostError, ModelError, ModelRefused
from fingerpost.events import IntentDetected
from fingerpost.records import Intent, Mode
from fingerpost.router.journeys import endings
from fingerpost.router.journeys.agents import run_agent
from fingerpost.router.journeys.budget import RunBudgetExceeded
from fingerpost.router.journeys.journey import RunState
from fingerpost.router.journeys.keyless import answer_with_routing_off, run_keyless
from fingerpost.router.journeys.reacting import run_react
from fingerpost.router.journeys.staged import run_staged
from fingerpost.router.journeys.writing import answer_from_results, describe_results, write_final_answer
from fingerpost.router.route import Route

MODE_RUNNERS: Final[Mapping[Mode, Callable[[RunState], Awaitable[Route]]]] = {
    Mode.STAGED: run_staged,
    Mode.SINGLE: run_agent,
    Mode.SIMPLE: run_agent,
    Mode.REACT: run_react,
    Mode.KEYLESS: run_keyless,
}


async def run_mode(run: RunState) -> Route:
    """The whole way in the journey's mode. Without a model that answers, the way without one."""
    enabled = run.settings.tool_routing.enabled
    return await run_within_limits(run, MODE_RUNNERS[run.mode] if enabled else _answer_with_routing_off)


async def _answer_with_routing_off(run: RunState) -> Route:
    """An answer without routed tools, in every mode. The caller's own tools still reach the model."""
    intent = Intent(name="answer", reasons=("tool routing is switched off",))
    run.emit(IntentDetected(packet_id=run.packet.packet_id, intent=intent, needs_tool=False))
    if run.mode is Mode.KEYLESS:
        return await answer_with_routing_off(run)
    return await write_final_answer(run)


async def run_within_limits(
    run: RunState, run_mode_function: Callable[[RunState], Awaitable[Route]]
) -> Route:
    """Whatever goes wrong on the way becomes an ending a person can read."""
    try:
        await run.find_kept_results()
        return await run_mode_function(run)
    except RunBudgetExceeded as reached:
        return endings.build_limited(run, reached, describe_results(run))
    except ModelError as error:
        return await _fall_back_to_keyless(run, error)
    except FingerpostError as error:
        return endings.build_broken(run, error)


async def _fall_back_to_keyless(run: RunState, error: ModelError) -> Route:
    """No model answers: what can be done without one is done, and the reason is not hidden."""
    if run.packet.tool_routing.steps:
        return answer_from_results(run, error)
    if not run.settings.tool_routing.enabled:
        return endings.build_broken(run, error)  # without tools nothing can be done without the model
    if isinstance(error, ModelRefused) and (run.client_options.model or run.client_options.options):
        return endings.build_broken(run, error)  # what the caller asked for is not to be had
    try:
        route = await run_keyless(run)
    except FingerpostError:
        return endings.build_broken(run, error)
    return endings.add_model_error(route, error)
