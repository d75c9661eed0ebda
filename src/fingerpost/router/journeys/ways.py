"""Which way a packet goes, and what becomes of it when the way is blocked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fingerpost.errors import FingerpostError, ModelError, ModelRefused
from fingerpost.records import Mode
from fingerpost.router.journeys import endings
from fingerpost.router.journeys.agents import agent
from fingerpost.router.journeys.budget import OutOfBudget
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.keyless import keyless
from fingerpost.router.journeys.reacting import reacting
from fingerpost.router.journeys.staged import staged
from fingerpost.router.journeys.writing import so_far, unwritten
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
    return await within_limits(journey, WAYS[journey.mode])


async def within_limits(journey: Journey, way: Callable[[Journey], Awaitable[Route]]) -> Route:
    """Whatever goes wrong on the way becomes an ending a person can read."""
    try:
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
    if isinstance(error, ModelRefused) and (journey.brought.model or journey.brought.options):
        return endings.broken(journey, error)  # what the caller asked for is not to be had
    try:
        route = await keyless(journey)
    except FingerpostError:
        return endings.broken(journey, error)
    return endings.because_of(route, error)
