"""A language model as the rest of the program sees it: one request, one reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Protocol, TypeAlias, runtime_checkable

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Message

OnText: TypeAlias = Callable[[str], None]  # takes the answer piece by piece, as it is written


@frozen
class ResponseSchema:
    """The shape a reply is asked to have. Servers may ignore it without a word."""

    name: str  # letters, digits, _ and -, at most 64
    schema: JsonObject


@frozen
class ModelRequest:
    """What a model is asked. None leaves the choice to the server."""

    messages: tuple[Message, ...]
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    schema: ResponseSchema | None = None
    tools: tuple[JsonObject, ...] = ()  # definitions, in the OpenAI format
    tool_choice: Json = None  # "auto", "none", "required", or one by name; only together with tools
    choice_is_callers: bool = False  # then a model that does not follow it tells nothing about its server
    options: JsonObject = field(default_factory=dict[str, Json])  # as a caller wrote them; before all others
    model: str | None = None  # who answers instead of the model that is asked, at the same address


@frozen
class ModelUsage:
    """The tokens a reply cost, as the server counted them."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@frozen
class ModelReply:
    """What a model answered."""

    text: str
    model: str  # as the server names it
    usage: ModelUsage | None = None  # None: the server does not say
    finish: str | None = None  # "stop", "length" (cut short), "tool_calls", …
    tool_calls: tuple[JsonObject, ...] = ()  # in the OpenAI format, unread
    refusal: str = ""  # why it does not answer, where its server says that apart
    reasoning: str = ""  # what it thought before, likewise; part of no later prompt
    milliseconds: float = 0.0
    stood_in: bool = False  # for the model of the pool that should have answered


class ChatModel(Protocol):
    """Anything that answers. A failure is a `ModelError`; cancelling ends the request.

    With `on_text` the answer is streamed: every piece of text is handed over as it
    comes, and the whole is returned at the end all the same.
    """

    @property
    def name(self) -> str:
        """What to call it in messages and figures."""
        ...

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply: ...


@runtime_checkable
class Closable(Protocol):
    """A model that holds connections."""

    async def aclose(self) -> None: ...


Ask: TypeAlias = Callable[[ModelRequest], Awaitable[ModelReply]]  # a model already decided upon


class TextRelay:
    """Passes text on. `used` from the first piece."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self.used = False

    def __call__(self, text: str) -> None:
        self.used = True
        self._on_text(text)
