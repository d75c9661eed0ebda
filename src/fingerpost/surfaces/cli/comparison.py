"""One request with and without routing, measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fingerpost.call.digest.tokens import count_tokens
from fingerpost.call.hiding import hidden_tools
from fingerpost.errors import ModelError
from fingerpost.llm import ChatModel, ModelRequest, OpenAIChat
from fingerpost.narrow.preselection.costs import DefinitionCosts, definition_for_model
from fingerpost.records import Message, Narrowing, ToolCard, new_id
from fingerpost.router import Router
from fingerpost.settings import Loaded, Settings

VECTOR_SECONDS: Final = 20.0  # a first run makes the vectors of all tools; after so long words alone must do
ANSWER_TOKENS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One completion: how long it took and what it cost, or why there is none."""

    milliseconds: float = 0.0
    tokens: int | None = None  # None: the server does not say
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What a model would be given, one way or the other."""

    name: str
    servers: int
    tools: int
    tokens: int
    model: Asked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
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


def _saved(before: float, after: float) -> float:
    return round(1 - after / before, 4) if before else 0.0


def uncached(loaded: Loaded) -> Loaded:
    """The same settings, except that nothing is answered from memory: what is measured must be done."""
    flags = loaded.settings.flags.model_copy(update={"narrow_cache": False})
    return replace(loaded, settings=loaded.settings.model_copy(update={"flags": flags}))


async def measure(router: Router, text: str) -> Comparison:
    """Narrow twice, the second time to see what it costs once everything is loaded; ask the model, if any."""
    await router.settle(VECTOR_SECONDS)
    conversation = new_id("cmp")
    first = await router.narrow(text, conversation=conversation)
    by_model = first.servers is not None and first.servers.by == "model"
    # A model has chosen for this conversation; without one, choosing is measured again in a new one.
    second = await router.narrow(text, conversation=conversation if by_model else new_id("cmp"))
    choosing = (first if by_model else second).servers
    choosing_ms = choosing.milliseconds if choosing is not None else 0.0
    cards = router.tools.cards
    hidden = hidden_tools(router.settings.policy, cards)
    return await _compared(
        text,
        [card for card in cards if card.key not in hidden],
        second,
        choosing_ms=choosing_ms,
        settings=router.settings,
    )


async def _compared(
    text: str, cards: Sequence[ToolCard], found: Narrowing, *, choosing_ms: float, settings: Settings
) -> Comparison:
    offered = {candidate.tool for candidate in found.shortlist.offered}
    kept = None if found.servers is None or found.servers.by == "off" else set(found.servers.servers)
    routed = [card for card in cards if card.key in offered]
    asked: list[Asked | None] = [None, None]
    if settings.models.lite is not None:
        async with OpenAIChat(settings.models.lite) as model:
            asked = [await _ask(model, text, cards), await _ask(model, text, routed)]
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


async def _ask(model: ChatModel, text: str, cards: Sequence[ToolCard]) -> Asked:
    request = ModelRequest(
        messages=(Message(role="user", text=text),),
        temperature=0.0,
        max_tokens=ANSWER_TOKENS,
        tools=tuple(definition_for_model(card) for card in cards),
    )
    try:
        reply = await model.complete(request)
    except ModelError as error:  # too many tools for a model is a result, too
        return Asked(error=str(error))
    return Asked(milliseconds=round(reply.milliseconds, 1), tokens=reply.usage.total if reply.usage else None)
