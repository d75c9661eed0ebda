"""The interface of a language model: one request, one reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Protocol, TypeAlias, runtime_checkable

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Message

OnText: TypeAlias = Callable[[str], None]  # receives the answer in pieces while it is generated


@frozen
class ResponseSchema:
    """The requested form of a reply. Servers may ignore it silently."""

    name: str  # letters, digits, _ and -, at most 64
    schema: JsonObject


@frozen
class ModelRequest:
    """A request to a model. None leaves the choice to the server."""

    messages: tuple[Message, ...]
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    schema: ResponseSchema | None = None
    tools: tuple[JsonObject, ...] = ()  # definitions in the OpenAI format
    tool_choice: Json = None  # "auto", "none", "required", or one by name; only together with tools
    # If set, a reply without a call is no evidence about the capabilities of the server.
    choice_is_callers: bool = False
    # As the caller wrote them; they override all other fields.
    options: JsonObject = field(default_factory=dict[str, Json])
    model: str | None = None  # another model at the same address, used instead of the configured one


@frozen
class ModelUsage:
    """The tokens of a reply, as counted by the server."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@frozen
class ModelReply:
    """The reply of a model."""

    text: str
    model: str  # as named by the server
    usage: ModelUsage | None = None  # None if the server does not report it
    finish: str | None = None  # "stop", "length" (truncated), "tool_calls", …
    tool_calls: tuple[JsonObject, ...] = ()  # in the OpenAI format, not parsed
    refusal: str = ""  # why the model refuses, if the server reports it separately
    reasoning: str = ""  # the model's reasoning, if separate; not part of later prompts
    milliseconds: float = 0.0
    stood_in: bool = False  # whether the other model of the pool answered as a fallback


class ChatModel(Protocol):
    """A language model. Failures raise `ModelError`. Cancellation ends the request.

    With `on_text` the reply is streamed: each piece of text is passed on as it arrives, and the complete
    reply is returned at the end.
    """

    @property
    def name(self) -> str:
        """The name in messages and statistics."""
        ...

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply: ...


@runtime_checkable
class Closable(Protocol):
    """A model with open connections."""

    async def aclose(self) -> None: ...


Ask: TypeAlias = Callable[[ModelRequest], Awaitable[ModelReply]]  # a model that was already selected


class TextRelay:
    """Forwards text. `used` is true after the first piece."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self.used = False

    def __call__(self, text: str) -> None:
        self.used = True
        self._on_text(text)
