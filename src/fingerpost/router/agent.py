"""An agent: one conversation with its history, its options and its statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, Unpack, cast, get_args

import anyio

from fingerpost.errors import CallError, ConfigError
from fingerpost.events import Event, RequestNarrowed
from fingerpost.events.counts import count_event
from fingerpost.frozen import build_repr, frozen
from fingerpost.narrow.server_picker import should_pick_servers
from fingerpost.records import Message, RouteOutcome, create_id
from fingerpost.router.options import (
    MAX_TURNS,
    RouteKeywords,
    RouteOptions,
    build_options,
    check_option_names,
    check_option_values,
    check_request,
)

if TYPE_CHECKING:
    from fingerpost.llm import OnText
    from fingerpost.records import Approval
    from fingerpost.router.route import Route
    from fingerpost.router.router import Router


@frozen
class AgentStats:
    """Statistics over all requests of one agent. A rate over no requests is 0.

    Fields:
        requests: number of requests
        success_rate: requests that were answered or handed back to the caller's tools
        waiting: requests that wait for an approval or for a value from a person
        failures: requests that ended without an answer: error, refusal or limit
        reduction: share of tools that were not sent to the model
        mean_added_ms: time of narrowing, server choice included
        server_choices: how often smart routing chose servers
        fallback_rate: share of server choices that kept all servers
        tokens_saved: saved because servers were left out
        tool_calls: number of calls
        tool_failures: calls that did not succeed, refused ones included
        invented_calls: invented tool syntax that was removed from answers
    """

    requests: int = 0
    success_rate: float = 0.0
    waiting: int = 0
    failures: int = 0
    reduction: float = 0.0
    mean_added_ms: float = 0.0
    server_choices: int = 0
    fallback_rate: float = 0.0
    tokens_saved: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    invented_calls: int = 0


@dataclass(slots=True)
class _AgentTotals:
    requests: int = 0
    answered: int = 0
    waiting: int = 0
    failures: int = 0
    added_ms: float = 0.0
    counts: Counter[str] = field(default_factory=Counter[str])  # by the names of `count_event`


_WAITING = (RouteOutcome.WAITING, RouteOutcome.ASKED)
_SUCCESSES = (RouteOutcome.ANSWERED, RouteOutcome.HANDED_BACK)


class AgentCounter:
    """Thread-safe counters from which `AgentStats` is computed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sums = _AgentTotals()

    def count(self, outcome: RouteOutcome | None, events: Iterable[Event], *, resumed: bool = False) -> None:
        """Count one request. `outcome` is None after an error. A resumed one was waiting before."""
        with self._lock:
            sums = self._sums
            sums.requests += not resumed
            sums.waiting += (outcome in _WAITING) - resumed
            sums.answered += outcome in _SUCCESSES
            sums.failures += outcome not in _SUCCESSES and outcome not in _WAITING
            self._count_events(events)

    def _count_events(self, events: Iterable[Event]) -> None:
        sums = self._sums
        for event in events:
            sums.counts.update(count_event(event))
            if isinstance(event, RequestNarrowed):
                narrowing, servers = event.narrowing, event.narrowing.servers
                sums.added_ms += narrowing.milliseconds + (0.0 if servers is None else servers.milliseconds)

    @property
    def stats(self) -> AgentStats:
        with self._lock:
            sums, counts = self._sums, self._sums.counts
            return AgentStats(
                requests=sums.requests,
                success_rate=_divide(sums.answered, sums.requests),
                waiting=sums.waiting,
                failures=sums.failures,
                reduction=_divide(counts["considered"] - counts["offered"], counts["considered"]),
                mean_added_ms=_divide(sums.added_ms, counts["judged"]),
                server_choices=counts["server_choices"],
                fallback_rate=_divide(counts["server_choices_all_stayed"], counts["server_choices"]),
                tokens_saved=counts["server_tokens_saved"],
                tool_calls=counts["calls"],
                tool_failures=counts["unsuccessful_calls"],
                invented_calls=counts["syntax_stopped"],
            )


def _divide(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


AgentMode = Literal["simple", "react"]
MAX_MESSAGES: Final = 1000  # messages kept per conversation; a model may get fewer


@frozen
class RoutingThresholds:
    """Numbers of tools and servers above which "auto" enables smart routing."""

    max_tools: int
    max_servers: int


@frozen
class AgentStatus:
    """A snapshot of an agent's options and statistics.

    Fields:
        conversation: id of the conversation
        mode: simple or react
        max_turns: tool rounds of one request
        messages: messages in the history
        busy: a request is being answered
        smart_routing: "auto", "on" or "off"
        thresholds: numbers above which auto chooses servers
        total_tools: connected tools
        total_servers: connected servers
        chooses_servers: whether smart routing is active with the current tools
    """

    conversation: str
    mode: AgentMode
    max_turns: int
    messages: int
    busy: bool
    smart_routing: str
    thresholds: RoutingThresholds
    total_tools: int
    total_servers: int
    chooses_servers: bool


@frozen
class _HandedBackRequest:
    """A request that continues after the caller has run its own tools."""

    text: str
    keywords: RouteKeywords  # as the caller gave them: the agent's own options may change meanwhile
    route: Route


@frozen
class _AgentState:
    """The mutable state of an agent, replaced as one value."""

    conversation: str
    mode: AgentMode
    max_turns: int | None
    persona: str | None
    history: tuple[Message, ...] = ()
    waiting: Route | None = None
    handed: _HandedBackRequest | None = None


class Agent:
    """One conversation with the router.

    Smart routing belongs to the router: a change here applies to all callers of that router.
    """

    def __init__(
        self,
        router: Router,
        *,
        mode: AgentMode = "simple",
        max_turns: int | None = None,
        conversation: str | None = None,
        persona: str | None = None,
        history: Iterable[Message] = (),
    ) -> None:
        self._router = router
        self._counter = AgentCounter()
        self._lock = Lock()
        self._one_at_a_time = anyio.Lock()
        self._state = _AgentState(
            conversation=conversation or create_id("ses"),
            mode=_check_mode(mode),
            max_turns=_check_turns(max_turns),
            persona=persona,
            history=tuple(history)[-MAX_MESSAGES:],
        )

    __repr__ = build_repr("conversation", "mode", "history#")

    async def ask(self, text: str, **options: Unpack[RouteKeywords]) -> Route:
        """Send the next request of the conversation. Concurrent requests are answered one after another."""
        async with self._one_at_a_time:
            return await self._ask_router(text, options)

    async def give(self, results: Mapping[str, str], *, on_text: OnText | None = None) -> Route:
        """Continue after the caller ran its own tools. `results` maps each call id to its result."""
        async with self._one_at_a_time:
            handed = self._state.handed
            if handed is None:
                message = "no tool of yours was called in this conversation"
                raise CallError(message, hint="Only a route whose outcome is 'handed_back' takes results.")
            keywords = handed.keywords.copy()
            keywords["since"] = (*keywords.get("since", ()), *handed.route.answered_with(results))
            keywords["on_text"] = on_text
            keywords.pop("tool_choice", None)  # it applied to the first call only
            return await self._ask_router(handed.text, keywords)

    async def _ask_router(self, text: str, keywords: RouteKeywords) -> Route:
        state = self._state
        check_request(text)
        check_option_names(RouteOptions, keywords)
        check_option_values(keywords)
        options = replace(_build_options(state), **keywords)
        try:
            route = await self._router.requests.route(text, options)
        except Exception:
            self._counter.count(None, ())
            raise
        self._counter.count(route.outcome, route.events)
        if route.outcome is RouteOutcome.HANDED_BACK:
            self._hold_request(state, _HandedBackRequest(text=text, keywords=keywords, route=route))
        else:
            asked = Message(role="user", text=text, by_model=route.packet.context.words_given)
            self._keep_turn(state, asked, route)
        return route

    def _hold_request(self, before: _AgentState, handed: _HandedBackRequest) -> None:
        """Keep the handed-back request. The history does not change until the request is answered."""
        with self._lock:
            if self._state.conversation == before.conversation:
                self._state = replace(self._state, handed=handed)

    async def resume(self, approval: Approval | None = None, **options: Unpack[RouteKeywords]) -> Route:
        """Continue the request that waits for a person. `approval` is the person's decision."""
        async with self._one_at_a_time:
            state = self._state
            if state.waiting is None:
                message = "nothing in this conversation waits for approval"
                raise CallError(message, hint="Only a route whose outcome is 'waiting' can be resumed.")
            requests = self._router.requests
            route = await requests.resume(state.waiting, approval, build_options(RouteOptions, options))
            self._counter.count(route.outcome, route.events, resumed=True)
            self._keep_turn(replace(state, history=state.history[:-1]), None, route)
            return route

    def reset(self) -> None:
        """Start a new, empty conversation. Options and statistics are kept."""
        with self._lock:
            self._state = replace(
                self._state, conversation=create_id("ses"), history=(), waiting=None, handed=None
            )

    def _keep_turn(self, before: _AgentState, message: Message | None, route: Route) -> None:
        """Add the message and the answer to the history, unless the conversation was reset meanwhile."""
        answer = Message(role="assistant", text=route.answer)
        history = (*before.history, *((message,) if message is not None else ()), answer)[-MAX_MESSAGES:]
        waiting = route if route.outcome is RouteOutcome.WAITING else None
        with self._lock:
            if self._state.conversation == before.conversation:
                self._state = replace(self._state, history=history, waiting=waiting, handed=None)

    @property
    def conversation(self) -> str:
        return self._state.conversation

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages of the conversation, oldest first."""
        return self._state.history

    @property
    def mode(self) -> AgentMode:
        return self._state.mode

    @property
    def max_turns(self) -> int:
        """The number of tool rounds that one request may take."""
        return self._router.switches.now.get_max_rounds(self._state.mode, self._state.max_turns)

    @property
    def is_smart_routing_enabled(self) -> bool:
        """Whether servers may be chosen. `status` says whether they are chosen now."""
        return self._router.switches.now.smart_routing.mode != "off"

    @property
    def thresholds(self) -> RoutingThresholds:
        routing = self._router.switches.now.smart_routing
        return RoutingThresholds(max_tools=routing.max_tools, max_servers=routing.max_servers)

    @property
    def waiting(self) -> Route | None:
        """The request that waits for a person, or None."""
        return self._state.waiting

    def stats(self) -> AgentStats:
        """The statistics so far."""
        return self._counter.stats

    def status(self) -> AgentStatus:
        """The current options and statistics."""
        state, routing = self._state, self._router.switches.now.smart_routing
        cards = self._router.tools.cards
        servers = len({card.server for card in cards})
        return AgentStatus(
            conversation=state.conversation,
            mode=state.mode,
            max_turns=self.max_turns,
            messages=len(state.history),
            busy=self._one_at_a_time.locked(),
            smart_routing=routing.mode,
            thresholds=self.thresholds,
            total_tools=len(cards),
            total_servers=servers,
            chooses_servers=should_pick_servers(routing, tools=len(cards), servers=servers),
        )

    def set_mode(self, mode: AgentMode) -> None:
        """Set the mode. "simple" calls tools and answers; "react" writes its thoughts before each call."""
        self._set_state(mode=_check_mode(mode))

    def set_max_turns(self, turns: int | None) -> None:
        """Set the number of tool rounds that one request may take. None uses the router's value."""
        self._set_state(max_turns=_check_turns(turns))

    def set_persona(self, persona: str | None) -> None:
        """Set the persona of the assistant. None uses the settings."""
        self._set_state(persona=persona)

    def set_smart_routing(self, enabled: bool | Literal["auto", "on", "off"]) -> None:
        """Choose servers always, never, or ("auto") above the thresholds. Applies to the whole router."""
        self._router.switches.set_smart_routing(enabled)

    def set_thresholds(self, *, max_tools: int | None = None, max_servers: int | None = None) -> None:
        """Set the numbers of tools and servers above which "auto" chooses servers, for the whole router."""
        self._router.switches.set_thresholds(max_tools=max_tools, max_servers=max_servers)

    def _set_state(self, **values: object) -> None:
        with self._lock:
            self._state = replace(self._state, **values)


def _build_options(state: _AgentState) -> RouteOptions:
    return RouteOptions(
        history=state.history,
        conversation=state.conversation,
        mode=state.mode,
        max_turns=state.max_turns,
        persona=state.persona,
    )


def _check_mode(mode: str) -> AgentMode:
    if mode not in get_args(AgentMode):
        message = f"an agent has no mode {mode!r:.60}"
        raise ConfigError(message, hint="An agent is simple or react; router.route knows more modes.")
    return cast("AgentMode", mode)


def _check_turns(turns: int | None) -> int | None:
    if turns is not None and not 1 <= turns <= MAX_TURNS:
        message = f"max_turns = {turns} is not possible"
        raise ConfigError(message, hint=f"An agent has 1 to {MAX_TURNS} turns.")
    return turns
