"""A language model that says what it was told to say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from inspect import isawaitable
from typing import Final, TypeAlias

import anyio

from fingerpost.llm import ModelReply, ModelRequest, ModelUsage

Line: TypeAlias = ModelReply | str | Exception
Script: TypeAlias = Callable[[ModelRequest], Line | Awaitable[Line]]

HANG: Final = "\0hang"  # as a line: answer never
_CHARACTERS_PER_TOKEN: Final = 4


class ScriptedModel:
    """A `ChatModel` without a model: replies from a list, in order, or from a function of the request.

        model = ScriptedModel(["yes", ModelUnavailable("gone", model="scripted"), HANG])

    A text becomes a reply, an exception is raised, `HANG` waits until cancelled; a list that
    has run out is an error of the test. `asked` holds every request, whatever became of it.
    """

    def __init__(
        self, script: Iterable[Line] | Script, *, name: str = "scripted", seconds: float = 0.0
    ) -> None:
        self.name = name
        self.asked: list[ModelRequest] = []
        self._seconds = seconds
        self._script: Script = script if callable(script) else _in_order(iter(script))

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.asked.append(request)
        if self._seconds:
            await anyio.sleep(self._seconds)
        line = self._script(request)
        said = await line if isawaitable(line) else line
        if isinstance(said, Exception):
            raise said
        if said == HANG:
            await anyio.sleep_forever()
        return self._reply(said, request) if isinstance(said, str) else said

    def _reply(self, text: str, request: ModelRequest) -> ModelReply:
        prompt = sum(len(message.text) for message in request.messages) // _CHARACTERS_PER_TOKEN
        usage = ModelUsage(prompt_tokens=prompt, completion_tokens=len(text) // _CHARACTERS_PER_TOKEN)
        return ModelReply(text=text, model=self.name, usage=usage, finish="stop")


def _in_order(lines: Iterator[Line]) -> Script:
    def following(request: ModelRequest) -> Line:
        try:
            return next(lines)
        except StopIteration:
            asked = request.messages[-1].text[:80] if request.messages else ""
            message = f"the script has no more lines, and was asked {asked!r}"
            raise AssertionError(message) from None

    return following
