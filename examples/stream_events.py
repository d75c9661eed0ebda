"""Watch a request while it is answered: every event, every piece of the answer, the route at last.

A console, a terminal and a web page all read this stream. Leaving the loop early ends the request.

    $ python examples/stream_events.py
    packet_received: What time is it in Tokyo right now?
    route_began: single with scripted
    …
    tool_selected: chose time/get_current_time
    …
    call_finished: time/get_current_time: succeeded
    …
      "Past no"
      "on, say"
      …
      "me."
    …
    answer_given: 38 characters by scripted, from time/get_current_time
    …
    route_ended: answered in … ms
    It is over: answered, after 2 questions to the model
"""

from __future__ import annotations

import anyio

from fingerpost import AnswerPiece, Route, Router, Server, Settings
from fingerpost.settings import StoreSettings
from fingerpost.testing import ScriptedModel, calls

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/examples.db"))
CLOCK = Server.stdio("time", ["mcp-server-time", "--local-timezone", "Etc/UTC"])

# A script stands in for the model; `ask_with_a_model.py` says where a real one goes.
MODEL = ScriptedModel(
    [
        calls(("time__get_current_time", {"timezone": "Asia/Tokyo"})),
        "Past noon, says time/get_current_time.",
    ]
)


async def main() -> None:
    async with Router([CLOCK], settings=SETTINGS, model=MODEL) as router:
        async for item in router.stream("What time is it in Tokyo right now?", mode="single"):
            match item:
                case AnswerPiece():
                    print(f'  "{item.text}"')
                case Route():
                    print(f"It is over: {item.outcome}, after {item.model_calls} questions to the model")
                case event:
                    print(f"{event.kind}: {event.summary()}")


if __name__ == "__main__":
    anyio.run(main)
