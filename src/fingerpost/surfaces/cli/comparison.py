"""Requests with and without routing, measured one by one and on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import anyio

from fingerpost.call.digest.tokens import count_tokens
from fingerpost.call.hiding import hidden_tools
from fingerpost.catalog.definition import definition_for_model
from fingerpost.errors import ModelError, ModelUnavailable
from fingerpost.events import MemorySink, SmartRoutingEnd
from fingerpost.frozen import frozen
from fingerpost.llm import ModelPool, ModelReply, ModelRequest, OnText, Role
from fingerpost.narrow.preselection import ServerPicker
from fingerpost.narrow.preselection.costs import DefinitionCosts
from fingerpost.records import Message, Narrowing, ToolCard, new_id
from fingerpost.router import Router
from fingerpost.settings import Loaded, ModelsSettings

VECTOR_SECONDS: Final = 20.0  # a first run makes the vectors of all tools; after so long words alone must do
ANSWER_TOKENS: Final = 300


@frozen
class Asked:
    """One completion: how long it took and what it cost, or why there is none."""

    milliseconds: float = 0.0
    tokens: float | None = None  # None: the server does not say
    error: str | None = None


@frozen
class Way:
    """What a model would be given, one way or the other. On average there are parts of tools."""

    name: str
    servers: float
    tools: float
    tokens: float
    model: Asked | None = None


@frozen
class Comparison:
    """The ways side by side. `chosen` is the step between: the tools of the chosen servers."""

    without: Way
    chosen: Way | None
    routed: Way
    offered: tuple[str, ...]
    added_ms: float  # all of routing
    choosing_ms: float  # of it: choosing servers

    @property
    def ways(self) -> tuple[Way, ...]:
        return (self.without, *([self.chosen] if self.chosen is not None else []), self.routed)

    @property
    def fewer_tools(self) -> float:
        return _saved(self.without.tools, self.routed.tools)

    @property
    def fewer_tokens(self) -> float:
        return _saved(self.without.tokens, self.routed.tokens)

    @property
    def less_time(self) -> float | None:
        """The share of the model's time that routing saves, its own time counted against it."""
        before, after = self.without.model, self.routed.model
        if before is None or after is None or before.error is not None or after.error is not None:
            return None
        return _saved(before.milliseconds, after.milliseconds + self.added_ms)


@frozen
class Fallback:
    """What choosing servers did when its model failed in one way."""

    failure: str
    tools: int  # still offered
    of: int
    error: str | None  # as `smart_routing_end` tells it

    @property
    def is_right(self) -> bool:
        """All tools stay, and the reason is told."""
        return self.tools == self.of and self.error is not None


class _Failing:
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
_SELF_TEST_PATIENCE_S: Final = 0.2


async def try_fallbacks(router: Router) -> list[Fallback]:
    """Make the call that chooses servers fail on purpose, in every way, over the tools there are."""
    settings = router.settings.smart_routing.model_copy(update={"mode": "on"})
    found: list[Fallback] = []
    for failure, reply in _FAILURES.items():
        sink = MemorySink()
        picker = ServerPicker(settings, sink, model=_Failing(reply), patience=_SELF_TEST_PATIENCE_S)
        choice = await picker.choose("self-test", (), None, router.tools, dict)
        kept = sum(card.server in choice.servers for card in router.tools.cards)
        errors = [event.error for event in sink.events if isinstance(event, SmartRoutingEnd)]
        error = errors[0] if errors else None
        found.append(Fallback(failure=failure, tools=kept, of=len(router.tools.cards), error=error))
    return found


def _saved(before: float, after: float) -> float:
    return round(1 - after / before, 4) if before else 0.0


def uncached(loaded: Loaded) -> Loaded:
    """The same settings, except that nothing is answered from memory: what is measured must be done."""
    flags = loaded.settings.flags.model_copy(update={"narrow_cache": False})
    return replace(loaded, settings=loaded.settings.model_copy(update={"flags": flags}))


def pool_for(models: ModelsSettings) -> ModelPool:
    """The one model that is asked both ways: the lite one, else the prime one."""
    return ModelPool.of(ModelsSettings(lite=models.lite or models.prime))


async def measure_all(router: Router, texts: Sequence[str]) -> list[Comparison]:
    """Every request, one after another, so that none slows the next."""
    await router.settle(VECTOR_SECONDS)
    pool = pool_for(router.settings.models)
    try:
        await _warm_up(router, texts[0], pool)
        return [await measure(router, text, pool) for text in texts]
    finally:
        await pool.aclose()


async def _warm_up(router: Router, text: str, pool: ModelPool) -> None:
    """Each way once before anything is measured: loading and connecting are no way's own cost."""
    found = await router.narrow(text, conversation=new_id("cmp"))
    if pool.ready:
        cards = _visible(router)
        offered = {candidate.tool for candidate in found.shortlist.offered}
        await _ask(pool, text, cards, tokens=1)
        await _ask(pool, text, [card for card in cards if card.key in offered], tokens=1)


def _visible(router: Router) -> list[ToolCard]:
    cards = router.tools.cards
    hidden = hidden_tools(router.settings.policy, cards)
    return [card for card in cards if card.key not in hidden]


async def measure(router: Router, text: str, pool: ModelPool) -> Comparison:
    """Narrow twice, the second time to see what it costs once everything is loaded; ask the model, if any."""
    conversation = new_id("cmp")
    first = await router.narrow(text, conversation=conversation)
    by_model = first.servers is not None and first.servers.by == "model"
    # A model has chosen for this conversation; without one, choosing is measured again in a new one.
    second = await router.narrow(text, conversation=conversation if by_model else new_id("cmp"))
    choosing = (first if by_model else second).servers
    choosing_ms = choosing.milliseconds if choosing is not None else 0.0
    return await _compared(text, _visible(router), second, choosing_ms=choosing_ms, pool=pool)


async def _compared(
    text: str, cards: Sequence[ToolCard], found: Narrowing, *, choosing_ms: float, pool: ModelPool
) -> Comparison:
    offered = {candidate.tool for candidate in found.shortlist.offered}
    kept = None if found.servers is None or found.servers.by == "off" else set(found.servers.servers)
    routed = [card for card in cards if card.key in offered]
    asked: list[Asked | None] = [None, None]
    if pool.ready:
        asked = [await _ask(pool, text, cards), await _ask(pool, text, routed)]
    among = None if kept is None else [card for card in cards if card.server in kept]
    return Comparison(
        without=_way("without routing", cards, asked[0]),
        chosen=None if among is None else _way("tools of the chosen servers", among),
        routed=_way("with routing", routed, asked[1]),
        offered=tuple(candidate.tool for candidate in found.shortlist.offered),
        added_ms=round(found.milliseconds + choosing_ms, 3),
        choosing_ms=choosing_ms,
    )


def _way(name: str, cards: Sequence[ToolCard], model: Asked | None = None) -> Way:
    return Way(
        name=name,
        servers=len({card.server for card in cards}),
        tools=len(cards),
        tokens=DefinitionCosts(count_tokens).total(cards),
        model=model,
    )


async def _ask(
    pool: ModelPool, text: str, cards: Sequence[ToolCard], *, tokens: int = ANSWER_TOKENS
) -> Asked:
    request = ModelRequest(
        messages=(Message(role="user", text=text),),
        temperature=0.0,
        max_tokens=tokens,
        tools=tuple(definition_for_model(card) for card in cards),
    )
    try:
        reply = await pool.ask(Role.LITE, request)
    except ModelError as error:  # too many tools for a model is a result, too
        return Asked(error=str(error))
    return Asked(milliseconds=round(reply.milliseconds, 1), tokens=reply.usage.total if reply.usage else None)


def mean(made: Sequence[Comparison]) -> Comparison:
    """All of them on average; a model's figures over those requests it answered both ways."""
    answered = [one for one in made if one.less_time is not None] or made
    chosen = [one.chosen for one in made if one.chosen is not None]
    return Comparison(
        without=_mean_way([one.without for one in made], [one.without.model for one in answered]),
        chosen=_mean_way(chosen, []) if chosen else None,
        routed=_mean_way([one.routed for one in made], [one.routed.model for one in answered]),
        offered=(),
        added_ms=_mean([one.added_ms for one in made]),
        choosing_ms=_mean([one.choosing_ms for one in made]),
    )


def _mean_way(ways: Sequence[Way], asked: Sequence[Asked | None]) -> Way:
    return Way(
        name=ways[0].name,
        servers=_mean([way.servers for way in ways]),
        tools=_mean([way.tools for way in ways]),
        tokens=_mean([way.tokens for way in ways]),
        model=_mean_asked([one for one in asked if one is not None]),
    )


def _mean_asked(asked: Sequence[Asked]) -> Asked | None:
    if not asked:
        return None
    if (failed := next((one for one in asked if one.error is not None), None)) is not None:
        return failed
    tokens = [one.tokens for one in asked if one.tokens is not None]
    return Asked(
        milliseconds=_mean([one.milliseconds for one in asked]), tokens=_mean(tokens) if tokens else None
    )


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 1)
