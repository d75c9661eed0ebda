"""Options of requests and calls, options that can change at run time, and the names of the models."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import field, replace
from threading import Lock
from typing import Final, TypedDict

from pydantic import ValidationError

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel, Closable, OnText
from fingerpost.records import (
    CallContext,
    Effort,
    Json,
    JsonObject,
    Message,
    Mode,
    Scope,
    ServerChoice,
    create_id,
)
from fingerpost.settings import ChooseSettings, ModelsSettings, Settings, SmartRoutingSettings


class CallKeywords(TypedDict, total=False):
    """The keywords of `Router.call`: the fields of `CallOptions`."""

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


class NarrowKeywords(TypedDict, total=False):
    """The keywords of `Router.narrow`: the fields of `NarrowOptions`."""

    history: tuple[Message, ...]
    conversation: str | None
    caller: str | None
    profile: str | None
    api_version: str | None
    scopes: tuple[Scope, ...]
    server: str | None
    max_tools: int | None
    used: tuple[str, ...]
    chosen_servers: ServerChoice | None
    about: str | None
    since: tuple[Message, ...]
    ask_model: bool
    effort: Effort | str | None
    asked_for_tools: bool


class RouteKeywords(NarrowKeywords, total=False):
    """The keywords of `Router.route`: the fields of `RouteOptions`."""

    authorization: str | None
    on_text: OnText | None
    mode: Mode | str | None
    working_directory: str | None
    persona: str | None
    directives: str | None
    max_turns: int | None
    seconds: float | None
    tokens: int | None
    parent: str | None
    dry_run: bool
    model: str | None
    own_terms: bool
    options: JsonObject
    parts: tuple[JsonObject, ...]
    caller_tools: tuple[JsonObject, ...]
    tool_choice: Json


@frozen
class CallOptions:
    """Options of a call. `CallContext` describes each."""

    packet_id: str | None = None
    conversation: str | None = None
    caller: str | None = None
    profile: str | None = None
    scopes: tuple[Scope, ...] = ()
    request: str = ""
    working_directory: str | None = None
    seconds: float | None = None
    tokens_left: int | None = None
    dry_run: bool = False
    fallback: bool = True
    idempotency_key: str | None = None
    doubt: str = ""
    authorization: str | None = field(default=None, repr=False)

    def build_context(self) -> CallContext:
        """Build the context of a new call."""
        return CallContext(
            call_id=create_id("cal"),
            packet_id=self.packet_id,
            conversation=self.conversation,
            caller=self.caller,
            profile=self.profile,
            scopes=self.scopes,
            request=self.request,
            working_directory=self.working_directory,
            seconds=self.seconds,
            tokens_left=self.tokens_left,
            dry_run=self.dry_run,
            fallback=self.fallback,
            idempotency_key=self.idempotency_key,
            doubt=self.doubt,
            authorization=self.authorization,
        )


@frozen
class NarrowOptions:
    """Options of a request that is narrowed."""

    history: tuple[Message, ...] | None = None  # None: read from `conversation` when a request is answered
    conversation: str | None = None
    caller: str | None = None
    profile: str | None = None
    api_version: str | None = None  # selects the profile if none is named
    scopes: tuple[Scope, ...] = ()
    server: str | None = None  # only tools of this server
    max_tools: int | None = None
    used: tuple[str, ...] = ()  # tools this conversation has used, latest last
    chosen_servers: ServerChoice | None = None  # the servers are chosen already
    about: str | None = None  # a tool to explain, whatever its rank
    since: tuple[
        Message, ...
    ] = ()  # messages after the request: calls of the caller's tools and their results
    ask_model: bool = True  # False: servers are chosen by scores, without a model
    effort: Effort | str | None = None  # default: the caller's preference, else the profile's
    asked_for_tools: bool = False  # offer tools whether or not the request needs one


@frozen
class RouteOptions(NarrowOptions):
    """Options of a request that is answered."""

    authorization: str | None = field(default=None, repr=False)  # the caller's own key; never stored
    on_text: OnText | None = None  # receives the answer piece by piece
    mode: Mode | str | None = None
    working_directory: str | None = None
    persona: str | None = None
    directives: str | None = None
    max_turns: int | None = None
    seconds: float | None = None
    tokens: int | None = None  # limit over all model calls, if lower than in the settings
    parent: str | None = None  # the packet that started this one; its budget is used
    dry_run: bool = False  # show what would be called, call nothing
    model: str | None = None  # the model that answers instead of the configured one, at the same address
    own_terms: bool = False  # the caller limits the answer's length and resumes after approvals itself
    # For the answering model, as the caller wrote them: temperature, stop, …
    options: JsonObject = field(default_factory=dict[str, Json])
    parts: tuple[JsonObject, ...] = ()  # non-text parts of the request, for the answering model
    # The caller's own tools in the OpenAI format; their calls are handed back.
    caller_tools: tuple[JsonObject, ...] = ()
    tool_choice: Json = None  # the caller's choice among its own tools


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
