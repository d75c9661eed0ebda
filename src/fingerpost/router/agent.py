"""An agent: one conversation, its history kept, its routing switched while it runs.

    agent = Agent(router, mode="react")
    route = await agent.ask("Which of my notes mention the budget?")
    route = await agent.ask("And the newest of them?")

Asking belongs to the event loop of the router. Everything else (looking at it, switching
it) may be done from any thread at any time; a request that has begun ends as it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, Unpack, cast, get_args

import anyio

from fingerpost.errors import CallError, ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import Message, RouteOutcome, new_id
from fingerpost.router.switches import MOST_TURNS
from fingerpost.router.tally import AgentStats, Tally
from fingerpost.router.wanted import Asking

if TYPE_CHECKING:
    from fingerpost.llm import OnText
    from fingerpost.records import Approval
    from fingerpost.router.route import Route
    from fingerpost.router.router import Router

AgentMode = Literal["simple", "react"]
MOST_MESSAGES: Final = 1000  # kept of a conversation; what a model is shown of it is another matter


@frozen
class Thresholds:
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
    thresholds: Thresholds
    total_tools: int
    total_servers: int
    chooses_servers: bool  # whether smart routing is at work with the tools there are now


@frozen
class _Handed:
    """A request that goes on when the caller's own tools have been called."""

    text: str
    asking: Asking
    route: Route


@frozen
class _Talk:
    """What changes, as one value."""

    conversation: str
    mode: AgentMode
    max_turns: int | None
    persona: str | None
    history: tuple[Message, ...] = ()
    waiting: Route | None = None
    handed: _Handed | None = None


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
        self._tally = Tally()
        self._lock = Lock()
        self._one_at_a_time = anyio.Lock()
        self._talk = _Talk(
            conversation=conversation or new_id("ses"),
            mode=_checked_mode(mode),
            max_turns=_checked_turns(max_turns),
            persona=persona,
            history=tuple(history)[-MOST_MESSAGES:],
        )

    # -- asking -------------------------------------------------------------------------------------

    async def ask(self, text: str, **asking: Unpack[Asking]) -> Route:
        """The next request of the conversation. Several at once are answered one after another."""
        async with self._one_at_a_time:
            return await self._ask(text, asking)

    async def give(self, results: Mapping[str, str], *, on_text: OnText | None = None) -> Route:
        """Go on after tools of your own were called: what came of each, by the id of its call."""
        async with self._one_at_a_time:
            handed = self._talk.handed
            if handed is None:
                message = "no tool of yours was called in this conversation"
                raise CallError(message, hint="Only a route whose outcome is 'handed_back' takes results.")
            asking = handed.asking.copy()
            asking["since"] = (*asking.get("since", ()), *handed.route.answered_with(results))
            asking["on_text"] = on_text
            asking.pop("tool_choice", None)  # it was about the first call
            return await self._ask(handed.text, asking)

    async def _ask(self, text: str, asking: Asking) -> Route:
        talk = self._talk
        asked = cast("Asking", {**self._circumstances(talk), **asking})
        try:
            route = await self._router.route(text, **asked)
        except Exception:
            self._tally.count(None, ())
            raise
        self._tally.count(route.outcome, route.events)
        if route.outcome is RouteOutcome.HANDED_BACK:
            self._hold(talk, _Handed(text=text, asking=asking, route=route))
        else:
            self._keep(talk, Message(role="user", text=text), route)
        return route

    def _hold(self, before: _Talk, handed: _Handed) -> None:
        """Nothing is said until the request is answered."""
        with self._lock:
            if self._talk.conversation == before.conversation:
                self._talk = replace(self._talk, handed=handed)

    async def resume(self, approval: Approval | None = None, **asking: Unpack[Asking]) -> Route:
        """Go on with the request that waits for a person; `approval` is their word."""
        async with self._one_at_a_time:
            talk = self._talk
            if talk.waiting is None:
                message = "nothing of this conversation waits for a person"
                raise CallError(message, hint="Only a route whose outcome is 'waiting' can be resumed.")
            route = await self._router.resume(talk.waiting, approval, **asking)
            self._tally.went_on(route.outcome, route.events)
            self._keep(replace(talk, history=talk.history[:-1]), None, route)
            return route

    def reset(self) -> None:
        """Forget the conversation and begin another; how it is switched stays, and so do the figures."""
        with self._lock:
            self._talk = replace(
                self._talk, conversation=new_id("ses"), history=(), waiting=None, handed=None
            )

    def _circumstances(self, talk: _Talk) -> Asking:
        asking: Asking = {
            "history": talk.history,
            "conversation": talk.conversation,
            "mode": talk.mode,
            "max_turns": talk.max_turns,
        }
        if talk.persona is not None:
            asking["persona"] = talk.persona
        return asking

    def _keep(self, before: _Talk, said: Message | None, route: Route) -> None:
        """Add what was said, unless the conversation was reset meanwhile."""
        answer = Message(role="assistant", text=route.answer)
        history = (*before.history, *((said,) if said is not None else ()), answer)[-MOST_MESSAGES:]
        waiting = route if route.outcome is RouteOutcome.WAITING else None
        with self._lock:
            if self._talk.conversation == before.conversation:
                self._talk = replace(self._talk, history=history, waiting=waiting, handed=None)

    # -- looking ------------------------------------------------------------------------------------

    @property
    def conversation(self) -> str:
        return self._talk.conversation

    @property
    def history(self) -> tuple[Message, ...]:
        """What was said so far, the oldest first."""
        return self._talk.history

    @property
    def mode(self) -> AgentMode:
        return self._talk.mode

    @property
    def max_turns(self) -> int:
        """Rounds of tools one request may take."""
        return self._router.switches.now.rounds(self._talk.mode, self._talk.max_turns)

    @property
    def is_smart_routing_enabled(self) -> bool:
        """Whether servers may be chosen at all; `status` says whether they are."""
        return self._router.switches.now.smart_routing.mode != "off"

    @property
    def thresholds(self) -> Thresholds:
        routing = self._router.switches.now.smart_routing
        return Thresholds(max_tools=routing.max_tools, max_servers=routing.max_servers)

    @property
    def waiting(self) -> Route | None:
        """The request that waits for a person, if one does."""
        return self._talk.waiting

    def stats(self) -> AgentStats:
        """How it has done so far."""
        return self._tally.stats

    def status(self) -> AgentStatus:
        """Everything about it at this moment."""
        from fingerpost.narrow.preselection import is_wanted

        talk, routing = self._talk, self._router.switches.now.smart_routing
        cards = self._router.tools.cards
        servers = len({card.server for card in cards})
        return AgentStatus(
            conversation=talk.conversation,
            mode=talk.mode,
            max_turns=self.max_turns,
            messages=len(talk.history),
            busy=self._one_at_a_time.locked(),
            smart_routing=routing.mode,
            thresholds=Thresholds(max_tools=routing.max_tools, max_servers=routing.max_servers),
            total_tools=len(cards),
            total_servers=servers,
            chooses_servers=is_wanted(routing, tools=len(cards), servers=servers),
        )

    # -- switching ----------------------------------------------------------------------------------

    def set_mode(self, mode: AgentMode) -> None:
        """ "simple": call and answer; "react": say what it thinks before each call."""
        self._set(mode=_checked_mode(mode))

    def set_max_turns(self, turns: int | None) -> None:
        """Rounds of tools one request may take; None: as many as the router says."""
        self._set(max_turns=_checked_turns(turns))

    def set_persona(self, persona: str | None) -> None:
        """Who the assistant is; None: as the settings say."""
        self._set(persona=persona)

    def set_smart_routing(self, enabled: bool | Literal["auto", "on", "off"]) -> None:
        """Choose servers always, never, or ("auto") above the thresholds. For the whole router."""
        self._router.switches.set_smart_routing(enabled)

    def set_thresholds(self, *, max_tools: int | None = None, max_servers: int | None = None) -> None:
        """Above how many tools and servers "auto" chooses servers. For the whole router."""
        self._router.switches.set_thresholds(max_tools=max_tools, max_servers=max_servers)

    def _set(self, **values: object) -> None:
        with self._lock:
            self._talk = replace(self._talk, **values)


def _checked_mode(mode: str) -> AgentMode:
    if mode not in get_args(AgentMode):
        message = f"an agent has no mode {mode!r:.60}"
        raise ConfigError(message, hint="An agent is simple or react; router.route knows more modes.")
    return cast("AgentMode", mode)


def _checked_turns(turns: int | None) -> int | None:
    if turns is not None and not 1 <= turns <= MOST_TURNS:
        message = f"max_turns = {turns} is not possible"
        raise ConfigError(message, hint=f"An agent has 1 to {MOST_TURNS} turns.")
    return turns
