"""Keyless mode, without a model: fill in certain arguments, ask for the rest, run safe calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Final

from fingerpost.choose.answer import list_sources
from fingerpost.choose.keyless.choice import (
    CONFIDENT_FIT,
    UNSUITABLE_REASONS,
    KeylessChoice,
    ToolOption,
    build_missing_question,
    build_which_tool_question,
    choose_tool,
    fill_answer,
    is_refusal,
    pick_option,
)
from fingerpost.choose.keyless.replies import (
    build_direct_reply,
    build_keyless_answer,
    build_routing_off_reply,
    find_known_reply,
)
from fingerpost.choose.keyless.tables import get_phrases
from fingerpost.events.route import NO_MODEL_NAME
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
from fingerpost.router.modes.answer import get_language
from fingerpost.router.modes.elicitation import is_waiting
from fingerpost.router.modes.routes import (
    end_answered,
    end_asked,
    end_declined,
    end_failed,
    end_waiting,
    end_without_tools,
)
from fingerpost.router.modes.run_state import RunState
from fingerpost.router.modes.tool_step import (
    add_result,
    emit_call_status,
    emit_status,
    find_tools_needing_approval,
    record_selection,
    run_call,
)
from fingerpost.router.route import Route

COMPLETE_ARGUMENTS_REASON: Final = "every argument stands in the request"
MAX_NEEDS: Final = 4
MAX_ABILITIES: Final = 6
MAX_OPTIONS: Final = 4


async def narrow_without_model(run: RunState) -> Narrowing:
    """Narrow the request. A tool that fits well is offered even if none seems needed: no model can answer."""
    return await run.narrow(min_fit=CONFIDENT_FIT)


async def serve_needs(run: RunState, narrowing: Narrowing, first: int = 0) -> Route:
    """Serve the needs one after another, until a person is asked something; then answer."""
    suitable = True
    for need in range(first, min(MAX_NEEDS, max(1, len(narrowing.shortlist.needs)))):
        choice = await _choose_tool(run, narrowing, need)
        if choice.option is None and choice.question is not None:
            return end_asked(run, replace(choice.question, need=need))
        if choice.option is None:
            run.record_undone_needs(narrowing.shortlist.needs[need : need + 1])
            suitable = suitable and choice.reason not in UNSUITABLE_REASONS
            continue
        stopped = await _use_option(run, choice.option, choice.reason, need)
        if stopped is not None:
            return stopped
    return await conclude_without_model(run, suitable=suitable)


async def resume_with_reply(run: RunState, question: Question, answer: str) -> Route:
    """Continue with the person's answer: the tool to use, or the missing values."""
    if is_refusal(answer):
        return end_declined(run, "Nothing was done.")
    narrowing = run.narrowing or await narrow_without_model(run)
    choice = await _choose_tool(run, narrowing, question.need)
    options = (*([choice.option] if choice.option is not None else []), *choice.alternatives)
    option = next((one for one in options if one.card.key == question.tool), None)
    if option is None:
        option = pick_option(options, answer)
        if option is None:
            return end_asked(run, question)
        stopped = await _use_option(run, option, "the person chose it", question.need)
        return stopped or await serve_needs(run, narrowing, question.need + 1)
    signals = await run.deps.narrower.read_signals(answer)
    values = fill_answer(option.card, question.missing, answer, signals, today=_get_today())
    arguments = {**option.filled.arguments, **values.arguments}
    still = tuple(one for one in option.filled.missing if one.name not in arguments)
    if still:
        asked = build_missing_question(option.card, still, get_language(run))
        return end_asked(run, replace(asked, need=question.need))
    selection = _build_selection(option.card, "the person gave the rest", arguments=arguments)
    return await _run_selection(run, selection) or await serve_needs(run, narrowing, question.need + 1)


async def conclude_without_model(run: RunState, *, suitable: bool = True) -> Route:
    """Answer with the tools' results. Without results, return a text that needs no model.

    `suitable`: one of the offered tools may do it.
    """
    if not run.packet.tool_routing.steps:
        # Ask the person which tool to use, if the request needs one.
        cards = run.get_cards()[:MAX_OPTIONS]
        narrowing = run.narrowing
        if narrowing is not None and narrowing.need.verdict is NeedVerdict.TOOL and cards:
            if not suitable:
                return end_answered(run, get_phrases(get_language(run))["unfit"], by=NO_MODEL_NAME)
            return end_asked(run, build_which_tool_question(cards, get_language(run)))
        return await _answer_directly(run)
    good = run.packet.tool_routing.worked
    if not good:
        return end_failed(run)
    text = build_keyless_answer(
        [step for step in run.packet.tool_routing.steps if step.error != ErrorKind.CANCELLED.value],
        get_language(run),
        unused_entities=run.unused,
        undone_needs=run.undone,
        configured=run.deps.pool.ready,
    )
    text = "\n\n".join(part for part in (text, run.rejection) if part)
    return end_answered(run, text, by=NO_MODEL_NAME, sources=list_sources(good))


async def _choose_tool(run: RunState, narrowing: Narrowing, need: int) -> KeylessChoice:
    cards = {card.key: card for card in run.get_cards()}
    return choose_tool(
        narrowing,
        cards,
        run.packet.content.original_prompt,
        today=_get_today(),
        need=need,
        needs_approval=find_tools_needing_approval(run, run.get_cards()),
        paths=await run.deps.find_paths({card.server for card in cards.values()}),
    )


async def _use_option(run: RunState, option: ToolOption, reason: str, need: int) -> Route | None:
    """Run the tool if its arguments are complete. Return a route if the run has to wait for a person."""
    if option.filled.missing:
        asked = build_missing_question(option.card, option.filled.missing, get_language(run))
        return end_asked(run, replace(asked, need=need))
    run.record_unused_entities(option.filled.unused_entities)
    return await _run_selection(run, _build_selection(option.card, reason, arguments=option.filled.arguments))


def _build_selection(card: ToolCard, reason: str, *, arguments: JsonObject) -> Selection:
    return Selection(tool=card.key, arguments=arguments, reasoning=reason, confidence=1.0)


async def _run_selection(run: RunState, selection: Selection) -> Route | None:
    record_selection(run, selection)
    emit_status(run, ExecutionStatus.AWAITING_CONFIDENCE)
    emit_status(run, ExecutionStatus.APPROVED, COMPLETE_ARGUMENTS_REASON)
    outcome = await run_call(run, selection)
    if is_waiting(outcome):
        return await end_waiting(run, outcome, selection)
    emit_call_status(run, outcome)
    add_result(run, selection, outcome)
    return None


async def _answer_directly(run: RunState) -> Route:
    assert run.narrowing is not None
    prompt = run.packet.content.original_prompt
    view = await run.deps.narrower.find_visible(run.deps.get_snapshot(), run.options)
    abilities = _describe_abilities(view.visible.cards)
    hidden = (one for one in view.hidden.values() if not one.personal)
    denied_by = list(dict.fromkeys(f"{one.reason} ({one.rule})" for one in hidden))
    down = run.deps.narrower.get_absent()
    text = build_direct_reply(run.narrowing, prompt, abilities=abilities, down=down, denied_by=denied_by)
    if abilities or find_known_reply(prompt, get_phrases(get_language(run))) is not None:
        return end_answered(run, text, by=NO_MODEL_NAME)
    if denied_by:
        return end_declined(run, text)
    return end_without_tools(run, text) if down else end_answered(run, text, by=NO_MODEL_NAME)


async def answer_with_routing_off(run: RunState) -> Route:
    """Answer without a model and without tools, because tool routing is disabled."""
    prompt = run.packet.content.original_prompt
    text = build_routing_off_reply(prompt, (await run.deps.narrower.read_signals(prompt)).language)
    return end_answered(run, text, by=NO_MODEL_NAME)


def _describe_abilities(visible: Iterable[ToolCard]) -> list[str]:
    """Return one example tool per server, preferably one that only reads."""
    first: dict[str, str] = {}
    cards = (card for card in visible if not card.personal)
    for card in sorted(cards, key=lambda card: card.effect.value is not Effect.READ):
        first.setdefault(card.server, card.key)
    return list(first.values())[:MAX_ABILITIES]


def _get_today() -> date:
    return utc_now().astimezone().date()
