"""What may be said with a request or a call: everything optional, by name."""

from __future__ import annotations

from typing import TypedDict

from fingerpost.llm.base import OnText
from fingerpost.records import Effort, Json, JsonObject, Message, Mode, Scope, ServerChoice


class CallOptions(TypedDict, total=False):
    """What may be said about a call: the fields of `CallContext`, all optional."""

    packet_id: str | None
    conversation: str | None
    caller: str | None
    profile: str | None
    scopes: tuple[Scope, ...]
    request: str
    working_directory: str | None
    seconds: float | None
    tokens_left: int | None
    dry_run: bool
    fallback: bool
    idempotency_key: str | None
    doubt: str
    authorization: str | None


class NarrowOptions(TypedDict, total=False):
    """What may be said about a request whose tools are looked for."""

    history: tuple[Message, ...]  # without it, what was said in `conversation` is recalled for an answer
    conversation: str | None
    caller: str | None
    profile: str | None
    api_version: str | None  # which profile is meant, where none is named
    scopes: tuple[Scope, ...]
    server: str | None  # only tools of this one
    max_tools: int | None
    used: tuple[str, ...]  # tools this conversation has used, the latest last
    chosen_servers: ServerChoice | None  # chosen already: no others are looked for
    about: str | None  # a tool to explain however far behind it came in
    since: tuple[Message, ...]  # behind the request: calls of the caller's tools, and what came of them
    ask_model: bool  # False: servers are chosen by scores, and no model is asked for them
    effort: Effort | str | None  # quick or thorough; by default as the caller prefers, or the profile says
    asked_for_tools: bool  # the tools are wanted whether or not the request needs one


class RouteOptions(NarrowOptions, total=False):
    """What may be said about a request that is to be answered."""

    authorization: str | None  # the caller's own key, for servers set up for it; kept nowhere
    on_text: OnText | None  # takes the answer piece by piece
    mode: Mode | str | None
    working_directory: str | None
    persona: str | None
    directives: str | None
    max_turns: int | None
    seconds: float | None
    tokens: int | None  # of all model calls together, where that is less than the settings allow
    parent: str | None  # the packet on whose behalf this one is made: its budget is spent
    dry_run: bool  # show what would be called, call nothing
    model: str | None  # who answers instead of the configured model, at the same address
    own_terms: bool  # the caller says how long an answer may be, and goes on alone when a person has decided
    options: JsonObject  # for the model that answers, as the caller wrote them: temperature, stop, …
    parts: tuple[JsonObject, ...]  # what the request holds beside its words, for the model that answers
    caller_tools: tuple[JsonObject, ...]  # the caller's own, in the OpenAI format; calls of them go back
    tool_choice: Json  # the caller's, about their own tools
