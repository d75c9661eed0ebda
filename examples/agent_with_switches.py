"""An agent keeps a conversation, and is switched while it runs.

Asking belongs to the router's event loop; looking at an agent and switching it may be done
from any thread at any time. A request that has begun ends as it began.

    $ python examples/agent_with_switches.py
    simple: It is evening in Tokyo, says time/get_current_time.
    thought: They mean the time in Lisbon.
    thought: Now I know.
    react: In Lisbon it is morning.
    Source: time/get_current_time
    smart routing: auto (30 tools, 4 servers)
    smart routing: on (20 tools, 4 servers)
    4 messages, 2 requests, 2 calls
"""

from __future__ import annotations

import json

import anyio

from fingerpost import Agent, Router, Server, Settings
from fingerpost.events import ThoughtNoted
from fingerpost.settings import StoreSettings
from fingerpost.testing import ScriptedModel, calls

SETTINGS = Settings(store=StoreSettings(url="sqlite:///.fingerpost/examples.db"))
CLOCK = Server.stdio("time", ["mcp-server-time", "--local-timezone", "Etc/UTC"])

# A script stands in for the model; `ask_with_a_model.py` says where a real one goes.
LISBON = {"tool": "time__get_current_time", "arguments": {"timezone": "Europe/Lisbon"}}
MODEL = ScriptedModel(
    [
        calls(("time__get_current_time", {"timezone": "Asia/Tokyo"})),
        "It is evening in Tokyo, says time/get_current_time.",
        json.dumps({"thought": "They mean the time in Lisbon.", "action": LISBON, "answer": None}),
        json.dumps({"thought": "Now I know.", "action": None, "answer": "In Lisbon it is morning."}),
    ]
)


def show_routing(agent: Agent) -> None:
    status = agent.status()
    above = status.thresholds
    print(f"smart routing: {status.smart_routing} ({above.max_tools} tools, {above.max_servers} servers)")


async def main() -> None:
    async with Router([CLOCK], settings=SETTINGS, model=MODEL) as router:
        agent = Agent(router, max_turns=4)
        route = await agent.ask("What time is it in Tokyo right now?")
        print(f"{agent.mode}: {route.answer}")

        agent.set_mode("react")  # from any thread, at any time; it holds for the next request
        route = await agent.ask("And what time is it in Lisbon right now?")
        for event in route.events:
            if isinstance(event, ThoughtNoted):
                print("thought:", event.text)
        print(f"{agent.mode}: {route.answer}")

        show_routing(agent)
        agent.set_smart_routing("on")
        agent.set_thresholds(max_tools=20)
        show_routing(agent)

        stats = agent.stats()
        print(f"{len(agent.history)} messages, {stats.requests} requests, {stats.tool_calls} calls")


if __name__ == "__main__":
    anyio.run(main)
