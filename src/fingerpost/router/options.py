"""Options of requests and calls, options that can change at run time, and the names of the models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import field, fields, replace
from difflib import get_close_matches
from threading import Lock
from typing import Any, Final, TypedDict, TypeVar, cast

from pydantic import ValidationError

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel, Closable, OnText
from fingerpost.records import (
    CallContext,
    CallerAuthorization,
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
    authorization: CallerAuthorization | None
    words: tuple[str, ...] | None


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

    authorization: CallerAuthorization | None
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
    words: tuple[str, ...] | None
    trail: str | None


@frozen
class CallOptions:
    """Options of a call.

    Fields:
        packet_id: id of the request that the call belongs to
        conversation: id of the conversation
        caller: name of the caller
        profile: name of the profile
        scopes: what the caller may use; all scopes apply
        request: the user's request, so that a shortened result keeps what it asks about
        working_directory: folder that relative paths start from
        seconds: the caller's deadline, if shorter than the tool's
        tokens_left: remaining tokens in the model's context
        dry_run: show what would be called, call nothing
        fallback: whether a fallback tool may be used
        idempotency_key: a call with the same key runs only once
        doubt: why this call needs approval even if the rules allow it
        authorization: the caller's own key; never stored
        words: what the person wrote in this conversation; values in it count as the person's own
    """

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
    authorization: CallerAuthorization | None = field(default=None, repr=False)
    words: tuple[str, ...] | None = field(default=None, repr=False)

    def build_context(self) -> CallContext:
        """Build the context of a new call."""
        given = {name: getattr(self, name) for name in type(self).__dataclass_fields__}
        return CallContext(call_id=create_id("cal"), **given)


@frozen
class NarrowOptions:
    """Options of a request that is narrowed.

    Fields:
        history: earlier messages; None: read from `conversation` when a request is answered
        conversation: id of the conversation
        caller: name of the caller
        profile: name of the profile
        api_version: selects the profile if none is named
        scopes: what the caller may use; all scopes apply
        server: only tools of this server
        max_tools: most tools to offer
        used: tools this conversation has used, latest last
        chosen_servers: the servers are chosen already
        about: a tool to explain, whatever its rank
        since: messages after the request: calls of the caller's tools and their results
        ask_model: False: servers are chosen by scores, without a model
        effort: default: the caller's preference, else the profile's
        asked_for_tools: offer tools whether or not the request needs one
    """

    history: tuple[Message, ...] | None = None
    conversation: str | None = None
    caller: str | None = None
    profile: str | None = None
    api_version: str | None = None
    scopes: tuple[Scope, ...] = ()
    server: str | None = None
    max_tools: int | None = None
    used: tuple[str, ...] = ()
    chosen_servers: ServerChoice | None = None
    about: str | None = None
    since: tuple[Message, ...] = ()
    ask_model: bool = True
    effort: Effort | str | None = None
    asked_for_tools: bool = False


@frozen
class RouteOptions(NarrowOptions):
    """Options of a request that is answered.

    Fields:
        authorization: the caller's own key; never stored
        on_text: receives the answer piece by piece
        mode: auto, staged, single, simple, react or keyless
        working_directory: folder that relative paths start from
        persona: the assistant's role, for the answering model
        directives: further instructions for the answering model
        max_turns: tool rounds of an agent
        seconds: time limit of the request, in seconds
        tokens: limit over all model calls, if lower than in the settings
        parent: the packet that started this one; its budget is used
        dry_run: show what would be called, call nothing
        model: the model that answers instead of the configured one, at the same address
        own_terms: the caller limits the answer's length and resumes after approvals itself
        options: for the answering model, as the caller wrote them: temperature, stop, …
        parts: non-text parts of the request, for the answering model
        caller_tools: the caller's own tools in the OpenAI format; their calls are handed back
        tool_choice: the caller's choice among its own tools
        words: what the person wrote, if the request itself was written by a model
        trail: name under which the data of the conversation is recorded; None: its own
    """

    authorization: CallerAuthorization | None = field(default=None, repr=False)
    on_text: OnText | None = None
    mode: Mode | str | None = None
    working_directory: str | None = None
    persona: str | None = None
    directives: str | None = None
    max_turns: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    parent: str | None = None
    dry_run: bool = False
    model: str | None = None
    own_terms: bool = False
    options: JsonObject = field(default_factory=dict[str, Json])
    parts: tuple[JsonObject, ...] = ()
    caller_tools: tuple[JsonObject, ...] = ()
    tool_choice: Json = None
    words: tuple[str, ...] | None = field(default=None, repr=False)
    trail: str | None = None


Options = TypeVar("Options", CallOptions, NarrowOptions, RouteOptions)


def build_options(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """Return the options with these values. Raises `TypeError` for an unknown one, with the nearest name."""
    check_option_names(kind, given)
    check_option_values(given)
    return kind(**given)


def check_request(text: object) -> None:
    """Raise `ConfigError` if a request is no text."""
    if not isinstance(text, str):
        message = f"a request is text, not {text!r:.60}"
        raise ConfigError(message, hint='Write the request in words: route("what time is it in Tokyo?").')


def check_option_values(given: Mapping[str, object]) -> None:
    """Raise `ConfigError` for an option whose value is of another kind. None stands for the default."""
    for name, value in given.items():
        kind, fits = _VALUE_CHECKS.get(name, (None, None))
        if fits is not None and value is not None and not fits(value):
            message = f"{name} is {kind}, not {value!r:.60}"
            raise ConfigError(message, hint=f"Leave {name} out for its default.")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _are_messages(value: object) -> bool:
    return isinstance(value, tuple | list) and all(
        isinstance(one, Message) for one in cast("Iterable[object]", value)
    )


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple | list) and all(map(_is_text, cast("Iterable[object]", value)))


_TEXTS: Final = (
    "about api_version caller conversation directives doubt idempotency_key mode model "
    "packet_id parent persona profile request server"
)
_VALUE_CHECKS: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    **dict.fromkeys(_TEXTS.split(), ("text", _is_text)),
    "authorization": ("text or a SubjectToken", lambda value: isinstance(value, CallerAuthorization)),
    "max_tools": ("a whole number of at least 1", _is_count),
    "max_turns": ("a whole number of at least 1", _is_count),
    "seconds": ("a number of seconds", _is_number),
    "tokens": ("a number of tokens", _is_number),
    "history": ("a tuple of Message", _are_messages),
    "since": ("a tuple of Message", _are_messages),
    "used": ("a tuple of tool keys", _are_texts),
    "words": ("a tuple of texts", _are_texts),
}


def check_option_names(kind: type[CallOptions | NarrowOptions], given: Iterable[str]) -> None:
    """Raise `TypeError` for a name that is no option, with the nearest one."""
    known = [item.name for item in fields(kind)]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(sorted(known))}"
            raise TypeError(f"there is no option {name!r}; {advice}")


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
    """Return the names of the given models, else of the configured ones, each also for the other."""
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
