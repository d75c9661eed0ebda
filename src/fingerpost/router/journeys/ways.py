"""Which way a packet goes, and what becomes of it when the way is blocked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fingerpost.errors import FingerpostError, ModelError, ModelRefused
from fingerpost.events import IntentDetected
from fingerpost.records import Intent, Mode
from fingerpost.router.journeys import endings
from fingerpost.router.journeys.agents import agent
from fingerpost.router.journeys.budget import OutOfBudget
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.keyless import answer_with_routing_off, keyless
from fingerpost.router.journeys.reacting import reacting
from fingerpost.router.journeys.staged import staged
from fingerpost.router.journeys.writing import conclude_for_good, so_far, unwritten
from fingerpost.router.route import Route

WAYS: Final[Mapping[Mode, Callable[[Journey], Awaitable[Route]]]] = {
    Mode.STAGED: staged,
    Mode.SINGLE: agent,
    Mode.SIMPLE: agent,
    Mode.REACT: reacting,
    Mode.KEYLESS: keyless,
}


async def travel(journey: Journey) -> Route:
    """The whole way in the journey's mode. Without a model that answers, the way without one."""
    enabled = journey.settings.tool_routing.enabled
    return await within_limits(journey, WAYS[journey.mode] if enabled else _answer_with_routing_off)


async def _answer_with_routing_off(journey: Journey) -> Route:
    """An answer without routed tools, in every mode. The caller's own tools still reach the model."""
    intent = Intent(name="answer", reasons=("tool routing is switched off",))
    journey.tell(IntentDetected(packet_id=journey.packet.packet_id, intent=intent, needs_tool=False))
    if journey.mode is Mode.KEYLESS:
        return await answer_with_routing_off(journey)
    return await conclude_for_good(journey)


async def within_limits(journey: Journey, way: Callable[[Journey], Awaitable[Route]]) -> Route:
    """Whatever goes wrong on the way becomes an ending a person can read."""
    try:
        await journey.find_kept_results()
        return await way(journey)
    except OutOfBudget as reached:
        return endings.limited(journey, reached, so_far(journey))
    except ModelError as error:
        return await _without_model(journey, error)
    except FingerpostError as error:
        return endings.broken(journey, error)


async def _without_model(journey: Journey, error: ModelError) -> Route:
    """No model answers: what can be done without one is done, and the reason is not hidden."""
    if journey.packet.tool_routing.steps:
        return unwritten(journey, error)
    if not journey.settings.tool_routing.enabled:
        return endings.broken(journey, error)  # without tools nothing can be done without the model
    if isinstance(error, ModelRefused) and (journey.brought.model or journey.brought.options):
        return endings.broken(journey, error)  # what the caller asked for is not to be had
    try:
        route = await keyless(journey)
    except FingerpostError:
        return endings.broken(journey, error)
    return endings.because_of(route, error)
