"""The shapes in which a question may come and its answer goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.surfaces.completions import chat
from fingerpost.surfaces.completions.line import LateEventStream
from fingerpost.surfaces.completions.reading import ChatRequest, parse_chat_request
from fingerpost.surfaces.completions.responses import writing
from fingerpost.surfaces.completions.responses.reading import parse_response_request
from fingerpost.surfaces.completions.turns import AnswerListener, CompletionResult
from fingerpost.surfaces.web.asgi import HttpError


class AnswerStream(AnswerListener, Protocol):
    """Writes an answer into a stream while it is made."""

    async def finish(self, result: CompletionResult) -> None: ...

    async def fail(self, error: HttpError) -> None: ...


class AnswerBuilder(Protocol):
    """Writes an answer at once."""

    def __call__(self, result: CompletionResult, request: ChatRequest, *, extension: bool) -> JsonObject: ...


class AnswerStreamFactory(Protocol):
    """Makes what writes into a stream."""

    def __call__(self, stream: LateEventStream, request: ChatRequest, *, extension: bool) -> AnswerStream: ...


@frozen
class ApiFormat:
    """How to read, and how to write."""

    read: Callable[[Mapping[str, Any]], ChatRequest]
    build_answer: AnswerBuilder
    open_stream: AnswerStreamFactory


API_FORMATS: Final[Mapping[str, ApiFormat]] = {
    "chat": ApiFormat(
        read=parse_chat_request, build_answer=chat.build_chat_completion, open_stream=chat.ChatStream
    ),
    "responses": ApiFormat(
        read=parse_response_request, build_answer=writing.build_response, open_stream=writing.ResponseStream
    ),
}
