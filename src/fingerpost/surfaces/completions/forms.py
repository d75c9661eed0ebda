"""The shapes in which a question may come and its answer goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.surfaces.completions import chat
from fingerpost.surfaces.completions.line import Line
from fingerpost.surfaces.completions.reading import Question, read_chat
from fingerpost.surfaces.completions.responses import writing
from fingerpost.surfaces.completions.responses.reading import read_response
from fingerpost.surfaces.completions.turns import Ended, Listener
from fingerpost.surfaces.web.asgi import Fault


class Speaker(Listener, Protocol):
    """Writes an answer into a stream while it is made."""

    async def finish(self, ended: Ended) -> None: ...

    async def fail(self, fault: Fault) -> None: ...


class Whole(Protocol):
    """Writes an answer at once."""

    def __call__(self, ended: Ended, question: Question, *, extension: bool) -> JsonObject: ...


class Stream(Protocol):
    """Makes what writes into a stream."""

    def __call__(self, line: Line, question: Question, *, extension: bool) -> Speaker: ...


@frozen
class Form:
    """How to read, and how to write."""

    read: Callable[[Mapping[str, Any]], Question]
    whole: Whole
    stream: Stream


FORMS: Final[Mapping[str, Form]] = {
    "chat": Form(read=read_chat, whole=chat.whole, stream=chat.ChatStream),
    "responses": Form(read=read_response, whole=writing.whole, stream=writing.ResponseStream),
}
