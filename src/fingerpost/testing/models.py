"""A scripted language model, and the events of a route as comparable text."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from inspect import isawaitable
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel

from fingerpost.events import Event
from fingerpost.llm import ModelReply, ModelRequest, ModelUsage, OnText
from fingerpost.records import JsonObject
from fingerpost.router import Route

ScriptLine: TypeAlias = ModelReply | str | Exception
ScriptFunction: TypeAlias = Callable[[ModelRequest], ScriptLine | Awaitable[ScriptLine]]

HANG: Final = "\0hang"  # as a line of the script: never answer
_CHARACTERS_PER_TOKEN: Final = 4
_PIECE_LENGTH: Final = 7  # characters; markers are split between pieces


class ScriptedModel:
    """A `ChatModel` for tests that replies from a list, in order, or from a function of the request.

        model = ScriptedModel(["yes", calls(("time/now", {"city": "Oslo"})), HANG])

    A text becomes a reply, a `ModelReply` (such as from `calls`) is returned unchanged, an exception
    is raised, and `HANG` waits until cancelled. An exhausted list is an error of the test.
    `asked` contains every request.
    """

    def __init__(
        self, script: Iterable[ScriptLine] | ScriptFunction, *, name: str = "scripted", seconds: float = 0.0
    ) -> None:
        self.name = name
        self.asked: list[ModelRequest] = []
        self._seconds = seconds
        self._script: ScriptFunction = script if callable(script) else _play_in_order(iter(script))

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        self.asked.append(request)
        if self._seconds:
            await anyio.sleep(self._seconds)
        line = self._script(request)
        output = await line if isawaitable(line) else line
        if isinstance(output, Exception):
            raise output
        if output == HANG:
            await anyio.sleep_forever()
        reply = self._reply(output, request) if isinstance(output, str) else output
        if on_text is not None:
            for at in range(0, len(reply.text), _PIECE_LENGTH):
                on_text(reply.text[at : at + _PIECE_LENGTH])
                await anyio.lowlevel.checkpoint()
        return reply

    def _reply(self, text: str, request: ModelRequest) -> ModelReply:
        prompt = sum(len(message.text) for message in request.messages) // _CHARACTERS_PER_TOKEN
        usage = ModelUsage(prompt_tokens=prompt, completion_tokens=len(text) // _CHARACTERS_PER_TOKEN)
        return ModelReply(text=text, model=self.name, usage=usage, finish="stop")


def calls(*wanted: tuple[str, JsonObject], text: str = "", first: int = 1) -> ModelReply:
    """Return a reply that calls these tools, each a name and its arguments, with the ids `call_1`, `call_2`,
    …

    In a conversation with several such replies, `first` keeps the ids unique.
    """
    made = tuple(
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        for number, (name, arguments) in enumerate(wanted, start=first)
    )
    return ModelReply(text=text, model="scripted", finish="tool_calls", tool_calls=made)


def _play_in_order(lines: Iterator[ScriptLine]) -> ScriptFunction:
    def following(request: ModelRequest) -> ScriptLine:
        try:
            return next(lines)
        except StopIteration:
            asked = request.messages[-1].text[:80] if request.messages else ""
            raise AssertionError(f"the script has no more lines, and was asked {asked!r}") from None

    return following


_ID: Final = re.compile(r"\b(pkt|cal|apr|evt|gnt|ses)_[0-9A-Za-z]+")
_TIME: Final = re.compile(r"\b\d+(?:\.\d+)? (ms|s)\b")
_TOKENS: Final = re.compile(r"\b\d+(?:\+\d+)? tokens\b")


def playbook(route: Route | Iterable[Event], *, without: Collection[str] = ()) -> str:
    """Return one line per event, `kind: summary`. Kinds in `without` are left out."""
    events = route.events if isinstance(route, Route) else route
    lines = (
        f"{event.kind}: {remove_variable_parts(event.summary())}".rstrip(": ")
        for event in events
        if event.kind not in without
    )
    return "\n".join(lines)


def remove_variable_parts(text: str) -> str:
    """Return `text` without the parts that differ between runs."""
    text = _ID.sub(r"\1_…", " ".join(text.split()))
    return _TOKENS.sub("… tokens", _TIME.sub(r"… \1", text))
