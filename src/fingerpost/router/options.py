"""Options of requests and calls, options that can change at run time, and the names of the models."""

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
    """Options of a call: the fields of `CallContext`, all optional."""

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
    """Options of a request that is narrowed."""

    history: tuple[Message, ...]  # by default read from `conversation` when a request is answered
    conversation: str | None
    caller: str | None
    profile: str | None
    api_version: str | None  # selects the profile if none is named
    scopes: tuple[Scope, ...]
    server: str | None  # only tools of this server
    max_tools: int | None
    used: tuple[str, ...]  # tools this conversation has used, latest last
    chosen_servers: ServerChoice | None  # the servers are chosen already
    about: str | None  # a tool to explain, whatever its rank
    since: tuple[Message, ...]  # messages after the request: calls of the caller's tools and their results
    ask_model: bool  # False: servers are chosen by scores, without a model
    effort: Effort | str | None  # default: the caller's preference, else the profile's
    asked_for_tools: bool  # offer tools whether or not the request needs one


class RouteOptions(NarrowOptions, total=False):
    """Options of a request that is answered."""

    authorization: str | None  # the caller's own key, for servers that accept it; never stored
    on_text: OnText | None  # receives the answer piece by piece
    mode: Mode | str | None
    working_directory: str | None
    persona: str | None
    directives: str | None
    max_turns: int | None
    seconds: float | None
    tokens: int | None  # limit over all model calls, if lower than in the settings
    parent: str | None  # the packet that started this one; its budget is used
    dry_run: bool  # show what would be called, call nothing
    model: str | None  # the model that answers instead of the configured one, at the same address
    own_terms: bool  # the caller limits the answer's length and resumes after approvals itself
    options: JsonObject  # for the answering model, as the caller wrote them: temperature, stop, …
    parts: tuple[JsonObject, ...]  # non-text parts of the request, for the answering model
    # The caller's own tools in the OpenAI format; their calls are handed back.
    caller_tools: tuple[JsonObject, ...]
    tool_choice: Json  # the caller's choice among its own tools


MODES: Final = ("auto", "staged", "single", "simple", "react", "keyless")
MAX_TURNS: Final = 100  # the limit of `choose.max_turns`
REACT_ROUNDS: Final = 8  # with one call each


@frozen
class RuntimeOptions:
    """The values of the options that can change at run time."""

    smart_routing: SmartRoutingSettings
    mode: str  # one of `MODES`
    max_turns: int | None  # for agents; None: see `get_max_rounds`
    max_reinjections: int

    def get_max_rounds(self, mode: str, requested: int | None = None) -> int:
        """Return how many tool rounds a request may take in this mode. `requested` comes with the request."""
        if mode not in (Mode.SIMPLE, Mode.REACT):
            return self.max_reinjections
        usual = REACT_ROUNDS if mode == Mode.REACT else self.max_reinjections
        return requested or self.max_turns or usual


class RuntimeSwitches:
    """Changes the runtime options. A value out of range is rejected and changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self._initial = RuntimeOptions(
            smart_routing=settings.smart_routing,
            mode=settings.choose.mode,
            max_turns=settings.choose.max_turns,
            max_reinjections=settings.tool_routing.max_reinjections,
        )
        self._current = self._initial
        self._lock = Lock()

    @property
    def now(self) -> RuntimeOptions:
        """The current values."""
        return self._current

    def set_smart_routing(self, mode: bool | str) -> None:
        """Set smart routing: `True` or "on", `False` or "off", or "auto" (on above both thresholds)."""
        wanted = ("on" if mode else "off") if isinstance(mode, bool) else mode
        self._set_routing("The modes are auto, on and off.", mode=wanted)

    def set_thresholds(self, *, max_tools: int | None = None, max_servers: int | None = None) -> None:
        """Set the numbers of tools and servers above which "auto" chooses servers. None keeps a value."""
        wanted = {"max_tools": max_tools, "max_servers": max_servers}
        given = {name: value for name, value in wanted.items() if value is not None}
        self._set_routing("A threshold is a whole number, 0 or more.", **given)

    def set_mode(self, mode: str) -> None:
        """Set the mode of requests that do not specify one."""
        self._set_choosing(f"The modes are {', '.join(MODES)}.", mode=mode)

    def set_max_turns(self, turns: int) -> None:
        """Set how many tool rounds an agent may take."""
        self._set_choosing(f"An agent has 1 to {MAX_TURNS} turns.", max_turns=turns)

    def restore(self) -> None:
        """Restore the values of the settings."""
        with self._lock:
            self._current = self._initial

    def _set_routing(self, hint: str, **values: object) -> None:
        with self._lock:
            before = self._current.smart_routing.model_dump()
            try:
                changed = SmartRoutingSettings.model_validate({**before, **values}, strict=True)
            except ValidationError as wrong:
                raise _build_refusal(values, hint) from wrong
            self._current = replace(self._current, smart_routing=changed)

    def _set_choosing(self, hint: str, **values: object) -> None:
        with self._lock:
            try:
                checked = ChooseSettings.model_validate(values, strict=True)
            except ValidationError as wrong:
                raise _build_refusal(values, hint) from wrong
            changed = {name: getattr(checked, name) for name in values}
            self._current = replace(self._current, **changed)


def _build_refusal(values: dict[str, object], hint: str) -> ConfigError:
    values_text = " and ".join(f"{name} = {value!r:.60}" for name, value in values.items())
    return ConfigError(f"{values_text} is not possible", hint=hint)


@frozen
class ModelNames:
    """The names of the selecting and the answering model. Empty if there is none."""

    lite: str = ""
    prime: str = ""


def resolve_model_names(
    models: tuple[ChatModel | None, ChatModel | None], configured: ModelsSettings
) -> ModelNames:
    """Return the names of the given models, else of the configured ones. Each is the fallback for the
    other.
    """
    lite, prime = (
        model.name if model is not None else (settings.model if settings is not None else "")
        for model, settings in zip(models, (configured.lite, configured.prime), strict=True)
    )
    return ModelNames(lite=lite or prime, prime=prime or lite)


async def close_models(models: Iterable[ChatModel | None]) -> None:
    """Close each model once. A closed model reopens if it is asked again."""
    async with AsyncExitStack() as stack:
        for model in {id(model): model for model in models}.values():
            if isinstance(model, Closable):
                stack.push_async_callback(model.aclose)
