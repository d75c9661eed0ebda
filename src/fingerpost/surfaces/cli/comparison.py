"""`fingerpost compare`: measure requests with and without routing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import click

from fingerpost.call.digest.tokens import count_tokens
from fingerpost.catalog.cards import build_model_definition
from fingerpost.errors import ConfigError, ModelError, ModelUnavailable
from fingerpost.events import MemorySink, SmartRoutingEnd
from fingerpost.frozen import frozen
from fingerpost.llm import ModelPool, ModelReply, ModelRequest, OnText, Role
from fingerpost.narrow.server_picker import DefinitionCosts, ServerPicker, read_stored_stats
from fingerpost.policy.visibility import find_hidden_tools
from fingerpost.records import Message, Narrowing, ToolCard, create_id
from fingerpost.records.codec import to_plain
from fingerpost.redaction import scrub
from fingerpost.router import Router
from fingerpost.settings import ModelsSettings, Settings
from fingerpost.store import Store
from fingerpost.surfaces.cli.common import (
    connect_servers,
    read_settings,
    run_on_router,
    settle_tools,
    use_router,
    use_store,
)
from fingerpost.surfaces.cli.evals import read_requests
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import clean_text, get_output, print_json, print_lines, print_table

MAX_ANSWER_TOKENS: Final = 300


@frozen
class ModelAnswer:
    """Time and tokens of one completion, or its error."""

    milliseconds: float = 0.0
    tokens: float | None = None  # None: unknown
    error: str | None = None


@frozen
class RoutingVariant:
    """The tools a model would be given with or without routing. Averages may be fractions."""

    name: str
    servers: float
    tools: float
    tokens: float
    model: ModelAnswer | None = None


@frozen
class RoutingComparison:
    """Variants side by side. `chosen` has the tools of the chosen servers."""

    without: RoutingVariant
    chosen: RoutingVariant | None
    routed: RoutingVariant
    offered: tuple[str, ...]
    added_ms: float  # by routing in total
    choosing_ms: float  # of this, by choosing servers

    @property
    def variants(self) -> tuple[RoutingVariant, ...]:
        return (self.without, *([self.chosen] if self.chosen is not None else []), self.routed)

    @property
    def fewer_tools(self) -> float:
        return _compute_saving(self.without.tools, self.routed.tools)

    @property
    def fewer_tokens(self) -> float:
        return _compute_saving(self.without.tokens, self.routed.tokens)

    @property
    def less_time(self) -> float | None:
        """Return the share of the model's time that routing saves, minus its own time."""
        before, after = self.without.model, self.routed.model
        if before is None or after is None or before.error is not None or after.error is not None:
            return None
        return _compute_saving(before.milliseconds, after.milliseconds + self.added_ms)


@frozen
class FallbackResult:
    """The result of choosing servers when its model fails in one way."""

    failure: str
    tools: int  # still offered
    of: int
    error: str | None  # from `smart_routing_end`

    @property
    def is_right(self) -> bool:
        """Return whether all tools stayed and the error was reported."""
        return self.tools == self.of and self.error is not None


class _FailingModel:
    """A model that fails in one way: it answers with this text, or raises it, or never answers."""

    name = "self-test"

    def __init__(self, reply: str | ModelError | None) -> None:
        self._reply = reply

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        del request, on_text
        if self._reply is None:
            await anyio.sleep_forever()
        if isinstance(self._reply, ModelError):
            raise self._reply
        return ModelReply(text=self._reply or "", model=self.name)


_FAILURES: Final = {
    "the model cannot be reached": ModelUnavailable("made to fail by the self-test", model="self-test"),
    "it does not answer in time": None,
    "it answers nothing": "",
    "it names servers that do not exist": '{"relevant_servers": ["\u2205"], "reasoning": ""}',
}
_SELF_TEST_TIMEOUT_S: Final = 0.2


async def try_fallbacks(router: Router) -> list[FallbackResult]:
    """Make the model that chooses servers fail in every way and return the results."""
    settings = router.settings.smart_routing.model_copy(update={"mode": "on"})
    found: list[FallbackResult] = []
    for failure, reply in _FAILURES.items():
        sink = MemorySink()
        picker = ServerPicker(settings, sink, model=_FailingModel(reply), timeout=_SELF_TEST_TIMEOUT_S)
        choice = await picker.pick("self-test", (), None, router.tools, dict)
        kept = sum(card.server in choice.servers for card in router.tools.cards)
        errors = [event.error for event in sink.events if isinstance(event, SmartRoutingEnd)]
        error = errors[0] if errors else None
        found.append(FallbackResult(failure=failure, tools=kept, of=len(router.tools.cards), error=error))
    return found


def _compute_saving(before: float, after: float) -> float:
    return round(1 - after / before, 4) if before else 0.0


async def measure_all(router: Router, texts: Sequence[str]) -> list[RoutingComparison]:
    """Measure the requests one after another."""
    await settle_tools(router)
    models = router.settings.models
    pool = ModelPool.of(ModelsSettings(lite=models.lite or models.prime))
    try:
        await _warm_up(router, texts[0], pool)
        return [await measure(router, text, pool) for text in texts]
    finally:
        await pool.aclose()


async def _warm_up(router: Router, text: str, pool: ModelPool) -> None:
    """Run each variant once, so that loading is not measured."""
    found = await router.narrow(text, conversation=create_id("cmp"))
    if pool.ready:
        cards = _list_visible(router)
        offered = {candidate.tool for candidate in found.shortlist.offered}
        await _ask_model(pool, text, cards, tokens=1)
        await _ask_model(pool, text, [card for card in cards if card.key in offered], tokens=1)


def _list_visible(router: Router) -> list[ToolCard]:
    cards = router.tools.cards
    hidden = find_hidden_tools(router.settings.policy, cards)
    return [card for card in cards if card.key not in hidden]


async def measure(router: Router, text: str, pool: ModelPool) -> RoutingComparison:
    """Narrow twice and measure the second run, with all loaded. Ask the model if one is configured."""
    conversation = create_id("cmp")
    first = await router.narrow(text, conversation=conversation)
    by_model = first.servers is not None and first.servers.by == "model"
    # If a model chose the servers, reuse the conversation. Otherwise measure the choice again in a new one.
    second = await router.narrow(text, conversation=conversation if by_model else create_id("cmp"))
    choosing = (first if by_model else second).servers
    choosing_ms = choosing.milliseconds if choosing is not None else 0.0
    return await _compare(text, _list_visible(router), second, choosing_ms=choosing_ms, pool=pool)


async def _compare(
    text: str, cards: Sequence[ToolCard], found: Narrowing, *, choosing_ms: float, pool: ModelPool
) -> RoutingComparison:
    offered = {candidate.tool for candidate in found.shortlist.offered}
    kept = None if found.servers is None or found.servers.by == "off" else set(found.servers.servers)
    routed = [card for card in cards if card.key in offered]
    answers: list[ModelAnswer | None] = [None, None]
    if pool.ready:
        answers = [await _ask_model(pool, text, cards), await _ask_model(pool, text, routed)]
    among = None if kept is None else [card for card in cards if card.server in kept]
    return RoutingComparison(
        without=_build_variant("without routing", cards, answers[0]),
        chosen=None if among is None else _build_variant("tools of the chosen servers", among),
        routed=_build_variant("with routing", routed, answers[1]),
        offered=tuple(candidate.tool for candidate in found.shortlist.offered),
        added_ms=round(found.milliseconds + choosing_ms, 3),
        choosing_ms=choosing_ms,
    )


def _build_variant(name: str, cards: Sequence[ToolCard], model: ModelAnswer | None = None) -> RoutingVariant:
    return RoutingVariant(
        name=name,
        servers=len({card.server for card in cards}),
        tools=len(cards),
        tokens=DefinitionCosts(count_tokens).count_total(cards),
        model=model,
    )


async def _ask_model(
    pool: ModelPool, text: str, cards: Sequence[ToolCard], *, tokens: int = MAX_ANSWER_TOKENS
) -> ModelAnswer:
    request = ModelRequest(
        messages=(Message(role="user", text=text),),
        temperature=0.0,
        max_tokens=tokens,
        tools=tuple(build_model_definition(card) for card in cards),
    )
    try:
        reply = await pool.ask(Role.LITE, request)
    except ModelError as error:  # too many tools for a model is also a result
        return ModelAnswer(error=str(error))
    return ModelAnswer(
        milliseconds=round(reply.milliseconds, 1), tokens=reply.usage.total if reply.usage else None
    )


def average(comparisons: Sequence[RoutingComparison]) -> RoutingComparison:
    """Return the average; model figures only of requests answered in both variants."""
    answered = [one for one in comparisons if one.less_time is not None] or comparisons
    chosen = [one.chosen for one in comparisons if one.chosen is not None]
    return RoutingComparison(
        without=_average_variant(
            [one.without for one in comparisons], [one.without.model for one in answered]
        ),
        chosen=_average_variant(chosen, []) if chosen else None,
        routed=_average_variant([one.routed for one in comparisons], [one.routed.model for one in answered]),
        offered=(),
        added_ms=_average([one.added_ms for one in comparisons]),
        choosing_ms=_average([one.choosing_ms for one in comparisons]),
    )


def _average_variant(
    variants: Sequence[RoutingVariant], answers: Sequence[ModelAnswer | None]
) -> RoutingVariant:
    return RoutingVariant(
        name=variants[0].name,
        servers=_average([variant.servers for variant in variants]),
        tools=_average([variant.tools for variant in variants]),
        tokens=_average([variant.tokens for variant in variants]),
        model=_average_answers([one for one in answers if one is not None]),
    )


def _average_answers(answers: Sequence[ModelAnswer]) -> ModelAnswer | None:
    if not answers:
        return None
    if (failed := next((one for one in answers if one.error is not None), None)) is not None:
        return failed
    tokens = [one.tokens for one in answers if one.tokens is not None]
    return ModelAnswer(
        milliseconds=_average([one.milliseconds for one in answers]),
        tokens=_average(tokens) if tokens else None,
    )


def _average(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 1)


def compare_routing(
    *,
    request: tuple[str, ...],
    requests_file: Path | None,
    recorded: bool,
    self_test: bool,
    common: CommonOptions,
    wait: float,
) -> int:
    """Show what routing saves for REQUEST: tools, tokens of definitions, and time."""
    if recorded:
        return _show_recorded(common=common)
    if self_test:
        return _show_fallbacks(common=common, wait=wait)
    texts = _collect_requests(request, requests_file)

    async def work(router: Router) -> list[RoutingComparison]:
        await connect_servers(router, wait=wait)
        return await measure_all(router, texts)

    loaded = read_settings(common)
    flags = loaded.settings.flags.model_copy(update={"narrow_cache": False})
    uncached = replace(loaded, settings=loaded.settings.model_copy(update={"flags": flags}))
    comparisons = run_on_router(uncached, work)
    whole = comparisons[0] if requests_file is None else average(comparisons)
    if common.as_json:
        _print_comparisons(texts, comparisons, None if requests_file is None else whole)
    else:
        _show_comparison(whole, None if requests_file is None else len(comparisons))
    return 0 if whole.without.tools else 1


@use_store
async def _show_recorded(store: Store, _: Settings, *, common: CommonOptions) -> int:
    """Show figures about smart routing from the journal."""
    figures = await read_stored_stats(store)
    if common.as_json:
        print_json(to_plain(figures))
    elif not figures.runs:
        click.echo("No servers were chosen so far: see smart_routing in the settings.")
    else:
        by = f"{figures.by_model:,} by a model, {figures.widened:,} widened by later requests"
        print_lines(
            [
                f"{figures.runs:,} choices of servers, {by}",
                f"tools left out   {100 * figures.reduction:.1f} %",
                f"fallback rate    {100 * figures.fallback_rate:.1f} % of choices; all tools stayed then",
                f"success rate     {100 * figures.success_rate:.1f} %",
                f"time             {figures.p50_ms:.1f} ms (p50), {figures.p99_ms:.1f} ms (p99)",
                f"tokens saved     {figures.tokens_saved:,}",
            ]
        )
    return 0


@use_router()
async def _show_fallbacks(router: Router, *, common: CommonOptions, wait: float) -> int:
    """Run the self-test: what happens when choosing servers fails."""
    await connect_servers(router, wait=wait)
    if len({card.server for card in router.tools.cards}) < 2:
        message = "there is no choice to make: fewer than two servers have tools"
        raise ConfigError(message, hint="Connect at least two servers (`fingerpost servers`).")
    found = await try_fallbacks(router)
    if common.as_json:
        print_json([{**to_plain(one), "right": one.is_right} for one in found])
    else:
        print_lines(
            f"{'ok  ' if one.is_right else 'FAIL'} {one.failure}: {one.tools} of {one.of} tools offered "
            f"({clean_text(one.error or 'no error was reported')})"
            for one in found
        )
    return 0 if all(one.is_right for one in found) else 1


def _collect_requests(request: tuple[str, ...], file: Path | None) -> Sequence[str]:
    """Return the requests from the arguments or the file. Raises `UsageError` for both or none."""
    if (file is None) == (not request):
        raise click.UsageError("give one request, or a file of them with --requests FILE")
    texts = [" ".join(request)] if file is None else read_requests(file)
    if not texts:
        raise click.UsageError(f"{file} holds no request")
    return texts


def _print_comparisons(
    texts: Sequence[str], comparisons: Sequence[RoutingComparison], whole: RoutingComparison | None
) -> None:
    each = [
        {"request": scrub(text), **_convert_comparison(one)}
        for text, one in zip(texts, comparisons, strict=True)
    ]
    print_json(each[0] if whole is None else {"requests": each, "mean": _convert_comparison(whole)})


def _convert_comparison(comparison: RoutingComparison) -> dict[str, Any]:
    saved = {
        "tools": comparison.fewer_tools,
        "tokens": comparison.fewer_tokens,
        "model_time": comparison.less_time,
    }
    return {**to_plain(comparison), "saved": saved}


def _show_comparison(comparison: RoutingComparison, requests: int | None) -> None:
    asked = any(variant.model is not None for variant in comparison.variants)
    columns = (
        "",
        "servers",
        "tools",
        "tokens of definitions",
        *(("model ms", "model tokens") if asked else ()),
    )
    print_table(
        None if requests is None else f"{requests:,} requests, on average",
        columns,
        (
            (
                variant.name,
                *(_format_figure(value) for value in (variant.servers, variant.tools, variant.tokens)),
                *(_format_model_cells(variant) if asked else ()),
            )
            for variant in comparison.variants
        ),
        right=range(1, len(columns)),
    )
    screen = get_output()
    for line in _summarise(comparison):
        screen.print(clean_text(line), soft_wrap=True)


def _format_figure(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _format_model_cells(variant: RoutingVariant) -> tuple[str, str]:
    if variant.model is None:
        return "", ""
    if variant.model.error is not None:
        return "failed", "see below"
    tokens = "not told" if variant.model.tokens is None else _format_figure(variant.model.tokens)
    return f"{variant.model.milliseconds:,.0f}", tokens


def _summarise(comparison: RoutingComparison) -> list[str]:
    lines = [
        f"Routing leaves out {100 * comparison.fewer_tools:.0f} % of the tools "
        f"and {100 * comparison.fewer_tokens:.0f} % of the tokens, "
        f"and adds {comparison.added_ms:.1f} ms"
        + (f", {comparison.choosing_ms:.1f} of them for choosing servers." if comparison.choosing_ms else ".")
    ]
    if comparison.less_time is not None:
        change = "less" if comparison.less_time >= 0 else "more"
        lines.append(
            f"With it the model took {100 * abs(comparison.less_time):.0f} % {change} time, routing included."
        )
    if comparison.offered:
        lines.append(f"Offered: {', '.join(comparison.offered)}")
    lines += [
        f"{variant.name}: {variant.model.error}"
        for variant in comparison.variants
        if variant.model is not None and variant.model.error is not None
    ]
    return lines
