"""Options of a request or a call, those that can be changed while the router runs, and which models it
uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from threading import Lock
from typing import Final, TypedDict

from pydantic import ValidationError

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel, Closable, OnText
from fingerpost.records import Effort, Json, JsonObject, Message, Mode, Scope, ServerChoice
from fingerpost.settings import ChooseSettings, ModelsSettings, Settings, SmartRoutingSettings


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


MODES: Final = ("auto", "staged", "single", "simple", "react", "keyless")
MAX_TURNS: Final = 100  # as `choose.max_turns` has it
REACT_ROUNDS: Final = 8  # one call in each


@frozen
class RuntimeOptions:
    """How everything is switched at one moment."""

    smart_routing: SmartRoutingSettings
    mode: str  # of answering: one of `MODES`
    max_turns: int | None  # of agents; None: see `get_max_rounds`
    max_reinjections: int

    def get_max_rounds(self, mode: str, requested: int | None = None) -> int:
        """How many rounds of tools one request may take in this mode; `wanted` is said with the request."""
        if mode not in (Mode.SIMPLE, Mode.REACT):
            return self.max_reinjections
        usual = REACT_ROUNDS if mode == Mode.REACT else self.max_reinjections
        return requested or self.max_turns or usual


class RuntimeSwitches:
    """The values, and the way to change them. What is out of bounds is refused and changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self._first = RuntimeOptions(
            smart_routing=settings.smart_routing,
            mode=settings.choose.mode,
            max_turns=settings.choose.max_turns,
            max_reinjections=settings.tool_routing.max_reinjections,
        )
        self._now = self._first
        self._lock = Lock()

    @property
    def now(self) -> RuntimeOptions:
        """Everything, as it is at this moment."""
        return self._now

    def set_smart_routing(self, mode: bool | str) -> None:
        """`True` or "on", `False` or "off", or "auto": on above both thresholds."""
        wanted = ("on" if mode else "off") if isinstance(mode, bool) else mode
        self._set_routing("The modes are auto, on and off.", mode=wanted)

    def set_thresholds(self, *, max_tools: int | None = None, max_servers: int | None = None) -> None:
        """Above how many tools and servers "auto" chooses servers; None leaves one as it is."""
        wanted = {"max_tools": max_tools, "max_servers": max_servers}
        given = {name: value for name, value in wanted.items() if value is not None}
        self._set_routing("A threshold is a whole number, 0 or more.", **given)

    def set_mode(self, mode: str) -> None:
        """How requests are answered that do not say it themselves."""
        self._set_choosing(f"The modes are {', '.join(MODES)}.", mode=mode)

    def set_max_turns(self, turns: int) -> None:
        """How many rounds of tools an agent may have."""
        self._set_choosing(f"An agent has 1 to {MAX_TURNS} turns.", max_turns=turns)

    def restore(self) -> None:
        """Back to what the settings say."""
        with self._lock:
            self._now = self._first

    def _set_routing(self, hint: str, **values: object) -> None:
        with self._lock:
            before = self._now.smart_routing.model_dump()
            try:
                changed = SmartRoutingSettings.model_validate({**before, **values}, strict=True)
            except ValidationError as wrong:
                raise _build_refusal(values, hint) from wrong
            self._now = replace(self._now, smart_routing=changed)

    def _set_choosing(self, hint: str, **values: object) -> None:
        with self._lock:
            try:
                checked = ChooseSettings.model_validate(values, strict=True)
            except ValidationError as wrong:
                raise _build_refusal(values, hint) from wrong
            changed = {name: getattr(checked, name) for name in values}
            self._now = replace(self._now, **changed)


def _build_refusal(values: dict[str, object], hint: str) -> ConfigError:
    told = " and ".join(f"{name} = {value!r:.60}" for name, value in values.items())
    return ConfigError(f"{told} is not possible", hint=hint)


@frozen
class ModelNames:
    """Who selects and who answers. Empty without any model."""

    lite: str = ""
    prime: str = ""


def resolve_model_names(
    models: tuple[ChatModel | None, ChatModel | None], configured: ModelsSettings
) -> ModelNames:
    """The models given, else those configured; each stands in for the other."""
    lite, prime = (
        model.name if model is not None else (settings.model if settings is not None else "")
        for model, settings in zip(models, (configured.lite, configured.prime), strict=True)
    )
    return ModelNames(lite=lite or prime, prime=prime or lite)


async def close_models(models: Iterable[ChatModel | None]) -> None:
    """Close each of them once: nobody else would. One that is asked again afterwards opens anew."""
    async with AsyncExitStack() as leaving:
        for model in {id(model): model for model in models}.values():
            if isinstance(model, Closable):
                leaving.push_async_callback(model.aclose)
