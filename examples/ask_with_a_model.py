"""Ask with a language model: it selects a tool, looks at the selection again, and answers.

Here a script stands in for the model, so that the story is the same every time and
needs no key. `my_model` says what to write instead.

    $ python examples/ask_with_a_model.py
    answered by scripted: It is noon in Tokyo, as time/get_current_time says.
    sources: time/get_current_time
    3 questions to the model
    tool_selected: chose time/get_current_time: a clock is needed
    selection_reviewed: agrees at 0.95: the city is in Japan
    confidence_judged: go at 0.95: the review agrees, at 0.95; 0.70 is enough
    call_finished: time/get_current_time: succeeded
    route_ended: answered in … ms
"""

from __future__ import annotations

import json

import anyio

from fingerpost import Router, Server, Settings
from fingerpost.llm import ChatModel
from fingerpost.records import JsonObject
from fingerpost.settings import StoreSettings
from fingerpost.testing import ScriptedModel

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/examples.db"))
CLOCK = Server.stdio("time", ["mcp-server-time", "--local-timezone", "Etc/UTC"])
SHOWN = ("tool_selected", "selection_reviewed", "confidence_judged", "call_finished", "route_ended")

SELECTION: JsonObject = {
    "tool": "time__get_current_time",
    "arguments": {"timezone": "Asia/Tokyo"},
    "reasoning": "a clock is needed",
    "confidence": 0.9,
    "alternatives": [],
    "remaining": "",
}
REVIEW = {"approved": True, "confidence": 0.95, "reasoning": "the city is in Japan"}
ANSWER = "It is noon in Tokyo, as time/get_current_time says."


def my_model() -> ChatModel:
    """With a model of your own, behind any OpenAI-compatible address:

    return OpenAIChat("small-instruct", base_url="http://127.0.0.1:8000/v1")  # from fingerpost.llm
    """
    return ScriptedModel([json.dumps(SELECTION), json.dumps(REVIEW), ANSWER])


async def main() -> None:
    async with Router([CLOCK], settings=SETTINGS, model=my_model()) as router:
        route = await router.route("What time is it in Tokyo right now?")
    print(f"{route.outcome} by {route.answered_by}: {route.answer}")
    print("sources:", ", ".join(route.sources))
    print(route.model_calls, "questions to the model")
    for event in route.events:  # `route.trace` has a line for each of them
        if event.kind in SHOWN:
            print(f"{event.kind}: {event.summary()}")


if __name__ == "__main__":
    anyio.run(main)
