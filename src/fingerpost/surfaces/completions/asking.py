"""A question as the router takes it: who asks, in which conversation, within which bounds."""

from __future__ import annotations

from dataclasses import field

from fingerpost.frozen import frozen
from fingerpost.records import Mode, Principal
from fingerpost.router import RouteOptions, Router
from fingerpost.surfaces.completions.manner import RequestOptions
from fingerpost.surfaces.completions.messages import ChatConversation
from fingerpost.surfaces.completions.reading import ChatRequest
from fingerpost.surfaces.web.reach import AccessScope, build_conversation_id


@frozen
class CompletionTurn:
    """One question of one caller, everything about it decided."""

    request: ChatRequest
    request_options: RequestOptions
    principal: Principal
    access_scope: AccessScope
    model: str | None = None  # asked instead of the configured one
    keyless: bool = False  # nobody could be asked
    authorization: str | None = field(default=None, repr=False)  # their own, for servers set up for it
    chat: str = ""  # the conversation, where the caller gave no id (`ChatIndex`)

    @property
    def conversation(self) -> str:
        """The id the caller gave, which is theirs alone, or the one this chat is known by."""
        given = self.request_options.conversation
        return self.chat if given is None else build_conversation_id(self.principal, given)

    @property
    def caller_key(self) -> str:
        """Who asks, under which profile: chats are known to them alone."""
        return f"{self.principal.kind} {self.principal.name}\n{self.access_scope.profile or ''}"


def build_route_options(turn: CompletionTurn, conversation: ChatConversation, router: Router) -> RouteOptions:
    """What goes with the words of `talk`. What was not said is left to the router."""
    question, manner = turn.request, turn.request_options
    asking = RouteOptions(
        history=conversation.history,
        conversation=turn.conversation,
        caller=turn.principal.name,
        profile=turn.access_scope.profile,
        scopes=turn.access_scope.scopes,
        mode=resolve_mode(turn, router),
        server=manner.server,
        max_tools=manner.max_tools,
        effort=manner.effort,
        persona=manner.persona,
        directives=manner.directives,
        max_turns=manner.max_turns,
        seconds=manner.seconds,
        dry_run=bool(manner.dry_run),
        model=turn.model,
        since=conversation.since,
        own_terms=True,
        authorization=turn.authorization,
    )
    if question.options:
        asking["options"] = question.options
    if conversation.request.parts:
        asking["parts"] = conversation.request.parts
    if question.tools:
        asking["caller_tools"] = question.tools
    if question.tool_choice is not None:
        asking["tool_choice"] = question.tool_choice
    return asking


def build_resume_options(route_options: RouteOptions) -> RouteOptions:
    """The same for a request that is known already: what stood around its words is not told again."""
    route_options = route_options.copy()
    for name in ("history", "since", "parts"):
        route_options.pop(name, None)
    return route_options


def resolve_mode(turn: CompletionTurn, router: Router) -> str:
    mode = turn.request_options.mode or router.settings.completions.mode
    if mode != "auto":
        return mode
    return Mode.KEYLESS if turn.keyless else Mode.SIMPLE
