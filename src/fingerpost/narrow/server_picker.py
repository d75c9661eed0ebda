"""Pick the servers of a turn by a model or by scores, and measure the results."""

from __future__ import annotations

import heapq
import json
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from fingerpost.catalog import GENERAL, Snapshot
from fingerpost.catalog.cards import build_model_definition
from fingerpost.errors import ModelReplyInvalid, ModelTimeout
from fingerpost.events import Event, EventSink, SmartRoutingEnd, SmartRoutingStart
from fingerpost.events.counts import count_event
from fingerpost.frozen import frozen
from fingerpost.llm import ChatModel, ModelRequest
from fingerpost.narrow.server_prompt import (
    DEFAULT_TEMPLATE,
    REPLY_SCHEMA,
    ServerNames,
    build_server_question,
    parse_server_choice,
)
from fingerpost.records import Message, ServerChoice, Signals, ToolCard
from fingerpost.redaction import scrub
from fingerpost.settings import SmartRoutingSettings

if TYPE_CHECKING:
    from fingerpost.store import Store

_PAGE_SIZE: Final = 1000
RECENT_RUNS: Final = 200  # choices used to adapt the thresholds
MIN_RUNS: Final = 20  # below this number, the thresholds do not change
REFRESH_INTERVAL_S: Final = 60.0
# Factor, minimum fallback rate, maximum reduction. The first matching rule raises the thresholds,
# so that servers are picked later when picking has little benefit.
_RAISE_RULES: Final = ((2.0, 0.5, 0.1), (1.5, 0.25, 0.3))
# Factor, maximum fallback rate, minimum reduction: pick earlier when picking has a large benefit.
_LOWER_RULES: Final = ((0.5, 0.05, 0.6), (0.75, 0.1, 0.45))


@frozen
class SmartRoutingStats:
    """Statistics over all choices. A fallback kept every tool, by failure or without a clear result."""

    runs: int = 0
    widened: int = 0  # later turns that added servers to a choice
    by_model: int = 0
    success_rate: float = 0.0  # share of runs with a choice
    fallback_rate: float = 0.0  # share of runs that kept all tools
    reduction: float = 0.0  # share of tools left out
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    tokens_saved: int = 0

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> SmartRoutingStats:
        """Compute the statistics of these events. Events of other kinds are ignored."""
        ends = [event for event in events if isinstance(event, SmartRoutingEnd)]
        counts = Counter[str]()
        for end in ends:
            counts.update(count_event(end))
        if not (runs := counts["server_choices"]):
            return cls()
        times = sorted(end.milliseconds for end in ends if not end.widened)
        return cls(
            runs=runs,
            widened=counts["server_choices_widened"],
            by_model=counts["server_choices_by_model"],
            success_rate=1 - counts["server_choices_failed"] / runs,
            fallback_rate=counts["server_choices_all_stayed"] / runs,
            reduction=1 - counts["server_tools_kept"] / max(1, counts["server_tools"]),
            p50_ms=_get_quantile(times, 0.5),
            p99_ms=_get_quantile(times, 0.99),
            tokens_saved=counts["server_tokens_saved"],
        )


async def read_stored_stats(store: Store) -> SmartRoutingStats:
    """Compute the statistics of the whole journal."""
    events, _ = await _read_choices(store, after=0)
    return SmartRoutingStats.from_events(events)


async def _read_choices(store: Store, *, after: int) -> tuple[list[Event], int]:
    """Return the choices in the journal behind `after`, and the number of the last one."""
    found: list[Event] = []
    while page := await store.journal.list_events(
        kinds=(SmartRoutingEnd.kind,), after_seq=after, limit=_PAGE_SIZE
    ):
        found += [recorded.event for recorded in page]
        after = page[-1].seq
    return found, after


def _get_quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that is at least as large as this share of the values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def adapt_settings(settings: SmartRoutingSettings, stats: SmartRoutingStats) -> SmartRoutingSettings:
    """Return the settings with thresholds adapted to the measured benefit, by a factor from 0.5 to 2."""
    if stats.runs < MIN_RUNS:
        return settings
    fell_back, left_out = stats.fallback_rate, stats.reduction
    later = (factor for factor, rate, share in _RAISE_RULES if fell_back >= rate or left_out <= share)
    earlier = (factor for factor, rate, share in _LOWER_RULES if fell_back <= rate and left_out >= share)
    factor = next(later, None) or next(earlier, 1.0)
    tools, servers = round(settings.max_tools * factor), round(settings.max_servers * factor)
    return settings.model_copy(update={"max_tools": tools, "max_servers": servers})


class RecentRoutingStats:
    """The statistics of the latest choices in the journal, of all processes. Refreshed at intervals."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read_at = -math.inf
        self._after = 0
        self._events: deque[Event] = deque(maxlen=RECENT_RUNS)
        self.figures = SmartRoutingStats()

    async def refresh(self) -> None:
        if time.monotonic() - self._read_at < REFRESH_INTERVAL_S:
            return
        self._read_at = time.monotonic()
        events, self._after = await _read_choices(self._store, after=self._after)
        self._events.extend(events)
        self.figures = SmartRoutingStats.from_events(self._events)


ConversationKey = tuple[str | None, str]  # caller and conversation


@frozen
class ServerDecision:
    """The servers to keep, and the servers that were known at the time."""

    kept: frozenset[str]
    known: frozenset[str]
    by: str
    reasoning: str
    widened: tuple[str, ...] = ()  # the part of `kept` added by later turns, in this order


@dataclass(slots=True)
class _RunningDecision:
    done: anyio.Event = field(default_factory=anyio.Event)
    result: ServerDecision | None = None


class ServerDecisionCache:
    """The decisions of recent conversations: at most `limit`, each until it is unused for `seconds`."""

    def __init__(
        self, limit: int, *, get_max_age_s: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._get_max_age_s = get_max_age_s
        self._clock = clock
        self._decided: OrderedDict[ConversationKey, tuple[ServerDecision, float]] = OrderedDict()
        self._running: dict[ConversationKey, _RunningDecision] = {}

    def __contains__(self, conversation: ConversationKey) -> bool:
        return self._find(conversation) is not None

    def _find(self, conversation: ConversationKey) -> ServerDecision | None:
        found = self._decided.get(conversation)
        if found is not None and self._clock() - found[1] > self._get_max_age_s():
            del self._decided[conversation]
            return None
        return None if found is None else found[0]

    async def get_or_decide(
        self, conversation: ConversationKey, decide: Callable[[], Awaitable[ServerDecision]]
    ) -> ServerDecision:
        """Return the decision of this conversation. Call `decide` if there is none."""
        while (known := self._find(conversation)) is None:
            running = self._running.get(conversation)
            if running is None:
                return await self._decide(conversation, decide)
            await running.done.wait()
            if running.result is not None:
                return running.result
        self.put(conversation, known)
        return known

    async def _decide(
        self, conversation: ConversationKey, decide: Callable[[], Awaitable[ServerDecision]]
    ) -> ServerDecision:
        running = self._running[conversation] = _RunningDecision()
        try:
            running.result = await decide()
            self.put(conversation, running.result)
            return running.result
        finally:
            del self._running[conversation]
            running.done.set()

    def put(self, conversation: ConversationKey, decision: ServerDecision) -> None:
        self._decided[conversation] = (decision, self._clock())
        self._decided.move_to_end(conversation)
        while len(self._decided) > self._limit:
            self._decided.popitem(last=False)


TokenCounter = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Return about one token per four characters. This is exact enough to compare two lists."""
    return -(-len(text) // 4)


class DefinitionCosts:
    """The tokens of each tool's definition, cached until the definition changes."""

    def __init__(self, count: TokenCounter = estimate_tokens) -> None:
        self._count = count
        self._known: dict[str, tuple[str, int]] = {}

    def count_total(self, cards: Iterable[ToolCard]) -> int:
        return sum(self._count_card(card) for card in cards)

    def _count_card(self, card: ToolCard) -> int:
        known = self._known.get(card.key)
        if known is not None and known[0] == card.fingerprint:
            return known[1]
        tokens = self._count(json.dumps(build_model_definition(card), ensure_ascii=False))
        self._known[card.key] = (card.fingerprint, tokens)
        return tokens


CLEAR_INTENT_SCORE: Final = 0.5  # the score of an intent with one clear word


def find_related_servers(snapshot: Snapshot, signals: Signals) -> frozenset[str]:
    """Return the servers whose most common tool category is a clear intent of the request."""
    wanted = {intent.category for intent in signals.intents if intent.score >= CLEAR_INTENT_SCORE} - {GENERAL}
    if not wanted:
        return frozenset()
    kinds: dict[str, Counter[str]] = {}
    for card in snapshot.cards:
        kinds.setdefault(card.server, Counter())[card.intelligence.category.value] += 1
    return frozenset(server for server, found in kinds.items() if found.most_common(1)[0][0] in wanted)


BEST_TOOLS_PER_SERVER: Final = 3  # tools that determine a server's score
MIN_BEST_SHARE: Final = 0.35  # minimum share of the best server's score
MIN_SERVERS: Final = 3  # servers that are always kept
MIN_BEST_SCORE: Final = 0.12  # if the best server is below this, all servers are kept
MAX_BEST_TOOLS: Final = 4  # best tools that may add their servers to a choice
NEAR_BEST_SHARE: Final = 0.7  # minimum share of the best tool's score to add a server


def pick_by_scores(
    scores: Mapping[str, Sequence[float]],
    mentions: Collection[str] = (),
    related: Collection[str] = (),
    *,
    min_servers: int = MIN_SERVERS,
    share: float = MIN_BEST_SHARE,
) -> ServerChoice:
    """Pick the servers to keep. `scores` contains the scores of each server's tools, in any order.

    A server in `mentions` (named in the request) or `related` (its category fits the request) is always kept,
    and so is a server without scores.
    """
    averages = {server: _average_best_scores(found) for server, found in scores.items()}
    known = {server: value for server, value in averages.items() if value is not None}
    best = max(known.values(), default=0.0)
    if best < MIN_BEST_SCORE or len(known) <= min_servers:
        reasoning = "no server stands out, so all are searched"
        return ServerChoice(servers=tuple(sorted(scores)), reasoning=reasoning)
    leaders = sorted(known, key=lambda server: (-known[server], server))
    close = {
        server for place, server in enumerate(leaders) if place < min_servers or known[server] >= share * best
    }
    wanted = close | (scores.keys() - known.keys()) | set(mentions) | set(related)
    return ServerChoice(
        servers=tuple(sorted(wanted & scores.keys())),
        left_out=tuple(sorted(scores.keys() - wanted)),
        reasoning=_explain_score_choice(leaders, known, [name for name in mentions if name in scores]),
    )


def find_best_outside(scores: Mapping[str, Sequence[float]], kept: Collection[str]) -> Mapping[str, float]:
    """Return the servers outside `kept` with one of the turn's best tools, and its score."""
    tools = ((score, server) for server, found in scores.items() for score in found if math.isfinite(score))
    leading = heapq.nlargest(MAX_BEST_TOOLS, tools)
    if not leading or leading[0][0] < MIN_BEST_SCORE:
        return {}
    best: dict[str, float] = {}
    for score, server in leading:
        if score >= NEAR_BEST_SHARE * leading[0][0] and server not in kept:
            best.setdefault(server, score)
    return best


def _average_best_scores(scores: Sequence[float]) -> float | None:
    """Return the mean of the best few scores, or None without finite scores."""
    best = heapq.nlargest(BEST_TOOLS_PER_SERVER, (score for score in scores if math.isfinite(score)))
    return sum(best) / len(best) if best else None


def _explain_score_choice(leaders: Sequence[str], known: Mapping[str, float], mentions: Sequence[str]) -> str:
    ahead = ", ".join(f"{server} {known[server]:.2f}" for server in leaders[:3])
    named = f"; named in the request: {', '.join(sorted(mentions))}" if mentions else ""
    return f"best scores: {ahead}{named}"


ServerScores = Callable[[], Mapping[str, Sequence[float]]]

MODEL_TIMEOUT_S: Final = 20.0  # for the model; a slower choice has no benefit
MAX_CONVERSATIONS: Final = 1000
_MAX_ERROR_LENGTH: Final = 300
BY_MEMORY: Final = "remembered"
BY_WIDENING: Final = "widened"
ALL_STAY_REASON: Final = "the servers could not be chosen, so all stay"
NONE_TAKEN_REASON: Final = "none of the offered tools was taken"


@dataclass(frozen=True)
class _PickerTurn:
    """The input of the picker for one turn."""

    text: str
    history: Sequence[Message]
    conversation: str | None
    caller: str | None
    snapshot: Snapshot
    scores: ServerScores
    signals: Signals
    packet_id: str | None
    settings: SmartRoutingSettings  # at the start of the turn
    model: ChatModel | None
    remembered: frozenset[str] = frozenset()  # right for the same request before
    corrected_servers: frozenset[str] = frozenset()  # servers of tools that corrections name as right
    none_taken: bool = False  # a model used none of the tools offered in this turn

    @property
    def conversation_key(self) -> ConversationKey | None:
        """The cache key of a choice: the caller and the conversation or, without one, the request."""
        kept_by = self.conversation or self.packet_id
        return None if kept_by is None else (self.caller, kept_by)

    @cached_property
    def servers(self) -> frozenset[str]:
        return frozenset(card.server for card in self.snapshot.cards)

    @cached_property
    def names(self) -> ServerNames:
        return ServerNames(sorted(self.servers))

    @cached_property
    def mentions(self) -> frozenset[str]:
        """Servers that the request names, directly or by a tool, and servers from corrections."""
        by_key = {card.key: card.server for card in self.snapshot.cards} if self.signals.mentions else {}
        named = {by_key.get(mention.name, mention.name) for mention in self.signals.mentions}
        return self.servers & (named | set(self.names.find_in_text(self.text)) | self.corrected_servers)


@dataclass(slots=True)
class _PickerRun:
    """The state of a running choice, for its end event."""

    by: str
    began: float = field(default_factory=time.perf_counter)
    error: str | None = None

    @property
    def milliseconds(self) -> float:
        return round((time.perf_counter() - self.began) * 1000, 3)


def should_pick_servers(settings: SmartRoutingSettings, *, tools: int, servers: int) -> bool:
    """Return whether servers are picked for this number of tools and servers under these settings."""
    if settings.mode == "off" or servers < 2:
        return False
    return settings.mode == "on" or (tools > settings.max_tools and servers > settings.max_servers)


class ServerPicker:
    """Picks servers by `model` once per conversation, or by scores in each turn without a model.

    `live` returns the current settings, which may change between requests.
    """

    def __init__(
        self,
        settings: SmartRoutingSettings,
        events: EventSink,
        *,
        live: Callable[[], SmartRoutingSettings] | None = None,
        model: ChatModel | None = None,
        template: str = DEFAULT_TEMPLATE,
        count: TokenCounter = estimate_tokens,
        timeout: float = MODEL_TIMEOUT_S,
        conversations: int = MAX_CONVERSATIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get_settings = live or (lambda: settings)
        self._events = events
        self._model = model
        self._template = template
        self._timeout = timeout
        self._costs = DefinitionCosts(count)
        self._decisions = ServerDecisionCache(
            conversations, get_max_age_s=lambda: self._get_settings().keep_minutes * 60, clock=clock
        )

    def is_enabled(self, tools: int, servers: int) -> bool:
        """Return whether servers are picked for this number of tools and servers."""
        return should_pick_servers(self._get_settings(), tools=tools, servers=servers)

    def has_chosen(self, conversation: str | None, *, caller: str | None = None) -> bool:
        """Return whether a model has already chosen for this conversation."""
        return conversation is not None and (caller, conversation) in self._decisions

    async def pick(
        self,
        text: str,
        history: Sequence[Message],
        conversation: str | None,
        snapshot: Snapshot,
        scores: ServerScores,
        packet_id: str | None = None,
        *,
        caller: str | None = None,
        signals: Signals | None = None,
        model: ChatModel | None = None,
        ask_model: bool = True,
        remembered: frozenset[str] = frozenset(),
        corrected_servers: frozenset[str] = frozenset(),
        none_taken: bool = False,
    ) -> ServerChoice:
        """Pick the servers for this turn. Never raises: on an error it keeps all servers.

        `model` replaces the picker's own model, so that the caller can count its cost; without `ask_model` no
        model is asked. `scores` is called in a worker thread, unless a model has just chosen. `snapshot` must
        not contain tools hidden from the caller, because a model sees it. `remembered` servers were right for
        the same request before: they are kept in addition to those chosen by scores, and no model is asked.
        `taught` servers (from corrections) are kept like named ones. `none_taken` means that a model used
        none of the tools offered in this turn.
        """
        began = time.perf_counter()
        settings = self._get_settings()
        turn = _PickerTurn(
            text,
            history,
            conversation,
            caller,
            snapshot,
            scores,
            signals or Signals(),
            packet_id,
            settings,
            None if remembered or not ask_model else model or self._model,
            remembered,
            corrected_servers,
            none_taken,
        )
        if not should_pick_servers(settings, tools=len(snapshot.cards), servers=len(turn.servers)):
            return ServerChoice(servers=tuple(sorted(turn.servers)), by="off")
        decision = await self._get_decision(turn)
        kept = turn.servers & (decision.kept | (turn.servers - decision.known)) or turn.servers
        return ServerChoice(
            servers=tuple(sorted(kept)),
            left_out=tuple(sorted(turn.servers - kept)),
            by=decision.by,
            reasoning=decision.reasoning,
            widened=tuple(server for server in decision.widened if server in kept),
            milliseconds=round((time.perf_counter() - began) * 1000, 3),
        )

    async def _get_decision(self, turn: _PickerTurn) -> ServerDecision:
        """Return the model's decision, of now or an earlier turn and widened; by scores without a model."""
        key = turn.conversation_key
        if key is None or (turn.model is None and key not in self._decisions):
            return await self._decide(turn)
        made_now: list[ServerDecision] = []

        async def decide() -> ServerDecision:
            made_now.append(await self._decide(turn))
            return made_now[0]

        decision = await self._decisions.get_or_decide(key, decide)
        return decision if made_now else await self._widen(key, decision, turn)

    async def _widen(
        self, key: ConversationKey, decision: ServerDecision, turn: _PickerTurn
    ) -> ServerDecision:
        """Return the decision with the servers that this turn adds. They stay in later turns."""
        outside = (turn.servers & decision.known) - decision.kept
        if not outside:
            return decision
        run = _PickerRun(by=BY_WIDENING)
        try:
            added, reasoning = await self._find_added_servers(turn, decision.kept)
        except Exception as error:  # noqa: BLE001 - a scorer may fail in any way; the request goes on
            run.error = _describe_error(error)
            added, reasoning = outside, ALL_STAY_REASON
        if not added & outside:
            return decision
        new = tuple(sorted(added & outside))
        wider = replace(decision, kept=decision.kept | added, widened=(*decision.widened, *new))
        self._decisions.put(key, wider)
        self._emit_start(turn)
        left_out = [card for card in turn.snapshot.cards if card.server not in wider.kept]
        explained = replace(wider, reasoning=reasoning)
        self._emit_end(turn, run, explained, saved=await self._count_tokens(left_out), widened=new)
        return wider

    async def _find_added_servers(
        self, turn: _PickerTurn, kept: frozenset[str]
    ) -> tuple[frozenset[str], str]:
        """Return the servers to add, with the reason."""
        found = await anyio.to_thread.run_sync(turn.scores)
        scores = {server: found.get(server, ()) for server in turn.servers}
        if turn.none_taken:
            next_best = frozenset(pick_by_scores(scores, turn.mentions).servers) - kept
            return next_best or turn.servers, NONE_TAKEN_REASON
        best = find_best_outside(scores, kept)
        reasons = [f"{server} is named" for server in sorted(turn.mentions - kept)]
        reasons += [f"{server} has one of the best tools ({best[server]:.2f})" for server in sorted(best)]
        return turn.mentions | best.keys(), "; ".join(reasons)

    async def _decide(self, turn: _PickerTurn) -> ServerDecision:
        """Make one decision and emit its start and end events."""
        run = _PickerRun(by=BY_MEMORY if turn.remembered else "scores" if turn.model is None else "model")
        self._emit_start(turn)
        everything = ServerDecision(
            kept=turn.servers, known=turn.servers, by=run.by, reasoning=ALL_STAY_REASON
        )
        try:
            decision = await self._run_decision(turn, run)
        except Exception as error:  # noqa: BLE001 - a model or a scorer may fail in any way; the request goes on
            run.error = _describe_error(error)
            decision = everything
        except BaseException:
            run.error = "cancelled"
            self._emit_end(turn, run, everything, saved=0)
            raise
        left_out = [card for card in turn.snapshot.cards if card.server not in decision.kept]
        self._emit_end(turn, run, decision, saved=await self._count_tokens(left_out))
        return decision

    async def _run_decision(self, turn: _PickerTurn, run: _PickerRun) -> ServerDecision:
        if turn.model is not None:
            return await self._decide_by_model(turn.model, turn)
        if turn.none_taken:
            return ServerDecision(
                kept=turn.servers, known=turn.servers, by=run.by, reasoning=NONE_TAKEN_REASON
            )
        found = await anyio.to_thread.run_sync(turn.scores)
        scores = {server: found.get(server, ()) for server in turn.servers}
        choice = pick_by_scores(scores, turn.mentions, find_related_servers(turn.snapshot, turn.signals))
        before = turn.remembered & turn.servers
        reasoning = choice.reasoning
        if before:
            reasoning = f"right for the same request before: {', '.join(sorted(before))}"
        kept = frozenset(choice.servers) | before
        return ServerDecision(kept=kept, known=turn.servers, by=run.by, reasoning=reasoning)

    async def _decide_by_model(self, model: ChatModel, turn: _PickerTurn) -> ServerDecision:
        messages = await anyio.to_thread.run_sync(
            build_server_question, self._template, turn.snapshot, turn.text, turn.history
        )
        request = ModelRequest(
            messages=messages,
            temperature=turn.settings.temperature,
            max_tokens=turn.settings.max_tokens,
            schema=REPLY_SCHEMA,
        )
        reply = None
        with anyio.move_on_after(self._timeout):
            reply = await model.complete(request)
        if reply is None:
            raise ModelTimeout(f"{model.name} did not choose within {self._timeout:g} s", model=model.name)
        picked = await anyio.to_thread.run_sync(parse_server_choice, reply.text, turn.names)
        if not picked.servers:
            unknown_names = f" but {', '.join(picked.unknown[:5])}" if picked.unknown else ""
            raise ModelReplyInvalid(f"{model.name} named no server there is{unknown_names}", model=model.name)
        kept = frozenset(picked.servers) | turn.mentions
        return ServerDecision(kept=kept, known=turn.servers, by="model", reasoning=picked.reasoning)

    async def _count_tokens(self, cards: Sequence[ToolCard]) -> int:
        return await anyio.to_thread.run_sync(self._costs.count_total, cards)

    def _emit_start(self, turn: _PickerTurn) -> None:
        started = SmartRoutingStart(
            packet_id=turn.packet_id,
            conversation=turn.conversation,
            total_tools=len(turn.snapshot.cards),
            total_servers=len(turn.servers),
            max_tools=turn.settings.max_tools,
            max_servers=turn.settings.max_servers,
        )
        self._events.emit(started)

    def _emit_end(
        self,
        turn: _PickerTurn,
        run: _PickerRun,
        decision: ServerDecision,
        *,
        saved: int,
        widened: tuple[str, ...] = (),
    ) -> None:
        self._events.emit(
            SmartRoutingEnd(
                packet_id=turn.packet_id,
                conversation=turn.conversation,
                total_tools=len(turn.snapshot.cards),
                filtered_tools=sum(card.server in decision.kept for card in turn.snapshot.cards),
                total_servers=len(turn.servers),
                relevant_servers=tuple(sorted(decision.kept & turn.servers)),
                reasoning=decision.reasoning,
                by=run.by,
                milliseconds=run.milliseconds,
                tokens_saved=saved,
                success=run.error is None,
                error=run.error,
                widened=widened,
            )
        )


def _describe_error(error: Exception) -> str:
    return scrub(f"{type(error).__name__}: {error}")[:_MAX_ERROR_LENGTH]
