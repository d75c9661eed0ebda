"""A question as the router takes it: who asks, in which conversation, within which bounds."""

from __future__ import annotations

from dataclasses import field

from fingerpost.frozen import frozen
from fingerpost.records import Mode, Principal
from fingerpost.router import Asking, Router
from fingerpost.surfaces.completions.manner import Manner
from fingerpost.surfaces.completions.messages import Talk
from fingerpost.surfaces.completions.reading import Question
from fingerpost.surfaces.web.reach import Reach, conversation_of


@frozen
class Turn:
    """One question of one caller, everything about it decided."""

    question: Question
    manner: Manner
    principal: Principal
    reach: Reach
    model: str | None = None  # asked instead of the configured one
    keyless: bool = False  # nobody could be asked
    authorization: str | None = field(default=None, repr=False)  # their own, for servers set up for it
    chat: str = ""  # the conversation, where the caller gave no id (`Chats`)

    @property
    def conversation(self) -> str:
        """The id the caller gave, which is theirs alone, or the one this chat is known by."""
        given = self.manner.conversation
        return self.chat if given is None else conversation_of(self.principal, given)

    @property
    def whose(self) -> str:
        """Who asks, under which profile: chats are known to them alone."""
        return f"{self.principal.kind} {self.principal.name}\n{self.reach.profile or ''}"


def asking_for(turn: Turn, talk: Talk, router: Router) -> Asking:
    """What goes with the words of `talk`. What was not said is left to the router."""
    question, manner = turn.question, turn.manner
    asking = Asking(
        history=talk.history,
        conversation=turn.conversation,
        caller=turn.principal.name,
        profile=turn.reach.profile,
        scopes=turn.reach.scopes,
        mode=mode_of(turn, router),
        server=manner.server,
        max_tools=manner.max_tools,
        effort=manner.effort,
        persona=manner.persona,
        directives=manner.directives,
        max_turns=manner.max_turns,
        seconds=manner.seconds,
        dry_run=bool(manner.dry_run),
        model=turn.model,
        since=talk.since,
        own_terms=True,
        authorization=turn.authorization,
    )
    if question.options:
        asking["options"] = question.options
    if talk.request.parts:
        asking["parts"] = talk.request.parts
    if question.tools:
        asking["caller_tools"] = question.tools
    if question.tool_choice is not None:
        asking["tool_choice"] = question.tool_choice
    return asking


def going_on(asking: Asking) -> Asking:
    """The same for a request that is known already: what stood around its words is not told again."""
    asking = asking.copy()
    for name in ("history", "since", "parts"):
        asking.pop(name, None)
    return asking


def mode_of(turn: Turn, router: Router) -> str:
    mode = turn.manner.mode or router.settings.completions.mode
    if mode != "auto":
        return mode
    return Mode.KEYLESS if turn.keyless else Mode.SIMPLE
