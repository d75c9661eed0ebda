"""A model and an event sink of your own: each is one method.

A `ChatModel` is anything with a `name` and `complete`; an `EventSink` is anything with
`emit`. Neither inherits from anything.

    $ python examples/own_model_and_sink.py
    answered by parrot: The tool said "timezone": "Asia/Tokyo"
    Source: time/get_current_time
    2 model_answered
    1 tool_selected
    1 call_finished
    1 answer_given
"""

from __future__ import annotations

from collections import Counter

import anyio

from fingerpost import Event, Router, Server, Settings
from fingerpost.llm import ModelReply, ModelRequest, OnText
from fingerpost.settings import StoreSettings

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/examples.db"))
CLOCK = Server.stdio("time", ["mcp-server-time", "--local-timezone", "Etc/UTC"])


class Parrot:
    """A model that always calls the same tool, and then repeats a line of what the tool said."""

    name = "parrot"

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        results = [message.text for message in request.messages if message.role == "tool"]
        if not results:
            function = {"name": "time__get_current_time", "arguments": '{"timezone": "Asia/Tokyo"}'}
            call = {"id": "call_1", "type": "function", "function": function}
            return ModelReply(text="", model=self.name, tool_calls=(call,))
        line = next(line for line in results[-1].splitlines() if "timezone" in line)
        text = f"The tool said {line.strip(' ,')}"
        if on_text is not None:
            on_text(text)
        return ModelReply(text=text, model=self.name)


class Tally:
    """A sink that counts. It is called on the event loop: it returns at once."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def emit(self, event: Event) -> None:
        self.kinds[event.kind] += 1


async def main() -> None:
    tally = Tally()
    async with Router([CLOCK], settings=SETTINGS, model=Parrot(), sinks=[tally]) as router:
        route = await router.route("What time is it in Tokyo right now?", mode="single")
    print(f"{route.outcome} by {route.answered_by}: {route.answer}")
    for kind in ("model_answered", "tool_selected", "call_finished", "answer_given"):
        print(f"{tally.kinds[kind]} {kind}")


if __name__ == "__main__":
    anyio.run(main)
