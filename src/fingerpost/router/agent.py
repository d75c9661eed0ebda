"""An agent: one conversation with its history, its options and its statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, Unpack, cast, get_args

import anyio

from fingerpost.errors import CallError, ConfigError
from fingerpost.events import CallFinished, Event, RequestNarrowed, SmartRoutingEnd, SyntaxStopped
from fingerpost.frozen import frozen
from fingerpost.records import Message, Narrowing, RouteOutcome, create_id
from fingerpost.router.options import MAX_TURNS, RouteOptions

if TYPE_CHECKING:
    from fingerpost.llm import OnText
    from fingerpost.records import Approval
    from fingerpost.router.route import Route
    from fingerpost.router.router import Router


@frozen
class AgentStats:
    """Over all requests of one agent since it was made. A share of nothing is 0."""

    requests: int = 0
    success_rate: float = 0.0  # requests that were answered, or handed back to the caller's own tools
    waiting: int = 0  # that stopped for a person: a yes, or a value only they know
    failures: int = 0  # that ended without an answer, by an error, a refusal or a limit
    reduction: float = 0.0  # the share of tools the model was spared, in the mean
    mean_added_ms: float = 0.0  # that narrowing took, server choice included
    server_choices: int = 0  # how often smart routing chose servers
    fallback_rate: float = 0.0  # of these, those after which all servers stayed
    tokens_saved: int = 0  # by leaving servers out
    tool_calls: int = 0
    tool_failures: int = 0
    invented_calls: int = 0  # tool syntax a model made up in an answer, which was taken out


@dataclass(slots=True)
class _AgentTotals:
    requests: int = 0
    answered: int = 0
    waiting: int = 0
    failures: int = 0
    narrowings: int = 0
    spared: float = 0.0
    added_ms: float = 0.0
    choices: int = 0
    fallbacks: int = 0
    tokens_saved: int = 0
    calls: int = 0
    failed_calls: int = 0
    invented: int = 0


_WAITING = (RouteOutcome.WAITING, RouteOutcome.ASKED)
_SUCCESSES = (RouteOutcome.ANSWERED, RouteOutcome.HANDED_BACK)


class AgentCounter:
    """Counts. Safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sums = _AgentTotals()

    def count(self, outcome: RouteOutcome | None, events: Iterable[Event]) -> None:
        """One more request; `outcome` is None where an error ended it."""
        with self._lock:
            sums = self._sums
            sums.requests += 1
            sums.answered += outcome in _SUCCESSES
            sums.waiting += outcome in _WAITING
            sums.failures += outcome not in _SUCCESSES and outcome not in _WAITING
            self._count_events(events)

    def count_resumed(self, outcome: RouteOutcome | None, events: Iterable[Event]) -> None:
        """A request that had stopped for a person came to this end."""
        with self._lock:
            sums = self._sums
            if outcome not in _WAITING:
                sums.waiting -= 1
                sums.answered += outcome in _SUCCESSES
                sums.failures += outcome not in _SUCCESSES
            self._count_events(events)

    def _count_events(self, events: Iterable[Event]) -> None:
        sums = self._sums
        for event in events:
            if isinstance(event, RequestNarrowed):
                self._count_narrowing(event.narrowing)
            elif isinstance(event, SmartRoutingEnd) and not event.widened:
                sums.choices += 1
                sums.fallbacks += event.filtered_tools >= event.total_tools
                sums.tokens_saved += event.tokens_saved
            elif isinstance(event, CallFinished):
                sums.calls += 1
                sums.failed_calls += not event.success
            elif isinstance(event, SyntaxStopped):
                sums.invented += event.count

    def _count_narrowing(self, narrowing: Narrowing) -> None:
        sums, shortlist, servers = self._sums, narrowing.shortlist, narrowing.servers
        sums.narrowings += 1
        sums.spared += 1 - len(shortlist.offered) / shortlist.considered if shortlist.considered else 0.0
        sums.added_ms += narrowing.milliseconds + (0.0 if servers is None else servers.milliseconds)

    @property
    def stats(self) -> AgentStats:
        with self._lock:
            sums = self._sums
            return AgentStats(
                requests=sums.requests,
                success_rate=_divide(sums.answered, sums.requests),
                waiting=sums.waiting,
                failures=sums.failures,
                reduction=_divide(sums.spared, sums.narrowings),
                mean_added_ms=_divide(sums.added_ms, sums.narrowings),
                server_choices=sums.choices,
                fallback_rate=_divide(sums.fallbacks, sums.choices),
                tokens_saved=sums.tokens_saved,
                tool_calls=sums.calls,
                tool_failures=sums.failed_calls,
                invented_calls=sums.invented,
            )


def _divide(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


AgentMode = Literal["simple", "react"]
MAX_MESSAGES: Final = 1000  # kept of a conversation; what a model is shown of it is another matter


@frozen
class RoutingThresholds:
    """Above how many tools and servers smart routing switches itself on."""

    max_tools: int
    max_servers: int


@frozen
class AgentStatus:
    """An agent at one moment."""

    conversation: str
    mode: AgentMode
    max_turns: int
    messages: int
    busy: bool
    smart_routing: str  # "auto", "on" or "off"
    thresholds: RoutingThresholds
    total_tools: int
    total_servers: int
    chooses_servers: bool  # whether smart routing is at work with the tools there are now


@frozen
class _HandedBackRequest:
    """A request that goes on when the caller's own tools have been called."""

    text: str
    options: RouteOptions
    route: Route


@frozen
class _AgentState:
    """What changes, as one value."""

    conversation: str
    mode: AgentMode
    max_turns: int | None
    persona: str | None
    history: tuple[Message, ...] = ()
    waiting: Route | None = None
    handed: _HandedBackRequest | None = None


class Agent:
    """Asks the router, request after request, as one conversation.

    Smart routing is the router's: switching it here switches it for everybody who asks that router.
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

    # -- asking -------------------------------------------------------------------------------------

    async def ask(self, text: str, **options: Unpack[RouteOptions]) -> Route:
        """The next request of the conversation. Several at once are answered one after another."""
        async with self._one_at_a_time:
            return await self._ask_router(text, options)

    async def give(self, results: Mapping[str, str], *, on_text: OnText | None = None) -> Route:
        """Go on after tools of your own were called: what came of each, by the id of its call."""
        async with self._one_at_a_time:
            handed = self._state.handed
            if handed is None:
                message = "no tool of yours was called in this conversation"
                raise CallError(message, hint="Only a route whose outcome is 'handed_back' takes results.")
            asking = handed.options.copy()
            asking["since"] = (*asking.get("since", ()), *handed.route.answered_with(results))
            asking["on_text"] = on_text
            asking.pop("tool_choice", None)  # it was about the first call
            return await self._ask_router(handed.text, asking)

    async def _ask_router(self, text: str, options: RouteOptions) -> Route:
        talk = self._state
        asked = cast("RouteOptions", {**self._build_options(talk), **options})
        try:
            route = await self._router.route(text, **asked)
        except Exception:
            self._counter.count(None, ())
            raise
        self._counter.count(route.outcome, route.events)
        if route.outcome is RouteOutcome.HANDED_BACK:
            self._hold_request(talk, _HandedBackRequest(text=text, options=options, route=route))
        else:
            self._keep_turn(talk, Message(role="user", text=text), route)
        return route

    def _hold_request(self, before: _AgentState, handed: _HandedBackRequest) -> None:
        """Nothing is said until the request is answered."""
        with self._lock:
            if self._state.conversation == before.conversation:
                self._state = replace(self._state, handed=handed)

    async def resume(self, approval: Approval | None = None, **options: Unpack[RouteOptions]) -> Route:
        """Go on with the request that waits for a person; `approval` is their word."""
        async with self._one_at_a_time:
            talk = self._state
            if talk.waiting is None:
                message = "nothing of this conversation waits for a person"
                raise CallError(message, hint="Only a route whose outcome is 'waiting' can be resumed.")
            route = await self._router.resume(talk.waiting, approval, **options)
            self._counter.count_resumed(route.outcome, route.events)
            self._keep_turn(replace(talk, history=talk.history[:-1]), None, route)
            return route

    def reset(self) -> None:
        """Forget the conversation and begin another; how it is switched stays, and so do the figures."""
        with self._lock:
            self._state = replace(
                self._state, conversation=create_id("ses"), history=(), waiting=None, handed=None
            )

    def _build_options(self, state: _AgentState) -> RouteOptions:
        asking: RouteOptions = {
            "history": state.history,
            "conversation": state.conversation,
            "mode": state.mode,
            "max_turns": state.max_turns,
        }
        if state.persona is not None:
            asking["persona"] = state.persona
        return asking

    def _keep_turn(self, before: _AgentState, message: Message | None, route: Route) -> None:
        """Add what was said, unless the conversation was reset meanwhile."""
        answer = Message(role="assistant", text=route.answer)
        history = (*before.history, *((message,) if message is not None else ()), answer)[-MAX_MESSAGES:]
        waiting = route if route.outcome is RouteOutcome.WAITING else None
        with self._lock:
            if self._state.conversation == before.conversation:
                self._state = replace(self._state, history=history, waiting=waiting, handed=None)

    # -- looking ------------------------------------------------------------------------------------

    @property
    def conversation(self) -> str:
        return self._state.conversation

    @property
    def history(self) -> tuple[Message, ...]:
        """What was said so far, the oldest first."""
        return self._state.history

    @property
    def mode(self) -> AgentMode:
        return self._state.mode

    @property
    def max_turns(self) -> int:
        """Rounds of tools one request may take."""
        return self._router.switches.now.get_max_rounds(self._state.mode, self._state.max_turns)

    @property
    def is_smart_routing_enabled(self) -> bool:
        """Whether servers may be chosen at all; `status` says whether they are."""
        return self._router.switches.now.smart_routing.mode != "off"

    @property
    def thresholds(self) -> RoutingThresholds:
        routing = self._router.switches.now.smart_routing
        return RoutingThresholds(max_tools=routing.max_tools, max_servers=routing.max_servers)

    @property
    def waiting(self) -> Route | None:
        """The request that waits for a person, if one does."""
        return self._state.waiting

    def stats(self) -> AgentStats:
        """How it has done so far."""
        return self._counter.stats

    def status(self) -> AgentStatus:
        """Everything about it at this moment."""
        from fingerpost.narrow.server_picker import should_pick_servers

        talk, routing = self._state, self._router.switches.now.smart_routing
        cards = self._router.tools.cards
        servers = len({card.server for card in cards})
        return AgentStatus(
            conversation=talk.conversation,
            mode=talk.mode,
            max_turns=self.max_turns,
            messages=len(talk.history),
            busy=self._one_at_a_time.locked(),
            smart_routing=routing.mode,
            thresholds=RoutingThresholds(max_tools=routing.max_tools, max_servers=routing.max_servers),
            total_tools=len(cards),
            total_servers=servers,
            chooses_servers=should_pick_servers(routing, tools=len(cards), servers=servers),
        )

    # -- switching ----------------------------------------------------------------------------------

    def set_mode(self, mode: AgentMode) -> None:
        """ "simple": call and answer; "react": say what it thinks before each call."""
        self._set_state(mode=_check_mode(mode))

    def set_max_turns(self, turns: int | None) -> None:
        """Rounds of tools one request may take; None: as many as the router says."""
        self._set_state(max_turns=_check_turns(turns))

    def set_persona(self, persona: str | None) -> None:
        """Who the assistant is; None: as the settings say."""
        self._set_state(persona=persona)

    def set_smart_routing(self, enabled: bool | Literal["auto", "on", "off"]) -> None:
        """Choose servers always, never, or ("auto") above the thresholds. For the whole router."""
        self._router.switches.set_smart_routing(enabled)

    def set_thresholds(self, *, max_tools: int | None = None, max_servers: int | None = None) -> None:
        """Above how many tools and servers "auto" chooses servers. For the whole router."""
        self._router.switches.set_thresholds(max_tools=max_tools, max_servers=max_servers)

    def _set_state(self, **values: object) -> None:
        with self._lock:
            self._state = replace(self._state, **values)


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
