"""Without a model: route, explain, fill in what is certain, ask for the rest, run what is safe."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Final

from fingerpost.choose.certain import (
    Certain,
    Option,
    ask_for,
    choose_tool,
    fill_answer,
    keyless_answer,
    keyless_direct,
    picked,
    refused,
    reply_with_routing_off,
)
from fingerpost.choose.certain.asking import which_tool
from fingerpost.choose.sources import sources_of
from fingerpost.records import (
    Effect,
    ErrorKind,
    ExecutionStatus,
    JsonObject,
    Narrowing,
    NeedVerdict,
    Question,
    Selection,
    ToolCard,
    utc_now,
)
from fingerpost.router.journeys import acting, endings
from fingerpost.router.journeys.journey import Journey
from fingerpost.router.journeys.questions import waits
from fingerpost.router.journeys.writing import language_of
from fingerpost.router.route import Route

SURE: Final = "every argument stands in the request"
MOST_NEEDS: Final = 4
MOST_ABILITIES: Final = 6
MOST_OPTIONS: Final = 4


async def keyless(journey: Journey) -> Route:
    """From the request to what tools say about it, one need after the other."""
    narrowing = journey.narrowing or await _narrowed(journey)
    return await _serve(journey, narrowing, range(_needs(narrowing)))


async def _narrowed(journey: Journey) -> Narrowing:
    """A model could do without a tool where we cannot: the tools are looked at whatever the need."""
    journey.asking = journey.asking.copy()
    journey.asking["asked_for_tools"] = True
    return await journey.narrow()


async def _serve(journey: Journey, narrowing: Narrowing, needs: range) -> Route:
    """One need after the other, until the person has to say something."""
    for need in needs:
        choice = _choice(journey, narrowing, need)
        if choice.option is None and choice.question is not None:
            return endings.asked(journey, replace(choice.question, need=need))
        if choice.option is None:
            journey.undone += narrowing.shortlist.needs[need : need + 1]
            continue
        stopped = await _use(journey, choice.option, choice.reason, need)
        if stopped is not None:
            return stopped
    return conclude_keyless(journey)


def _needs(narrowing: Narrowing) -> int:
    return min(MOST_NEEDS, max(1, len(narrowing.shortlist.needs)))


async def replied(journey: Journey, question: Question, answer: str) -> Route:
    """Go on with what the person answered: which tool they meant, or the values that were missing."""
    if refused(answer):
        return endings.declined(journey, "Nothing was done.")
    narrowing = journey.narrowing or await _narrowed(journey)
    choice = _choice(journey, narrowing, question.need)
    rest = range(question.need + 1, _needs(narrowing))
    options = (*([choice.option] if choice.option is not None else []), *choice.alternatives)
    option = next((one for one in options if one.card.key == question.tool), None)
    if option is None:
        option = picked(options, answer)
        if option is None:
            return endings.asked(journey, question)
        stopped = await _use(journey, option, "the person chose it", question.need)
        return stopped or await _serve(journey, narrowing, rest)
    signals = await journey.house.guide.read(answer)
    said = fill_answer(option.card, question.missing, answer, signals, today=_today())
    arguments = {**option.filled.arguments, **said.arguments}
    still = tuple(one for one in option.filled.missing if one.name not in arguments)
    if still:
        asked = ask_for(option.card, still, language_of(journey))
        return endings.asked(journey, replace(asked, need=question.need))
    selection = _selection(option.card, "the person gave the rest", arguments=arguments)
    return await _run(journey, selection) or await _serve(journey, narrowing, rest)


def conclude_keyless(journey: Journey) -> Route:
    """What the tools said, in their own words; without any, what can be said without a model."""
    if not journey.packet.tool_routing.steps:
        return _undecided(journey)
    good = journey.packet.tool_routing.worked
    if not good:
        return endings.failed(journey)
    text = keyless_answer(
        [step for step in journey.packet.tool_routing.steps if step.error != ErrorKind.CANCELLED.value],
        language_of(journey),
        unused=journey.unused,
        undone=journey.undone,
        configured=journey.house.pool.ready,
    )
    text = "\n\n".join(part for part in (text, journey.rejection) if part)
    return endings.answered(journey, text, by=endings.NO_MODEL, sources=sources_of(good))


def _choice(journey: Journey, narrowing: Narrowing, need: int) -> Certain:
    cards = {card.key: card for card in journey.cards()}
    return choose_tool(narrowing, cards, journey.packet.content.original_prompt, today=_today(), need=need)


async def _use(journey: Journey, option: Option, reason: str, need: int) -> Route | None:
    """Run it, if everything it needs is there. A route where the journey cannot go on by itself."""
    if option.filled.missing:
        asked = ask_for(option.card, option.filled.missing, language_of(journey))
        return endings.asked(journey, replace(asked, need=need))
    journey.unused += option.filled.leftover
    return await _run(journey, _selection(option.card, reason, arguments=option.filled.arguments))


def _selection(card: ToolCard, reason: str, *, arguments: JsonObject) -> Selection:
    return Selection(tool=card.key, arguments=arguments, reasoning=reason, confidence=1.0)


async def _run(journey: Journey, selection: Selection) -> Route | None:
    acting.selected(journey, selection)
    acting.status(journey, ExecutionStatus.AWAITING_CONFIDENCE)
    acting.status(journey, ExecutionStatus.APPROVED, SURE)
    outcome = await acting.call(journey, selection)
    if waits(outcome):
        return await endings.waiting(journey, outcome, selection)
    acting.status(journey, ExecutionStatus.EXECUTED if outcome.success else ExecutionStatus.FAILED)
    acting.inject(journey, selection, outcome)
    return None


def _undecided(journey: Journey) -> Route:
    """No tool was used. Where one is needed, the person says which."""
    cards = journey.cards()[:MOST_OPTIONS]
    if journey.narrowing is not None and journey.narrowing.need.verdict is NeedVerdict.TOOL and cards:
        return endings.asked(journey, which_tool(cards, language_of(journey)))
    return _direct(journey)


def _direct(journey: Journey) -> Route:
    assert journey.narrowing is not None
    prompt = journey.packet.content.original_prompt
    text = keyless_direct(
        journey.narrowing, prompt, abilities=_abilities(journey), down=journey.house.guide.away()
    )
    return endings.answered(journey, text, by=endings.NO_MODEL)


async def answer_with_routing_off(journey: Journey) -> Route:
    """The answer without a model and without tools, because tool routing is switched off."""
    prompt = journey.packet.content.original_prompt
    text = reply_with_routing_off(prompt, (await journey.house.guide.read(prompt)).language)
    return endings.answered(journey, text, by=endings.NO_MODEL)


def _abilities(journey: Journey) -> list[str]:
    """One tool of each server, to show what there is; rather one that reads."""
    first: dict[str, str] = {}
    cards = (card for card in journey.house.snapshot().cards if not card.personal)
    for card in sorted(cards, key=lambda card: card.effect.value is not Effect.READ):
        first.setdefault(card.server, card.key)
    return list(first.values())[:MOST_ABILITIES]


def _today() -> date:
    return utc_now().astimezone().date()
